//! Checkers: they watch a world from outside, independently of the engine's code.
//!
//! They judge every ledger write, order, launch and end of a machine as it happens, and the whole
//! world at intervals. The first violation stops the run and is reported with a short history of
//! its machine. All events go into a digest, which compares two runs of one seed. Each invariant
//! that needs a history has its own file; `view` is their shared state.
//!
//! Not here: the invariants that need no history (`core::invariants`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::creation::Ceiling;
use bullpen_core::ids::{InstanceId, MailboxKey, TrustGroup};
use bullpen_core::instance::{EndReason, Owner, Record, State};
use bullpen_core::invariants::{self, StackSnapshot, Violation};
use bullpen_core::job::{Lane, Origin, minted_for};
use bullpen_core::labels::request_of;
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::{Inbox, Order, SYSTEMIC, SignalKind, Withdrawal, WithdrawalMode};
use bullpen_core::ports::Ports;
use bullpen_core::rates::FleetCall;
use bullpen_core::request::Request;
use bullpen_core::request::stranger::{OwnRun, RanJob};
use bullpen_core::time::Timestamp;
use bullpen_engine::pools::SurveyedPool;
use tokio::sync::Notify;

use crate::model::fleet::FleetEvent;
use crate::model::{FleetModel, ForgeModel, JobForgeModel, LedgerWrite, MailboxModel};
use crate::storms::Storms;
use crate::wire::OUTSIDE;
use crate::world::{Ailing, STACK, World};

mod conservation;
mod costs;
mod endings;
mod fit;
mod ghosts;
mod history;
mod jobs;
mod labels;
mod missed_warm;
mod needs;
mod one_owner;
mod pace;
mod plans;
mod protected;
mod requests;
mod trust;
mod view;

pub use costs::CostSettings;
use costs::Costs;
use endings::Endings;
use ghosts::Ghosts;
use history::History;
use jobs::JobChecks;
use needs::{Conditions, Needs};
use one_owner::Tenures;
use pace::Pace;
use protected::Condemned;
pub use requests::ProvisionOutcome;
use requests::Requests;
use trust::{Code, Traces};
use view::View;

/// The collection of documents in which the service's replicas announce themselves.
const REPLICAS: &str = "replicas";
/// How long after the cloud's answer about a machine the engine may condemn its record: repeated calls,
/// and a write that lands late.
const JUDGED_WITHIN: Duration = Duration::from_secs(60);
/// While faults go on, an upkeep that crashed may clean up this many times later than the grace.
const GRACE_UNDER_FAULTS: u32 = 4;

#[derive(Debug)]
struct Inner {
    violation: Option<Violation>,
    history: History,
    view: View,
    requests: Requests,
    jobs: JobChecks,
    needs: Needs,
    ailing: Ailing,
    fleet: FleetModel,
    /// Tells how long a process paused: it then writes what it decided before.
    storms: Storms,
    traces: Traces,
    /// The trust group of reused machines of jobs, if it is not each repository's own.
    jobs_trust: Option<TrustGroup>,
    tenures: Tenures,
    ghosts: Ghosts,
    endings: Endings,
    pace: Pace,
    costs: Costs,
    /// The calls to the cloud, each with its number of machines.
    calls: Vec<(FleetCall, u32)>,
    writes: u64,
    machine_time: Duration,
    ended: BTreeMap<EndReason, u64>,
    forge: ForgeModel,
    job_forge: JobForgeModel,
    mailbox: MailboxModel,
}

/// Watches one world.
#[derive(Clone, Debug)]
pub struct Checker {
    inner: Arc<Mutex<Inner>>,
    violated: Arc<Notify>,
}

