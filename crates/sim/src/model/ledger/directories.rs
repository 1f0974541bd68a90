//! Directories: listings by owner, by class and by pool that never miss, and may list too much.
//!
//! Not here: judging an entry. A weak directory returns a stale entry like any other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bullpen_core::ids::{ClassName, InstanceId, PoolName};
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::message::Advert;
use bullpen_core::time::Timestamp;

use super::state::LedgerState;

/// How long a weak directory still lists an instance that has left.
const STALE_KEPT: Duration = Duration::from_secs(60);

/// One entry of one directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Owner(Owner),
    Idle(ClassName),
    Pool(PoolName),
}

/// The time since which an instance is idle, and its advert.
type Listed = (Timestamp, Advert);

#[derive(Debug, Default)]
pub(super) struct Directories {
    owners: BTreeMap<Owner, BTreeSet<InstanceId>>,
    idle: BTreeMap<ClassName, BTreeSet<(Timestamp, InstanceId)>>,
    pools: BTreeMap<PoolName, BTreeSet<InstanceId>>,
    weak: bool,
    /// Instances that have left: when, and for an idle directory their listing.
    stale: BTreeMap<Entry, BTreeMap<InstanceId, (Timestamp, Option<Listed>)>>,
    /// The same in the order of leaving, for expiry.
    leavers: VecDeque<(Timestamp, Entry, InstanceId)>,
}

fn listed_owner(record: &Record) -> Option<&Owner> {
    record.state.listed_under()
}

fn listed_pool(record: &Record) -> Option<&PoolName> {
    record.facts.pool.as_ref().filter(|_| record.state.is_live())
}

fn listed_idle(record: &Record) -> Option<(&ClassName, Timestamp)> {
    match record.state {
        State::Idle { since, shared: true, .. } => Some((&record.facts.class, since)),
        _ => None,
    }
}

impl Directories {
    pub(super) fn set_weak(&mut self, weak: bool) {
        self.weak = weak;
        self.stale.clear();
        self.leavers.clear();
    }

    /// Moves an instance from the directories of `before` to those of `after`.
    pub(super) fn change(&mut self, now: Timestamp, before: Option<&Record>, after: &Record) {
        self.forget(now);
        let id = &after.id;
        let (was, is) = (before.and_then(listed_owner), listed_owner(after));
        if was != is {
            if let Some(owner) = was {
                take(&mut self.owners, owner, id);
                self.left(now, Entry::Owner(owner.clone()), id, None);
            }
            if let Some(owner) = is {
                self.owners.entry(owner.clone()).or_default().insert(id.clone());
                self.back(&Entry::Owner(owner.clone()), id);
            }
        }
        let (was, is) = (before.and_then(listed_pool), listed_pool(after));
        if was != is {
            if let Some(pool) = was {
                take(&mut self.pools, pool, id);
                self.left(now, Entry::Pool(pool.clone()), id, None);
            }
            if let Some(pool) = is {
                self.pools.entry(pool.clone()).or_default().insert(id.clone());
            }
        }
        let (was, is) = (before.and_then(listed_idle), listed_idle(after));
        if was != is {
            if let Some((class, since)) = was {
                take(&mut self.idle, class, &(since, id.clone()));
                let advert = before.and_then(Record::advert).map(|advert| (since, advert));
                self.left(now, Entry::Idle(class.clone()), id, advert);
            }
            if let Some((class, since)) = is {
                self.idle.entry(class.clone()).or_default().insert((since, id.clone()));
                self.back(&Entry::Idle(class.clone()), id);
            }
        }
    }

    fn left(&mut self, now: Timestamp, entry: Entry, id: &InstanceId, idle: Option<Listed>) {
        if self.weak {
            self.stale.entry(entry.clone()).or_default().insert(id.clone(), (now, idle));
            self.leavers.push_back((now, entry, id.clone()));
        }
    }

    fn back(&mut self, entry: &Entry, id: &InstanceId) {
        if let Some(stale) = self.stale.get_mut(entry) {
            stale.remove(id);
        }
    }

    fn forget(&mut self, now: Timestamp) {
        let kept_from = now.before(STALE_KEPT);
        while self.leavers.front().is_some_and(|(left, ..)| *left < kept_from) {
            let Some((left, entry, id)) = self.leavers.pop_front() else { return };
            let Some(stale) = self.stale.get_mut(&entry) else { continue };
            // The instance may have come back and left again since.
            if stale.get(&id).is_some_and(|(again, _)| *again == left) {
                stale.remove(&id);
            }
            if stale.is_empty() {
                self.stale.remove(&entry);
            }
        }
    }

    fn stale(&self, entry: &Entry) -> impl Iterator<Item = (&InstanceId, Option<&Listed>)> {
        let stale = self.stale.get(entry).into_iter().flatten();
        stale.map(|(id, (_, idle))| (id, idle.as_ref()))
    }
}

fn take<K: Ord, V: Ord>(directory: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(listed) = directory.get_mut(key) {
        listed.remove(value);
        if listed.is_empty() {
            directory.remove(key);
        }
    }
}

impl LedgerState {
    /// The records listed under this owner.
    pub fn owned_by(&mut self, now: Timestamp, owner: &Owner) -> Vec<Record> {
        self.directories.forget(now);
        let listed = self.directories.owners.get(owner);
        self.records_of(listed, &Entry::Owner(owner.clone()))
    }

    /// Every live instance that this pool launched.
    pub fn standing_by(&mut self, now: Timestamp, pool: &PoolName) -> Vec<Record> {
        self.pool_listings += 1;
        self.directories.forget(now);
        let listed = self.directories.pools.get(pool);
        self.records_of(listed, &Entry::Pool(pool.clone()))
    }

    fn records_of(&self, listed: Option<&BTreeSet<InstanceId>>, entry: &Entry) -> Vec<Record> {
        let stale = self.directories.stale(entry).map(|(id, _)| id);
        let ids = listed.into_iter().flatten().chain(stale);
        ids.filter_map(|id| self.read(id)).collect()
    }

    /// The adverts of this class's idle, shared instances, oldest first.
    pub fn idle_in(&mut self, now: Timestamp, class: &ClassName) -> Vec<Advert> {
        self.directories.forget(now);
        let listed = self.directories.idle.get(class).into_iter().flatten();
        let idle = listed.filter_map(|(since, id)| Some((*since, self.stored(id)?.advert()?)));
        let entry = Entry::Idle(class.clone());
        let stale = self.directories.stale(&entry);
        let mut found: Vec<Listed> = idle.chain(stale.filter_map(|(_, it)| it.cloned())).collect();
        found.sort_by_key(|(since, _)| *since);
        found.into_iter().map(|(_, advert)| advert).collect()
    }
}
