//! Intents and the counts under ceilings: from the reservation until the burial, or until an
//! outstanding reservation is given back.
//!
//! Not here: choosing ceilings. Every machine counts for its stack, its class and its pool, so that
//! a ceiling that is introduced later counts the earlier machines too.

use std::sync::Arc;

use bullpen_core::creation::{Ceiling, Intent, Scope};
use bullpen_core::ids::{ClassName, IntentId, PoolName, Revision};
use bullpen_core::instance::Record;
use bullpen_core::ports::{Recorded, Reserved, Written};
use bullpen_core::time::Timestamp;

use super::state::{LedgerState, LedgerWrite};

fn scopes(class: &ClassName, pool: Option<&PoolName>) -> impl Iterator<Item = Scope> {
    [Scope::Stack, Scope::Class(class.clone())].into_iter().chain(pool.cloned().map(Scope::Pool))
}

impl LedgerState {
    fn count(&mut self, class: &ClassName, pool: Option<&PoolName>, machines: u32) {
        for scope in scopes(class, pool) {
            *self.used.entry(scope).or_default() += machines;
        }
    }

    pub(super) fn uncount(&mut self, class: &ClassName, pool: Option<&PoolName>, machines: u32) {
        for scope in scopes(class, pool) {
            let used = self.used.entry(scope).or_default();
            debug_assert!(*used >= machines, "a returned reservation was counted");
            *used = used.saturating_sub(machines);
        }
    }

    /// How many machines are counted under this scope.
    pub fn used(&self, scope: &Scope) -> u32 {
        self.used.get(scope).copied().unwrap_or(0)
    }

    /// Stores the intent and counts its machines, if every ceiling that concerns it admits them.
    pub fn reserve(&mut self, now: Timestamp, intent: Intent, ceilings: &[Ceiling]) -> Reserved {
        if let Some(known) = self.intent(&intent.id) {
            return Reserved::Known(known);
        }
        let (class, pool) = (&intent.class, intent.pool.as_ref());
        let concerned = ceilings.iter().filter(|ceiling| ceiling.scope.counts(class, pool));
        for ceiling in concerned {
            if let Err(short) = ceiling.admit(self.used(&ceiling.scope), intent.outstanding) {
                return Reserved::Short(short);
            }
        }
        self.count(class, pool, intent.outstanding);
        let stored = self.store_intent(now, Intent { revision: Revision(1), ..intent });
        self.tell(&LedgerWrite::Reserved { at: now, intent: &stored });
        Reserved::Granted
    }

    /// One intent.
    pub fn intent(&self, id: &IntentId) -> Option<Intent> {
        self.intents.get(id).map(|intent| Intent::clone(intent))
    }

    /// Stores a machine's first record and moves one reservation to it.
    pub fn record(&mut self, now: Timestamp, record: Record) -> Recorded {
        if let Some(known) = self.read(&record.id) {
            return Recorded::Known(known);
        }
        let Some(intent) = self.intent(&record.facts.intent).filter(|it| it.outstanding > 0) else {
            return Recorded::Refused;
        };
        // The machine may be of another pool or class than its intent; it counts for its own.
        self.uncount(&intent.class, intent.pool.as_ref(), 1);
        self.count(&record.facts.class, record.facts.pool.as_ref(), 1);
        let (outstanding, revision) = (intent.outstanding - 1, intent.revision.next());
        self.store_intent(now, Intent { outstanding, revision, ..intent });
        Recorded::Stored(self.store(now, record))
    }

    /// Returns the outstanding reservation, unless another write came after `seen`.
    pub fn give_back(&mut self, now: Timestamp, id: &IntentId, seen: Revision) -> Written<()> {
        let Some(intent) = self.intent(id).filter(|intent| intent.revision == seen) else {
            return Written::Lost;
        };
        self.uncount(&intent.class, intent.pool.as_ref(), intent.outstanding);
        self.tell(&LedgerWrite::GivenBack { at: now, intent: &intent });
        let revision = intent.revision.next();
        self.store_intent(now, Intent { outstanding: 0, revision, ..intent });
        Written::Won(())
    }

    fn store_intent(&mut self, now: Timestamp, next: Intent) -> Arc<Intent> {
        let (id, next) = (next.id.clone(), Arc::new(next));
        if next.outstanding > 0 {
            self.open_intents.insert(id.clone());
        } else {
            self.open_intents.remove(&id);
        }
        let before = self.intents.insert(id.clone(), Arc::clone(&next));
        self.past_intents.note(now, (id, before));
        next
    }
}
