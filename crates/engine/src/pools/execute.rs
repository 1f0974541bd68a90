//! Carrying a plan out: its actions in their order, each as conditional writes first and as few calls
//! to the cloud as it allows after that.
//!
//! A machine whose write is refused or overtaken is somebody else's by now, and left alone. A call
//! that fails is not repeated here: the next plan, made of the whole, says what is left to do.
//!
//! Not here: launching ([`super::launch`]), or deciding.

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{AfterWarmUp, Authority, InstanceEvent, Record, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::pool::{
    Action, ActionTaken, Journal, MachineEnding, Note, StopWhy, hot_deadline,
};
use bullpen_core::ports::{Clock, Fault, Ids, Ports, StopOrder};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use super::journals;
use super::survey::SurveyedPool;
use super::{CycleReport, Leases, tags};
use crate::Stack;
use crate::advertise::advertise;
use crate::transition::{self, Moved};

/// Makes a pool what its plan says, and remembers what was done.
pub(super) async fn execute<P: Ports>(
    stack: &Stack<P>,
    found: SurveyedPool,
    leases: &Leases,
) -> CycleReport {
    let mut pass = PoolPass::new(stack, found, leases);
    pass.say();
    pass.resume().await;
    for action in std::mem::take(&mut pass.found.plan.actions) {
        if !pass.is_held() {
            break;
        }
        pass.act(&action).await;
    }
    tags::write(stack, &pass.found).await;
    pass.conclude().await
}

/// One pass over one pool.
pub(super) struct PoolPass<'a, P> {
    pub(super) stack: &'a Stack<P>,
    pub(super) found: SurveyedPool,
    pub(super) leases: &'a Leases,
    /// What was done, to be remembered.
    pub(super) deeds: Vec<ActionTaken>,
    records: BTreeMap<InstanceId, Record>,
}

impl<'a, P: Ports> PoolPass<'a, P> {
    fn new(stack: &'a Stack<P>, mut found: SurveyedPool, leases: &'a Leases) -> Self {
        let (now, journal) = (stack.now(), found.journal.clone());
        found.journal = journal.after(&found.observed, &found.desired, &found.plan, now);
        let records = found.observed.instances.iter().map(|one| one.record.clone());
        let records = records.map(|record| (record.id.clone(), record)).collect();
        Self { stack, found, leases, deeds: Vec::new(), records }
    }

    /// Says what the pool has come to wait on since it was last planned, unless that comes by itself.
    fn say(&self) {
        let SurveyedPool { pool, journal, stored, .. } = &self.found;
        let known: Vec<&str> = stored.notes.iter().map(Note::code).collect();
        let is_new = |note: &&Note| !note.is_passing() && !known.contains(&note.code());
        for note in journal.notes.iter().filter(is_new) {
            tracing::info!(%pool, note = note.code(), said = %note, "waits");
        }
    }

    /// Whether the pool is still this process's to keep.
    fn is_held(&self) -> bool {
        self.leases.token(self.stack, &self.found.pool).is_some()
    }

    /// How long one write is tried.
    fn patience(&self) -> Timestamp {
        self.stack.now().after(self.stack.limits.release_retry)
    }

    async fn act(&mut self, action: &Action) {
        match action {
            Action::Terminate { cause, endings } => self.terminate(cause.code(), endings).await,
            Action::KeepHot(ids) => self.keep_hot(ids).await,
            Action::KeepStopped(ids) => self.keep_stopped(ids).await,
            Action::Stop(stops) => self.stop(stops).await,
            Action::Create { usage, hot, stopped } => {
                self.create(*usage, hot.saturating_add(*stopped)).await;
            }
        }
    }

