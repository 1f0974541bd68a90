//! The first step of a plan: the role of each machine in its pool, with the safety filter first.
//!
//! Not here: how many machines of each role the pool wants (`supply`).

use super::desired::DesiredPool;
use super::observed::{PoolMachine, WarmUp};
use super::{MachineEnding, StopWhy, lifetime};
use crate::class::Usage;
use crate::instance::{EndReason, Owner, State, Tier};
use crate::ports::MachineState;
use crate::sabotage;
use crate::spec_hash::drifted;
use crate::time::Timestamp;

/// The role of one machine in its pool.
///
/// A machine is *protected* if a job, a request or another pool has a say in it: no plan touches
/// it. It is *ready* if a job can pick it, *coming* if it will be ready (launching, warming up,
/// being stopped), *expiring* if it is ready and due to be replaced, and *old* if it is ready and
/// has another specification than the wanted one. Ready and coming machines are *supply*; expiring
/// and old machines stand in for supply that is still coming.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PoolRole {
    /// A tombstone: no machine, and under no ceiling.
    Over,
    /// It terminates. It counts under every ceiling, and is no supply.
    Ending,
    /// A job, a request or another pool has a say in it. Never touched.
    Protected,
    /// To end because it cannot be used.
    Error(EndReason),
    /// To end because it was not ready in time, or its deadline has passed.
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
    /// Used before and idle. It counts beyond the target and has a deadline of its own.
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

/// The next step for a machine on its way to stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopStep {
    /// Wait for the cloud.
    Wait,
    /// Wait until then: it is stopped, but a late stop call may still land.
    Fenced(Timestamp),
    /// Stop it.
    Stop(StopWhy),
    /// Keep it: it is stopped.
    Keep,
}

/// Whether a job, a request or another pool has a say in the machine: its job has started, it is
/// detached, or it has another owner.
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

/// The role of a machine in its pool.
pub(super) fn role(instance: &PoolMachine, desired: &DesiredPool, now: Timestamp) -> PoolRole {
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
    unusable(instance).map_or_else(|| usable_role(instance, desired, now), PoolRole::Error)
}

/// Why the machine cannot be used in any state.
fn unusable(instance: &PoolMachine) -> Option<EndReason> {
    let is_new = matches!(instance.record.state, State::Created { .. });
    let is_gone = instance.machine == Some(MachineState::Gone);
    // An on-demand machine that is gone before it was ready, without a notice of interruption, has
    // ended itself, even if its agent could not report why: a specification that never boots must
    // not be launched for ever.
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

fn usable_role(instance: &PoolMachine, desired: &DesiredPool, now: Timestamp) -> PoolRole {
    match &instance.record.state {
        State::Created { deadline, .. } => warming(instance, *deadline, desired, now),
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
        // The safety filter catches these; without it (a planted bug) they look idle.
        State::Claimed { .. } | State::Running { .. } | State::Releasing { .. } => {
            PoolRole::Ready { kind: StandbyKind::Hot, since: Timestamp::EPOCH, expiring: false }
        }
        State::Terminating { .. } | State::Terminated { .. } => PoolRole::Ending,
    }
}

/// Whether a deadline has passed on every clock, also on its writer's.
fn is_over(deadline: Timestamp, desired: &DesiredPool, now: Timestamp) -> bool {
    deadline.after(desired.limits.clock_skew) <= now
}

/// Whether a machine that must run is down.
fn is_down(instance: &PoolMachine) -> bool {
    matches!(instance.machine, Some(MachineState::Stopping | MachineState::Stopped))
}

fn warming(
    instance: &PoolMachine,
    deadline: Timestamp,
    desired: &DesiredPool,
    now: Timestamp,
) -> PoolRole {
    match instance.warm_up {
        WarmUp::Failed => PoolRole::Error(EndReason::FailedWarmUp),
        _ if is_down(instance) => PoolRole::Error(EndReason::FailedWarmUp),
        WarmUp::Underway if is_over(deadline, desired, now) => {
            PoolRole::Dangling(EndReason::FailedWarmUp)
        }
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
    // The configured lifetime may have changed since the deadline was written.
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
        // A start call landed late, or another program started it.
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

/// Whether the machine has another specification than the wanted one.
pub(super) fn outdated(instance: &PoolMachine, desired: &DesiredPool) -> bool {
    let (seen, want) = (&instance.record.facts.spec_hash, &desired.spec_hash);
    seen != want && (drifted(seen, want) || sabotage!("hashes-across-versions"))
}

/// This machine's end, with the reason for its record.
pub(super) fn ending(instance: &PoolMachine, why: EndReason) -> MachineEnding {
    MachineEnding { id: instance.record.id.clone(), why }
}
