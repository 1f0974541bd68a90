//! The ledger: who owns what.

use std::future::Future;
use std::time::Duration;

use super::{Fault, Written};
use crate::creation::{Ceiling, CeilingReached, Intent, Scope};
use crate::ids::{
    ClaimId, ClassName, Generation, InstanceId, IntentId, JobId, LeaseName, PoolName, Repository,
    Revision, TrustGroup,
};
use crate::instance::{Owner, Record};
use crate::lease::Lease;
use crate::message::Advert;
use crate::time::Timestamp;

/// The hot path's write: idle → claimed in one step, on what a message or directory said, without
/// reading the record first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimWrite {
    /// Which instance.
    pub id: InstanceId,
    /// The generation that was seen.
    pub seen: Generation,
    /// For whom.
    pub owner: Owner,
    /// The claim's nonce.
    pub claim: ClaimId,
    /// Whose code will run.
    pub trust: TrustGroup,
    /// Now.
    pub at: Timestamp,
    /// How close to its deadline an idle machine is left alone.
    pub margin: Duration,
    /// When the claim lapses.
    pub lease: Timestamp,
}

/// What became of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The intent is stored, and its machines are counted.
    Granted,
    /// An intent of this id exists already; this is it, and nothing was counted.
    Known(Intent),
    /// A ceiling would be broken; nothing was stored.
    Short(CeilingReached),
}

/// What became of one machine's first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is stored, and its reservation has moved from the intent to the record.
    Stored(Record),
    /// It was recorded before; this is what is stored now.
    Known(Record),
    /// Its intent has nothing outstanding any more: the machine is nobody's and must end.
    Refused,
}

/// A job's row: a document of the jobs' own making, with what the ledger needs to list it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Which job.
    pub job: JobId,
    /// Raised by every write; the ledger sets it.
    pub revision: Revision,
    /// The document, opaque here.
    pub body: String,
    /// Where it is listed while it waits for a runner.
    pub waiting: Option<WaitingAt>,
    /// When somebody should look at it again.
    pub next_look: Option<Timestamp>,
    /// When it may be forgotten.
    pub forget_at: Timestamp,
}

/// Where a row waits: a lane (a pool or a class) and, inside it, its repository.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitingAt {
    /// `pool/<name>` or `class/<name>`.
    pub lane: String,
    /// Whose job it is.
    pub repository: Repository,
}

/// A document of the engine's own making that belongs to no machine and no job: a request, the
/// stack's parameters, tokens that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// What it is listed under, such as one run attempt.
    pub collection: String,
    /// Which one in its collection.
    pub name: String,
    /// Raised by every write; the ledger sets it.
    pub revision: Revision,
    /// The document, opaque here.
    pub body: String,
    /// When it may be forgotten.
    pub forget_at: Option<Timestamp>,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one begins; none after the last.
    pub next: Option<String>,
}

/// Two running records that exchange owners, with the rows of both jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Both records as they were read; each names the owner it has now.
    pub records: [Record; 2],
    /// Both rows as they are to be stored, each at the revision it was read at.
    pub rows: [RowSwap; 2],
}

/// One row's part in a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSwap {
    /// The revision it was read at.
    pub seen: Revision,
    /// What is to be stored.
    pub row: JobRow,
}

