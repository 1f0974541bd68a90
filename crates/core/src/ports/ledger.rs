//! The ledger, a strongly consistent store: which owner has which machine, and the jobs' rows.
//!
//! Not here: the states of a record (`instance`) or of a job (`job`).

use std::future::Future;
use std::time::Duration;

use super::{Fault, Listing, Page, Written};
use crate::creation::{Ceiling, CeilingReached, Intent, Scope};
use crate::ids::{
    ClaimId, ClassName, Generation, InstanceId, IntentId, JobId, LeaseName, PoolName, Repository,
    Revision, TrustGroup,
};
use crate::instance::{Owner, Record};
use crate::lease::Lease;
use crate::message::Advert;
use crate::time::Timestamp;

/// The hot path's write: idle → claimed in one step, by the generation in a message or directory
/// entry, without reading the record first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimWrite {
    /// The instance to claim.
    pub id: InstanceId,
    /// The generation in the message or directory entry.
    pub seen: Generation,
    /// The new owner.
    pub owner: Owner,
    /// The claim's nonce.
    pub claim: ClaimId,
    /// The trust group of the code that will run.
    pub trust: TrustGroup,
    /// The present time.
    pub at: Timestamp,
    /// An idle machine closer to its deadline than this is not claimed.
    pub margin: Duration,
    /// When the claim expires.
    pub lease: Timestamp,
}

/// The result of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The ledger stored the intent and counted its machines.
    Granted,
    /// An intent of this id exists already: this one. The ledger counted nothing.
    Known(Intent),
    /// A ceiling would be exceeded; the ledger stored nothing.
    Short(CeilingReached),
}

/// The result of storing a machine's first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The ledger stored it and moved its reservation from the intent to the record.
    Stored(Record),
    /// The machine has a record already: this one, as it is now.
    Known(Record),
    /// Its intent has nothing outstanding any more: the machine has no owner and must end.
    Refused,
}

/// A job's row: a document of the `job` module, with the fields by which the ledger lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The job's id.
    pub job: JobId,
    /// Raised by every write; the ledger sets it.
    pub revision: Revision,
    /// The document, opaque here.
    pub body: String,
    /// Where it is listed while it waits for a runner.
    pub waiting: Option<WaitingAt>,
    /// When the service must examine the row again.
    pub next_look: Option<Timestamp>,
    /// When the ledger may delete it.
    pub forget_at: Timestamp,
}

/// Where a row waits: in a lane (a pool or a class), under its repository.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitingAt {
    /// `pool/<name>` or `class/<name>`.
    pub lane: String,
    /// The job's repository.
    pub repository: Repository,
}

/// A document of the engine that belongs to no machine and no job: a request, the stack's
/// parameters, stored runner tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The collection that lists it, such as one run attempt.
    pub collection: String,
    /// Its name, unique in its collection.
    pub name: String,
    /// Raised by every write; the ledger sets it.
    pub revision: Revision,
    /// The document, opaque here.
    pub body: String,
    /// When the ledger may delete it, if ever.
    pub forget_at: Option<Timestamp>,
}

/// The ledger.
///
/// Contract:
/// - Every write is atomic and conditional, and answers [`Written`]. After an `Err` it certainly
///   did not land; after [`Written::Unknown`] it may have landed.
/// - Reads by key (`read`, `intent`, `used`, `lease`, `row`, `document`) and the directories
///   (`owned_by`, `idle_in`, `standing_by`, `waiting_repositories`, `waiting`, `documents`) are
///   strongly consistent: they see every write that was answered before them.
/// - Directories never miss an entry. They may list too much: an entry whose record has changed
///   since, in its present state (`owned_by`, `standing_by`) or as it was advertised (`idle_in`).
///   Callers check each entry, and the conditional write decides.
/// - A listing returns the items that it can read and names the others ([`Listing`], [`Page`]): an
///   unreadable item hides no other, and takes no page's token. Its own read by key is
///   [`Fault::Unreadable`], and no write changes it or removes it. It counts in its scopes.
/// - `reserve` and `record` return their result in [`Written::Won`] and never answer
///   [`Written::Lost`].
/// - `replace` never stores a tombstone; only `bury` does, because it also returns a reservation.
/// - A reservation counts from [`Ledger::reserve`] until [`Ledger::bury`], or until
///   [`Ledger::give_back`] returns the reservations of machines that were never launched.
///
/// Weak arm: the sweeps (`due`, `live`, `intents`, `rows_due`) may lag behind writes and may list
/// records that have changed since; a listing may show a record's state of a moment ago.
pub trait Ledger: Send + Sync {
    /// One record.
    fn read(&self, id: &InstanceId) -> impl Future<Output = Result<Option<Record>, Fault>> + Send;
    /// Idle → claimed, if and only if [`Record::on`] with
    /// [`crate::instance::InstanceEvent::Claimed`] allows it. The owner directory lists the
    /// instance before, or as soon as, its record names the owner.
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
    /// Stores records of different machines, given as pairs (seen, next), each as
    /// [`Ledger::replace`] would, in as few calls as the adapter needs; one answer for each, in
    /// their order.
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

    /// Every instance that this owner holds or is giving back, in every live state.
    fn owned_by(
        &self,
        owner: &Owner,
    ) -> impl Future<Output = Result<Listing<Record>, Fault>> + Send;
    /// The idle, shared instances of this class, oldest first.
    fn idle_in(
        &self,
        class: &ClassName,
    ) -> impl Future<Output = Result<Listing<Advert>, Fault>> + Send;
    /// Every live instance that this pool launched.
    fn standing_by(
        &self,
        pool: &PoolName,
    ) -> impl Future<Output = Result<Listing<Record>, Fault>> + Send;

    /// Sweep: live records that must be examined by `before` ([`crate::instance::State::look_at`]),
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
    /// One intent, with or without machines outstanding, until the ledger deletes it.
    fn intent(&self, id: &IntentId) -> impl Future<Output = Result<Option<Intent>, Fault>> + Send;
    /// Sweep: intents with machines outstanding.
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
    /// Returns the outstanding reservations of an intent; [`Ledger::record`] then refuses its
    /// machines. Lost if a machine was recorded under the intent since the caller read it.
    fn give_back(&self, seen: &Intent) -> impl Future<Output = Result<Written<()>, Fault>> + Send;

    /// A stored lease.
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
    /// Sweep: rows whose `next_look` is due by `before`, earliest first.
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
    ) -> impl Future<Output = Result<Listing<Document>, Fault>> + Send;
}