    /// Moves the records of these machines, each as it was seen; returns those that moved.
    async fn write(
        &self,
        events: impl Iterator<Item = (InstanceId, InstanceEvent)>,
    ) -> (Vec<Record>, Option<Fault>) {
        let known = events.filter_map(|(id, event)| Some((self.records.get(&id)?.clone(), event)));
        let events: Vec<_> = known.collect();
        let (mut moved, mut said) = (Vec::new(), None);
        for answer in transition::apply_all(self.stack, &events, self.patience()).await {
            match answer {
                Ok(Moved::To(record)) => moved.push(record),
                // Somebody has picked it, or has moved it otherwise.
                Ok(Moved::Overtaken | Moved::Refused(_)) => {}
                Err(fault) => said = Some(fault),
            }
        }
        (moved, said)
    }

    pub(super) fn note(
        &mut self,
        (act, why): (&str, &str),
        planned: usize,
        done: usize,
        said: Option<String>,
    ) {
        let count = |machines| u32::try_from(machines).unwrap_or(u32::MAX);
        let (planned, done) = (count(planned), count(done));
        let pool = &self.found.pool;
        let troubled = said.clone().unwrap_or_default();
        tracing::info!(%pool, act, why, planned, done, said = troubled, "kept");
        let (act, why) = (act.to_owned(), why.to_owned());
        self.deeds.push(ActionTaken { at: self.stack.now(), act, why, planned, done, said });
    }

    async fn terminate(&mut self, cause: &'static str, endings: &[MachineEnding]) {
        let now = self.stack.now();
        let authority = if sabotage!("pool-ends-like-an-operator") {
            Authority::Operator
        } else {
            Authority::Pool { pool: self.found.pool.clone() }
        };
        let condemned = endings.iter().map(|ending| {
            let event =
                InstanceEvent::Condemned { authority: authority.clone(), why: ending.why, at: now };
            (ending.id.clone(), event)
        });
        let (moved, mut said) = self.write(condemned).await;
        let ids: Vec<InstanceId> = moved.iter().map(|record| record.id.clone()).collect();
        for batch in ids.chunks(IDS_PER_CALL_MAX) {
            // Whatever is not ended now is ended by the reaper, which asks until it is confirmed.
            if let Err(fault) = self.stack.fleet().terminate(batch).await {
                said = Some(fault);
            }
        }
        let complaint = || moved.iter().find_map(|record| self.complaint(&record.id));
        let said = said.map(|fault| fault.to_string()).or_else(complaint);
        self.note(("terminate", cause), endings.len(), moved.len(), said);
    }

    /// What one of the machines said for itself, for people to read; there may be many alike.
    fn complaint(&self, id: &InstanceId) -> Option<String> {
        let said = self.found.complaints.get(id)?;
        let mut shortened: String = said.chars().take(COMPLAINT_MAX).collect();
        if shortened.len() < said.len() {
            shortened.push('…');
        }
        Some(format!("{id}: {shortened}"))
    }

    async fn keep_hot(&mut self, ids: &[InstanceId]) {
        let (stack, now) = (self.stack, self.stack.now());
        let lifetime = self.found.desired.hot_lifetime;
        let warm = ids.iter().map(|id| {
            let deadline = hot_deadline(id, now, lifetime, &stack.limits);
            let into = AfterWarmUp::Hot { deadline, shared: self.is_shared() };
            (id.clone(), InstanceEvent::WarmedUp { pool: self.found.pool.clone(), at: now, into })
        });
        let (moved, said) = self.write(warm).await;
        for record in &moved {
            advertise(stack, record).await;
        }
        self.note(("keep-hot", "warm"), ids.len(), moved.len(), said.map(|said| said.to_string()));
    }

    fn is_shared(&self) -> bool {
        self.found.blueprint.as_ref().is_some_and(|blueprint| blueprint.config.share)
    }

    async fn keep_stopped(&mut self, ids: &[InstanceId]) {
        let (stack, now) = (self.stack, self.stack.now());
        let event = InstanceEvent::FoundStopped {
            at: now,
            skew: stack.limits.clock_skew,
            deadline: now.after(stack.limits.idle_stopped),
            shared: self.is_shared(),
        };
        let (moved, said) = self.write(ids.iter().map(|id| (id.clone(), event.clone()))).await;
        for record in &moved {
            advertise(stack, record).await;
        }
        let said = said.map(|said| said.to_string());
        self.note(("keep-stopped", "stopped"), ids.len(), moved.len(), said);
    }

