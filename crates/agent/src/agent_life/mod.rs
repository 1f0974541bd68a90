//! The agent's life as a state machine: events in, actions out, no I/O, no clock, no `async`.
//!
//! One *effect* runs at a time ([`Effect`]); asking for another ends the first. What to do about an
//! order is decided by `core::mailbox::agent::react`; this module adds what takes time: registering,
//! stopping, cleaning, and the deadlines in between. Orders that arrive during an effect are kept
//! and looked at when it is done; of two orders the higher rank counts, because an eventual read
//! may show an old one.
//!
//! Not here: doing any of it (`agent`), retrying (an effect or a signal is retried by who does it).

use bullpen_core::limits::Limits;
use bullpen_core::mailbox::agent::ActedOn;
use bullpen_core::mailbox::{
    AgentPhase, Assignment, Inbox, Order, OrderRank, Secret, Signal, SignalKind, Withdrawal,
};
use bullpen_core::ports::Consistency;
use bullpen_core::request::stranger::RanJob;
use bullpen_core::time::Timestamp;

use self::clock::Offset;
use crate::runner::{EndOutcome, LeftListener, ListenerRefusal, Observed};

mod clock;
mod listener;
mod orders;

/// Something that takes time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Look for what a predecessor left.
    Find,
    /// Run what is left of the warm-up.
    WarmUp,
    /// Make the runner known at GitHub.
    Register(Assignment),
    /// Start its listener.
    Listen(Assignment),
    /// Note that the living listener serves this assignment.
    Adopt(Assignment),
    /// End the listener, unless it runs a job.
    End,
    /// End the listener at once, whatever runs on it.
    Kill,
    /// Remove the runner at GitHub with this token.
    Deregister(Secret),
    /// Remove what an owner left.
    Clean,
    /// Shorten the watchdog, then end the listener, job or not.
    Leave,
}

/// How an effect went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectOutcome {
    /// What a predecessor left.
    Found(LeftListener),
    /// The warm-up is complete, or why not.
    WarmedUp(Result<(), String>),
    /// The runner is known at GitHub, or why not.
    Registered(Result<(), ListenerRefusal>),
    /// The listener runs, or why not.
    Launched(Result<(), ListenerRefusal>),
    /// The listener's new assignment is noted.
    Adopted,
    /// The listener is gone, or spared.
    Ended(EndOutcome),
    /// The runner is removed at GitHub, or why not.
    Deregistered(Result<(), ListenerRefusal>),
    /// Nothing of the owner's is left.
    Cleaned,
    /// The machine can go.
    Left,
}

/// What happens to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its process started.
    Begun,
    /// An effect is done.
    Did(EffectOutcome),
    /// The inbox was read.
    Orders {
        /// What it showed.
        inbox: Option<Inbox>,
        /// How fresh it was.
        read: Consistency,
    },
    /// The listener did something.
    Listener(Observed),
    /// The machine is going to be taken away, or may be.
    Interrupted(String),
    /// Every signal so far is stored.
    Stored,
    /// Time passed.
    Tick,
}

/// What an agent does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this until it is stored.
    Signal(SignalKind, Signal),
    /// Do this; whatever else is being done is dropped.
    Do(Effect),
    /// Read the inbox now, consistently.
    Read,
    /// It is over.
    End(SelfEndReason),
}

/// Why a machine ends itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelfEndReason {
    /// Its warm-up failed; the failure is reported.
    WarmUpFailed,
    /// Nobody wanted it for too long.
    Idle,
    /// The owner's hard cap passed.
    HardCap,
}

/// What a stop is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Then {
    /// Make room for another owner's listener.
    Start(Assignment),
    /// It did not register.
    Fail(Assignment, ListenerRefusal),
    /// It was withdrawn.
    Remove(Withdrawal),
    /// It was registered, and is not wanted any more before it ever listened.
    Look,
    /// It was given a job of another run.
    Stranger(Assignment),
}

