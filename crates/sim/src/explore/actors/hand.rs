//! Whoever carries a release through: `engine::release::finish`, one pass after the other.
//!
//! Releaser and reaper each have a *hand* that does it. A pass posts the withdrawal, reads the report
//! and the cloud, judges (`core::mailbox::prove_unexposed`), asks GitHub, and acts on the verdict. What
//! was read may be old by the time of the act; the ledger's condition catches that.
//!
//! Not here: how a release begins (`releaser`, `reaper`).

use bullpen_core::claim::Deletion;
use bullpen_core::ids::{Generation, Revision};
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, State, Tier};
use bullpen_core::mailbox::{
    AgentPhase, Inbox, Order, SignalKind, Unexposed, Withdrawal, WithdrawalMode, prove_unexposed,
};
use bullpen_core::time::Timestamp;

use super::Steps;
use super::cloud::deletions;
use crate::explore::Config;
use crate::explore::fingerprint::Part;
use crate::explore::rules::{Property, Rule};
use crate::explore::world::{ExploredWorld, LedgerRow, Power, at, limits, never};

/// What a pass concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::explore) enum Verdict {
    Return(Unexposed),
    End(EndReason),
    Stop,
}

/// What a hand is about to do, on the record as it was read.
#[derive(Clone, Debug, Hash)]
pub(in crate::explore) enum Hand {
    Rests,
    /// To take the machine back from its owner.
    Withdraw(Part<LedgerRow>),
    /// To end it, because its deadline has passed.
    Condemn(Part<LedgerRow>),
    /// To post the withdrawal.
    Post(Part<LedgerRow>),
    /// To read and to judge, with the inbox as it was after the withdrawal.
    Judge(Part<LedgerRow>, Part<Inbox>),
    Act(Part<LedgerRow>, Verdict),
}

impl Hand {
    /// Whether what it read is still what is stored.
    pub(in crate::explore) fn is_current(&self, revision: Revision) -> bool {
        match self {
            Self::Rests => true,
            Self::Withdraw(row)
            | Self::Condemn(row)
            | Self::Post(row)
            | Self::Judge(row, _)
            | Self::Act(row, _) => row.0.revision == revision,
        }
    }
}

impl Hand {
    /// Whether its next step is a write to the ledger, and nothing else. Without its rule, what takes
    /// a machine back is not conditional on what was read.
    pub(super) fn only_writes(&self, conditional: bool) -> bool {
        match self {
            Self::Withdraw(_) => conditional,
            Self::Condemn(_) | Self::Act(_, Verdict::Return(_) | Verdict::End(_)) => true,
            Self::Rests | Self::Post(_) | Self::Judge(..) | Self::Act(_, Verdict::Stop) => false,
        }
    }
}

/// Whose hand.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    Releaser,
    Reaper,
}

impl Whose {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Releaser => "releaser",
            Self::Reaper => "reaper",
        }
    }

    pub(super) fn of(self, world: &mut ExploredWorld) -> &mut Hand {
        match self {
            Self::Releaser => &mut world.releaser,
            Self::Reaper => &mut world.reaper,
        }
    }
}

/// The steps of a pass.
pub(super) fn steps(
    world: &ExploredWorld,
    config: &Config,
    whose: Whose,
    hand: &Hand,
    steps: &mut Steps,
) {
    let who = whose.name();
    match hand {
        Hand::Post(row) => {
            let next = world.changed(|next| *whose.of(next) = post(next, config, row));
            let generation = row.0.generation;
            let posted = next.inboxes.len() > world.inboxes.len();
            let said = if posted { "posts" } else { "need not post, or does not," };
            steps.push(next, || format!("{who} {said} the withdrawal {generation}"));
        }
        Hand::Judge(row, inbox) => judge(world, config, whose, (row, inbox), steps),
        Hand::Act(row, verdict) => {
            let next = world.changed(|next| {
                act(next, config, row, *verdict);
                *whose.of(next) = Hand::Rests;
            });
            steps.push(next, || match verdict {
                Verdict::Return(proof) => {
                    format!("{who} writes idle: {:?}", proof.removal()).to_lowercase()
                }
                Verdict::End(why) => format!("{who} ends the machine: {why:?}"),
                Verdict::Stop => format!("{who} posts stop {}", row.0.generation),
            });
        }
        Hand::Rests | Hand::Withdraw(_) | Hand::Condemn(_) => {}
    }
}

/// The withdrawal of this generation.
fn withdrawal(world: &ExploredWorld, generation: Generation, mode: WithdrawalMode) -> Order {
    // Only the time of a stop is ever looked at.
    let posted = if mode == WithdrawalMode::Stop { world.now() } else { at(0) };
    Order::Withdrawn(Withdrawal {
        generation,
        mode,
        at: posted,
        idle_deadline: never(),
        removal_token: None,
    })
}

fn post(world: &mut ExploredWorld, config: &Config, row: &Part<LedgerRow>) -> Hand {
    let generation = row.0.generation;
    if let Some(verdict) = too_early(world, config, row) {
        return Hand::Act(row.clone(), verdict);
    }
    let mode = if config.holds(Rule::DrainThenStop) {
        WithdrawalMode::Drain
    } else {
        WithdrawalMode::Stop
    };
    let order = withdrawal(world, generation, mode);
    // Whatever refuses it is stored and is just as good, or newer.
    world.post(order);
    let inbox = world.inbox().expect("something is stored, this order or what refused it").clone();
    Hand::Judge(row.clone(), Part::new(inbox))
}