    /// Each under a new operation, which its record names before the call is made, and none sent so
    /// late that it could find somebody.
    async fn stop(&mut self, stops: &[(InstanceId, StopWhy)]) {
        let stack = self.stack;
        for batch in stops.chunks(IDS_PER_CALL_MAX) {
            let send_by = stack.ports.clock().monotonic() + stack.limits.stop_send_within;
            let (moved, mut said) = if sabotage!("stop-without-the-fence") {
                let unwritten = batch.iter().map(|stop| self.stopping(stop));
                let unwritten =
                    unwritten.filter_map(|(id, event)| self.records.get(&id)?.on(&event).ok());
                (unwritten.collect(), None)
            } else {
                self.write(batch.iter().map(|stop| self.stopping(stop))).await
            };
            let orders: Vec<StopOrder> = moved.iter().filter_map(order).collect();
            if !orders.is_empty()
                && let Err(fault) = stack.fleet().stop(&orders, send_by).await
            {
                said = Some(fault);
            }
            let why = batch.first().map_or("", |(_, why)| why.code());
            let said = said.map(|said| said.to_string());
            self.note(("stop", why), batch.len(), moved.len(), said);
        }
    }

    fn stopping(&self, (id, why): &(InstanceId, StopWhy)) -> (InstanceId, InstanceEvent) {
        let (stack, now) = (self.stack, self.stack.now());
        let (op, until) = (stack.ports.ids().stop_op(), now.after(stack.limits.stop_fence));
        let deadline = now.after(stack.limits.warm_up);
        let event = match why {
            StopWhy::WarmedUp => InstanceEvent::WarmedUp {
                pool: self.found.pool.clone(),
                at: now,
                into: AfterWarmUp::ToStop { op, until, deadline },
            },
            StopWhy::FoundRunning => InstanceEvent::FoundRunning { op, until, deadline },
            StopWhy::Again => InstanceEvent::StopAgain { op, until },
        };
        (id.clone(), event)
    }

    /// Remembers what was seen and done, if anything of it is new.
    async fn conclude(mut self) -> CycleReport {
        let journal = std::mem::take(&mut self.found.journal).with_deeds(self.deeds.clone());
        let token = self.leases.token(self.stack, &self.found.pool);
        let is_over = self.found.blueprint.is_none() && self.found.observed.instances.is_empty();
        let is_new = journal != self.found.stored || sabotage!("journals-are-always-written");
        if (is_new || is_over != self.found.is_leaving)
            && let Some(token) = token.filter(|token| journal.token <= *token)
        {
            self.remember(&Journal { token, ..journal.clone() }, is_over).await;
        }
        let (found, deeds) = (self.found, self.deeds);
        let machines = found.statuses();
        let (pool, target) = (found.pool, found.desired.target);
        CycleReport { pool, target, machines, notes: journal.notes, deeds }
    }

    async fn remember(&self, journal: &Journal, is_over: bool) {
        let SurveyedPool { pool, revision, .. } = &self.found;
        let forget_at = is_over.then(|| self.stack.now().after(FORGOTTEN_AFTER));
        let written = journals::write(self.stack, pool, *revision, journal, forget_at).await;
        if let Err(fault) = written {
            tracing::info!(%pool, %fault, "not written down");
        }
    }
}

/// How much of what a machine said is remembered with its pool: its log has the rest.
const COMPLAINT_MAX: usize = 300;

/// How long a pool that is gone is remembered.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The call that a record names.
fn order(record: &Record) -> Option<StopOrder> {
    let State::Stopping { op, until, .. } = &record.state else { return None };
    Some(StopOrder { id: record.id.clone(), op: op.clone(), until: *until })
}
