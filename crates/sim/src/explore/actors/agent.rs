//! The agent's process: the production state machine `bullpen_agent::agent_life::AgentLife`, and what
//! `bullpen_agent::agent` does around it (one effect at a time, an outbox, reads).
//!
//! Finding, warming up, adopting and cleaning happen at once; registering, starting and ending a
//! listener, every read and every signal are steps of their own. The agent's clock is one tick behind.
//!
//! Not here: what the listener and GitHub do (`cloud`).

use bullpen_agent::agent_life::{Action, AgentLife, Effect, EffectOutcome, Event};
use bullpen_agent::runner::{EndOutcome, LeftListener, Observed};
use bullpen_core::mailbox::{AgentPhase, Assignment, Beat, Report, SignalKind};
use bullpen_core::ports::Consistency;
use bullpen_core::time::Timestamp;

use super::Steps;
use super::cloud::end;
use crate::explore::Config;
use crate::explore::fingerprint::Part;
use crate::explore::rules::Rule;
use crate::explore::world::{
    Agent, ExploredWorld, Listener, Power, Registration, TICK, at, limits,
};

/// A machine that has been warm for a while: its agent has read an empty mailbox.
pub(in crate::explore) fn begin_warm(world: &mut ExploredWorld, config: &Config) {
    boot(world, config);
    store_signals(world);
    handle(world, Event::Stored);
    handle(world, Event::Orders { inbox: None, read: Consistency::Consistent });
    if let Some(agent) = &mut world.agent {
        agent.change(|agent| agent.consistent = false);
    }
    beat(world);
}

/// A process starts, finds what a predecessor left, and is warm.
pub(super) fn boot(world: &mut ExploredWorld, config: &Config) {
    world.agent = Some(Part::new(Agent {
        life: AgentLife::new(limits(config)),
        effect: None,
        outbox: Vec::new(),
        consistent: config.holds(Rule::ReadConsistently),
    }));
    handle(world, Event::Begun);
    let found = match (&world.listener, &world.trace) {
        (Some(listener), _) => LeftListener::Alive {
            assignment: Assignment { credential: None, ..listener.to.clone() },
            listening: listener.told.0,
            job: listener.told.1.then(String::new),
        },
        (None, Some(trace)) => LeftListener::Dead { assignment: Assignment::clone(trace) },
        (None, None) => LeftListener::Nothing,
    };
    handle(world, Event::Did(EffectOutcome::Found(found)));
    handle(world, Event::Did(EffectOutcome::WarmedUp(Ok(()))));
    // Every version before is older than what its first read will show.
    if config.holds(Rule::ReadConsistently) {
        forget_versions(world);
    }
}

fn forget_versions(world: &mut ExploredWorld) {
    let older = world.inboxes.len().saturating_sub(1);
    if older > 0 {
        world.inboxes.change(|inboxes| inboxes.drain(..older).count());
    }
}

fn now(world: &ExploredWorld) -> Timestamp {
    world.now().before(TICK)
}

/// Gives the life an event and does what it says about it.
fn handle(world: &mut ExploredWorld, event: Event) {
    let now = now(world);
    let Some(agent) = &mut world.agent else { return };
    let actions = agent.change(|agent| {
        let actions = agent.life.on(event, now);
        for action in &actions {
            remember(agent, action);
        }
        actions
    });
    for action in actions {
        match action {
            Action::Do(Effect::Clean) => {
                world.trace = None;
                handle(world, Event::Did(EffectOutcome::Cleaned));
            }
            Action::Do(Effect::Adopt(to)) => {
                adopt(world, &to);
                handle(world, Event::Did(EffectOutcome::Adopted));
            }
            Action::End(_) => end(world, Power::Gone),
            Action::Do(_) | Action::Signal(..) | Action::Read => {}
        }
    }
}

fn remember(agent: &mut Agent, action: &Action) {
    match action {
        // No process decides anything by these two.
        Action::Signal(SignalKind::JobStarted | SignalKind::ListenerEnded, _) | Action::End(_) => {}
        Action::Signal(kind, signal) => {
            let mut signal = signal.clone();
            signal.at = at(0);
            agent.outbox.retain(|(waiting, _)| waiting != kind);
            agent.outbox.push((*kind, signal));
        }
        Action::Do(Effect::Find | Effect::WarmUp | Effect::Clean | Effect::Adopt(_)) => {
            agent.effect = None;
        }
        Action::Do(effect) => agent.effect = Some(effect.clone()),
        Action::Read => agent.consistent = true,
    }
}