impl Checker {
    /// Watches this world from now on; keeps every event line if `trace`.
    pub fn watch(world: &World, trace: bool) -> Self {
        let outside = &world.outside;
        let numbers = (world.limits.clone(), world.ceilings.clone());
        let inner = Inner {
            violation: None,
            history: History::new(trace),
            view: View::new(numbers, outside.ledger().snapshot(), outside.fleet().snapshot()),
            requests: Requests::default(),
            jobs: JobChecks::default(),
            needs: Needs::default(),
            ailing: world.ailing().clone(),
            fleet: outside.fleet().clone(),
            storms: world.storms().clone(),
            traces: Traces::default(),
            jobs_trust: None,
            tenures: Tenures::default(),
            ghosts: Ghosts::default(),
            endings: Endings::default(),
            pace: Pace::default(),
            costs: Costs::default(),
            calls: Vec::new(),
            writes: 0,
            machine_time: Duration::ZERO,
            ended: BTreeMap::new(),
            forge: outside.forge().clone(),
            job_forge: world.jobs.clone(),
            mailbox: outside.mailbox().clone(),
        };
        let checker = Self { inner: Arc::new(Mutex::new(inner)), violated: Arc::default() };
        let watching = checker.clone();
        outside.ledger().set_observer(Box::new(move |write| watching.on_ledger(write)));
        let watching = checker.clone();
        let clock = outside.clock().clone();
        outside.mailbox().set_observer(Box::new(move |key, before, after| {
            watching.judge(|inner| inner.ordered(clock.true_now(), key, before, after));
        }));
        outside.mailbox().set_witness(checker.witness(world));
        outside.forge().set_witness(checker.witness(world));
        let watching = checker.clone();
        outside.fleet().set_observer(move |at, event| {
            watching.judge(|inner| inner.on_fleet(at, event));
        });
        checker
    }

