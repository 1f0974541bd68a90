//! The end of a tenure: by its deadline, which the reaper watches, or by its owner.
//!
//! Not here: what follows once the instance is releasing ([`super::Release`]).

use std::time::Duration;

use crate::ids::Generation;
use crate::instance::{Authority, EndReason, InstanceEvent, Owner, Record, State};
use crate::limits::Limits;
use crate::mailbox::{AgentPhase, Report, SignalKind};
use crate::sabotage;
use crate::time::Timestamp;

/// What the reaper does with a record that a sweep led it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DueAction {
    /// Nothing is due.
    Leave,
    /// End the instance: no owner holds it and its time is up.
    Condemn(InstanceEvent),
    /// Take the instance back from an owner whose time is up ([`end_of_tenure`]).
    TakeBack(Authority),
    /// Read the agent's report, then ask [`due_while_running`].
    ReadReport,
    /// A job runs on the instance: its owner keeps it longer.
    Extend(InstanceEvent),
    /// Make another pass of the release.
    Release,
    /// Ask the cloud to terminate the instance until it confirms.
    Terminate,
}

/// Decides about a record as it was read at `now`. A deadline counts only when it has passed on
/// every clock, so the reaper adds the tolerated skew.
pub fn due(record: &Record, now: Timestamp, limits: &Limits) -> DueAction {
    let skew =
        if sabotage!("reaper-trusts-its-clock") { Duration::ZERO } else { limits.clock_skew };
    let overdue = now >= record.state.deadline().after(skew);
    let authority = Authority::Deadline { at: now };
    match &record.state {
        State::Created { .. } if sabotage!("reaper-forgets-created") => DueAction::Leave,
        State::Idle { .. } if sabotage!("reaper-forgets-idle") => DueAction::Leave,
        State::Claimed { .. } if sabotage!("reaper-forgets-claimed") => DueAction::Leave,
        State::Running { .. } if sabotage!("reaper-forgets-running") => DueAction::Leave,
        State::Releasing { .. } if sabotage!("reaper-forgets-releasing") => DueAction::Leave,
        State::Terminating { .. } => DueAction::Terminate,
        State::Releasing { .. } => DueAction::Release,
        State::Created { .. }
        | State::Idle { .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
            if !overdue =>
        {
            DueAction::Leave
        }
        State::Idle { .. } | State::Stopping { .. } => condemn(authority, now),
        State::Created { .. } | State::Claimed { .. }
            if sabotage!("reaper-skips-the-handshake") =>
        {
            condemn(authority, now)
        }
        // A warm instance may run a job by now, so it goes through the handshake too.
        State::Created { .. } | State::Claimed { .. } => DueAction::TakeBack(authority),
        State::Running { cap, .. } if now >= *cap && !sabotage!("beats-extend-the-hard-cap") => {
            DueAction::TakeBack(authority)
        }
        State::Running { .. } => DueAction::ReadReport,
        State::Terminated { .. } => DueAction::Leave,
    }
}

fn condemn(authority: Authority, at: Timestamp) -> DueAction {
    let why = EndReason::DeadlinePassed;
    DueAction::Condemn(InstanceEvent::Condemned { authority, why, at })
}

/// Decides about a running instance whose deadline has passed, by its agent's report: its owner keeps
/// it while the agent says that a job runs, for `max_runtime` more and up to the hard cap.
pub fn due_while_running(
    record: &Record,
    report: Option<&Report>,
    max_runtime: Duration,
    now: Timestamp,
    limits: &Limits,
) -> DueAction {
    let State::Running { owner, .. } = &record.state else { return DueAction::Leave };
    let is_busy = report.is_some_and(|report| {
        report.is_fresh(now, limits.heartbeat_stale, None)
            && report.beat.as_ref().is_some_and(|beat| beat.phase == AgentPhase::Busy)
    });
    if !is_busy {
        return DueAction::TakeBack(Authority::Deadline { at: now });
    }
    DueAction::Extend(InstanceEvent::Extended {
        owner: owner.clone(),
        generation: record.generation,
        deadline: now.after(max_runtime),
    })
}

/// Whether an owner may take back an instance that it was seen to hold at `generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerMayEnd {
    /// The owner holds the instance at that generation.
    Yes,
    /// A release is under way already; carry it on.
    Releasing,
    /// Another owner has the instance, or this owner claimed it again since.
    No,
}

/// Decides by the record as it is stored now.
pub fn owner_may_end(record: &Record, owner: &Owner, generation: Generation) -> OwnerMayEnd {
    if record.state.listed_under() != Some(owner) {
        OwnerMayEnd::No
    } else if let State::Releasing { .. } = record.state {
        OwnerMayEnd::Releasing
    } else if record.generation == generation {
        OwnerMayEnd::Yes
    } else {
        OwnerMayEnd::No
    }
}

/// The event that takes an instance back. An instance that never completed its warm-up cannot be
/// reused and ends; any other is withdrawn, because a job may run there.
///
/// `report` matters for a created instance only, and must be read after the withdrawal is posted: an
/// agent stores `UD_OK` before it reads its orders, so an agent that has not stored it by then will
/// read the withdrawal and start no listener.
pub fn end_of_tenure(
    record: &Record,
    report: Option<&Report>,
    authority: Authority,
    now: Timestamp,
    limits: &Limits,
) -> InstanceEvent {
    let is_warm = report.is_some_and(|report| report.signals.contains_key(&SignalKind::WarmUpOk));
    if matches!(record.state, State::Created { .. })
        && (sabotage!("created-always-ends") || !is_warm)
    {
        return InstanceEvent::Condemned { authority, why: EndReason::RequestFailed, at: now };
    }
    let cap = match record.state {
        State::Running { cap, .. } => cap,
        _ => now.after(limits.hard_cap),
    };
    InstanceEvent::Withdrawn { authority, warm: true, at: now, cap }
}
