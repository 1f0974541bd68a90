//! The agent's life as a state machine: events in, actions out, no I/O, no clock, no `async`.
//!
//! One *effect* runs at a time ([`Effect`]); starting another drops the first.
//! `core::mailbox::agent::react` decides what follows an order; this module adds the steps that
//! take time and their deadlines. It keeps an order that arrives during an effect until the effect
//! is done. The order with the higher rank wins, because an eventual read may show an old order.
//!
//! Not here: running effects, or retrying effects and signals (`agent`).

use bullpen_core::ids::Generation;
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

/// An operation that takes time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Find the listener that an earlier agent left.
    Find,
    /// Run the remaining steps of the warm-up.
    WarmUp,
    /// Register the runner at GitHub.
    Register(Assignment),
    /// Start its listener.
    Listen(Assignment),
    /// Record that the running listener serves this assignment.
    Adopt(Assignment),
    /// End the listener, unless it runs a job.
    End,
    /// End the listener at once, also during a job.
    Kill,
    /// Remove the runner at GitHub with this token.
    Deregister(Secret),
    /// Remove an owner's files and processes.
    Clean,
    /// Shorten the watchdog, then end the listener, job or not.
    Leave,
}

/// How an effect ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectOutcome {
    /// The listener that an earlier agent left.
    Found(LeftListener),
    /// The warm-up is complete, or why not.
    WarmedUp(Result<(), String>),
    /// The runner is registered at GitHub, or why not.
    Registered(Result<(), ListenerRefusal>),
    /// The listener runs, or why not.
    Launched(Result<(), ListenerRefusal>),
    /// The agent recorded the listener's new assignment.
    Adopted,
    /// The listener is gone, or keeps running because it runs a job.
    Ended(EndOutcome),
    /// The runner is removed at GitHub, or why not.
    Deregistered(Result<(), ListenerRefusal>),
    /// The owner's files and processes are removed.
    Cleaned,
    /// The machine can end.
    Left,
}

/// An input of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its process started.
    Begun,
    /// An effect is done.
    Did(EffectOutcome),
    /// The agent read the inbox.
    Orders {
        /// The inbox, if there is one.
        inbox: Option<Inbox>,
        /// How consistent the read was.
        read: Consistency,
    },
    /// The listener did something.
    Listener(Observed),
    /// The cloud will take the machine away, or may do so.
    Interrupted(String),
    /// The mailbox has stored every signal so far.
    Stored,
    /// Time passed.
    Tick,
}

/// An output of the state machine, for the agent to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this signal until the mailbox has stored it.
    Signal(SignalKind, Signal),
    /// Run this effect, and drop the running one.
    Do(Effect),
    /// Read the inbox now, consistently.
    Read,
    /// End the machine.
    End(SelfEndReason),
}

/// Why a machine ends itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelfEndReason {
    /// Its warm-up failed, and the agent reported that.
    WarmUpFailed,
    /// It had no owner for too long.
    Idle,
    /// The owner's hard cap passed.
    HardCap,
}

/// What the agent does after it ended the listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum AfterStop {
    /// Clean, and start another owner's listener.
    Start(Assignment),
    /// Report that the listener did not register.
    Fail(Assignment, ListenerRefusal),
    /// Deregister the runner and acknowledge the withdrawal.
    Remove(Withdrawal),
    /// Nothing: a newer order replaced the assignment before the listener started.
    Nothing,
    /// Report the end of a listener that GitHub gave a job of another run.
    Stranger(Assignment),
}

/// What the agent does after it cleaned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum AfterCleaning {
    Start(Assignment),
    /// Acknowledge the withdrawal; the text says why the removal at GitHub failed, if it did.
    Removed(Withdrawal, String),
}

/// The agent's current activity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Finding,
    WarmingUp,
    /// The warm-up is complete, but the mailbox has not stored that signal yet. The agent reads no
    /// orders before: a reader that stored a withdrawal and then sees no `UD_OK` may rely on it
    /// that this agent starts nothing.
    Announcing,
    /// The warm-up failed, but the mailbox has not stored that signal yet.
    Failing,
    /// The agent is free and acts on orders at once.
    Ready,
    /// The agent reads the inbox again, consistently, before it starts anything for an assignment.
    Confirming(Assignment),
    Registering(Assignment),
    Launching(Assignment),
    Adopting(Assignment),
    Stopping(AfterStop),
    Deregistering(Withdrawal),
    Cleaning(AfterCleaning),
    Leaving(SelfEndReason),
    Over,
}

/// What the agent saw of the listener of `ActedOn::listener`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watched {
    listening: bool,
    job: Option<String>,
    /// The name of the job that started last.
    last_job: String,
    jobs: u32,
    /// The run of that job.
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
    /// The order with the highest rank so far.
    orders: Option<Inbox>,
    /// The assignment of a listener that ended by itself.
    dead_listener: Option<Assignment>,
    /// A job of another run that GitHub started here. The agent acknowledges no removal after that,
    /// so no control plane can use the machine again.
    stranger: Option<RanJob>,
    /// The generation for whose listener the runner program updated itself last.
    updated: Option<Generation>,
    /// Since when this machine has no listener.
    no_listener_since: Option<Timestamp>,
    offset: Offset,
}

