//! The first step: what each machine is to its pool. The safety filter is the first thing asked.
//!
//! Not here: how many of each are wanted (`supply`).

use super::desired::DesiredPool;
use super::observed::{PoolMachine, WarmUp};
use super::{MachineEnding, StopWhy, lifetime};
use crate::class::Usage;
use crate::instance::{EndReason, Owner, State, Tier};
use crate::ports::MachineState;
use crate::sabotage;
use crate::spec_hash::drifted;
use crate::time::Timestamp;

/// What one machine is to its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PoolRole {
    /// A tombstone: nothing, and under no ceiling.
    Over,
    /// On its way out. It is still under every ceiling, and no supply.
    Ending,
    /// Somebody else has a say in it. Never touched.
    Protected,
    /// To end because it cannot be used.
    Error(EndReason),
    /// To end because it was not ready in time, or its time is over.
    Dangling(EndReason),
    /// Being prepared, or prepared and not yet hot or stopped.
    Warming,
    /// On its way to stopped.
    Stopping(StopStep),
    /// Can be picked.
    Ready {
        /// Whether it runs or is stopped.
        kind: StandbyKind,
        /// Since when.
        since: Timestamp,
        /// Whether it is due to be replaced.
        expiring: bool,
    },
    /// Used before and idle. A gift on top of the target, with a deadline of its own.
    Released,
}

/// The two kinds of machine that a pool promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StandbyKind {
    /// Running.
    Hot,
    /// Stopped.
    Stopped,
}

/// What is to be done with a machine on its way to stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopStep {
    /// The cloud has to do something.
    Wait,
    /// It is stopped, and a late stop call may still land until then.
    Fenced(Timestamp),
    /// It is to be stopped.
    Stop(StopWhy),
    /// It is stopped and can be kept.
    Keep,
}