/// What a cleaning is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Clean {
    Start(Assignment),
    /// With what is to be said about the removal at GitHub.
    Removed(Withdrawal, String),
}

/// What the agent is in the middle of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Finding,
    WarmingUp,
    /// The warm-up is complete and that is not stored yet. Orders are not read before: whoever sees
    /// no `UD_OK` after a withdrawal is stored may rely on nothing being started here.
    Announcing,
    /// The warm-up failed and that is not stored yet.
    Failing,
    /// Nothing: orders are acted on at once.
    Ready,
    /// An assignment is looked at once more, consistently, before anything is started for it.
    Confirming(Assignment),
    Registering(Assignment),
    Launching(Assignment),
    Adopting(Assignment),
    Stopping(Then),
    Deregistering(Withdrawal),
    Cleaning(Clean),
    Leaving(SelfEndReason),
    Over,
}

/// What is known of the listener of `ActedOn::listener`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watched {
    listening: bool,
    job: Option<String>,
    /// The name of the job that was started last.
    last_job: String,
    jobs: u32,
    /// Which run the last job is of.
    ran: Option<RanJob>,
    trouble: Option<ListenerRefusal>,
}

/// One agent process's life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentLife {
    limits: Limits,
    stage: Stage,
    acted: ActedOn,
    watched: Watched,
    /// The highest order seen.
    orders: Option<Inbox>,
    /// A predecessor's listener that is gone.
    remains: Option<Assignment>,
    /// A job of another run that GitHub started here. No removal is acknowledged after that, so no
    /// control plane can use the machine again.
    stranger: Option<RanJob>,
    /// Since when there is no listener.
    deserted_since: Option<Timestamp>,
    offset: Offset,
}

