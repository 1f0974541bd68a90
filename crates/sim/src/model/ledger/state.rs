//! What the ledger holds of instances, and the writes that change it.
//!
//! Every landed write of a record goes through [`LedgerState::store`], which keeps the indexes, the
//! past and the observer in step.
//!
//! Not here: listing it (`directories`, `sweeps`), counting it (`reservations`), rows (`rows`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bullpen_core::creation::{Intent, Scope};
use bullpen_core::ids::{InstanceId, IntentId, LeaseName, Revision};
use bullpen_core::instance::{InstanceEvent, Record, State};
use bullpen_core::invariants::WriteKind;
use bullpen_core::lease::Lease;
use bullpen_core::ports::{ClaimWrite, Document, JobRow, Swap, Written};
use bullpen_core::time::Timestamp;

use super::directories::Directories;
use super::documents::Documents;
use super::rows::Rows;
use crate::model::Past;

/// A write that landed.
#[derive(Clone, Copy, Debug)]
pub enum LedgerWrite<'a> {
    /// Of an instance's record.
    Record {
        /// When, by true time.
        at: Timestamp,
        /// What was stored before; none for a first record.
        before: Option<&'a Record>,
        /// What is stored now.
        after: &'a Record,
        /// Whether it is half of a swap.
        kind: WriteKind,
        /// The process that wrote it.
        by: &'a str,
    },
    /// An intent was granted.
    Reserved {
        /// When, by true time.
        at: Timestamp,
        /// As it is stored.
        intent: &'a Intent,
    },
    /// What was outstanding of an intent was returned.
    GivenBack {
        /// When, by true time.
        at: Timestamp,
        /// As it was stored before.
        intent: &'a Intent,
    },
    /// Of a job's row.
    Row {
        /// When, by true time.
        at: Timestamp,
        /// What was stored before.
        before: Option<&'a JobRow>,
        /// What is stored now.
        after: &'a JobRow,
    },
    /// Of a document.
    Document {
        /// When, by true time.
        at: Timestamp,
        /// What is stored now.
        after: &'a Document,
        /// The process that wrote it.
        by: &'a Arc<str>,
    },
}

/// Who is told of every write as it lands.
pub type LedgerObserver = Box<dyn FnMut(&LedgerWrite<'_>) + Send>;

/// Everything the ledger holds.
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
    /// How often a pool was listed.
    pub(super) pool_listings: u64,
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

    /// Whose call is carried out now.
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

    /// What is stored of an instance.
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
            Some(Ok(next)) => Written::Won(self.store(now, next, WriteKind::Ordinary)),
            Some(Err(_)) | None => Written::Lost,
        }
    }

    /// Stores `next` if nothing was written since `seen`.
    pub fn replace(&mut self, now: Timestamp, seen: Revision, next: Record) -> Written<Record> {
        debug_assert!(next.state.is_live(), "a tombstone is buried, or its reservation stays");
        if self.is_at(&next.id, seen) {
            Written::Won(self.store(now, next, WriteKind::Ordinary))
        } else {
            Written::Lost
        }
    }

    /// Stores a tombstone if nothing was written since `seen`, and returns the reservation.
    pub fn bury(&mut self, now: Timestamp, seen: Revision, tombstone: Record) -> Written<Record> {
        debug_assert!(!tombstone.state.is_live(), "only the dead are buried");
        if !self.is_at(&tombstone.id, seen) {
            return Written::Lost;
        }
        if self.live.contains_key(&tombstone.id) {
            self.uncount(&tombstone.facts.class, tombstone.facts.pool.as_ref(), 1);
        }
        Written::Won(self.store(now, tombstone, WriteKind::Ordinary))
    }

    /// Exchanges two owners and stores both rows, or does nothing.
    pub fn swap(&mut self, now: Timestamp, swap: &Swap) -> Written<()> {
        let [one, other] = &swap.records;
        let [Some(next_one), Some(next_other)] =
            [self.swapped(one, other), self.swapped(other, one)]
        else {
            return Written::Lost;
        };
        let [row, other_row] = &swap.rows;
        let rows_fit = swap.rows.iter().all(|half| self.rows.is_at(&half.row.job, Some(half.seen)));
        if one.id == other.id || row.row.job == other_row.row.job || !rows_fit {
            return Written::Lost;
        }
        self.store(now, next_one, WriteKind::Swap);
        self.store(now, next_other, WriteKind::Swap);
        for half in &swap.rows {
            self.store_row(now, half.row.clone());
        }
        Written::Won(())
    }

    /// `record` with `other`'s owner, if it is still as it was read.
    fn swapped(&self, record: &Record, other: &Record) -> Option<Record> {
        let stored = self.stored(&record.id).filter(|stored| stored.revision == record.revision)?;
        stored.swapped_with(other).ok()
    }

    fn is_at(&self, id: &InstanceId, seen: Revision) -> bool {
        self.stored(id).is_some_and(|stored| stored.revision == seen)
    }

    /// A lease as it is stored.
    pub fn lease(&self, name: &LeaseName) -> Option<Lease> {
        self.leases.get(name).cloned()
    }

    /// Stores a lease if nothing was written since `seen`.
    pub fn write_lease(&mut self, seen: Option<Revision>, next: Lease) -> Written<Lease> {
        if self.leases.get(&next.name).map(|lease| lease.revision) != seen {
            return Written::Lost;
        }
        self.leases.insert(next.name.clone(), next.clone());
        Written::Won(next)
    }

    /// The one place where a record changes. Answers what is stored now.
    pub(super) fn store(&mut self, now: Timestamp, next: Record, kind: WriteKind) -> Record {
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
        self.tell(&LedgerWrite::Record {
            at: now,
            before: before_it,
            after: &after,
            kind,
            by: &by,
        });
        self.past.note(now, (id, before));
        Record::clone(&after)
    }

    /// Tombstones whose time has passed are forgotten when the next one is written.
    fn forget(&mut self, now: Timestamp) {
        while let Some((forget_at, id)) = self.forgettable.pop_first() {
            if forget_at > now {
                self.forgettable.insert((forget_at, id));
                return;
            }
            self.tombstones.remove(&id);
        }
    }

    pub(super) fn tell(&mut self, write: &LedgerWrite<'_>) {
        if let Some(observer) = &mut self.observer {
            observer(write);
        }
    }
}
