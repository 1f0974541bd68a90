//! The first step: what each machine is to its pool. The safety filter is the first thing asked.
//!
//! Not here: how many of each are wanted (`supply`).

use super::desired::Desired;
use super::observed::{Standby, WarmUp};
use super::{Ending, StopWhy, lifetime};
use crate::class::Usage;
use crate::instance::{EndReason, Owner, State, Tier};
use crate::ports::MachineState;
use crate::sabotage;
use crate::spec_hash::drifted;
use crate::time::Timestamp;

/// What one machine is to its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
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
    Stopping(Turn),
    /// Can be picked.
    Ready {
        /// Whether it runs or is stopped.
        kind: Kind,
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
pub(super) enum Kind {
    /// Running.
    Hot,
    /// Stopped.
    Stopped,
}

/// What is to be done with a machine on its way to stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
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
fn protected(instance: &Standby, desired: &Desired) -> bool {
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
pub(super) fn standing(instance: &Standby, desired: &Desired, now: Timestamp) -> Standing {
    match &instance.record.state {
        State::Terminated { .. } => return Standing::Over,
        State::Terminating { .. } => return Standing::Ending,
        _ if protected(instance, desired)
            && !sabotage!("plan-without-safety-filter")
            && !sabotage!("pool-ends-like-an-operator") =>
        {
            return Standing::Protected;
        }
        _ => {}
    }
    lost(instance).map_or_else(|| unlost(instance, desired, now), Standing::Error)
}

/// Why nobody can use the machine, whatever its state.
fn lost(instance: &Standby) -> Option<EndReason> {
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

fn unlost(instance: &Standby, desired: &Desired, now: Timestamp) -> Standing {
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
                Standing::Error(EndReason::FailedChecks)
            } else if is_over(*deadline, desired, now) {
                Standing::Dangling(EndReason::DeadlinePassed)
            } else {
                Standing::Released
            }
        }
        State::Stopping { until, deadline, .. } => {
            if is_over(*deadline, desired, now) {
                return Standing::Dangling(EndReason::DeadlinePassed);
            }
            Standing::Stopping(stopping(instance, *until, desired, now))
        }
        // Only the safety filter keeps these out; without it they would be taken for idle ones.
        State::Claimed { .. } | State::Running { .. } | State::Releasing { .. } => {
            Standing::Ready { kind: Kind::Hot, since: Timestamp::EPOCH, expiring: false }
        }
        State::Terminating { .. } | State::Terminated { .. } => Standing::Ending,
    }
}

/// Whether a deadline has passed, whatever the clock of whoever wrote it showed.
fn is_over(deadline: Timestamp, desired: &Desired, now: Timestamp) -> bool {
    deadline.after(desired.limits.clock_skew) <= now
}

/// Whether a machine that has to run does not.
fn is_down(instance: &Standby) -> bool {
    matches!(instance.machine, Some(MachineState::Stopping | MachineState::Stopped))
}

fn warming(instance: &Standby, deadline: Timestamp, now: Timestamp) -> Standing {
    match instance.warm_up {
        WarmUp::Failed => Standing::Error(EndReason::FailedWarmUp),
        _ if is_down(instance) => Standing::Error(EndReason::FailedWarmUp),
        WarmUp::Underway if deadline <= now => Standing::Dangling(EndReason::FailedWarmUp),
        WarmUp::Underway | WarmUp::Complete => Standing::Warming,
    }
}

fn hot(
    instance: &Standby,
    desired: &Desired,
    since: Timestamp,
    deadline: Timestamp,
    now: Timestamp,
) -> Standing {
    let due = since.after(lifetime(&instance.record.id, desired.hot_lifetime));
    // The lifetime may have been configured anew since the deadline was written.
    let end = due.after(desired.limits.hot_hard_end).min(deadline);
    if is_down(instance) {
        Standing::Error(EndReason::FailedChecks)
    } else if is_over(deadline, desired, now) {
        Standing::Dangling(EndReason::DeadlinePassed)
    } else if end <= now {
        Standing::Dangling(EndReason::WornOut)
    } else {
        let expiring =
            due <= now || deadline <= now.after(desired.limits.not_claimable_before_deadline);
        Standing::Ready { kind: Kind::Hot, since, expiring }
    }
}

fn stopped(
    instance: &Standby,
    desired: &Desired,
    since: Timestamp,
    deadline: Timestamp,
    now: Timestamp,
) -> Standing {
    if is_over(deadline, desired, now) {
        return Standing::Dangling(EndReason::DeadlinePassed);
    }
    match instance.machine {
        // A start call that landed late, or somebody else's.
        Some(MachineState::Running) => Standing::Stopping(Turn::Stop(StopWhy::FoundRunning)),
        Some(MachineState::Pending | MachineState::Stopping) => Standing::Stopping(Turn::Wait),
        Some(MachineState::Stopped | MachineState::Gone) | None => {
            let expiring = deadline <= now.after(desired.limits.hot_hard_end);
            Standing::Ready { kind: Kind::Stopped, since, expiring }
        }
    }
}

fn stopping(instance: &Standby, until: Timestamp, desired: &Desired, now: Timestamp) -> Turn {
    let fence = until.after(desired.limits.clock_skew);
    match instance.machine {
        Some(MachineState::Stopped) if fence <= now => Turn::Keep,
        Some(MachineState::Stopped) => Turn::Fenced(fence),
        Some(MachineState::Running) if until <= now => Turn::Stop(StopWhy::Again),
        Some(_) | None => Turn::Wait,
    }
}

/// Whether the machine is built otherwise than would be built now.
pub(super) fn outdated(instance: &Standby, desired: &Desired) -> bool {
    let (seen, want) = (&instance.record.facts.spec_hash, &desired.spec_hash);
    seen != want && (drifted(seen, want) || sabotage!("hashes-across-versions"))
}

/// This machine's end, with what its record is to say.
pub(super) fn ending(instance: &Standby, why: EndReason) -> Ending {
    Ending { id: instance.record.id.clone(), why }
}