    /// A callback that adds a line to a machine's history.
    fn witness(&self, world: &World) -> impl FnMut(&InstanceId, &str) + Send + use<> {
        let (watching, clock) = (self.clone(), world.outside.clock().clone());
        move |machine, what| {
            let line = format!("{} {what}", clock.true_now());
            watching.inner().history.note(machine, &line);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, judge: impl FnOnce(&mut Inner) -> Result<(), Violation>) {
        let judged = judge(&mut self.inner());
        if let Err(violation) = judged {
            self.report(violation);
        }
    }

    /// Returns at the first violation.
    pub async fn violated(&self) {
        while self.inner().violation.is_none() {
            self.violated.notified().await;
        }
    }

    /// The first violation, and the history of its machine.
    pub fn verdict(&self) -> Option<(Violation, Vec<String>)> {
        let inner = self.inner();
        let violation = inner.violation.clone()?;
        let about = violation.instance.as_ref().map(|id| inner.history.about(id));
        Some((violation, about.unwrap_or_default()))
    }

    /// A number that two runs of one seed must agree on.
    pub fn digest(&self) -> u64 {
        self.inner().history.digest()
    }

    /// Takes the calls to the cloud since the last take, each with its number of machines.
    pub fn take_calls(&self) -> Vec<(FleetCall, u32)> {
        std::mem::take(&mut self.inner().calls)
    }

    /// Judges what the world costs from now on, by these settings.
    pub fn settle_costs(&self, settings: CostSettings) {
        self.inner().costs.settle_for(settings);
    }

    /// Adds a ceiling that holds from now on, beside the world's own.
    pub fn add_ceiling(&self, ceiling: Ceiling) {
        self.inner().view.ceilings.push(ceiling);
    }

    /// The number of ledger writes so far.
    pub fn writes(&self) -> u64 {
        self.inner().writes
    }

    /// Adds this time to the machine time, for every existing machine.
    pub fn machines_lived(&self, time: Duration) {
        let mut inner = self.inner();
        let machines = u32::try_from(inner.view.machines.len()).unwrap_or(u32::MAX);
        inner.machine_time += time * machines;
    }

    /// The lifetimes of all machines, summed.
    pub fn machine_time(&self) -> Duration {
        self.inner().machine_time
    }

    /// How many machines ended, by reason.
    pub fn ended(&self) -> BTreeMap<EndReason, u64> {
        self.inner().ended.clone()
    }

    /// Every event line, if a trace was requested.
    pub fn take_trace(&self) -> Vec<String> {
        self.inner().history.take_trace()
    }

    /// A request begins to look for idle machines.
    pub fn attempt_begins(&self, owner: Owner, request: Request, began: Timestamp) {
        self.inner().requests.begins(owner, request, began);
    }

    /// A process provisions for an owner, until this deadline.
    pub fn provision_begins(&self, process: &str, owner: &Owner, deadline: Timestamp) {
        self.inner().requests.provision_begins(process, owner, deadline);
    }

    /// A provision is cancelled: its process now decides for the whole request.
    pub fn is_cancelled(&self, process: &str, owner: &Owner) {
        self.inner().requests.decides_now(process, owner);
    }

    /// A provision has ended with this result for its caller.
    pub fn provision_ends(&self, world: &World, process: &str, outcome: &ProvisionOutcome) {
        let connected: BTreeMap<_, _> = world.outside.forge().listeners().into_iter().collect();
        let now = world.outside.clock().true_now();
        self.judge(|inner| {
            inner.deserted();
            inner.history.keep(&format!("{now} {process} ends: {outcome:?}"));
            inner.requests.provision_ends(&inner.view, &connected, process, outcome, now)
        });
    }

    /// Sets one trust group for reused machines of jobs of every repository.
    pub fn jobs_trust(&self, group: Option<TrustGroup>) {
        self.inner().jobs_trust = group;
    }

    /// A process begins to release the machines of an owner.
    pub fn release_begins(&self, process: &str, owner: &Owner) {
        let inner = &mut *self.inner();
        inner.requests.release_begins(&inner.view, process, owner);
    }

    /// The machines of an owner were released.
    pub fn is_released(&self, owner: &Owner, now: Timestamp) {
        self.judge(|inner| inner.requests.is_released(&inner.view, owner, now));
    }

    /// The workflow run of a request is over, and GitHub says so when asked.
    pub fn run_ends(&self, owner: &Owner) {
        self.inner().requests.run_ends(owner);
    }

    /// The simulator gave up waiting for a fulfilled request's jobs: they did not all run.
    pub fn jobs_given_up(&self, owner: &Owner) {
        self.judge(|inner| inner.requests.jobs_given_up(owner));
    }

    /// From this time on the world has no faults, and what is of no use ends soon.
    pub fn is_calm_since(&self, at: Timestamp) {
        self.inner().endings.calm_since = Some(at);
    }

    /// Reports a violation; the first report counts.
    pub fn report(&self, violation: Violation) {
        self.inner().violation.get_or_insert(violation);
        self.violated.notify_waiters();
    }

    /// Judges surveyed pools: their plans must touch no machine that is in use.
    pub fn look_at_plans(&self, found: &[SurveyedPool]) {
        self.judge(|inner| inner.costs.pools_want(found));
        for found in found {
            self.judge(|_| plans::planned(found));
        }
    }

    /// Why a pool has not converged, or `None` if it has.
    pub fn unconverged(found: &SurveyedPool) -> Option<Violation> {
        plans::unconverged(found)
    }

    fn on_ledger(&self, write: &LedgerWrite<'_>) {
        self.judge(|inner| match write {
            LedgerWrite::Record { at, before, after, by } => {
                let judged = inner.judge_write(*at, *before, after, by);
                inner.stored(*at, before.is_none(), after, by);
                inner.costs.stored(*before, after);
                judged.and(invariants::on_write(*before, after))
            }
            LedgerWrite::Reserved { at, intent } => {
                let line = format!("{at} reserved {} for {}", intent.outstanding, intent.id);
                inner.history.keep(&line);
                inner.view.intents.insert(intent.id.clone(), (*intent).clone());
                missed_warm::reserved(&inner.view, &inner.requests, *at, intent)
            }
            LedgerWrite::GivenBack { intent, .. } => {
                inner.view.intents.remove(&intent.id);
                // The cloud may miss a machine in every listing that the reconciler reads.
                conservation::given_back(&inner.view, intent, |id| inner.fleet.was_hidden(id))
            }
            LedgerWrite::Row { at, after, .. } => {
                let line = inner.jobs.written(*at, after)?;
                inner.history.keep(&line);
                let job = inner.jobs.row(&after.job);
                job.map_or(Ok(()), |job| inner.needs.failed(job, *at))
            }
            LedgerWrite::Document { at, after, by } => {
                if after.collection == REPLICAS {
                    inner.pace.announced(by, *at);
                }
                Ok(())
            }
        });
    }

    /// Judges the whole world.
    pub fn look(&self, world: &World) {
        let forge = world.outside.forge();
        let (listeners, registered) = (forge.listeners(), forge.registered());
        let (interrupted, now) = (forge.take_interrupted(), world.outside.clock().true_now());
        let seen = world.jobs.seen();
        let conditions = Conditions { is_calm: world.is_calm(), storms: world.has_storms() };
        let mut inner = self.inner();
        inner.deserted();
        let started = inner.code_ran();
        let Inner { view, requests, ghosts, jobs, endings, needs, costs, .. } = &mut *inner;
        let grace = view.limits.reconcile_grace * GRACE_UNDER_FAULTS;
        let mut judged = on_world(view, now);
        judged.push(started);
        let known = listeners.iter().filter(|(id, _)| !view.taken_for_lost.contains(id));
        judged.extend(known.map(|(id, label)| one_owner::listens(view, id, label)));
        judged.extend(interrupted.iter().map(|(id, job)| protected::interrupted(view, id, *job)));
        let waits = |name: &_| jobs.wants(world.stack_name(), name);
        judged.push(ghosts.look(view, waits, &registered, grace, now));
        judged.push(requests.look(view, needs.has_incident(), now));
        judged.push(endings.look(view, now));
        judged.extend(jobs.look(view, &seen, now));
        judged.push(needs.look(view, jobs.waiting(), conditions, now));
        let is_trouble = needs.has_incident() || forge.is_down();
        costs.look((view, requests), &seen, is_trouble, now);
        judged.push(costs.judge(&forge.calls(), &view.limits));
        drop(inner);
        for violation in judged.into_iter().filter_map(Result::err) {
            self.report(violation);
        }
    }
}

/// The invariants that need no history, on the live records and machines.
fn on_world(view: &View, now: Timestamp) -> Vec<Result<(), Violation>> {
    let limits = Limits {
        reconcile_grace: view.limits.reconcile_grace * GRACE_UNDER_FAULTS,
        ..view.limits.clone()
    };
    let seen = StackSnapshot {
        now,
        records: &view.live.values().cloned().collect::<Vec<_>>(),
        intents: &view.intents.values().cloned().collect::<Vec<_>>(),
        machines: &view.machines.values().cloned().collect::<Vec<_>>(),
        ceilings: &view.ceilings,
        limits: &limits,
    };
    invariants::on_world(&seen).into_iter().map(Err).collect()
}

impl Inner {
    fn judge_write(
        &mut self,
        at: Timestamp,
        before: Option<&Record>,
        after: &Record,
        by: &str,
    ) -> Result<(), Violation> {
        let decides_for = |owner: &Owner| self.requests.is_newest(by, owner);
        self.tenures.written(decides_for, before, after, by)?;
        if !after.state.is_live() {
            conservation::buried(&self.view, &after.id)?;
        }
        let Some(before) = before else { return conservation::recorded(&self.view, after) };
        if let State::Running { owner, .. } = &before.state
            && at >= before.state.deadline()
        {
            self.requests.loses_one(owner);
        }
        let is_lost = self.looks_lost(&before.id, at.before(self.storms.paused(by)));
        protected::taken(&self.view, &self.requests, at, (before, is_lost), after, by)?;
        if let State::Terminating { why, .. } = after.state {
            if is_lost && why == EndReason::MachineGone {
                self.view.taken_for_lost.insert(before.id.clone());
                if let Some(owner) = before.state.owner() {
                    self.requests.loses_one(owner);
                }
            }
            let is_ailing = self.is_ailing(&before.id);
            self.needs.condemned(before, why, is_ailing)?;
            self.deserted();
            protected::condemned(&self.view, at, before, after, self.outside_of(before))?;
        }
        // No store compares a claim with a clock. A machine whose time is up fails the claim's checks.
        let judged_at = at.before(self.storms.paused(by));
        self.requests.claimed(&self.view, judged_at, before, after)?;
        if let (State::Idle { .. }, State::Claimed { owner, .. }) = (&before.state, &after.state) {
            self.code_ran()?;
            if let Some(group) = self.group_of(owner) {
                self.traces.claimed(&before.id, group)?;
            }
        }
        Ok(())
    }

