//! Releaser and reaper: the two processes that take the machine back and carry its release through.
//!
//! Every decision is `core::tenure`: [`due`], [`owner_may_end`], [`end_of_tenure`], [`Release`]. An actor
//! performs the effects on the explored world, as `engine::release` and `engine::reap` do on the ports. Its
//! writes and posts are steps of their own; the reads and the call to GitHub between two of them are one step.
//! What an actor read may be old by the time of its write; the ledger's condition catches that.
//!
//! Not here: what a call does to the world (`world`), or deletions at GitHub (`cloud`).

use bullpen_core::claim::{Deletion, Silence};
use bullpen_core::ids::{Revision, SpecHash};
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, Record, State};
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::{Inbox, Order, Report, Withdrawal, WithdrawalMode};
use bullpen_core::tenure::{
    DueAction, OwnerMayEnd, Release, ReleaseEffect, ReleaseInput, ReleaseSettings, due,
    due_while_running, end_of_tenure, owner_may_end,
};

use super::Steps;
use super::cloud::deletions;
use crate::explore::Config;
use crate::explore::fingerprint::Part;
use crate::explore::rules::{Property, Rule};
use crate::explore::world::{ExploredWorld, LedgerRow, Power, STACK, at, limits, never};

/// What an actor is about to do, on the record as it read it.
#[derive(Clone, Debug, Hash)]
pub(in crate::explore) enum Pending {
    Nothing,
    /// To take the machine back from its owner.
    TakeBack(Part<LedgerRow>),
    /// To end a machine that has no owner, because its deadline has passed.
    Condemn(Part<LedgerRow>),
    /// To store the withdrawal.
    Drain(Part<LedgerRow>),
    /// To read the report and decide, with the inbox as it was after the withdrawal.
    Decide(Part<LedgerRow>, Part<Inbox>),
    /// To store the stop.
    Stop(Part<LedgerRow>),
    /// To write the event that completes the release.
    Write(Part<LedgerRow>, InstanceEvent),
}

impl Pending {
    /// Whether the record it read is still the stored one.
    pub(in crate::explore) fn is_current(&self, revision: Revision) -> bool {
        match self {
            Self::Nothing => true,
            Self::TakeBack(row)
            | Self::Condemn(row)
            | Self::Drain(row)
            | Self::Decide(row, _)
            | Self::Stop(row)
            | Self::Write(row, _) => row.0.revision == revision,
        }
    }

    /// Whether its next step is a write to the ledger and nothing else. `conditional`: taking the machine
    /// back is conditional on the record that was read.
    pub(super) fn only_writes(&self, conditional: bool) -> bool {
        match self {
            Self::TakeBack(_) => conditional,
            Self::Condemn(_) | Self::Write(..) => true,
            Self::Nothing | Self::Drain(_) | Self::Decide(..) | Self::Stop(_) => false,
        }
    }
}

/// The two processes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Process {
    Releaser,
    Reaper,
}

impl Process {
    const fn name(self) -> &'static str {
        match self {
            Self::Releaser => "releaser",
            Self::Reaper => "reaper",
        }
    }

    fn pending(self, world: &mut ExploredWorld) -> &mut Pending {
        match self {
            Self::Releaser => &mut world.releaser,
            Self::Reaper => &mut world.reaper,
        }
    }
}

pub(super) fn steps(world: &ExploredWorld, config: &Config, process: Process, steps: &mut Steps) {
    let name = process.name();
    let pending = match process {
        Process::Releaser => &world.releaser,
        Process::Reaper => &world.reaper,
    };
    match pending {
        Pending::Nothing if process == Process::Releaser => look_as_owner(world, config, steps),
        Pending::Nothing => look_as_reaper(world, config, steps),
        Pending::TakeBack(row) => {
            let next = world.changed(|next| take_back(next, config, process, row));
            let generation = row.0.generation;
            steps.push(next, || format!("{name} writes releasing over {generation} as it read"));
        }
        Pending::Condemn(row) => {
            let next = world.changed(|next| condemn(next, config, row));
            steps.push(next, || format!("{name} ends a machine whose deadline has passed"));
        }
        Pending::Drain(row) => {
            let next = world.changed(|next| *process.pending(next) = drain(next, config, row));
            let generation = row.0.generation;
            let posted = next.inboxes.len() > world.inboxes.len();
            let said = if posted { "posts" } else { "need not post, or does not," };
            steps.push(next, || format!("{name} {said} the withdrawal {generation}"));
        }
        Pending::Decide(row, inbox) => decide(world, config, process, (row, inbox), steps),
        Pending::Stop(row) => {
            let next = world.changed(|next| {
                let order = withdrawal(next, &row.0, WithdrawalMode::Stop);
                next.post(order);
                *process.pending(next) = Pending::Nothing;
            });
            let generation = row.0.generation;
            steps.push(next, || format!("{name} posts stop {generation}"));
        }
        Pending::Write(row, event) => {
            let next = world.changed(|next| {
                complete(next, config, row, event);
                *process.pending(next) = Pending::Nothing;
            });
            steps.push(next, || match event {
                InstanceEvent::Returned { proof, .. } => {
                    format!("{name} writes idle: {:?}", proof.removal()).to_lowercase()
                }
                event => format!("{name} writes {}", event.name()),
            });
        }
    }
}