/// Whether an event would make any difference to the life.
fn changes(world: &ExploredWorld, agent: &Agent, event: Event) -> bool {
    let mut life = agent.life.clone();
    !life.on(event, now(world)).is_empty() || life != agent.life
}

fn adopt(world: &mut ExploredWorld, to: &Assignment) {
    let to = Assignment { credential: None, ..to.clone() };
    if let Some(listener) = &mut world.listener {
        listener.change(|listener| listener.to = to.clone());
        world.trace = Some(Part::new(to));
    }
}

pub(super) fn steps(world: &ExploredWorld, config: &Config, steps: &mut Steps) {
    let Some(agent) = &world.agent else { return };
    if agent.life.takes_orders() {
        reads(world, config, agent, steps);
    }
    if !agent.outbox.is_empty() {
        let next = world.changed(|next| {
            store_signals(next);
            handle(next, Event::Stored);
        });
        steps.push(next, || {
            let said = agent.outbox.iter().map(|(kind, it)| format!("{kind:?} {}", it.generation));
            format!("agent reports {}", said.collect::<Vec<_>>().join(", "))
        });
    }
    if let Some(effect) = &agent.effect {
        effects(world, effect, steps);
    }
    observations(world, steps);
    if config.faults > 0
        && phase(world) != world.report.beat.as_ref().map(|beat| beat.phase == AgentPhase::Busy)
    {
        let next = world.changed(beat);
        steps.push(next, || String::from("agent beats"));
    }
    if changes(world, agent, Event::Tick) {
        let ticked = world.changed(|next| handle(next, Event::Tick));
        steps.push(ticked, || String::from("agent looks at its clock"));
    }
    if world.restarts_left > 0 {
        let next = world.changed(|next| {
            next.restarts_left -= 1;
            boot(next, config);
        });
        steps.push(next, || String::from("agent dies and starts again"));
    }
}

/// A read shows what is stored, or, if it need not be consistent, something older.
fn reads(world: &ExploredWorld, config: &Config, agent: &Part<Agent>, steps: &mut Steps) {
    let last = world.inboxes.len().saturating_sub(1);
    // Without the rule the store shows old versions and calls them new.
    let first = if agent.consistent && config.holds(Rule::ReadConsistently) { last } else { 0 };
    let read = if agent.consistent { Consistency::Consistent } else { Consistency::Eventual };
    if world.inboxes.is_empty() && agent.consistent {
        let next = world.changed(|next| shown(next, None, read));
        steps.push(next, || String::from("agent reads an empty mailbox"));
    }
    for (index, inbox) in world.inboxes.iter().enumerate().skip(first) {
        let event = Event::Orders { inbox: Some(inbox.clone()), read };
        if !agent.consistent && index < last && !changes(world, agent, event) {
            continue;
        }
        let mut next = world.changed(|next| shown(next, Some(index), read));
        if config.holds(Rule::ReadConsistently) && index == last {
            forget_versions(&mut next);
        }
        let changed = next.agent.as_ref().is_none_or(|after| **after != **agent);
        if changed || next.inboxes.len() != world.inboxes.len() {
            let rank = inbox.order.rank();
            let kind = ["assignment", "drain", "stop"][usize::from(rank.step)];
            let how = if index < last { "an old read" } else { "a read" };
            steps.push(next, || format!("agent sees {kind} {} by {how}", rank.generation));
        }
    }
}

fn shown(world: &mut ExploredWorld, index: Option<usize>, read: Consistency) {
    let inbox = index.map(|index| world.inboxes[index].clone());
    if let Some(agent) = &mut world.agent {
        agent.change(|agent| agent.consistent = false);
    }
    handle(world, Event::Orders { inbox, read });
}

fn store_signals(world: &mut ExploredWorld) {
    let Some(agent) = &mut world.agent else { return };
    let signals = agent.change(|agent| std::mem::take(&mut agent.outbox));
    world.report.change(|report: &mut Report| report.signals.extend(signals));
}