impl AgentLife {
    /// A process that has just started.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            stage: Stage::Finding,
            acted: ActedOn::default(),
            watched: Watched::default(),
            orders: None,
            remains: None,
            stranger: None,
            deserted_since: None,
            offset: Offset::default(),
        }
    }

    /// The same, with what its predecessors in this boot learnt about the machine's clock.
    #[must_use]
    pub fn with_clock_ahead(self, millis: Option<i64>) -> Self {
        Self { offset: Offset(millis), ..self }
    }

    /// By how many milliseconds the machine's clock is ahead of the control plane's, at most.
    pub fn clock_ahead(&self) -> Option<i64> {
        self.offset.0
    }

    /// Handles one event.
    #[must_use = "the actions are what the agent does"]
    pub fn on(&mut self, event: Event, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut fresh = false;
        match event {
            Event::Begun => actions.push(Action::Do(Effect::Find)),
            Event::Did(done) => self.did(done, now, &mut actions),
            Event::Orders { inbox, read } => {
                fresh = read == Consistency::Consistent;
                self.note(inbox, now);
                if fresh {
                    self.confirm(now, &mut actions);
                }
            }
            Event::Listener(seen) => self.seen(seen, now, &mut actions),
            Event::Interrupted(reason) => self.interrupted(&reason, now, &mut actions),
            Event::Stored if self.stage == Stage::Failing => {
                self.leave(SelfEndReason::WarmUpFailed, &mut actions);
            }
            Event::Stored if self.stage == Stage::Announcing => {
                self.stage = Stage::Ready;
                // Nothing is acted on before a consistent read: an old assignment would do harm.
                actions.push(Action::Read);
            }
            Event::Stored | Event::Tick => {}
        }
        self.keep_deadlines(now, &mut actions);
        if self.stage == Stage::Ready {
            self.look(fresh, now, &mut actions);
        }
        actions
    }

    /// What to say in a beat; nothing before it is known what a predecessor left, because a beat
    /// that denies a running job would be believed.
    pub fn phase(&self) -> Option<AgentPhase> {
        Some(match &self.stage {
            Stage::Finding => return None,
            Stage::WarmingUp
            | Stage::Announcing
            | Stage::Failing
            | Stage::Ready
            | Stage::Adopting(_)
                if self.acted.listener.is_some() =>
            {
                if self.watched.job.is_some() {
                    AgentPhase::Busy
                } else if self.watched.listening {
                    AgentPhase::Listening
                } else {
                    AgentPhase::Registering
                }
            }
            Stage::WarmingUp | Stage::Announcing | Stage::Failing => AgentPhase::WarmingUp,
            Stage::Ready | Stage::Adopting(_) => AgentPhase::Waiting,
            Stage::Confirming(_) | Stage::Registering(_) | Stage::Launching(_) => {
                AgentPhase::Registering
            }
            Stage::Stopping(_)
            | Stage::Deregistering(_)
            | Stage::Cleaning(_)
            | Stage::Leaving(_)
            | Stage::Over => AgentPhase::Cleaning,
        })
    }

    /// Whether orders matter yet. Before, they are not even read.
    pub fn takes_orders(&self) -> bool {
        !matches!(
            self.stage,
            Stage::Finding | Stage::WarmingUp | Stage::Announcing | Stage::Failing | Stage::Over
        )
    }

    /// When time alone will change something: the next deadline that is still ahead. An event
    /// before it may move it.
    pub fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        if matches!(self.stage, Stage::Leaving(_) | Stage::Over) {
            return None;
        }
        let cap = self.hard_cap();
        let register_by = self.unregistered().and_then(|to| to.register_by);
        let idle = self.idle_deadline();
        [cap, register_by, idle].into_iter().flatten().filter(|deadline| *deadline > now).min()
    }

    fn did(&mut self, done: EffectOutcome, now: Timestamp, actions: &mut Vec<Action>) {
        let stage = std::mem::replace(&mut self.stage, Stage::Ready);
        match (stage, done) {
            (Stage::Finding, EffectOutcome::Found(found)) => {
                self.found(found);
                self.go(Stage::WarmingUp, Effect::WarmUp, actions);
            }
            (Stage::WarmingUp, EffectOutcome::WarmedUp(Ok(()))) => {
                self.stage = Stage::Announcing;
                actions.push(signal(SignalKind::WarmUpOk, None, now, String::new()));
            }
            (Stage::WarmingUp, EffectOutcome::WarmedUp(Err(tail))) => {
                self.stage = Stage::Failing;
                actions.push(signal(SignalKind::WarmUpFailed, None, now, tail));
            }
            (Stage::Registering(to), EffectOutcome::Registered(result)) => {
                self.registered(to, result, now, actions);
            }
            (Stage::Launching(_), EffectOutcome::Launched(Ok(())))
            | (Stage::Adopting(_), EffectOutcome::Adopted) => {}
            (Stage::Launching(to), EffectOutcome::Launched(Err(refused))) => {
                self.go(Stage::Stopping(Then::Fail(to, refused)), Effect::End, actions);
            }
            (Stage::Stopping(then), EffectOutcome::Ended(ended)) => {
                self.ended(then, ended, now, actions)
            }
            (Stage::Deregistering(order), EffectOutcome::Deregistered(result)) => {
                let said = result.err().map_or_else(String::new, |refused| refused.report());
                self.go(Stage::Cleaning(Clean::Removed(order, said)), Effect::Clean, actions);
            }
            (Stage::Cleaning(Clean::Start(to)), EffectOutcome::Cleaned) => {
                self.begin(to, now, actions)
            }
            (Stage::Cleaning(Clean::Removed(order, said)), EffectOutcome::Cleaned) => {
                self.removed(&order, said, now, actions);
            }
            (Stage::Leaving(ending), EffectOutcome::Left) => {
                self.stage = Stage::Over;
                actions.push(Action::End(ending));
            }
            // The answer of an effect that another one has replaced.
            (stage, _) => self.stage = stage,
        }
    }

    fn found(&mut self, found: LeftListener) {
        match found {
            LeftListener::Nothing => {}
            LeftListener::Alive { assignment, listening, job } => {
                let jobs = u32::from(job.is_some());
                let last_job = job.clone().unwrap_or_default();
                self.watched = Watched { listening, job, last_job, jobs, ..Watched::default() };
                self.acted.listener = Some(assignment);
            }
            LeftListener::Dead { assignment } => self.remains = Some(assignment),
        }
    }

    fn interrupted(&self, reason: &str, now: Timestamp, actions: &mut Vec<Action>) {
        let assigned = match self.orders.as_ref().map(|inbox| &inbox.order) {
            Some(Order::Assigned(assignment)) => Some(assignment),
            Some(Order::Withdrawn(_)) | None => None,
        };
        let about = self.acted.listener.as_ref().or(assigned);
        actions.push(signal(SignalKind::Interrupted, about, now, reason.to_owned()));
    }

    /// Ends what must not go on for longer, in whatever stage.
    fn keep_deadlines(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        if matches!(self.stage, Stage::Leaving(_) | Stage::Over) {
            return;
        }
        if self.hard_cap().is_some_and(|cap| now >= cap) {
            self.leave(SelfEndReason::HardCap, actions);
            return;
        }
        if let Some(to) = self.unregistered().filter(|to| is_late(to, now)).cloned() {
            let why = ListenerRefusal::here("it did not register in time");
            self.go(Stage::Stopping(Then::Fail(to, why)), Effect::End, actions);
        }
    }

    /// What is on its way to a listener, and must not be for longer than its time.
    fn unregistered(&self) -> Option<&Assignment> {
        match &self.stage {
            Stage::Registering(to) => Some(to),
            Stage::Ready if !self.watched.listening => self.acted.listener.as_ref(),
            _ => None,
        }
    }

    /// When the owner's hard cap has passed for certain, by the machine's own clock.
    fn hard_cap(&self) -> Option<Timestamp> {
        let listener = self.acted.listener.as_ref().map(|assignment| assignment.hard_cap);
        let cap = match self.orders.as_ref().map(|inbox| &inbox.order) {
            // A new owner's cap replaces that of the listener it takes over.
            Some(Order::Assigned(assignment)) => Some(assignment.hard_cap),
            Some(Order::Withdrawn(_)) | None => listener,
        };
        cap.map(|cap| self.passed(cap))
    }

    /// When this time has passed for certain: ending a machine too early would end a job.
    fn passed(&self, time: Timestamp) -> Timestamp {
        self.offset.certainly(time).after(self.limits.clock_skew)
    }

    fn leave(&mut self, ending: SelfEndReason, actions: &mut Vec<Action>) {
        if ending == SelfEndReason::HardCap {
            tracing::warn!("the hard cap has passed; the machine ends");
        }
        self.go(Stage::Leaving(ending), Effect::Leave, actions);
    }

    fn go(&mut self, stage: Stage, effect: Effect, actions: &mut Vec<Action>) {
        self.stage = stage;
        actions.push(Action::Do(effect));
    }

    fn rank(&self) -> Option<OrderRank> {
        self.orders.as_ref().map(|inbox| inbox.order.rank())
    }
}

/// Whether an unregistered listener for this must not be, or not be any more.
fn is_late(to: &Assignment, now: Timestamp) -> bool {
    to.register_by.is_some_and(|by| now >= by)
}

fn signal(kind: SignalKind, about: Option<&Assignment>, at: Timestamp, detail: String) -> Action {
    let generation = about.map_or_else(Default::default, |assignment| assignment.generation);
    let owner = about.map(|assignment| assignment.owner.clone());
    Action::Signal(kind, Signal { generation, owner, at, detail, ran: None })
}

/// A job was started, of this run where that is known.
fn job_started(
    about: Option<&Assignment>,
    at: Timestamp,
    name: String,
    ran: Option<RanJob>,
) -> Action {
    match signal(SignalKind::JobStarted, about, at, name) {
        Action::Signal(kind, signal) => Action::Signal(kind, Signal { ran, ..signal }),
        other => other,
    }
}