impl AgentLife {
    /// The state of an agent that has just started.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            stage: Stage::Finding,
            acted: ActedOn::default(),
            watched: Watched::default(),
            orders: None,
            dead_listener: None,
            stranger: None,
            updated: None,
            no_listener_since: None,
            offset: Offset::default(),
        }
    }

    /// Adds what earlier agents of this boot learnt about the machine's clock.
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
            Event::Did(done) => self.effect_done(done, now, &mut actions),
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
                // Read consistently before acting: an old assignment would do harm.
                actions.push(Action::Read);
            }
            Event::Stored | Event::Tick => {}
        }
        self.keep_deadlines(now, &mut actions);
        if self.stage == Stage::Ready {
            self.follow_orders(fresh, now, &mut actions);
        }
        actions
    }

    /// The phase for a heartbeat. Nothing until the agent has looked for an earlier agent's
    /// listener: the control plane would believe a heartbeat that denies a running job.
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

    /// Whether the agent reads orders in this stage.
    pub fn takes_orders(&self) -> bool {
        !matches!(
            self.stage,
            Stage::Finding | Stage::WarmingUp | Stage::Announcing | Stage::Failing | Stage::Over
        )
    }

    /// The next deadline that is still ahead. An earlier event may move it.
    pub fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        if matches!(self.stage, Stage::Leaving(_) | Stage::Over) {
            return None;
        }
        let cap = self.hard_cap();
        let register_by = self.unregistered().and_then(|to| to.register_by);
        let idle = self.idle_deadline();
        [cap, register_by, idle].into_iter().flatten().filter(|deadline| *deadline > now).min()
    }

    fn effect_done(&mut self, done: EffectOutcome, now: Timestamp, actions: &mut Vec<Action>) {
        let stage = std::mem::replace(&mut self.stage, Stage::Ready);
        match (stage, done) {
            (Stage::Finding, EffectOutcome::Found(found)) => {
                self.found(found);
                self.enter(Stage::WarmingUp, Effect::WarmUp, actions);
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
                self.enter(Stage::Stopping(AfterStop::Fail(to, refused)), Effect::End, actions);
            }
            (Stage::Stopping(then), EffectOutcome::Ended(ended)) => {
                self.ended(then, ended, now, actions);
            }
            (Stage::Deregistering(order), EffectOutcome::Deregistered(result)) => {
                let detail = result.err().map_or_else(String::new, |refused| refused.report());
                self.enter(
                    Stage::Cleaning(AfterCleaning::Removed(order, detail)),
                    Effect::Clean,
                    actions,
                );
            }
            (Stage::Cleaning(AfterCleaning::Start(to)), EffectOutcome::Cleaned) => {
                self.begin(to, now, actions);
            }
            (Stage::Cleaning(AfterCleaning::Removed(order, detail)), EffectOutcome::Cleaned) => {
                self.removed(&order, detail, now, actions);
            }
            (Stage::Leaving(ending), EffectOutcome::Left) => {
                self.stage = Stage::Over;
                actions.push(Action::End(ending));
            }
            // A newer effect has replaced this one: ignore its outcome.
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
            LeftListener::Dead { assignment } => self.dead_listener = Some(assignment),
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

    /// Ends the machine or the listener if its deadline has passed, in every stage.
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
            self.enter(Stage::Stopping(AfterStop::Fail(to, why)), Effect::End, actions);
        }
    }

    /// The assignment whose listener does not listen yet, and must do so by a deadline.
    fn unregistered(&self) -> Option<&Assignment> {
        match &self.stage {
            Stage::Registering(to) => Some(to),
            Stage::Ready if !self.watched.listening => self.acted.listener.as_ref(),
            _ => None,
        }
    }

    /// When the owner's hard cap has certainly passed, by the machine's own clock.
    fn hard_cap(&self) -> Option<Timestamp> {
        let listener = self.acted.listener.as_ref().map(|assignment| assignment.hard_cap);
        let cap = match self.orders.as_ref().map(|inbox| &inbox.order) {
            // A new owner's cap replaces that of the listener it takes over.
            Some(Order::Assigned(assignment)) => Some(assignment.hard_cap),
            Some(Order::Withdrawn(_)) | None => listener,
        };
        cap.map(|cap| self.passed(cap))
    }

    /// When this time of the control plane has certainly passed: ending a machine too early would
    /// end a job.
    fn passed(&self, time: Timestamp) -> Timestamp {
        self.offset.certainly(time).after(self.limits.clock_skew)
    }

    fn leave(&mut self, ending: SelfEndReason, actions: &mut Vec<Action>) {
        if ending == SelfEndReason::HardCap {
            tracing::warn!("hard cap passed; machine ends");
        }
        self.enter(Stage::Leaving(ending), Effect::Leave, actions);
    }

    fn enter(&mut self, stage: Stage, effect: Effect, actions: &mut Vec<Action>) {
        self.stage = stage;
        actions.push(Action::Do(effect));
    }

    fn rank(&self) -> Option<OrderRank> {
        self.orders.as_ref().map(|inbox| inbox.order.rank())
    }
}

/// Whether the time to register a listener for this assignment is over.
fn is_late(to: &Assignment, now: Timestamp) -> bool {
    to.register_by.is_some_and(|by| now >= by)
}

fn signal(kind: SignalKind, about: Option<&Assignment>, at: Timestamp, detail: String) -> Action {
    let generation = about.map_or_else(Default::default, |assignment| assignment.generation);
    let owner = about.map(|assignment| assignment.owner.clone());
    Action::Signal(kind, Signal { generation, owner, at, detail, ran: None })
}

/// The signal that a job started, with its run if the agent knows it.
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