/// The ledger.
///
/// Contract:
/// - Every write is atomic and conditional, and answers [`Written`]. An `Err` means that it
///   certainly did not land; [`Written::Unknown`] means that it may have.
/// - Reads by key (`read`, `intent`, `used`, `lease`, `row`, `document`) and the directories (`owned_by`,
///   `idle_in`, `standing_by`, `waiting_repositories`, `waiting`, `documents`) are strongly
///   consistent: they see every write that was answered before.
/// - Directories never miss. They may list too much: an entry whose record has moved on, shown as
///   it is now (`owned_by`, `standing_by`) or as it was advertised (`idle_in`). Callers judge what
///   they get, and the conditional write decides.
/// - `reserve` and `record` answer what they found inside [`Written::Won`]; they are never lost.
/// - `replace` never stores a tombstone; only `bury` does, because it also returns a reservation.
/// - A record's reservation is counted from [`Ledger::reserve`] until [`Ledger::bury`], or until
///   [`Ledger::give_back`] returns the part that never came.
///
/// Weak arm: the sweeps (`due`, `live`, `intents`, `rows_due`) may lag behind writes and may list
/// what has moved on; a listing may show a record as it was a moment ago.
pub trait Ledger: Send + Sync {
    /// One record.
    fn read(&self, id: &InstanceId) -> impl Future<Output = Result<Option<Record>, Fault>> + Send;
    /// Idle → claimed, exactly if [`Record::on`] with [`crate::instance::InstanceEvent::Claimed`] allows it.
    /// The owner directory lists the instance no later than its record names the owner.
    fn claim(
        &self,
        write: &ClaimWrite,
    ) -> impl Future<Output = Result<Written<Record>, Fault>> + Send;
    /// Stores `next` if the record still has `seen`'s revision. The ledger raises the revision.
    fn replace(
        &self,
        seen: &Record,
        next: &Record,
    ) -> impl Future<Output = Result<Written<Record>, Fault>> + Send;
    /// Stores records of different machines, each as [`Ledger::replace`] would (what was seen, what
    /// is next), in as few calls as the adapter can make of it; one answer for each, in their order.
    fn replace_all(
        &self,
        writes: &[(Record, Record)],
    ) -> impl Future<Output = Vec<Result<Written<Record>, Fault>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(writes.len());
            for (seen, next) in writes {
                answers.push(self.replace(seen, next).await);
            }
            answers
        }
    }
    /// Stores a tombstone, as [`Ledger::replace`] does, and returns the machine's reservation.
    fn bury(
        &self,
        seen: &Record,
        tombstone: &Record,
    ) -> impl Future<Output = Result<Written<Record>, Fault>> + Send;
    /// Exchanges the owners of two running records and stores both rows; all or nothing.
    fn swap(&self, swap: &Swap) -> impl Future<Output = Result<Written<()>, Fault>> + Send;

    /// Everything this owner holds or is giving back, in every live state.
    fn owned_by(&self, owner: &Owner) -> impl Future<Output = Result<Vec<Record>, Fault>> + Send;
    /// What is idle and shared in this class, oldest first.
    fn idle_in(&self, class: &ClassName)
    -> impl Future<Output = Result<Vec<Advert>, Fault>> + Send;
    /// Every live instance that this pool launched.
    fn standing_by(
        &self,
        pool: &PoolName,
    ) -> impl Future<Output = Result<Vec<Record>, Fault>> + Send;

    /// Sweep: live records to be looked at ([`crate::instance::State::look_at`]) by `before`,
    /// earliest first.
    fn due(
        &self,
        before: Timestamp,
        after: Option<&str>,
    ) -> impl Future<Output = Result<Page<Record>, Fault>> + Send;
    /// Sweep: all live records.
    fn live(&self, after: Option<&str>)
    -> impl Future<Output = Result<Page<Record>, Fault>> + Send;

    /// Stores the intent and counts its machines under every ceiling, or does neither.
    fn reserve(
        &self,
        intent: &Intent,
        ceilings: &[Ceiling],
    ) -> impl Future<Output = Result<Written<Reserved>, Fault>> + Send;
    /// How many machines count under each of these scopes, in their order, launches in flight
    /// included: what [`Ledger::reserve`] checks against ceilings. A scope without any has zero.
    fn used(&self, scopes: &[Scope]) -> impl Future<Output = Result<Vec<u32>, Fault>> + Send;
    /// One intent, also when nothing is outstanding any more, until it is forgotten.
    fn intent(&self, id: &IntentId) -> impl Future<Output = Result<Option<Intent>, Fault>> + Send;
    /// Sweep: intents with something outstanding.
    fn intents(
        &self,
        after: Option<&str>,
    ) -> impl Future<Output = Result<Page<Intent>, Fault>> + Send;
    /// Stores a machine's first record and moves one reservation from its intent to it.
    /// Idempotent on the instance id.
    fn record(
        &self,
        record: &Record,
    ) -> impl Future<Output = Result<Written<Recorded>, Fault>> + Send;
    /// Returns what is still outstanding of an intent: nothing of it will be recorded any more.
    /// Lost if anything was recorded under it since it was read.
    fn give_back(&self, seen: &Intent) -> impl Future<Output = Result<Written<()>, Fault>> + Send;

    /// A lease as it is stored.
    fn lease(&self, name: &LeaseName) -> impl Future<Output = Result<Option<Lease>, Fault>> + Send;
    /// Stores a lease if the stored one still has `seen`'s revision, or is still absent.
    fn write_lease(
        &self,
        seen: Option<&Lease>,
        next: &Lease,
    ) -> impl Future<Output = Result<Written<Lease>, Fault>> + Send;

    /// One job's row.
    fn row(&self, job: &JobId) -> impl Future<Output = Result<Option<JobRow>, Fault>> + Send;
    /// Stores a row if the stored one still has this revision, or is still absent. The ledger
    /// raises the revision.
    fn write_row(
        &self,
        seen: Option<Revision>,
        row: &JobRow,
    ) -> impl Future<Output = Result<Written<JobRow>, Fault>> + Send;
    /// The repositories that have rows waiting in this lane.
    fn waiting_repositories(
        &self,
        lane: &str,
    ) -> impl Future<Output = Result<Vec<Repository>, Fault>> + Send;
    /// Rows of one repository that wait in this lane, in the order of their job ids.
    fn waiting(
        &self,
        at: &WaitingAt,
        after: Option<&str>,
    ) -> impl Future<Output = Result<Page<JobRow>, Fault>> + Send;
    /// Sweep: rows to be looked at by `before`, earliest first.
    fn rows_due(
        &self,
        before: Timestamp,
        after: Option<&str>,
    ) -> impl Future<Output = Result<Page<JobRow>, Fault>> + Send;

    /// One document.
    fn document(
        &self,
        collection: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<Document>, Fault>> + Send;
    /// Stores a document if the stored one still has this revision, or is still absent. The ledger
    /// raises the revision.
    fn write_document(
        &self,
        seen: Option<Revision>,
        document: &Document,
    ) -> impl Future<Output = Result<Written<Document>, Fault>> + Send;
    /// All documents of a collection, in the order of their names. Collections are small.
    fn documents(
        &self,
        collection: &str,
    ) -> impl Future<Output = Result<Vec<Document>, Fault>> + Send;
}