/// What is concluded before the withdrawal is stored, where a rule that forbids it is off.
fn too_early(world: &ExploredWorld, config: &Config, row: &Part<LedgerRow>) -> Option<Verdict> {
    let State::Releasing { tier, .. } = row.0.state else { return None };
    let stopped = tier == Tier::Stopped && world.power == Power::Stopped;
    let judged = !config.holds(Rule::JudgedAfterWithdrawal);
    let unwritten = !config.holds(Rule::WithdrawnBeforeIdle) && stopped;
    if !judged && !unwritten {
        return None;
    }
    prove_unexposed(world.inbox(), Some(&world.report), row.0.generation, stopped)
        .ok()
        .map(Verdict::Return)
}

fn judge(
    world: &ExploredWorld,
    config: &Config,
    whose: Whose,
    (row, inbox): (&Part<LedgerRow>, &Part<Inbox>),
    steps: &mut Steps,
) {
    let who = whose.name();
    let State::Releasing { tier, since, .. } = row.0.state else { return };
    let generation = row.0.generation;
    let stopped = tier == Tier::Stopped && world.power == Power::Stopped;
    let decided = |verdict: Option<Verdict>| {
        let hand = verdict.map_or(Hand::Rests, |verdict| Hand::Act(row.clone(), verdict));
        move |next: &mut ExploredWorld| *whose.of(next) = hand
    };
    if let Ok(proof) = prove_unexposed(Some(inbox), Some(&world.report), generation, stopped) {
        let next = world.changed(decided(Some(Verdict::Return(proof))));
        steps.push(next, || format!("{who} finds that nobody listens: {:?}", proof.removal()));
        return;
    }
    let stop = match &inbox.order {
        Order::Withdrawn(order) if order.generation == generation => order,
        _ => {
            let next = world.changed(decided(None));
            steps.push(next, || format!("{who} sees that somebody else is further"));
            return;
        }
    };
    if stop.mode == WithdrawalMode::Stop && is_patient(world, config, stop.at) {
        let next = world.changed(decided(None));
        steps.push(next, || format!("{who} waits for the acknowledgement"));
        return;
    }
    let over = Verdict::End(EndReason::NotAcknowledged);
    if stop.mode == WithdrawalMode::Stop && !config.holds(Rule::DrainThenStop) {
        let next = world.changed(decided(Some(over)));
        steps.push(next, || format!("{who} stops waiting for the acknowledgement"));
        return;
    }
    for (deletion, next) in deletions(world, inbox.assigned) {
        let verdict = match stop.mode {
            WithdrawalMode::Drain => {
                may_stop(world, config, inbox.assigned, deletion, since).then_some(Verdict::Stop)
            }
            WithdrawalMode::Stop => {
                matches!(deletion, Deletion::Deleted | Deletion::NotFound).then_some(over)
            }
        };
        let next = next.changed(decided(verdict));
        steps.push(next, || {
            format!("{who} asks GitHub to delete runner {}: {deletion:?}", inbox.assigned)
        });
    }
}

fn is_patient(world: &ExploredWorld, config: &Config, since: Timestamp) -> bool {
    let limits = limits(config);
    world.now().since(since) < limits.release_acknowledgement + limits.clock_skew
}

/// `engine::release::may_stop`.
fn may_stop(
    world: &ExploredWorld,
    config: &Config,
    assigned: Generation,
    deletion: Deletion,
    since: Timestamp,
) -> bool {
    let limits = limits(config);
    let registered = world.report.signal(SignalKind::Registered, assigned).is_some();
    let last_registration = limits.fleet_validation + limits.clock_skew;
    match deletion {
        Deletion::Deleted => true,
        Deletion::NotFound => registered || world.now() >= since.after(last_registration),
        Deletion::Busy => false,
        Deletion::Unavailable => {
            let beat = world.report.beat.as_ref();
            registered && beat.is_some_and(|beat| beat.phase != AgentPhase::Busy)
        }
    }
}

fn act(world: &mut ExploredWorld, config: &Config, row: &Part<LedgerRow>, verdict: Verdict) {
    let now = world.now();
    let event = match verdict {
        Verdict::Stop => {
            let order = withdrawal(world, row.0.generation, WithdrawalMode::Stop);
            world.post(order);
            return;
        }
        Verdict::Return(proof) => {
            InstanceEvent::Returned { proof, at: now, deadline: never(), shared: true }
        }
        Verdict::End(why) => {
            let authority = Authority::Release { generation: row.0.generation };
            InstanceEvent::Condemned { authority, why, at: now }
        }
    };
    let Ok(next) = row.0.on(&event) else { return };
    let healthy = world.is_done_and_unacknowledged(config);
    if world.write(row, next) && verdict == Verdict::End(EndReason::NotAcknowledged) && healthy {
        world.breaks(Property::HealthyIsKept);
    }
}
