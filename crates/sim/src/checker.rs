//! Checkers: they watch a world from outside and know nothing of how the engine works.
//!
//! Every ledger write and every end of a machine is judged as it happens; the whole world is judged
//! at intervals. The first violation stops the run, with a short history of the machine concerned.
//! All that was seen goes into a digest, so that two runs of one seed can be compared.
//!
//! Not here: the invariants that need no history (`core::invariants`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bullpen_core::creation::Intent;
use bullpen_core::ids::{InstanceId, IntentId, MailboxKey};
use bullpen_core::instance::{EndReason, Owner, Record, State};
use bullpen_core::invariants::{self, Invariant, Violation, World as Seen};
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::Inbox;
use bullpen_core::pickup::{Verdict, judge};
use bullpen_core::request::Request;
use bullpen_core::time::Timestamp;
use tokio::sync::Notify;

use crate::dice::fnv1a;
use crate::model::LedgerWrite;
use crate::model::fleet::FleetEvent;
use crate::pace::Pace;
use crate::world::World;

/// Lines kept per machine.
const HISTORY_MAX: usize = 40;

/// How many more than their grace a crashed upkeep may leave things lying, while faults go on.
const GRACE_UNDER_FAULTS: u32 = 4;

#[derive(Debug, Default)]
struct Inner {
    violation: Option<Violation>,
    histories: BTreeMap<InstanceId, VecDeque<String>>,
    trace: Option<Vec<String>>,
    digest: u64,
    writes: u64,
    ended: BTreeMap<EndReason, u64>,
    latest: BTreeMap<InstanceId, Record>,
    intents: BTreeMap<IntentId, Intent>,
    machine_intents: BTreeMap<InstanceId, IntentId>,
    attempts: BTreeMap<Owner, Attempt>,
    lost: BTreeSet<InstanceId>,
    pace: Pace,
}

/// One request's attempt at the resource pool.
#[derive(Debug)]
struct Attempt {
    request: Request,
    began: Timestamp,
}

/// Watches one world.
#[derive(Clone, Debug)]
pub struct Checker {
    inner: Arc<Mutex<Inner>>,
    violated: Arc<Notify>,
    limits: Limits,
}