/// Whether anybody but the pool has a say in the machine: its job has started, it is detached, or
/// its owner is another.
fn protected(instance: &PoolMachine, desired: &DesiredPool) -> bool {
    let record = &instance.record;
    let ours = record.facts.pool.as_ref() == Some(&desired.pool);
    let free = match &record.state {
        State::Created { owner: Owner::Pool(pool), .. } => *pool == desired.pool,
        State::Created { owner: Owner::Request(_) | Owner::Job(_), .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Releasing { .. } => false,
        State::Idle { .. }
        | State::Stopping { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => true,
    };
    instance.job_started || !ours || !free
}

/// What a machine is to its pool.
pub(super) fn standing(instance: &PoolMachine, desired: &DesiredPool, now: Timestamp) -> PoolRole {
    match &instance.record.state {
        State::Terminated { .. } => return PoolRole::Over,
        State::Terminating { .. } => return PoolRole::Ending,
        _ if protected(instance, desired)
            && !sabotage!("plan-without-safety-filter")
            && !sabotage!("pool-ends-like-an-operator") =>
        {
            return PoolRole::Protected;
        }
        _ => {}
    }
    lost(instance).map_or_else(|| unlost(instance, desired, now), PoolRole::Error)
}

/// Why nobody can use the machine, whatever its state.
fn lost(instance: &PoolMachine) -> Option<EndReason> {
    let is_new = matches!(instance.record.state, State::Created { .. });
    let is_gone = instance.machine == Some(MachineState::Gone);
    // One that nobody takes away and that is gone before it was ready has ended itself, whether or not it
    // could say why: a specification that never boots must not be launched for ever.
    let ended_itself =
        is_gone && !instance.interrupted && instance.record.facts.usage == Usage::OnDemand;
    if is_new && (instance.failed_to_boot() || ended_itself) {
        Some(EndReason::FailedWarmUp)
    } else if is_gone || instance.interrupted {
        Some(EndReason::MachineGone)
    } else if instance.record.tainted {
        Some(EndReason::Untrusted)
    } else {
        None
    }
}

fn unlost(instance: &PoolMachine, desired: &DesiredPool, now: Timestamp) -> PoolRole {
    match &instance.record.state {
        State::Created { deadline, .. } => warming(instance, *deadline, now),
        State::Idle { tier: Tier::Hot, since, deadline, .. } => {
            hot(instance, desired, *since, *deadline, now)
        }
        State::Idle { tier: Tier::Stopped, since, deadline, .. } => {
            stopped(instance, desired, *since, *deadline, now)
        }
        State::Idle { tier: Tier::Released, deadline, .. } => {
            if is_down(instance) {
                PoolRole::Error(EndReason::FailedChecks)
            } else if is_over(*deadline, desired, now) {
                PoolRole::Dangling(EndReason::DeadlinePassed)
            } else {
                PoolRole::Released
            }
        }
        State::Stopping { until, deadline, .. } => {
            if is_over(*deadline, desired, now) {
                return PoolRole::Dangling(EndReason::DeadlinePassed);
            }
            PoolRole::Stopping(stopping(instance, *until, desired, now))
        }
        // Only the safety filter keeps these out; without it they would be taken for idle ones.
        State::Claimed { .. } | State::Running { .. } | State::Releasing { .. } => {
            PoolRole::Ready { kind: StandbyKind::Hot, since: Timestamp::EPOCH, expiring: false }
        }
        State::Terminating { .. } | State::Terminated { .. } => PoolRole::Ending,
    }
}

/// Whether a deadline has passed, whatever the clock of whoever wrote it showed.
fn is_over(deadline: Timestamp, desired: &DesiredPool, now: Timestamp) -> bool {
    deadline.after(desired.limits.clock_skew) <= now
}

/// Whether a machine that has to run does not.
fn is_down(instance: &PoolMachine) -> bool {
    matches!(instance.machine, Some(MachineState::Stopping | MachineState::Stopped))
}

fn warming(instance: &PoolMachine, deadline: Timestamp, now: Timestamp) -> PoolRole {
    match instance.warm_up {
        WarmUp::Failed => PoolRole::Error(EndReason::FailedWarmUp),
        _ if is_down(instance) => PoolRole::Error(EndReason::FailedWarmUp),
        WarmUp::Underway if deadline <= now => PoolRole::Dangling(EndReason::FailedWarmUp),
        WarmUp::Underway | WarmUp::Complete => PoolRole::Warming,
    }
}

fn hot(
    instance: &PoolMachine,
    desired: &DesiredPool,
    since: Timestamp,
    deadline: Timestamp,
    now: Timestamp,
) -> PoolRole {
    let due = since.after(lifetime(&instance.record.id, desired.hot_lifetime));
    // The lifetime may have been configured anew since the deadline was written.
    let end = due.after(desired.limits.hot_hard_end).min(deadline);
    if is_down(instance) {
        PoolRole::Error(EndReason::FailedChecks)
    } else if is_over(deadline, desired, now) {
        PoolRole::Dangling(EndReason::DeadlinePassed)
    } else if end <= now {
        PoolRole::Dangling(EndReason::WornOut)
    } else {
        let expiring =
            due <= now || deadline <= now.after(desired.limits.not_claimable_before_deadline);
        PoolRole::Ready { kind: StandbyKind::Hot, since, expiring }
    }
}

fn stopped(
    instance: &PoolMachine,
    desired: &DesiredPool,
    since: Timestamp,
    deadline: Timestamp,
    now: Timestamp,
) -> PoolRole {
    if is_over(deadline, desired, now) {
        return PoolRole::Dangling(EndReason::DeadlinePassed);
    }
    match instance.machine {
        // A start call that landed late, or somebody else's.
        Some(MachineState::Running) => PoolRole::Stopping(StopStep::Stop(StopWhy::FoundRunning)),
        Some(MachineState::Pending | MachineState::Stopping) => PoolRole::Stopping(StopStep::Wait),
        Some(MachineState::Stopped | MachineState::Gone) | None => {
            let expiring = deadline <= now.after(desired.limits.hot_hard_end);
            PoolRole::Ready { kind: StandbyKind::Stopped, since, expiring }
        }
    }
}

fn stopping(
    instance: &PoolMachine,
    until: Timestamp,
    desired: &DesiredPool,
    now: Timestamp,
) -> StopStep {
    let fence = until.after(desired.limits.clock_skew);
    match instance.machine {
        Some(MachineState::Stopped) if fence <= now => StopStep::Keep,
        Some(MachineState::Stopped) => StopStep::Fenced(fence),
        Some(MachineState::Running) if until <= now => StopStep::Stop(StopWhy::Again),
        Some(_) | None => StopStep::Wait,
    }
}

/// Whether the machine is built otherwise than would be built now.
pub(super) fn outdated(instance: &PoolMachine, desired: &DesiredPool) -> bool {
    let (seen, want) = (&instance.record.facts.spec_hash, &desired.spec_hash);
    seen != want && (drifted(seen, want) || sabotage!("hashes-across-versions"))
}

/// This machine's end, with what its record is to say.
pub(super) fn ending(instance: &PoolMachine, why: EndReason) -> MachineEnding {
    MachineEnding { id: instance.record.id.clone(), why }
}
