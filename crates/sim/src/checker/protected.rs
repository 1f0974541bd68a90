//! Invariant 4, from outside: who took a machine from its owner, and whether they might.
//!
//! An owner's decision is one by a process that acts for it, or by anyone once its workflow run is
//! over; a deadline has passed by true time; the cloud's doing was seen in the cloud.
//!
//! A machine that nobody owns any more is protected too while a runner of it is connected, because
//! GitHub may be giving that a job this moment; and what only GitHub failed to do ends no machine.
//!
//! Not here: the reasons that are written into records (`core::invariants::on_write`).

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{EndReason, Owner, Record, State};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::time::Timestamp;

use super::requests::Requests;
use super::view::View;

fn wrong(id: &InstanceId, what: String) -> Result<(), Violation> {
    Err(Violation { invariant: Invariant::Protected, instance: Some(id.clone()), what })
}

/// A write that takes a machine from its owner must be by one who may.
pub(super) fn taken(
    view: &View,
    requests: &Requests,
    at: Timestamp,
    before: &Record,
    after: &Record,
    by: &str,
) -> Result<(), Violation> {
    let Some(owner) = before.state.owner() else { return Ok(()) };
    let why = match after.state {
        State::Releasing { .. } | State::Stopping { .. } => None,
        State::Terminating { why, .. } => Some(why),
        _ => return Ok(()),
    };
    let may = match why {
        Some(EndReason::Operator) => true,
        Some(EndReason::MachineGone) => {
            // Given notice, it is as good as gone to the pool that it is being made for.
            let is_pools = matches!(owner, Owner::Pool(_));
            view.lost.contains(&before.id)
                || view.powered_off.contains(&before.id)
                || is_pools && view.noticed.contains(&before.id)
        }
        _ => at >= before.state.deadline() || requests.decides_for(by, owner).unwrap_or(true),
    };
    if may {
        return Ok(());
    }
    let (was, is) = (before.state.name().as_str(), after.state.name().as_str());
    wrong(&before.id, format!("{was} for {owner} became {is} by {by}, before its time"))
}

/// What the world outside knows of a machine that is being condemned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Condemned {
    /// A runner of it is connected.
    pub(super) is_connected: bool,
    /// Its agent said that GitHub's fault, not its own, kept it from registering.
    pub(super) is_blameless: bool,
    /// When its agent was told to stop.
    pub(super) told_to_stop: Option<Timestamp>,
}

/// A machine is to end for something it did, or did not do.
pub(super) fn condemned(
    view: &View,
    at: Timestamp,
    before: &Record,
    after: &Record,
    outside: Condemned,
) -> Result<(), Violation> {
    let State::Terminating { why, .. } = after.state else { return Ok(()) };
    let is_releasing = matches!(before.state, State::Releasing { .. });
    match why {
        EndReason::Operator | EndReason::Dumped | EndReason::MachineGone => Ok(()),
        // The hard cap spares nobody.
        EndReason::DeadlinePassed if is_releasing => Ok(()),
        EndReason::DeadlinePassed if at < before.state.deadline() => {
            wrong(&after.id, format!("condemned before its deadline, {}", before.state.deadline()))
        }
        _ if outside.is_connected => {
            wrong(&after.id, format!("condemned for {why:?} while its runner is connected"))
        }
        EndReason::FailedChecks if outside.is_blameless => {
            wrong(&after.id, "condemned for what GitHub did not do".into())
        }
        EndReason::NotAcknowledged
            if outside
                .told_to_stop
                .is_none_or(|told| at.since(told) < view.limits.release_acknowledgement) =>
        {
            wrong(&after.id, "condemned for an acknowledgement that was not due yet".into())
        }
        _ => Ok(()),
    }
}

/// Only a machine that is recorded as ending, or that nobody accounts for, may be ended.
pub(super) fn ended(view: &View, at: Timestamp, id: &InstanceId) -> Result<(), Violation> {
    match view.live.get(id).map(|record| &record.state) {
        Some(State::Terminating { .. }) => Ok(()),
        Some(state) => wrong(id, format!("ended while {}", state.name().as_str())),
        None if view.buried.contains(id) => Ok(()),
        None => {
            let intent =
                view.machines.get(id).and_then(|machine| view.intents.get(&machine.intent));
            match intent {
                Some(intent) if intent.deadline > at => {
                    wrong(id, "ended under a live intent".into())
                }
                _ => Ok(()),
            }
        }
    }
}

/// Only a machine that is recorded as stopping may be stopped: a stop call finds nobody, however late.
pub(super) fn stopped(view: &View, id: &InstanceId) -> Result<(), Violation> {
    match view.live.get(id).map(|record| &record.state) {
        Some(State::Stopping { .. } | State::Terminating { .. }) => Ok(()),
        Some(state) => wrong(id, format!("stopped while {}", state.name().as_str())),
        None if view.buried.contains(id) => Ok(()),
        None => wrong(id, "stopped without a record".into()),
    }
}

/// A job ended before its time.
pub(super) fn interrupted(view: &View, id: &InstanceId, job: u64) -> Result<(), Violation> {
    if view.lost.contains(id) {
        return Ok(());
    }
    wrong(id, format!("job {job} was interrupted, and the cloud did not do it"))
}

#[cfg(test)]
mod tests {
    use bullpen_core::ids::{PoolName, RequestId};
    use bullpen_core::limits::Limits;

    use super::*;
    use crate::sample::record;

    /// Whether it may be ended as gone, before its deadline.
    fn may_be_taken_for_gone(view: &View, owner: Owner) -> bool {
        let (at, deadline) = (Timestamp::from_millis(1_000), Timestamp::from_millis(60_000));
        let before = record(State::Created { owner, deadline });
        let state = State::Terminating { why: EndReason::MachineGone, since: at };
        let after = Record { state, ..before.clone() };
        taken(view, &Requests::default(), at, &before, &after, "upkeep").is_ok()
    }

    #[test]
    fn a_notice_makes_a_machine_as_good_as_gone_to_its_pool_alone() {
        let pool = || Owner::Pool(PoolName::new("ci"));
        let request = || Owner::Request(RequestId::new("7.1.build"));
        let mut view = View::new((Limits::default(), Vec::new()), Default::default(), Vec::new());
        assert!(!may_be_taken_for_gone(&view, pool()), "nobody said that it would go");
        view.noticed.insert(InstanceId::new("i-1"));
        assert!(may_be_taken_for_gone(&view, pool()));
        assert!(
            !may_be_taken_for_gone(&view, request()),
            "it may finish its job within the notice"
        );
        view.lost.insert(InstanceId::new("i-1"));
        assert!(may_be_taken_for_gone(&view, request()));
    }
}