fn effects(world: &ExploredWorld, effect: &Effect, steps: &mut Steps) {
    let done = |change: &dyn Fn(&mut ExploredWorld) -> EffectOutcome| {
        world.changed(|next| {
            let done = change(next);
            if let Some(agent) = &mut next.agent {
                agent.change(|agent| agent.effect = None);
            }
            handle(next, Event::Did(done));
        })
    };
    match effect {
        Effect::Register(to) => {
            let next = done(&|next| {
                let generation = to.generation;
                next.runners.retain(|runner| runner.generation != generation);
                next.runners.push(Registration { generation, busy: false });
                next.runners.sort_unstable_by_key(|runner| runner.generation);
                EffectOutcome::Registered(Ok(()))
            });
            steps.push(next, || format!("agent registers runner {}", to.generation));
        }
        Effect::Listen(to) => {
            let next = done(&|next| {
                let to = Assignment { credential: None, ..to.clone() };
                next.trace = Some(Part::new(to.clone()));
                let (listening, job, told) = (false, false, (false, false));
                next.listener = Some(Part::new(Listener { to, listening, job, told }));
                EffectOutcome::Launched(Ok(()))
            });
            steps.push(next, || format!("agent starts listener {}", to.generation));
        }
        Effect::End => {
            let next = done(&|next| {
                if next.listener.as_ref().is_some_and(|listener| listener.job) {
                    return EffectOutcome::Ended(EndOutcome::Busy);
                }
                next.listener = None;
                EffectOutcome::Ended(EndOutcome::Gone)
            });
            steps.push(next, || String::from("agent ends the listener, if there is one"));
        }
        Effect::Kill => {
            let next = done(&|next| {
                next.listener = None;
                EffectOutcome::Ended(EndOutcome::Gone)
            });
            steps.push(next, || String::from("agent kills the listener"));
        }
        Effect::Leave => {
            let next = done(&|next| {
                next.listener = None;
                EffectOutcome::Left
            });
            steps.push(next, || String::from("agent leaves"));
        }
        Effect::Find
        | Effect::WarmUp
        | Effect::Adopt(_)
        | Effect::Deregister(_)
        | Effect::Clean => {}
    }
}

/// The agent notices what its listener does, one thing after the other.
fn observations(world: &ExploredWorld, steps: &mut Steps) {
    let Some(listener) = &world.listener else { return };
    let (listening, job) = listener.told;
    let job_name = || String::from("job");
    let (told, seen) = if listener.listening && !listening {
        ((true, job), Observed::Listening { id: None })
    } else if listener.job && !job {
        ((listening, true), Observed::JobStarted { name: job_name() })
    } else if !listener.job && job {
        ((listening, false), Observed::JobFinished { name: job_name(), result: String::new() })
    } else {
        return;
    };
    let label = format!("{seen:?}");
    let next = world.changed(|next| {
        if let Some(listener) = &mut next.listener {
            listener.change(|listener| listener.told = told);
        }
        handle(next, Event::Listener(seen));
    });
    steps.push(next, || format!("agent notices {label}"));
}

/// A listener that GitHub has deleted ends by itself, and the agent notices.
pub(super) fn listener_ends(world: &mut ExploredWorld) {
    world.listener = None;
    handle(world, Event::Listener(Observed::Ended { code: None }));
}

/// Whether a beat would say that a job runs.
fn phase(world: &ExploredWorld) -> Option<bool> {
    world.agent.as_ref()?.life.phase().map(|phase| phase == AgentPhase::Busy)
}

fn beat(world: &mut ExploredWorld) {
    let Some(busy) = phase(world) else { return };
    let phase = if busy { AgentPhase::Busy } else { AgentPhase::Waiting };
    let beat = Beat { seq: 1, at: at(0), phase, boot: String::new() };
    world.report.change(|report| report.beat = Some(beat));
}

impl ExploredWorld {
    /// Whether no step of the agent's own changes anything.
    pub(in crate::explore) fn is_at_rest(&self, config: &Config) -> bool {
        let mut own = Steps { labelled: false, taken: Vec::new() };
        let still = self.changed(|world| world.restarts_left = 0);
        steps(&still, config, &mut own);
        own.taken.is_empty()
    }
}
