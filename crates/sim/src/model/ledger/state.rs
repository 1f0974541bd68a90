//! The ledger's records of instances, and the writes that change them.
//!
//! Every landed write of a record goes through [`LedgerState::store`], which keeps the indexes, the
//! past and the observer in step.
//!
//! Not here: listings (`directories`, `sweeps`), counts (`reservations`), job rows (`rows`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bullpen_core::creation::{Intent, Scope};
use bullpen_core::ids::{InstanceId, IntentId, JobId, LeaseName, PoolName, Revision};
use bullpen_core::instance::{InstanceEvent, Record, State};
use bullpen_core::lease::Lease;
use bullpen_core::ports::{ClaimWrite, Document, Fault, JobRow, Written};
use bullpen_core::time::Timestamp;

use super::directories::Directories;
use super::documents::Documents;
use super::foreign::Foreign;
use super::rows::Rows;
use crate::model::Past;

/// A write that landed.
#[derive(Clone, Copy, Debug)]
pub enum LedgerWrite<'a> {
    /// A write of an instance's record.
    Record {
        /// When, by true time.
        at: Timestamp,
        /// The record before; none for a first record.
        before: Option<&'a Record>,
        /// The record now.
        after: &'a Record,
        /// The process that made the write.
        by: &'a str,
    },
    /// A reservation was granted.
    Reserved {
        /// When, by true time.
        at: Timestamp,
        /// The intent as stored.
        intent: &'a Intent,
    },
    /// An intent's outstanding reservation was given back.
    GivenBack {
        /// When, by true time.
        at: Timestamp,
        /// The intent before.
        intent: &'a Intent,
    },
    /// A write of a job row.
    Row {
        /// When, by true time.
        at: Timestamp,
        /// The row before.
        before: Option<&'a JobRow>,
        /// The row now.
        after: &'a JobRow,
    },
    /// A write of a document.
    Document {
        /// When, by true time.
        at: Timestamp,
        /// The document now.
        after: &'a Document,
        /// The process that made the write.
        by: &'a Arc<str>,
    },
}

/// The observer of every write as it lands.
pub type LedgerObserver = Box<dyn FnMut(&LedgerWrite<'_>) + Send>;

/// Which rows a fault concerns.
pub(super) type FailsRow = Box<dyn Fn(&JobId) -> bool + Send>;

/// The whole state of the ledger.
#[derive(Default)]
pub struct LedgerState {
    live: BTreeMap<InstanceId, Arc<Record>>,
    tombstones: BTreeMap<InstanceId, Arc<Record>>,
    forgettable: BTreeSet<(Timestamp, InstanceId)>,
    pub(super) by_deadline: BTreeSet<(Timestamp, InstanceId)>,
    pub(super) past: Past<(InstanceId, Option<Arc<Record>>)>,
    pub(super) directories: Directories,
    pub(super) intents: BTreeMap<IntentId, Arc<Intent>>,
    pub(super) open_intents: BTreeSet<IntentId>,
    pub(super) past_intents: Past<(IntentId, Option<Arc<Intent>>)>,
    pub(super) used: BTreeMap<Scope, u32>,
    leases: BTreeMap<LeaseName, Lease>,
    pub(super) rows: Rows,
    pub(super) documents: Documents,
    /// How often a process listed a pool.
    pub(super) pool_listings: u64,
    /// A pool that cannot be listed, and why.
    pub(super) unlistable: Option<(PoolName, Fault)>,
    /// Whose stored rows cannot be changed.
    pub(super) fails_row: Option<FailsRow>,
    pub(super) foreign: Foreign,
    observer: Option<LedgerObserver>,
    pub(super) caller: Arc<str>,
}

impl fmt::Debug for LedgerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerState")
            .field("live", &self.live.len())
            .field("tombstones", &self.tombstones.len())
            .finish_non_exhaustive()
    }
}

impl LedgerState {
    pub(super) fn set_weak(&mut self, weak: bool) {
        self.directories.set_weak(weak);
    }

    pub(super) fn set_observer(&mut self, observer: LedgerObserver) {
        self.observer = Some(observer);
    }

    /// Sets the process whose call runs now.
    pub(super) fn is_called_by(&mut self, process: Arc<str>) {
        self.caller = process;
    }

    pub(super) fn snapshot(&self) -> (Vec<Record>, Vec<Intent>) {
        let records = self.live.values().chain(self.tombstones.values());
        let open = self.open_intents.iter().filter_map(|id| self.intent(id));
        (records.map(|record| Record::clone(record)).collect(), open.collect())
    }

