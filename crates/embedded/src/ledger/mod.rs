//! The ledger in SQLite.
//!
//! Every port method is one transaction or one read, in the module of its table. One write stores a
//! document and the columns that listings use, so a directory here never misses an entry or lists
//! one too many. Each added row removes a few expired rows of the same table: no table grows faster
//! than it shrinks, and no statement scans for expired rows.
//!
//! Not here: whether an event moves a record (`Record::on`), or queues ([`crate::queues`]).

use std::path::Path;
use std::sync::Arc;

use bullpen_core::creation::{Ceiling, Intent, Scope};
use bullpen_core::ids::{
    ClassName, InstanceId, IntentId, JobId, LeaseName, PoolName, Repository, Revision,
};
use bullpen_core::instance::{Owner, Record};
use bullpen_core::lease::Lease;
use bullpen_core::message::Advert;
use bullpen_core::ports::{
    ClaimWrite, Clock, Document, Fault, JobRow, Ledger, Listing, Page, Recorded, Reserved,
    WaitingAt, Written,
};
use bullpen_core::time::Timestamp;

use crate::open::{LEDGER, OpenError};
use crate::store::Store;
use crate::watch::StoreWatch;
use crate::write_gate::PATIENCE_MAX;

mod creation;
mod documents;
mod leases;
mod records;
mod rows;

/// The most expired rows that one added row removes: more than one, so that a backlog shrinks.
const FORGOTTEN_PER_WRITE_MAX: i64 = 4;

/// The ledger in one SQLite file.
pub struct SqliteLedger<C> {
    store: Arc<Store>,
    clock: Arc<C>,
}

impl<C: Clock> SqliteLedger<C> {
    /// Opens the file at `path`; makes or migrates it if necessary. The clock only decides which
    /// rows have expired.
    pub fn open(path: &Path, clock: Arc<C>) -> Result<Self, OpenError> {
        Ok(Self { store: Arc::new(Store::open(path, &LEDGER, PATIENCE_MAX)?), clock })
    }

    /// Tells when this process can no longer use the file.
    pub fn watch(&self) -> StoreWatch {
        self.store.watch()
    }

    /// The open file, which also holds the queues.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(crate) fn clock(&self) -> &Arc<C> {
        &self.clock
    }
}

impl<C: Clock> Ledger for SqliteLedger<C> {
    async fn read(&self, id: &InstanceId) -> Result<Option<Record>, Fault> {
        let id = id.clone();
        self.store.read(move |db| records::load(db, &id)).await
    }

    async fn claim(&self, write: &ClaimWrite) -> Result<Written<Record>, Fault> {
        let write = write.clone();
        self.store.write(move |writing| records::claim(writing.db, &write)).await.written()
    }

    async fn replace(&self, seen: &Record, next: &Record) -> Result<Written<Record>, Fault> {
        let (seen, next) = (seen.revision, next.clone());
        self.store.write(move |writing| records::replace(writing.db, seen, next)).await.written()
    }

    async fn replace_all(
        &self,
        writes: &[(Record, Record)],
    ) -> Vec<Result<Written<Record>, Fault>> {
        let (all, count) = (writes.to_vec(), writes.len());
        let written = self.store.write(move |writing| {
            let replaced = all.into_iter();
            replaced
                .map(|(seen, next)| records::replace(writing.db, seen.revision, next).map(Ok))
                .collect::<Result<Vec<_>, _>>()
        });
        written.await.written_each(count)
    }

    /// The live record is the reservation: storing the tombstone returns it.
    async fn bury(&self, seen: &Record, tombstone: &Record) -> Result<Written<Record>, Fault> {
        self.replace(seen, tombstone).await
    }

    async fn owned_by(&self, owner: &Owner) -> Result<Listing<Record>, Fault> {
        let owner = owner.clone();
        self.store.read(move |db| records::owned_by(db, &owner)).await
    }

    async fn idle_in(&self, class: &ClassName) -> Result<Listing<Advert>, Fault> {
        let class = class.clone();
        self.store.read(move |db| records::idle_in(db, &class)).await
    }

    async fn standing_by(&self, pool: &PoolName) -> Result<Listing<Record>, Fault> {
        let pool = pool.clone();
        self.store.read(move |db| records::standing_by(db, &pool)).await
    }

    async fn due(&self, before: Timestamp, after: Option<&str>) -> Result<Page<Record>, Fault> {
        let after = after.map(str::to_owned);
        self.store.read(move |db| records::due(db, before, after.as_deref())).await
    }