    /// Whether a machine or its agent had trouble of its own, beside storms.
    fn is_ailing(&self, id: &InstanceId) -> bool {
        let view = &self.view;
        let sets = [&view.noticed, &view.lost, &view.powered_off, &view.deserted];
        self.ailing.has(id) || sets.iter().any(|set| set.contains(id))
    }

    /// Whether at this time nothing told a machine from a lost one: an answer about it did not show it, and its agent
    /// may be silent. An agent that died or hung once counts as silent for good, because the model
    /// computes beats and keeps no history of silence.
    fn looks_lost(&self, id: &InstanceId, at: Timestamp) -> bool {
        let earliest = at.before(JUDGED_WITHIN);
        let is_unseen = self.fleet.was_unseen(id).is_some_and(|seen| seen >= earliest);
        is_unseen && (self.is_ailing(id) || self.needs.has_incident())
    }

    /// The trust group whose code an owner runs.
    fn group_of(&self, owner: &Owner) -> Option<TrustGroup> {
        match owner {
            Owner::Request(_) => Some(self.requests.asked(owner)?.request.trust.clone()),
            Owner::Job(job) => {
                let repository = self.jobs.row(job)?.repository();
                let own = || TrustGroup::new(repository.as_str());
                Some(self.jobs_trust.clone().unwrap_or_else(own))
            }
            Owner::Pool(_) => None,
        }
    }