impl Checker {
    /// Watches this world from now on; keeps every line if `trace`.
    pub fn watch(world: &World, trace: bool) -> Self {
        let inner = Inner { trace: trace.then(Vec::new), ..Inner::default() };
        let limits = world.limits.clone();
        let checker = Self { inner: Arc::new(Mutex::new(inner)), violated: Arc::default(), limits };
        let watching = checker.clone();
        bullpen_core::ports::Ports::ledger(&world.outside)
            .set_observer(Box::new(move |write| watching.on_ledger(write)));
        let watching = checker.clone();
        bullpen_core::ports::Ports::mailbox(&world.outside).set_observer(Box::new(
            move |key, before, after| watching.on_order(key, before, after),
        ));
        let watching = checker.clone();
        bullpen_core::ports::Ports::fleet(&world.outside)
            .set_observer(move |at, event| watching.on_fleet(at, event));
        checker
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when something is wrong.
    pub async fn violated(&self) {
        while self.inner().violation.is_none() {
            self.violated.notified().await;
        }
    }

    /// What is wrong, and the history of the machine concerned.
    pub fn verdict(&self) -> Option<(Violation, Vec<String>)> {
        let inner = self.inner();
        let violation = inner.violation.clone()?;
        let history = violation.instance.as_ref().and_then(|id| inner.histories.get(id));
        Some((violation, history.cloned().unwrap_or_default().into()))
    }

    /// A number that two runs of one seed must agree on.
    pub fn digest(&self) -> u64 {
        self.inner().digest
    }

    /// How many ledger writes were seen.
    pub fn writes(&self) -> u64 {
        self.inner().writes
    }

    /// How many machines ended, by reason.
    pub fn ended(&self) -> BTreeMap<EndReason, u64> {
        self.inner().ended.clone()
    }

    /// Every line, if they were kept.
    pub fn take_trace(&self) -> Vec<String> {
        self.inner().trace.take().unwrap_or_default()
    }

    /// A request begins to look for idle machines.
    pub fn attempt_begins(&self, owner: Owner, request: Request, began: Timestamp) {
        self.inner().attempts.insert(owner, Attempt { request, began });
    }

    /// Something is wrong.
    pub fn report(&self, violation: Violation) {
        self.inner().violation.get_or_insert(violation);
        self.violated.notify_waiters();
    }

    fn on_ledger(&self, write: &LedgerWrite<'_>) {
        let judged = match write {
            LedgerWrite::Record { at, before, after, kind } => {
                let mut inner = self.inner();
                inner.writes += 1;
                inner.note(&after.id, &record_line(*at, after));
                inner.latest.insert(after.id.clone(), (*after).clone());
                if let State::Terminated { why, .. } = after.state {
                    *inner.ended.entry(why).or_default() += 1;
                }
                if before.is_none()
                    && let Some(intent) = inner.intents.get_mut(&after.facts.intent)
                {
                    intent.outstanding = intent.outstanding.saturating_sub(1);
                }
                drop(inner);
                invariants::on_write(*before, after, *kind)
            }
            LedgerWrite::Reserved { at, intent } => {
                let mut inner = self.inner();
                inner.intents.insert(intent.id.clone(), (*intent).clone());
                let line = format!("{at} reserved {} for {}", intent.outstanding, intent.id);
                inner.keep(&line);
                drop(inner);
                self.no_missed_warm(*at, intent)
            }
            LedgerWrite::GivenBack { intent, .. } => {
                self.inner().intents.remove(&intent.id);
                Ok(())
            }
            LedgerWrite::Row { .. } => Ok(()),
        };
        if let Err(violation) = judged {
            self.report(violation);
        }
    }

    /// Invariant 9: whatever matched and was idle from before the attempt until now was missed.
    fn no_missed_warm(&self, at: Timestamp, intent: &Intent) -> Result<(), Violation> {
        let inner = self.inner();
        let Some(attempt) = inner.attempts.get(&intent.owner) else { return Ok(()) };
        let missed = inner.latest.values().find(|record| {
            let State::Idle { since, .. } = record.state else { return false };
            let Some(advert) = record.advert() else { return false };
            // A clock that runs ahead may rightly think that its time is nearly over.
            let later = at.after(2 * self.limits.clock_skew);
            since.after(self.limits.clock_skew) < attempt.began
                && judge(&advert, &attempt.request, &self.limits, later) == Verdict::PassOn
        });
        match missed {
            None => Ok(()),
            Some(record) => Err(Violation {
                invariant: Invariant::NoMissedWarm,
                instance: Some(record.id.clone()),
                what: format!("{} creates machines while it was idle", intent.owner),
            }),
        }
    }

    /// Invariant 3 in the mailbox: a fenced owner's order never replaces a newer one.
    fn on_order(&self, key: &MailboxKey, before: Option<&Inbox>, after: &Inbox) {
        let rank = after.order.rank();
        if let Some(before) = before.map(|inbox| inbox.order.rank())
            && before >= rank
        {
            self.report(Violation {
                invariant: Invariant::OneOwner,
                instance: Some(InstanceId::new(key.as_str())),
                what: format!(
                    "an order of generation {} replaced one of generation {}",
                    rank.generation, before.generation
                ),
            });
        }
    }

    /// Invariant 3 at GitHub: whoever listens on a machine listens for its owner, and on an idle
    /// machine nobody does.
    fn listeners(&self, world: &World) {
        use bullpen_core::ports::Ports;
        for (machine, label) in world.outside.forge().listeners() {
            let inner = self.inner();
            let Some(record) = inner.latest.get(&machine) else { continue };
            let owner = record.state.listed_under().cloned();
            let idle = matches!(record.state, State::Idle { .. });
            drop(inner);
            let expected = owner.map(|owner| match owner {
                Owner::Request(id) => format!("warm-{id}"),
                Owner::Job(id) => id.to_string(),
                Owner::Pool(name) => name.to_string(),
            });
            if idle || expected.is_some_and(|expected| expected != label) {
                self.report(Violation {
                    invariant: Invariant::OneOwner,
                    instance: Some(machine),
                    what: format!("a listener for {label} is connected, and it is not the owner's"),
                });
            }
        }
    }

    fn on_fleet(&self, at: Timestamp, event: &FleetEvent) {
        let mut inner = self.inner();
        match event {
            FleetEvent::Asked(process, call, _) => {
                let judged = inner.pace.asked(process, *call, at);
                drop(inner);
                if let Err(violation) = judged {
                    self.report(violation);
                }
            }
            FleetEvent::Launched(machine) => {
                inner
                    .note(&machine.id, &format!("{at} launched {} {}", machine.id, machine.intent));
                inner.machine_intents.insert(machine.id.clone(), machine.intent.clone());
            }
            FleetEvent::Lost(id) => {
                inner.note(id, &format!("{at} lost {id}"));
                inner.lost.insert(id.clone());
            }
            FleetEvent::PoweredOff(id) => inner.note(id, &format!("{at} powered off {id}")),
            FleetEvent::Terminated(id) => {
                inner.note(id, &format!("{at} ended {id}"));
                let judged = inner.may_end(at, id);
                drop(inner);
                if let Err(violation) = judged {
                    self.report(violation);
                }
            }
        }
    }

    /// Judges everything at once.
    pub fn look(&self, world: &World) {
        use bullpen_core::ports::Ports;
        let (records, intents) = world.outside.ledger().snapshot();
        let machines = world.outside.fleet().snapshot();
        let limits = Limits {
            reconcile_grace: self.limits.reconcile_grace * GRACE_UNDER_FAULTS,
            ..self.limits.clone()
        };
        let seen = Seen {
            now: world.outside.clock().true_now(),
            records: &records,
            intents: &intents,
            machines: &machines,
            ceilings: &world.ceilings,
            limits: &limits,
        };
        for violation in invariants::on_world(&seen) {
            self.report(violation);
        }
        self.listeners(world);
        for (machine, job) in world.outside.forge().take_interrupted() {
            self.interrupted(&machine, job);
        }
    }

    /// Invariant 4, seen from the job's side.
    fn interrupted(&self, machine: &InstanceId, job: u64) {
        if !self.inner().lost.contains(machine) {
            self.report(Violation {
                invariant: Invariant::Protected,
                instance: Some(machine.clone()),
                what: format!("job {job} was interrupted, and the cloud did not do it"),
            });
        }
    }
}

impl Inner {
    fn keep(&mut self, line: &str) {
        self.digest = fnv1a(line.as_bytes()) ^ self.digest.rotate_left(5);
        if let Some(trace) = &mut self.trace {
            trace.push(line.to_owned());
        }
    }