    async fn live(&self, after: Option<&str>) -> Result<Page<Record>, Fault> {
        let after = after.unwrap_or_default().to_owned();
        self.store.read(move |db| records::live(db, &after)).await
    }

    async fn reserve(
        &self,
        intent: &Intent,
        ceilings: &[Ceiling],
    ) -> Result<Written<Reserved>, Fault> {
        let (intent, ceilings, now) = (intent.clone(), ceilings.to_vec(), self.clock.now());
        self.store
            .write(move |writing| creation::reserve(writing.db, intent, &ceilings, now))
            .await
            .written()
    }

    async fn used(&self, scopes: &[Scope]) -> Result<Vec<u32>, Fault> {
        let scopes = scopes.to_vec();
        let used = move |db: &_| scopes.iter().map(|scope| creation::used(db, scope)).collect();
        self.store.read(used).await
    }

    async fn intent(&self, id: &IntentId) -> Result<Option<Intent>, Fault> {
        let id = id.clone();
        self.store.read(move |db| creation::load(db, &id)).await
    }

    async fn intents(&self, after: Option<&str>) -> Result<Page<Intent>, Fault> {
        let after = after.unwrap_or_default().to_owned();
        self.store.read(move |db| creation::open(db, &after)).await
    }

    async fn record(&self, record: &Record) -> Result<Written<Recorded>, Fault> {
        let (record, now) = (record.clone(), self.clock.now());
        self.store.write(move |writing| creation::record(writing.db, record, now)).await.written()
    }

    async fn give_back(&self, seen: &Intent) -> Result<Written<()>, Fault> {
        let (seen, now) = (seen.clone(), self.clock.now());
        self.store.write(move |writing| creation::give_back(writing.db, seen, now)).await.written()
    }

    async fn lease(&self, name: &LeaseName) -> Result<Option<Lease>, Fault> {
        let name = name.clone();
        self.store.read(move |db| leases::load(db, &name)).await
    }

    async fn write_lease(
        &self,
        seen: Option<&Lease>,
        next: &Lease,
    ) -> Result<Written<Lease>, Fault> {
        let (seen, next) = (seen.map(|lease| lease.revision), next.clone());
        self.store.write(move |writing| leases::write(writing.db, seen, next)).await.written()
    }

    async fn row(&self, job: &JobId) -> Result<Option<JobRow>, Fault> {
        let job = job.clone();
        self.store.read(move |db| rows::load(db, &job)).await
    }

    async fn write_row(
        &self,
        seen: Option<Revision>,
        row: &JobRow,
    ) -> Result<Written<JobRow>, Fault> {
        let (row, now) = (row.clone(), self.clock.now());
        self.store.write(move |writing| rows::write(writing.db, seen, row, now)).await.written()
    }

    async fn waiting_repositories(&self, lane: &str) -> Result<Vec<Repository>, Fault> {
        let lane = lane.to_owned();
        self.store.read(move |db| rows::repositories(db, &lane)).await
    }

    async fn waiting(&self, at: &WaitingAt, after: Option<&str>) -> Result<Page<JobRow>, Fault> {
        let (at, after) = (at.clone(), after.unwrap_or_default().to_owned());
        self.store.read(move |db| rows::waiting(db, &at, &after)).await
    }

    async fn rows_due(
        &self,
        before: Timestamp,
        after: Option<&str>,
    ) -> Result<Page<JobRow>, Fault> {
        let after = after.map(str::to_owned);
        self.store.read(move |db| rows::due(db, before, after.as_deref())).await
    }

    async fn document(&self, collection: &str, name: &str) -> Result<Option<Document>, Fault> {
        let (collection, name) = (collection.to_owned(), name.to_owned());
        self.store.read(move |db| documents::load(db, &collection, &name)).await
    }

    async fn write_document(
        &self,
        seen: Option<Revision>,
        document: &Document,
    ) -> Result<Written<Document>, Fault> {
        let (next, now) = (document.clone(), self.clock.now());
        self.store
            .write(move |writing| documents::write(writing.db, seen, next, now))
            .await
            .written()
    }

    async fn documents(&self, collection: &str) -> Result<Listing<Document>, Fault> {
        let collection = collection.to_owned();
        self.store.read(move |db| documents::list(db, &collection)).await
    }
}

#[cfg(test)]
mod tests;
