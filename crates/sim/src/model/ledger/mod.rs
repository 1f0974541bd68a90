//! The ledger's model: every rule of the port, on maps with the indexes its listings need.
//!
//! A *strong* ledger's directories list exactly the present entries. A *weak* ledger's also list
//! recently removed ones, as a store does that removes directory items lazily. In weather with lag,
//! sweeps answer from the past. Pages are tiny, so that every caller has to turn them.
//!
//! Not here: deciding what to write. The state only compares revisions, except for the one write
//! whose rule is the ledger's own: `claim`.

use std::fmt;
use std::sync::{Arc, Mutex};

use bullpen_core::creation::{Ceiling, Intent, Scope};
use bullpen_core::ids::{
    ClassName, InstanceId, IntentId, JobId, LeaseName, PoolName, Repository, Revision,
};
use bullpen_core::instance::{Owner, Record};
use bullpen_core::lease::Lease;
use bullpen_core::message::Advert;
use bullpen_core::ports::{
    ClaimWrite, Document, Fault, ItemKind, JobRow, Ledger, Listing, Page, Recorded, Reserved,
    WaitingAt, Written,
};
use bullpen_core::time::Timestamp;

use super::{each, lag, locked, written};
use crate::clock::SimClock;
use crate::wire::{Reply, Wire};

mod directories;
mod documents;
mod foreign;
mod reservations;
mod rows;
mod state;
mod sweeps;

pub use foreign::NEWER;
pub use state::{LedgerObserver, LedgerState, LedgerWrite};

/// One process's handle on a world's ledger.
#[derive(Clone)]
pub struct LedgerModel {
    state: Arc<Mutex<LedgerState>>,
    wire: Wire,
    clock: SimClock,
}

impl fmt::Debug for LedgerModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerModel").field("wire", &self.wire).finish_non_exhaustive()
    }
}

impl LedgerModel {
    /// A new world's ledger, whose directories list exactly the present entries.
    pub fn new(wire: Wire, clock: SimClock) -> Self {
        Self { state: Arc::new(Mutex::new(LedgerState::default())), wire, clock }
    }

    /// A new world's ledger, whose directories also list recently removed entries.
    pub fn weak(wire: Wire, clock: SimClock) -> Self {
        let model = Self::new(wire, clock);
        model.set_weak(true);
        model
    }

    /// Another process's handle on the same ledger.
    #[must_use]
    pub fn for_process(&self, wire: Wire, clock: SimClock) -> Self {
        Self { state: Arc::clone(&self.state), wire, clock }
    }

    /// Sets whether directories also list recently removed entries.
    pub fn set_weak(&self, weak: bool) {
        locked(&self.state).set_weak(weak);
    }

    /// Sets the observer of every write as it lands. It runs inside the write: it must not use the
    /// ledger.
    pub fn set_observer(&self, observer: LedgerObserver) {
        locked(&self.state).set_observer(observer);
    }

    /// How often a process listed a pool.
    pub fn pool_listings(&self) -> u64 {
        locked(&self.state).pool_listings
    }

    /// Every listing of this pool fails with this fault, until `None`.
    pub fn fail_listings_of(&self, pool: Option<(PoolName, Fault)>) {
        locked(&self.state).unlistable = pool;
    }

    /// Every change of such a stored row fails for good.
    pub fn fail_row_changes(&self, fails: impl Fn(&JobId) -> bool + Send + 'static) {
        locked(&self.state).fails_row = Some(Box::new(fails));
    }

    /// All records, tombstones included, and all intents with an outstanding reservation.
    pub fn snapshot(&self) -> (Vec<Record>, Vec<Intent>) {
        locked(&self.state).snapshot()
    }

    /// All job rows.
    pub fn rows(&self) -> Vec<JobRow> {
        locked(&self.state).rows.stored.values().map(|row| JobRow::clone(row)).collect()
    }

    /// The stored record of an instance, without a call.
    pub fn read_now(&self, id: &InstanceId) -> Option<Record> {
        locked(&self.state).read(id)
    }

    /// Makes an item unreadable, as a newer program would, or readable again.
    pub fn write_as(&self, kind: ItemKind, key: &str, newer: bool) {
        locked(&self.state).write_as(self.clock.true_now(), kind, key, newer);
    }

    /// Rewrites the version in a row's body, which only the engine reads; false without such a row.
    pub fn reword_row(&self, job: &JobId, newer: bool) -> bool {
        locked(&self.state).reword_row(self.clock.true_now(), job, newer)
    }

    /// Rewrites the version in a document's body, which only the engine reads; false without such a
    /// document.
    pub fn reword(&self, collection: &str, name: &str, newer: bool) -> bool {
        locked(&self.state).reword(self.clock.true_now(), (collection, name), newer)
    }

    /// A stored document, without a call.
    pub fn document_now(&self, collection: &str, name: &str) -> Option<Document> {
        locked(&self.state).document(collection, name)
    }