    fn note(&mut self, id: &InstanceId, line: &str) {
        self.keep(line);
        let history = self.histories.entry(id.clone()).or_default();
        if history.len() == HISTORY_MAX {
            history.pop_front();
        }
        history.push_back(line.to_owned());
    }

    /// Only a machine that is recorded as ending, or that nobody accounts for, may be ended.
    fn may_end(&self, at: Timestamp, id: &InstanceId) -> Result<(), Violation> {
        let wrong = |what| {
            Err(Violation { invariant: Invariant::Protected, instance: Some(id.clone()), what })
        };
        match self.latest.get(id).map(|record| &record.state) {
            Some(State::Terminating { .. } | State::Terminated { .. }) => Ok(()),
            Some(state) => wrong(format!("ended while {}", state.name().as_str())),
            None => {
                let intent = self.machine_intents.get(id).and_then(|id| self.intents.get(id));
                match intent {
                    Some(intent) if intent.outstanding > 0 && intent.deadline > at => {
                        wrong("ended under a live intent".into())
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

fn record_line(at: Timestamp, record: &Record) -> String {
    let state = record.state.name().as_str();
    let owner = record.state.listed_under().map_or_else(String::new, |owner| format!(" {owner}"));
    format!("{at} {} g{} r{} {state}{owner}", record.id, record.generation, record.revision)
}