/// An owner's process reads the record that it holds.
fn look_as_owner(world: &ExploredWorld, config: &Config, steps: &mut Steps) {
    let row = world.record.clone();
    let pending = match &row.0.state {
        State::Claimed { .. } | State::Running { .. } => Pending::TakeBack(row),
        State::Releasing { .. } if config.two_finish => Pending::Drain(row),
        _ => return,
    };
    let next = world.changed(|next| next.releaser = pending);
    steps.push(next, || String::from("releaser reads the record"));
}

/// The reaper reads the record, and reconciliation sees a machine that is gone.
fn look_as_reaper(world: &ExploredWorld, config: &Config, steps: &mut Steps) {
    let row = world.record.clone();
    let state = &row.0.state;
    let is_ending = matches!(state, State::Terminating { .. });
    if world.power == Power::Gone && state.is_live() && !is_ending {
        let next = world.changed(gone);
        steps.push(next, || String::from("reconciliation sees that the machine is gone"));
        return;
    }
    let pending = match due_now(world, config) {
        DueAction::Condemn(_) => Pending::Condemn(row),
        DueAction::TakeBack(_) => Pending::TakeBack(row),
        DueAction::Release => Pending::Drain(row),
        DueAction::Terminate => return terminate(world, steps),
        // No owner's time ends here while its job runs.
        DueAction::Leave | DueAction::ReadReport | DueAction::Extend(_) => return,
    };
    let next = world.changed(|next| next.reaper = pending);
    steps.push(next, || String::from("reaper reads the record"));
}

/// What the reaper does about the record as it is stored now.
fn due_now(world: &ExploredWorld, config: &Config) -> DueAction {
    let (record, now, limits) = (&world.record.0, world.now(), limits(config));
    match due(record, now, &limits) {
        DueAction::ReadReport => {
            let max_runtime = limits.max_runtime_workflow;
            due_while_running(record, Some(&world.report), max_runtime, now, &limits)
        }
        action => action,
    }
}

/// Takes the machine back from its owner, on the record as it was read.
fn take_back(world: &mut ExploredWorld, config: &Config, process: Process, row: &Part<LedgerRow>) {
    *process.pending(world) = Pending::Nothing;
    let (seen, now) = (&row.0, world.now());
    let Some(owner) = seen.state.owner().cloned() else { return };
    let authority = match process {
        Process::Releaser => {
            if owner_may_end(seen, &owner, seen.generation) != OwnerMayEnd::Yes {
                return;
            }
            Authority::Owner { owner, generation: seen.generation }
        }
        Process::Reaper => Authority::Deadline { at: now },
    };
    let event = end_of_tenure(seen, None, authority, now, &limits(config));
    let stored = world.record.clone();
    let is_written = match process {
        Process::Releaser => write_as_owner(world, config, row, &event),
        Process::Reaper => write_as_reaper(world, config, row, &event),
    };
    if !is_written {
        return;
    }
    if process == Process::Releaser && stored.0.generation != seen.generation {
        world.breaks(Property::FencedIsHarmless);
    }
    let is_alive = stored.0.state.owner().is_some() && now < stored.0.state.deadline();
    if process == Process::Reaper && is_alive {
        world.breaks(Property::LiveOwnerKeeps);
    }
    if process == Process::Reaper || config.two_finish {
        *process.pending(world) = Pending::Drain(world.record.clone());
    }
}