    async fn trip<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut LedgerState, Timestamp) -> T + Send + 'static,
    ) -> Reply<T> {
        let (state, clock) = (Arc::clone(&self.state), self.clock.clone());
        let caller = Arc::clone(self.wire.name());
        let effect = move || {
            let mut state = locked(&state);
            state.is_called_by(caller);
            effect(&mut state, clock.true_now())
        };
        self.wire.call("ledger", effect).await
    }

    async fn write<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut LedgerState, Timestamp) -> Written<T> + Send + 'static,
    ) -> Result<Written<T>, Fault> {
        self.wire.writes_to("ledger");
        written(self.trip(effect).await)
    }

    /// A write that needs the stored item: an unreadable one refuses it.
    async fn write_over<T: Send + 'static>(
        &self,
        kind: ItemKind,
        key: String,
        effect: impl FnOnce(&mut LedgerState, Timestamp) -> Written<T> + Send + 'static,
    ) -> Result<Written<T>, Fault> {
        self.wire.writes_to("ledger");
        let checked = move |state: &mut LedgerState, now| {
            state.checked(kind, key, ())?;
            Ok(effect(state, now))
        };
        settled(self.trip(checked).await)
    }

    async fn ask<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut LedgerState, Timestamp) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.trip(effect).await.or_unavailable()
    }

    /// A read that may lag: `effect` receives the time as of which it answers.
    async fn sweep<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&LedgerState, Timestamp) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let lag = lag(&self.wire);
        self.ask(move |state, now| effect(state, now.before(lag))).await
    }
}

/// The answer to a write that the ledger may refuse.
fn settled<T>(reply: Reply<Result<Written<T>, Fault>>) -> Result<Written<T>, Fault> {
    match reply {
        Reply::Answered(Ok(written)) => Ok(written),
        Reply::Answered(Err(fault)) | Reply::Refused(fault) => Err(fault),
        Reply::Lost => Ok(Written::Unknown),
    }
}

impl Ledger for LedgerModel {
    async fn read(&self, id: &InstanceId) -> Result<Option<Record>, Fault> {
        let id = id.clone();
        self.ask(move |state, _| state.checked(ItemKind::Record, &id, state.read(&id))).await?
    }

    async fn claim(&self, write: &ClaimWrite) -> Result<Written<Record>, Fault> {
        let write = write.clone();
        self.write_over(ItemKind::Record, write.id.to_string(), move |state, now| {
            state.claim(now, write)
        })
        .await
    }

    async fn replace(&self, seen: &Record, next: &Record) -> Result<Written<Record>, Fault> {
        let (seen, next) = (seen.revision, next.clone());
        self.write(move |state, now| state.replace(now, seen, next)).await
    }

    async fn replace_all(
        &self,
        writes: &[(Record, Record)],
    ) -> Vec<Result<Written<Record>, Fault>> {
        let (all, count) = (writes.to_vec(), writes.len());
        self.wire.writes_to("ledger");
        let reply = self.trip(move |state, now| {
            let replaced = all.into_iter();
            replaced.map(|(seen, next)| state.replace(now, seen.revision, next)).collect::<Vec<_>>()
        });
        each(reply.await, count)
    }

    async fn bury(&self, seen: &Record, tombstone: &Record) -> Result<Written<Record>, Fault> {
        let (seen, tombstone) = (seen.revision, tombstone.clone());
        self.write(move |state, now| state.bury(now, seen, tombstone)).await
    }

    async fn owned_by(&self, owner: &Owner) -> Result<Listing<Record>, Fault> {
        let owner = owner.clone();
        self.ask(move |state, now| {
            let found = state.owned_by(now, &owner);
            state.listed(ItemKind::Record, found, |record| record.id.clone())
        })
        .await
    }

    async fn idle_in(&self, class: &ClassName) -> Result<Listing<Advert>, Fault> {
        let class = class.clone();
        self.ask(move |state, now| {
            let found = state.idle_in(now, &class);
            state.listed(ItemKind::Record, found, |advert| advert.id.clone())
        })
        .await
    }

    async fn standing_by(&self, pool: &PoolName) -> Result<Listing<Record>, Fault> {
        let pool = pool.clone();
        self.ask(move |state, now| {
            if let Some((_, fault)) = state.unlistable.as_ref().filter(|(of, _)| *of == pool) {
                return Err(fault.clone());
            }
            let found = state.standing_by(now, &pool);
            Ok(state.listed(ItemKind::Record, found, |record| record.id.clone()))
        })
        .await?
    }

    async fn due(&self, before: Timestamp, after: Option<&str>) -> Result<Page<Record>, Fault> {
        let after = sweeps::due_cursor(after)?;
        self.sweep(move |state, then| {
            let found = state.due(then, before, after.as_ref());
            state.paged(ItemKind::Record, found, |record| record.id.clone())
        })
        .await
    }

    async fn live(&self, after: Option<&str>) -> Result<Page<Record>, Fault> {
        let after = after.map(InstanceId::new);
        self.sweep(move |state, then| {
            let found = state.live(then, after.as_ref());
            state.paged(ItemKind::Record, found, |record| record.id.clone())
        })
        .await
    }