    pub(super) fn stored(&self, id: &InstanceId) -> Option<&Arc<Record>> {
        self.live.get(id).or_else(|| self.tombstones.get(id))
    }

    pub(super) const fn live_records(&self) -> &BTreeMap<InstanceId, Arc<Record>> {
        &self.live
    }

    /// The stored record of an instance.
    pub fn read(&self, id: &InstanceId) -> Option<Record> {
        self.stored(id).map(|record| Record::clone(record))
    }

    /// Idle → claimed, if the transition allows it.
    pub fn claim(&mut self, now: Timestamp, write: ClaimWrite) -> Written<Record> {
        let event = InstanceEvent::Claimed {
            owner: write.owner,
            claim: write.claim,
            trust: write.trust,
            seen: write.seen,
            at: write.at,
            margin: write.margin,
            lease: write.lease,
        };
        match self.stored(&write.id).map(|stored| stored.on(&event)) {
            Some(Ok(next)) => Written::Won(self.store(now, next)),
            Some(Err(_)) | None => Written::Lost,
        }
    }

    /// Stores `next` unless another write came after `seen`.
    pub fn replace(&mut self, now: Timestamp, seen: Revision, next: Record) -> Written<Record> {
        debug_assert!(next.state.is_live(), "only `bury` stores a tombstone");
        if self.is_at(&next.id, seen) { Written::Won(self.store(now, next)) } else { Written::Lost }
    }

    /// Stores a tombstone, unless another write came after `seen`, and returns the reservation.
    pub fn bury(&mut self, now: Timestamp, seen: Revision, tombstone: Record) -> Written<Record> {
        debug_assert!(!tombstone.state.is_live(), "a live record is not buried");
        if !self.is_at(&tombstone.id, seen) {
            return Written::Lost;
        }
        if self.live.contains_key(&tombstone.id) {
            self.uncount(&tombstone.facts.class, tombstone.facts.pool.as_ref(), 1);
        }
        Written::Won(self.store(now, tombstone))
    }

    fn is_at(&self, id: &InstanceId, seen: Revision) -> bool {
        self.stored(id).is_some_and(|stored| stored.revision == seen)
    }

    /// The stored lease.
    pub fn lease(&self, name: &LeaseName) -> Option<Lease> {
        self.leases.get(name).cloned()
    }

    /// Stores a lease unless another write came after `seen`.
    pub fn write_lease(&mut self, seen: Option<Revision>, next: Lease) -> Written<Lease> {
        if self.leases.get(&next.name).map(|lease| lease.revision) != seen {
            return Written::Lost;
        }
        self.leases.insert(next.name.clone(), next.clone());
        Written::Won(next)
    }

    /// The only function that changes a record. Returns the stored record.
    pub(super) fn store(&mut self, now: Timestamp, next: Record) -> Record {
        let id = next.id.clone();
        let before = self.live.remove(&id).or_else(|| self.tombstones.remove(&id));
        let revision = before.as_ref().map_or(Revision(1), |before| before.revision.next());
        let after = Arc::new(Record { revision, ..next });
        if let Some(before) = &before {
            self.by_deadline.remove(&(before.state.look_at(), id.clone()));
            self.forgettable.remove(&(before.state.look_at(), id.clone()));
        }
        self.directories.change(now, before.as_deref(), &after);
        if let State::Terminated { forget_at, .. } = after.state {
            self.forget(now);
            self.forgettable.insert((forget_at, id.clone()));
            self.tombstones.insert(id.clone(), Arc::clone(&after));
        } else {
            self.by_deadline.insert((after.state.look_at(), id.clone()));
            self.live.insert(id.clone(), Arc::clone(&after));
        }
        let (by, before_it) = (Arc::clone(&self.caller), before.as_deref());
        self.tell(&LedgerWrite::Record { at: now, before: before_it, after: &after, by: &by });
        self.past.note(now, (id, before));
        Record::clone(&after)
    }

    /// Forgets expired tombstones; runs when the next record is written.
    fn forget(&mut self, now: Timestamp) {
        while let Some((forget_at, id)) = self.forgettable.pop_first() {
            if forget_at > now {
                self.forgettable.insert((forget_at, id));
                return;
            }
            self.tombstones.remove(&id);
        }
    }

    /// Changes the state without telling the observer.
    pub(super) fn unobserved(&mut self, change: impl FnOnce(&mut Self)) {
        let observer = self.observer.take();
        change(self);
        self.observer = observer;
    }

    pub(super) fn tell(&mut self, write: &LedgerWrite<'_>) {
        if let Some(observer) = &mut self.observer {
            observer(write);
        }
    }
}