/// Without the rule the write is conditional on nothing but what the event itself says.
fn write_as_owner(
    world: &mut ExploredWorld,
    config: &Config,
    row: &Part<LedgerRow>,
    event: &InstanceEvent,
) -> bool {
    let over = if config.holds(Rule::OwnerAndGeneration) { row } else { &world.record.clone() };
    over.0.on(event).is_ok_and(|next| world.write(over, next))
}

/// Without the rule the write is conditional on the generation alone, which a renewal does not change.
fn write_as_reaper(
    world: &mut ExploredWorld,
    config: &Config,
    row: &Part<LedgerRow>,
    event: &InstanceEvent,
) -> bool {
    let Ok(next) = row.0.on(event) else { return false };
    if config.holds(Rule::ReapedAsRead) {
        return world.write(row, next);
    }
    let is_same = world.record.0.generation == row.0.generation;
    if is_same {
        world.overwrite(next);
    }
    is_same
}

fn condemn(world: &mut ExploredWorld, config: &Config, row: &Part<LedgerRow>) {
    world.reaper = Pending::Nothing;
    if let DueAction::Condemn(event) = due(&row.0, world.now(), &limits(config))
        && let Ok(next) = row.0.on(&event)
    {
        world.write(row, next);
    }
}

fn gone(world: &mut ExploredWorld) {
    let (authority, why) = (Authority::Cloud, EndReason::MachineGone);
    let event = InstanceEvent::Condemned { authority, why, at: world.now() };
    if let Ok(next) = world.record.0.on(&event) {
        world.overwrite(next);
    }
}

fn terminate(world: &ExploredWorld, steps: &mut Steps) {
    if world.power == Power::Gone {
        let event = InstanceEvent::Gone { at: at(0), forget_at: never() };
        let Ok(buried) = world.record.0.on(&event) else { return };
        let next = world.changed(|next| next.overwrite(buried));
        steps.push(next, || String::from("reaper confirms that the machine is gone"));
    } else if !world.terminate_called {
        let next = world.changed(|next| next.terminate_called = true);
        steps.push(next, || String::from("reaper asks the cloud to end the machine"));
    }
}

/// The withdrawal of the record's generation. Only the time of a stop is ever looked at.
fn withdrawal(world: &ExploredWorld, record: &Record, mode: WithdrawalMode) -> Order {
    let posted = if mode == WithdrawalMode::Stop { world.now() } else { at(0) };
    Order::Withdrawn(Withdrawal {
        generation: record.generation,
        mode,
        at: posted,
        idle_deadline: never(),
        removal_token: None,
    })
}

/// Stores the withdrawal, as a pass begins; what follows is decided on the inbox after it.
fn drain(world: &mut ExploredWorld, config: &Config, row: &Part<LedgerRow>) -> Pending {
    if let Some(event) = returned_too_early(world, config, row) {
        return Pending::Write(row.clone(), event);
    }
    let mode = if config.holds(Rule::DrainThenStop) {
        WithdrawalMode::Drain
    } else {
        WithdrawalMode::Stop
    };
    // An order that refuses this one is stored, and is newer or just as good.
    world.post(withdrawal(world, &row.0, mode));
    let inbox = world.inbox().expect("an inbox is stored, with this order or a newer one").clone();
    Pending::Decide(row.clone(), Part::new(inbox))
}

/// The return that a pass decides on before its withdrawal is stored, where a rule that forbids it is off:
/// the mailbox answers as if it had stored the order.
fn returned_too_early(
    world: &ExploredWorld,
    config: &Config,
    row: &Part<LedgerRow>,
) -> Option<InstanceEvent> {
    let is_stopped = world.power == Power::Stopped;
    let judges_early = !config.holds(Rule::JudgedAfterWithdrawal);
    let leaves_unwritten = !config.holds(Rule::WithdrawnBeforeIdle) && is_stopped;
    if !judges_early && !leaves_unwritten {
        return None;
    }
    let order = withdrawal(world, &row.0, WithdrawalMode::Drain);
    let inbox = Inbox::accept(world.inbox(), order).ok()?;
    match Pass::new(world, config, &row.0).decide(ReleaseInput::Posted(inbox)) {
        ReleaseEffect::Write(event @ InstanceEvent::Returned { .. }) => Some(event),
        _ => None,
    }
}

/// The part of a pass between two of its writes: the production state machine, and what it may read.
struct Pass<'a> {
    world: &'a ExploredWorld,
    release: Release,
    limits: Limits,
    spec_hash: &'a SpecHash,
}

