//! Invariant 4 from outside: whether the process that took a machine from its owner was allowed to.
//!
//! A process that acts for the owner may take it, and any process once the owner's workflow run is
//! over, once the deadline has passed by true time, or once the cloud took the machine away. A
//! machine without an owner is also protected while its runner is connected, because GitHub may be
//! giving that runner a job; and GitHub's failures end no machine.
//!
//! Not here: the reasons written into records (`core::invariants::on_write`).

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{EndReason, Owner, Record, State};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::rates::FleetCall;
use bullpen_core::time::Timestamp;

use super::requests::Requests;
use super::view::View;

fn wrong(id: &InstanceId, what: String) -> Result<(), Violation> {
    Err(Violation { invariant: Invariant::Protected, instance: Some(id.clone()), what })
}

/// Judges a write that takes a machine from its owner. `is_lost`: nothing tells it from a machine that
/// is gone.
pub(super) fn taken(
    view: &View,
    requests: &Requests,
    at: Timestamp,
    (before, is_lost): (&Record, bool),
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
            // For the pool that is preparing it, a machine with a reclaim notice counts as gone.
            let is_pools = matches!(owner, Owner::Pool(_));
            is_lost
                || view.lost.contains(&before.id)
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

/// The state, outside the ledger, of a machine that is being condemned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Condemned {
    /// Whether its runner is connected.
    pub(super) is_connected: bool,
    /// Whether its agent reported that GitHub's fault, not the machine's, kept it from registering.
    pub(super) is_blameless: bool,
    /// When its agent was ordered to stop.
    pub(super) told_to_stop: Option<Timestamp>,
}

/// Judges a write that condemns a machine.
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
        // The hard cap ends a machine even while its runner is connected.
        EndReason::DeadlinePassed if is_releasing => Ok(()),
        EndReason::DeadlinePassed if at < before.state.deadline() => {
            wrong(&after.id, format!("condemned before its deadline, {}", before.state.deadline()))
        }
        _ if outside.is_connected => {
            wrong(&after.id, format!("condemned for {why:?} while its runner is connected"))
        }
        EndReason::FailedChecks if outside.is_blameless => {
            wrong(&after.id, "condemned for GitHub's failure".into())
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

/// The cloud terminates a machine: its record must be terminating, or no record and no live intent
/// may account for it.
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

/// The cloud stops a machine: its record must be stopping or terminating, however late the stop
/// call lands.
pub(super) fn stopped(view: &View, id: &InstanceId) -> Result<(), Violation> {
    match view.live.get(id).map(|record| &record.state) {
        Some(State::Stopping { .. } | State::Terminating { .. }) => Ok(()),
        Some(state) => wrong(id, format!("stopped while {}", state.name().as_str())),
        None if view.buried.contains(id) => Ok(()),
        None => wrong(id, "stopped without a record".into()),
    }
}

/// A process asks to change a machine of another stack.
pub(super) fn trespassed(id: &InstanceId, call: FleetCall) -> Result<(), Violation> {
    wrong(id, format!("{call:?} was asked for a machine of another stack"))
}

/// A job was interrupted: only the loss of its machine excuses that, or a machine that nothing told
/// from a lost one.
pub(super) fn interrupted(view: &View, id: &InstanceId, job: u64) -> Result<(), Violation> {
    if view.lost.contains(id) || view.taken_for_lost.contains(id) {
        return Ok(());
    }
    wrong(id, format!("job {job} was interrupted, and not by the cloud"))
}

#[cfg(test)]
mod tests {
    use bullpen_core::ids::{PoolName, RequestId};
    use bullpen_core::limits::Limits;

    use super::*;
    use crate::sample::record;

    /// Whether a process may end this owner's machine as gone, before its deadline.
    fn may_be_taken_for_gone(view: &View, owner: Owner) -> bool {
        let (at, deadline) = (Timestamp::from_millis(1_000), Timestamp::from_millis(60_000));
        let before = record(State::Created { owner, deadline });
        let state = State::Terminating { why: EndReason::MachineGone, since: at };
        let after = Record { state, ..before.clone() };
        taken(view, &Requests::default(), at, (&before, false), &after, "upkeep").is_ok()
    }

    #[test]
    fn a_notice_lets_only_the_pool_end_its_machine_as_gone() {
        let pool = || Owner::Pool(PoolName::new("ci"));
        let request = || Owner::Request(RequestId::new("7.1.build"));
        let mut view = View::new((Limits::default(), Vec::new()), Default::default(), Vec::new());
        assert!(!may_be_taken_for_gone(&view, pool()), "the cloud gave no notice");
        view.noticed.insert(InstanceId::new("i-1"));
        assert!(may_be_taken_for_gone(&view, pool()));
        assert!(!may_be_taken_for_gone(&view, request()), "the job may finish within the notice");
        view.lost.insert(InstanceId::new("i-1"));
        assert!(may_be_taken_for_gone(&view, request()));
    }

    #[test]
    fn a_job_on_a_machine_that_looked_lost_may_be_interrupted() {
        let mut view = View::new((Limits::default(), Vec::new()), Default::default(), Vec::new());
        assert!(interrupted(&view, &InstanceId::new("i-1"), 7).is_err());
        view.taken_for_lost.insert(InstanceId::new("i-1"));
        assert!(interrupted(&view, &InstanceId::new("i-1"), 7).is_ok());
    }
}
