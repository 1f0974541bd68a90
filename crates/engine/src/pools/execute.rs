//! Executes a plan: its actions in order, each with conditional writes first and then as few calls
//! to the cloud as possible.
//!
//! If the write for a machine is refused or overtaken, another process has the machine, and this
//! one leaves it alone. A failed call is not repeated here: the next plan decides what is left to
//! do.
//!
//! Not here: launching ([`super::launch`]), or deciding.

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{AfterWarmUp, Authority, InstanceEvent, Record, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::pool::{
    Action, ActionTaken, Journal, MachineEnding, Note, StopWhy, found_stopped, hot_deadline,
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

/// Executes a pool's plan, and stores the actions taken in its journal.
pub(super) async fn execute<P: Ports>(
    stack: &Stack<P>,
    found: SurveyedPool,
    leases: &Leases,
) -> CycleReport {
    let mut pass = PoolPass::new(stack, found, leases);
    pass.log_new_notes();
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
    /// The actions taken, for the journal.
    pub(super) actions_taken: Vec<ActionTaken>,
    records: BTreeMap<InstanceId, Record>,
}

impl<'a, P: Ports> PoolPass<'a, P> {
    fn new(stack: &'a Stack<P>, mut found: SurveyedPool, leases: &'a Leases) -> Self {
        let (now, journal) = (stack.now(), found.journal.clone());
        found.journal = journal.after(&found.observed, &found.desired, &found.plan, now);
        let records = found.observed.instances.iter().map(|one| one.record.clone());
        let records = records.map(|record| (record.id.clone(), record)).collect();
        Self { stack, found, leases, actions_taken: Vec::new(), records }
    }

    /// Logs the notes that are new since the last plan, unless they pass by themselves.
    fn log_new_notes(&self) {
        let SurveyedPool { pool, journal, stored, .. } = &self.found;
        let known: Vec<&str> = stored.notes.iter().map(Note::code).collect();
        let is_new = |note: &&Note| !note.is_passing() && !known.contains(&note.code());
        for note in journal.notes.iter().filter(is_new) {
            tracing::info!(%pool, note = note.code(), said = %note, "standby pool waits");
        }
    }

    /// Whether this process still holds the pool's lease.
    fn is_held(&self) -> bool {
        self.leases.token(self.stack, &self.found.pool).is_some()
    }

    /// Until when one write is retried.
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

    /// Moves the records of these machines, each as the survey read it; returns those that moved.
    async fn write(
        &self,
        events: impl Iterator<Item = (InstanceId, InstanceEvent)>,
    ) -> (Vec<Record>, Option<Fault>) {
        let known = events.filter_map(|(id, event)| Some((self.records.get(&id)?.clone(), event)));
        let events: Vec<_> = known.collect();
        let (mut moved, mut problem) = (Vec::new(), None);
        for answer in transition::apply_all(self.stack, &events, self.patience()).await {
            match answer {
                Ok(Moved::To(record)) => moved.push(record),
                // Another process has picked the machine, or has moved it otherwise.
                Ok(Moved::Overtaken | Moved::Refused(_)) => {}
                Err(fault) => problem = Some(fault),
            }
        }
        (moved, problem)
    }

    pub(super) fn note(
        &mut self,
        (act, why): (&str, &str),
        planned: usize,
        done: usize,
        problem: Option<String>,
    ) {
        let count = |machines| u32::try_from(machines).unwrap_or(u32::MAX);
        let (planned, done) = (count(planned), count(done));
        let pool = &self.found.pool;
        let said = problem.clone().unwrap_or_default();
        tracing::info!(%pool, act, why, planned, done, said, "pool action taken");
        let (act, why) = (act.to_owned(), why.to_owned());
        self.actions_taken.push(ActionTaken {
            at: self.stack.now(),
            act,
            why,
            planned,
            done,
            said: problem,
        });
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
        let (moved, mut problem) = self.write(condemned).await;
        let ids: Vec<InstanceId> = moved.iter().map(|record| record.id.clone()).collect();
        for batch in ids.chunks(IDS_PER_CALL_MAX) {
            // If this fails, the reaper ends the machines: it repeats the call until that is
            // confirmed.
            if let Err(fault) = self.stack.fleet().terminate(batch).await {
                problem = Some(fault);
            }
        }
        let warm_up_failure = || moved.iter().find_map(|record| self.warm_up_failure(&record.id));
        let problem = problem.map(|fault| fault.to_string()).or_else(warm_up_failure);
        self.note(("terminate", cause), endings.len(), moved.len(), problem);
    }

    /// A machine's report of its failed warm-up, shortened for people.
    fn warm_up_failure(&self, id: &InstanceId) -> Option<String> {
        let report = self.found.warm_up_failures.get(id)?;
        let mut shortened: String = report.chars().take(FAILURE_CHARS_MAX).collect();
        if shortened.len() < report.len() {
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
        let (moved, problem) = self.write(warm).await;
        for record in &moved {
            advertise(stack, record).await;
        }
        self.note(
            ("keep-hot", "warm"),
            ids.len(),
            moved.len(),
            problem.map(|problem| problem.to_string()),
        );
    }

    fn is_shared(&self) -> bool {
        self.found.blueprint.as_ref().is_some_and(|blueprint| blueprint.config.own.share)
    }

    async fn keep_stopped(&mut self, ids: &[InstanceId]) {
        let stack = self.stack;
        let event = found_stopped(self.is_shared(), stack.now(), &stack.limits);
        let (moved, problem) = self.write(ids.iter().map(|id| (id.clone(), event.clone()))).await;
        for record in &moved {
            advertise(stack, record).await;
        }
        let problem = problem.map(|problem| problem.to_string());
        self.note(("keep-stopped", "stopped"), ids.len(), moved.len(), problem);
    }

    /// Stops machines. Each stop has a new operation, which the record names before the call is
    /// made, and no call is sent so late that it could stop a machine that has an owner again.
    async fn stop(&mut self, stops: &[(InstanceId, StopWhy)]) {
        let stack = self.stack;
        for batch in stops.chunks(IDS_PER_CALL_MAX) {
            let send_by = stack.ports.clock().monotonic() + stack.limits.stop_send_within;
            let (moved, mut problem) = if sabotage!("stop-without-the-fence") {
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
                problem = Some(fault);
            }
            let why = batch.first().map_or("", |(_, why)| why.code());
            let problem = problem.map(|problem| problem.to_string());
            self.note(("stop", why), batch.len(), moved.len(), problem);
        }
    }

    fn stopping(&self, (id, why): &(InstanceId, StopWhy)) -> (InstanceId, InstanceEvent) {
        let stack = self.stack;
        let op = stack.ports.ids().stop_op();
        (id.clone(), why.event(&self.found.pool, op, stack.now(), &stack.limits))
    }

    /// Stores the journal if anything in it is new, and reports the cycle.
    async fn conclude(mut self) -> CycleReport {
        let journal =
            std::mem::take(&mut self.found.journal).with_deeds(self.actions_taken.clone());
        let token = self.leases.token(self.stack, &self.found.pool);
        let is_over = self.found.blueprint.is_none() && self.found.observed.instances.is_empty();
        let is_new = journal != self.found.stored || sabotage!("journals-are-always-written");
        if (is_new || is_over != self.found.is_expiring)
            && let Some(token) = token.filter(|token| journal.token <= *token)
        {
            self.write_journal(&Journal { token, ..journal.clone() }, is_over).await;
        }
        let (found, deeds) = (self.found, self.actions_taken);
        let machines = found.statuses();
        let (pool, target) = (found.pool, found.desired.target);
        CycleReport { pool, target, machines, notes: journal.notes, deeds }
    }

    async fn write_journal(&self, journal: &Journal, is_over: bool) {
        let SurveyedPool { pool, revision, .. } = &self.found;
        let forget_at = is_over.then(|| self.stack.now().after(KEPT_AFTER_REMOVAL));
        let written = journals::write(self.stack, pool, *revision, journal, forget_at).await;
        if let Err(fault) = written {
            tracing::info!(%pool, %fault, "could not write pool journal");
        }
    }
}

/// How much of a machine's report the journal keeps: the machine's log has the rest.
const FAILURE_CHARS_MAX: usize = 300;

/// How long the store keeps the journal of a pool that is gone.
const KEPT_AFTER_REMOVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The stop call that a record names.
fn order(record: &Record) -> Option<StopOrder> {
    let State::Stopping { op, until, .. } = &record.state else { return None };
    Some(StopOrder { id: record.id.clone(), op: op.clone(), until: *until })
}