    /// Judges every job that GitHub has started: the runner must be allowed to run it, and its code
    /// leaves a trace on the machine.
    fn code_ran(&mut self) -> Result<(), Violation> {
        let mut judged = Ok(());
        for ran in self.forge.take_ran() {
            let made_for = minted_for(STACK, &ran.runner).and_then(|job| self.jobs.row(&job));
            let is_request = made_for.is_some_and(|job| matches!(job.lane, Some(Lane::Request(_))));
            if let Some(job) = made_for.filter(|_| !is_request) {
                judged = judged.and(labels::started(&ran, &job.known.about.run));
            }
            let is_strangers = made_for.is_some_and(|job| {
                let run = &job.known.about.run;
                labels::is_bound(&ran.runner_has, run)
                    && ran.of.as_ref().is_some_and(|of| of.run.to_string() != run.run_id())
            });
            let code = match self.job_forge.by_number(ran.number) {
                // The agent stops such a job before its first step.
                Some(_) if is_strangers => Some(Code::OfAStranger),
                Some((.., origin @ (Origin::Fork | Origin::Dependabot))) => {
                    Some(Code::Untrusted(origin))
                }
                Some((_, repository, Origin::Own | Origin::PullRequest)) => {
                    let own = || TrustGroup::new(repository.as_str());
                    Some(Code::Of(self.jobs_trust.clone().unwrap_or_else(own)))
                }
                None => {
                    let request = request_of(&[&ran.label]);
                    let own = request.as_ref().and_then(|id| OwnRun::of_request(id, None));
                    // Does not call the engine's own rule, so that a mistake there shows here.
                    let is_own =
                        |of: &RanJob| own.as_ref().is_none_or(|own| own.run == Some(of.run));
                    if ran.of.as_ref().is_some_and(|of| !is_own(of)) {
                        Some(Code::OfAStranger)
                    } else {
                        request.and_then(|id| self.group_of(&Owner::Request(id))).map(Code::Of)
                    }
                }
            };
            if let Some(code) = code {
                judged = judged.and(self.traces.ran(&ran.machine, code));
            }
        }
        judged
    }

    /// The state of a machine at GitHub and in its mailbox.
    fn outside_of(&self, record: &Record) -> Condemned {
        let report = self.mailbox.report_now(&record.facts.mailbox).unwrap_or_default();
        let failed = report.signal(SignalKind::RegistrationFailed, record.generation);
        let order = self.mailbox.inbox_now(&record.facts.mailbox).map(|inbox| inbox.order);
        Condemned {
            is_connected: self.forge.listeners().iter().any(|(machine, _)| *machine == record.id),
            // An agent that hung may report the failure long after its time was up.
            is_blameless: failed.is_some_and(|failed| failed.detail.starts_with(SYSTEMIC))
                && !self.view.deserted.contains(&record.id),
            told_to_stop: match order {
                Some(Order::Withdrawn(Withdrawal { mode: WithdrawalMode::Stop, at, .. })) => {
                    Some(at)
                }
                _ => None,
            },
        }
    }

    fn stored(&mut self, at: Timestamp, is_first: bool, after: &Record, by: &str) {
        self.writes += 1;
        self.history.note(&after.id, &record_line(at, after, by));
        if let State::Terminated { why, .. } = after.state {
            *self.ended.entry(why).or_default() += 1;
        }
        self.view.stored(is_first, after);
    }