impl<'a> Pass<'a> {
    fn new(world: &'a ExploredWorld, config: &Config, record: &'a Record) -> Self {
        let release = Release::new(record.clone(), None);
        Self { world, release, limits: limits(config), spec_hash: &record.facts.spec_hash }
    }

    /// Answers every read and returns the first effect that is no read.
    fn decide(&mut self, input: ReleaseInput) -> ReleaseEffect {
        let settings = ReleaseSettings {
            stack: STACK,
            limits: &self.limits,
            spec_hash: self.spec_hash,
            is_shared: true,
        };
        let world = self.world;
        let mut effect = self.release.on(input, world.now(), &settings);
        loop {
            let answer = match effect {
                ReleaseEffect::ReadReport => ReleaseInput::Report(Report::clone(&world.report)),
                ReleaseEffect::Describe => {
                    ReleaseInput::Described { stopped: world.power == Power::Stopped }
                }
                // If others were silent too, the pass would wait, which changes nothing.
                ReleaseEffect::CompareSilence => ReleaseInput::Compared(Silence::Own),
                // A request that a person made: its runs are not compared, its code is trusted.
                ReleaseEffect::ReadRequest(_) => ReleaseInput::Request(None),
                other => return other,
            };
            effect = self.release.on(answer, world.now(), &settings);
        }
    }
}

fn decide(
    world: &ExploredWorld,
    config: &Config,
    process: Process,
    (row, inbox): (&Part<LedgerRow>, &Part<Inbox>),
    steps: &mut Steps,
) {
    let name = process.name();
    let begin = || {
        let mut pass = Pass::new(world, config, &row.0);
        let effect = pass.decide(ReleaseInput::Posted(Inbox::clone(inbox)));
        (pass, effect)
    };
    let (_, effect) = begin();
    if !matches!(effect, ReleaseEffect::DeleteRunners(_)) {
        let next = world.changed(|next| *process.pending(next) = follow(row, &effect));
        steps.push(next, || format!("{name} reads the report: {}", outcome(&effect)));
        return;
    }
    for (deletion, next) in deletions_asked_for(world, config, inbox) {
        let (mut pass, _) = begin();
        let effect = pass.decide(ReleaseInput::Deleted(vec![deletion]));
        let next = next.changed(|next| *process.pending(next) = follow(row, &effect));
        steps.push(next, || {
            let runner = inbox.assigned;
            format!("{name} asks GitHub to delete runner {runner}: {deletion:?}")
        });
    }
}

/// GitHub's answers. Without the rule, an actor that has posted `stop` does not ask.
fn deletions_asked_for(
    world: &ExploredWorld,
    config: &Config,
    inbox: &Inbox,
) -> Vec<(Deletion, ExploredWorld)> {
    if config.holds(Rule::DrainThenStop) {
        deletions(world, inbox.assigned)
    } else {
        vec![(Deletion::NotFound, world.clone())]
    }
}

/// What an actor does next for an effect that is no read.
fn follow(row: &Part<LedgerRow>, effect: &ReleaseEffect) -> Pending {
    match effect {
        ReleaseEffect::Post(_) => Pending::Stop(row.clone()),
        ReleaseEffect::Write(event) => Pending::Write(row.clone(), event.clone()),
        _ => Pending::Nothing,
    }
}

/// The effect in words.
fn outcome(effect: &ReleaseEffect) -> String {
    match effect {
        ReleaseEffect::Write(InstanceEvent::Returned { proof, .. }) => {
            format!("no listener is left, {:?}", proof.removal()).to_lowercase()
        }
        ReleaseEffect::Write(event) => format!("to write {}", event.name()),
        ReleaseEffect::Wait => String::from("the agent has not acknowledged yet"),
        ReleaseEffect::Overtaken => String::from("another process is further"),
        other => format!("{other:?}"),
    }
}

/// Writes the event that completes a release. Ending a healthy machine for an acknowledgement that its
/// agent, with nothing left to do, will never send breaks a property.
fn complete(
    world: &mut ExploredWorld,
    config: &Config,
    row: &Part<LedgerRow>,
    event: &InstanceEvent,
) {
    let Ok(next) = row.0.on(event) else { return };
    let is_healthy = world.is_done_and_unacknowledged(config);
    let ends_it = matches!(event, InstanceEvent::Condemned { why: EndReason::NotAcknowledged, .. });
    if world.write(row, next) && ends_it && is_healthy {
        world.breaks(Property::HealthyIsKept);
    }
}
