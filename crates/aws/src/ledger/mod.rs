//! The ledger in DynamoDB, in the table `<stack>-state`.
//!
//! A write is one call: `PutItem` or `UpdateItem` for one item, `TransactWriteItems` for several
//! that must change together. An item itself stores its sort key in every index ([`keys`]), so
//! directories neither miss an item nor list too much, and a claim costs one call. DynamoDB deletes
//! items some time after their `forget_at`.
//!
//! Not here: transitions (`Record::on`), or creating the table ([`crate::setup`]).

use std::sync::Arc;

use aws_config::SdkConfig;
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
use futures_util::lock::Mutex;

use crate::names::StackName;
use crate::table::Table;

mod creation;
mod documents;
pub(crate) mod keys;
mod leases;
mod listing;
mod records;
mod rows;
mod write;

/// The ledger of one stack.
pub struct DynamoLedger<C> {
    table: Table,
    clock: Arc<C>,
    /// Held by every write that changes a counter or takes a machine from an intent: DynamoDB would
    /// cancel one of two concurrent transactions on the same item.
    counting: Mutex<()>,
}

impl<C: Clock> DynamoLedger<C> {
    /// The ledger of this stack. It reads the clock only to set `forget_at` of closed intents.
    pub fn new(config: &SdkConfig, stack: &StackName, clock: Arc<C>) -> Self {
        Self { table: Table::new(config, stack.state_table()), clock, counting: Mutex::new(()) }
    }
}

impl<C: Clock> Ledger for DynamoLedger<C> {
    async fn read(&self, id: &InstanceId) -> Result<Option<Record>, Fault> {
        records::load(&self.table, id).await
    }

    async fn claim(&self, write: &ClaimWrite) -> Result<Written<Record>, Fault> {
        records::claim(&self.table, write).await
    }

    async fn replace(&self, seen: &Record, next: &Record) -> Result<Written<Record>, Fault> {
        records::replace(&self.table, seen.revision, next).await
    }

    async fn replace_all(
        &self,
        writes: &[(Record, Record)],
    ) -> Vec<Result<Written<Record>, Fault>> {
        records::replace_all(&self.table, writes).await
    }

    async fn bury(&self, seen: &Record, tombstone: &Record) -> Result<Written<Record>, Fault> {
        must(!tombstone.state.is_live(), "only a tombstone is buried")?;
        let _counting = self.counting.lock().await;
        creation::bury(&self.table, seen.revision, tombstone).await
    }

    async fn owned_by(&self, owner: &Owner) -> Result<Listing<Record>, Fault> {
        records::owned_by(&self.table, owner).await
    }

    async fn idle_in(&self, class: &ClassName) -> Result<Listing<Advert>, Fault> {
        records::idle_in(&self.table, class).await
    }

    async fn standing_by(&self, pool: &PoolName) -> Result<Listing<Record>, Fault> {
        records::standing_by(&self.table, pool).await
    }

    async fn due(&self, before: Timestamp, after: Option<&str>) -> Result<Page<Record>, Fault> {
        records::due(&self.table, before, after).await
    }

    async fn live(&self, after: Option<&str>) -> Result<Page<Record>, Fault> {
        records::live(&self.table, after).await
    }

    async fn reserve(
        &self,
        intent: &Intent,
        ceilings: &[Ceiling],
    ) -> Result<Written<Reserved>, Fault> {
        let _counting = self.counting.lock().await;
        creation::reserve(&self.table, intent, ceilings).await
    }

    async fn used(&self, scopes: &[Scope]) -> Result<Vec<u32>, Fault> {
        creation::used(&self.table, scopes).await
    }

    async fn intent(&self, id: &IntentId) -> Result<Option<Intent>, Fault> {
        creation::load(&self.table, id).await
    }

    async fn intents(&self, after: Option<&str>) -> Result<Page<Intent>, Fault> {
        creation::open(&self.table, after).await
    }

    async fn record(&self, record: &Record) -> Result<Written<Recorded>, Fault> {
        let _counting = self.counting.lock().await;
        creation::record(&self.table, record, self.clock.now()).await
    }

    async fn give_back(&self, seen: &Intent) -> Result<Written<()>, Fault> {
        let _counting = self.counting.lock().await;
        creation::give_back(&self.table, seen, self.clock.now()).await
    }

    async fn lease(&self, name: &LeaseName) -> Result<Option<Lease>, Fault> {
        leases::load(&self.table, name).await
    }

    async fn write_lease(
        &self,
        seen: Option<&Lease>,
        next: &Lease,
    ) -> Result<Written<Lease>, Fault> {
        leases::write(&self.table, seen.map(|lease| lease.revision), next).await
    }

    async fn row(&self, job: &JobId) -> Result<Option<JobRow>, Fault> {
        rows::load(&self.table, job).await
    }

    async fn write_row(
        &self,
        seen: Option<Revision>,
        row: &JobRow,
    ) -> Result<Written<JobRow>, Fault> {
        rows::write(&self.table, seen, row).await
    }

    async fn waiting_repositories(&self, lane: &str) -> Result<Vec<Repository>, Fault> {
        rows::repositories(&self.table, lane).await
    }

    async fn waiting(&self, at: &WaitingAt, after: Option<&str>) -> Result<Page<JobRow>, Fault> {
        rows::waiting(&self.table, at, after).await
    }

    async fn rows_due(
        &self,
        before: Timestamp,
        after: Option<&str>,
    ) -> Result<Page<JobRow>, Fault> {
        rows::due(&self.table, before, after).await
    }

    async fn document(&self, collection: &str, name: &str) -> Result<Option<Document>, Fault> {
        documents::load(&self.table, collection, name).await
    }

    async fn write_document(
        &self,
        seen: Option<Revision>,
        document: &Document,
    ) -> Result<Written<Document>, Fault> {
        documents::write(&self.table, seen, document).await
    }

    async fn documents(&self, collection: &str) -> Result<Listing<Document>, Fault> {
        documents::list(&self.table, collection).await
    }
}

/// Refuses a write that would make a counter wrong for ever.
fn must(holds: bool, rule: &str) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::Unclassified(rule.to_owned())) }
}