    async fn reserve(
        &self,
        intent: &Intent,
        ceilings: &[Ceiling],
    ) -> Result<Written<Reserved>, Fault> {
        let (intent, ceilings) = (intent.clone(), ceilings.to_vec());
        self.write_over(ItemKind::Intent, intent.id.to_string(), move |state, now| {
            Written::Won(state.reserve(now, intent, &ceilings))
        })
        .await
    }

    async fn used(&self, scopes: &[Scope]) -> Result<Vec<u32>, Fault> {
        let scopes = scopes.to_vec();
        self.ask(move |state, _| scopes.iter().map(|scope| state.used(scope)).collect()).await
    }

    async fn intent(&self, id: &IntentId) -> Result<Option<Intent>, Fault> {
        let id = id.clone();
        self.ask(move |state, _| state.checked(ItemKind::Intent, &id, state.intent(&id))).await?
    }

    async fn intents(&self, after: Option<&str>) -> Result<Page<Intent>, Fault> {
        let after = after.map(IntentId::new);
        self.sweep(move |state, then| {
            let found = state.open_intents(then, after.as_ref());
            state.paged(ItemKind::Intent, found, |intent| intent.id.clone())
        })
        .await
    }

    async fn record(&self, record: &Record) -> Result<Written<Recorded>, Fault> {
        let record = record.clone();
        self.write_over(ItemKind::Record, record.id.to_string(), move |state, now| {
            Written::Won(state.record(now, record))
        })
        .await
    }

    async fn give_back(&self, seen: &Intent) -> Result<Written<()>, Fault> {
        let (id, seen) = (seen.id.clone(), seen.revision);
        self.write(move |state, now| state.give_back(now, &id, seen)).await
    }

    async fn lease(&self, name: &LeaseName) -> Result<Option<Lease>, Fault> {
        let name = name.clone();
        self.ask(move |state, _| state.lease(&name)).await
    }

    async fn write_lease(
        &self,
        seen: Option<&Lease>,
        next: &Lease,
    ) -> Result<Written<Lease>, Fault> {
        let (seen, next) = (seen.map(|lease| lease.revision), next.clone());
        self.wire.writes_to("leases");
        written(self.trip(move |state, _| state.write_lease(seen, next)).await)
    }

    async fn row(&self, job: &JobId) -> Result<Option<JobRow>, Fault> {
        let job = job.clone();
        self.ask(move |state, _| state.checked(ItemKind::Row, &job, state.row(&job))).await?
    }

    async fn write_row(
        &self,
        seen: Option<Revision>,
        row: &JobRow,
    ) -> Result<Written<JobRow>, Fault> {
        let row = row.clone();
        self.wire.writes_to("ledger");
        let reply = self.trip(move |state, now| {
            state.checked(ItemKind::Row, &row.job, ())?;
            if seen.is_some() && state.fails_row.as_ref().is_some_and(|fails| fails(&row.job)) {
                return Err(Fault::Unclassified("a planned fault".to_owned()));
            }
            Ok(state.write_row(now, seen, row))
        });
        settled(reply.await)
    }

    async fn waiting_repositories(&self, lane: &str) -> Result<Vec<Repository>, Fault> {
        let lane = lane.to_owned();
        self.ask(move |state, _| state.waiting_repositories(&lane)).await
    }

    async fn waiting(&self, at: &WaitingAt, after: Option<&str>) -> Result<Page<JobRow>, Fault> {
        let (at, after) = (at.clone(), after.map(JobId::new));
        self.ask(move |state, _| {
            let found = state.waiting(&at, after.as_ref());
            state.paged(ItemKind::Row, found, |row| row.job.clone())
        })
        .await
    }

    async fn rows_due(
        &self,
        before: Timestamp,
        after: Option<&str>,
    ) -> Result<Page<JobRow>, Fault> {
        let after = sweeps::rows_due_cursor(after)?;
        self.sweep(move |state, then| {
            let found = state.rows_due(then, before, after.as_ref());
            state.paged(ItemKind::Row, found, |row| row.job.clone())
        })
        .await
    }

    async fn document(&self, collection: &str, name: &str) -> Result<Option<Document>, Fault> {
        let (collection, name) = (collection.to_owned(), name.to_owned());
        self.ask(move |state, _| {
            let key = format!("{collection}/{name}");
            state.checked(ItemKind::Document, key, state.document(&collection, &name))
        })
        .await?
    }

    async fn write_document(
        &self,
        seen: Option<Revision>,
        document: &Document,
    ) -> Result<Written<Document>, Fault> {
        let next = document.clone();
        let key = format!("{}/{}", next.collection, next.name);
        self.write_over(ItemKind::Document, key, move |state, now| {
            state.write_document(now, seen, next)
        })
        .await
    }

    async fn documents(&self, collection: &str) -> Result<Listing<Document>, Fault> {
        let collection = collection.to_owned();
        self.ask(move |state, _| {
            let found = state.documents(&collection);
            let key = |found: &Document| format!("{}/{}", found.collection, found.name);
            state.listed(ItemKind::Document, found, key)
        })
        .await
    }
}