    fn ordered(
        &mut self,
        at: Timestamp,
        key: &MailboxKey,
        before: Option<&Inbox>,
        after: &Inbox,
    ) -> Result<(), Violation> {
        let machine = InstanceId::new(key.as_str());
        self.history.note(&machine, &order_line(at, &machine, &after.order));
        if let Order::Assigned(assignment) = &after.order {
            self.costs.assigned();
            self.view.deserted.remove(&machine);
            self.view.assigned.insert(machine, assignment.runner.clone());
        }
        one_owner::ordered(key, before, after)
    }

    fn on_fleet(&mut self, at: Timestamp, event: &FleetEvent) -> Result<(), Violation> {
        match event {
            // The simulator's own calls are no process's calls.
            FleetEvent::Asked(process, ..) if **process == *OUTSIDE => Ok(()),
            FleetEvent::Asked(process, call, machines) => {
                self.calls.push((*call, *machines));
                self.pace.asked(process, *call, at)
            }
            FleetEvent::Trespassed(id, call) => protected::trespassed(id, *call),
            FleetEvent::Launched(machine) => {
                let line = format!("{at} launched {} {}", machine.id, machine.intent);
                self.history.note(&machine.id, &line);
                self.view.machines.insert(machine.id.clone(), machine.clone());
                let intent = self.view.intents.get(&machine.intent);
                self.costs.launched(intent.map(|intent| &intent.owner));
                if let Some(intent) = intent {
                    self.needs.launched(&intent.owner)?;
                }
                conservation::launched(&self.view, machine)
            }
            FleetEvent::Noticed(id) => {
                self.history.note(id, &format!("{at} given notice {id}"));
                self.view.noticed.insert(id.clone());
                Ok(())
            }
            FleetEvent::Lost(id) => {
                self.history.note(id, &format!("{at} lost {id}"));
                self.view.lost.insert(id.clone());
                self.gone(id);
                Ok(())
            }
            FleetEvent::PoweredOff(id) => {
                self.history.note(id, &format!("{at} powered off {id}"));
                self.view.powered_off.insert(id.clone());
                self.gone(id);
                Ok(())
            }
            FleetEvent::Stopping(id) => {
                self.history.note(id, &format!("{at} stopping {id}"));
                protected::stopped(&self.view, id)
            }
            FleetEvent::Terminated(id) => {
                self.history.note(id, &format!("{at} ended {id}"));
                let judged = protected::ended(&self.view, at, id);
                self.view.machines.remove(id);
                judged
            }
        }
    }

    /// Notes the listeners that exited by themselves: their owners are not at fault.
    fn deserted(&mut self) {
        for id in self.forge.take_left() {
            self.owner_loses(&id);
            self.view.deserted.insert(id);
        }
    }

    /// A machine is gone that no process had terminated.
    fn gone(&mut self, id: &InstanceId) {
        self.view.machines.remove(id);
        self.owner_loses(id);
    }

    /// The owner of this machine has lost the use of it.
    fn owner_loses(&mut self, id: &InstanceId) {
        if let Some(owner) = self.view.live.get(id).and_then(|r| r.state.listed_under()) {
            self.requests.loses_one(owner);
        }
    }
}

fn order_line(at: Timestamp, machine: &InstanceId, order: &Order) -> String {
    let (generation, what) = match order {
        Order::Assigned(to) => (to.generation, "listen"),
        Order::Withdrawn(Withdrawal { generation, mode: WithdrawalMode::Drain, .. }) => {
            (*generation, "drain")
        }
        Order::Withdrawn(Withdrawal { generation, mode: WithdrawalMode::Stop, .. }) => {
            (*generation, "stop")
        }
    };
    format!("{at} {machine} ordered to {what}, g{generation}")
}

fn record_line(at: Timestamp, record: &Record, by: &str) -> String {
    let state = record.state.name().as_str();
    let owner = record.state.listed_under().map_or_else(String::new, |owner| format!(" {owner}"));
    let why = match &record.state {
        State::Terminating { why, .. } => format!(" ({why:?})"),
        _ => String::new(),
    };
    let Record { id, generation, revision, .. } = record;
    format!("{at} {id} g{generation} r{revision} {state}{why}{owner}, by {by}")
}
