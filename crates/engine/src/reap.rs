//! The reaper: looks at every record whose time has come, in every state, on all pages.
//!
//! It never trusts the sweep that led it to a record: what it writes is conditional on the record
//! being exactly as read, so an owner that renewed meanwhile keeps its machine. It tolerates the
//! stated clock skew, so a deadline counts only when it has passed on every clock.
//!
//! Not here: machines without a record ([`crate::reconcile`]).

use std::time::Duration;

use bullpen_core::instance::{Authority, EndReason, InstanceEvent, Owner, Record, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::mailbox::AgentPhase;
use bullpen_core::ports::{Fault, Ledger, MachineState, Ports};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::jobs::capacity;
use crate::release;
use crate::reports;
use crate::retry::retry_until;
use crate::transition::{self, Moved};

/// What one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Records looked at.
    pub looked_at: usize,
    /// Machines condemned.
    pub condemned: usize,
    /// Machines taken back from an owner whose time was up.
    pub withdrawn: usize,
    /// Machines confirmed gone.
    pub buried: usize,
}

/// One pass over everything that is due. A record that cannot be dealt with now is left for the
/// next pass and does not hold up the others.
pub async fn reap<P: Ports>(stack: &Stack<P>) -> Result<Reaped, Fault> {
    let mut reaped = Reaped::default();
    let mut ending = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let until = stack.now().after(stack.limits.release_retry);
        let page =
            retry_until(stack, until, || stack.ports.ledger().due(stack.now(), cursor.as_deref()))
                .await?;
        for record in page.items {
            reaped.looked_at += 1;
            if matches!(record.state, State::Terminating { .. }) {
                ending.push(record);
            } else if let Err(fault) = look_at(stack, &record, &mut reaped, &mut ending).await {
                tracing::info!(instance_id = %record.id, %fault, "left for the next pass");
            }
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    let mut failed = None;
    for batch in ending.chunks(IDS_PER_CALL_MAX) {
        match bury(stack, batch).await {
            Ok(buried) => {
                reaped.buried += buried.len();
                capacity::freed(stack, &buried).await;
            }
            // The others are not kept waiting for what these are about.
            Err(fault) => failed = failed.or(Some(fault)),
        }
    }
    failed.map_or(Ok(reaped), Err)
}

async fn look_at<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    reaped: &mut Reaped,
    ending: &mut Vec<Record>,
) -> Result<(), Fault> {
    let now = stack.now();
    let until = now.after(stack.limits.release_retry);
    let skew =
        if sabotage!("reaper-trusts-its-clock") { Duration::ZERO } else { stack.limits.clock_skew };
    let overdue = now >= record.state.deadline().after(skew);
    match &record.state {
        State::Created { .. } if sabotage!("reaper-forgets-created") => {}
        State::Idle { .. } if sabotage!("reaper-forgets-idle") => {}
        State::Claimed { .. } if sabotage!("reaper-forgets-claimed") => {}
        State::Running { .. } if sabotage!("reaper-forgets-running") => {}
        State::Releasing { .. } if sabotage!("reaper-forgets-releasing") => {}
        State::Idle { .. } | State::Stopping { .. } if overdue => {
            condemn(stack, record, reaped, ending, until).await?;
        }
        State::Created { .. } | State::Claimed { .. }
            if overdue && sabotage!("reaper-skips-the-handshake") =>
        {
            condemn(stack, record, reaped, ending, until).await?;
        }
        // Warm ones may run a job by now, so they go through the handshake too.
        State::Created { .. } | State::Claimed { .. } if overdue => {
            withdraw(stack, record, reaped, until).await?;
        }
        State::Running { owner, .. } if overdue => {
            if !extend(stack, record, owner, until).await? {
                withdraw(stack, record, reaped, until).await?;
            }
        }
        State::Releasing { .. } => {
            let _ = release::finish(stack, record).await?;
        }
        State::Created { .. }
        | State::Idle { .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Stopping { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => {}
    }
    Ok(())
}

/// Ends a machine that is nobody's and whose time is up.
async fn condemn<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    reaped: &mut Reaped,
    ending: &mut Vec<Record>,
    until: Timestamp,
) -> Result<(), Fault> {
    let (now, why) = (stack.now(), EndReason::DeadlinePassed);
    let event =
        InstanceEvent::Condemned { authority: Authority::Deadline { at: now }, why, at: now };
    if let Moved::To(moved) = transition::apply(stack, record, &event, until).await? {
        reaped.condemned += 1;
        ending.push(moved);
    }
    Ok(())
}

/// Takes a machine back whose owner's time is up, and makes the first pass of the handshake.
async fn withdraw<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    reaped: &mut Reaped,
    until: Timestamp,
) -> Result<(), Fault> {
    let authority = Authority::Deadline { at: stack.now() };
    let event = release::give_up_event(stack, record, authority, until).await?;
    if let Moved::To(moved) = transition::apply(stack, record, &event, until).await? {
        reaped.withdrawn += 1;
        let _ = release::finish(stack, &moved).await?;
    }
    Ok(())
}

/// A machine that runs a job keeps its owner, up to the hard cap.
async fn extend<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    owner: &Owner,
    until: Timestamp,
) -> Result<bool, Fault> {
    let now = stack.now();
    let State::Running { cap, .. } = record.state else { return Ok(false) };
    if now >= cap && !sabotage!("beats-extend-the-hard-cap") {
        return Ok(false);
    }
    let report = reports::of(stack, record, until).await?;
    let busy = report.is_some_and(|report| {
        report.is_fresh(now, stack.limits.heartbeat_stale, None)
            && report.beat.is_some_and(|beat| beat.phase == AgentPhase::Busy)
    });
    if !busy {
        return Ok(false);
    }
    let event = InstanceEvent::Extended {
        owner: owner.clone(),
        generation: record.generation,
        deadline: now.after(stack.max_runtime(owner)),
    };
    let _ = transition::apply(stack, record, &event, until).await?;
    Ok(true)
}

/// Asks the cloud to end machines, and buries those it confirms gone; returns which.
async fn bury<P: Ports>(stack: &Stack<P>, batch: &[Record]) -> Result<Vec<String>, Fault> {
    let ids: Vec<_> = batch.iter().map(|record| record.id.clone()).collect();
    let until = stack.now().after(stack.limits.release_retry);
    if sabotage!("terminate-is-not-confirmed") {
        let _ = stack.fleet().terminate(&ids).await;
    } else {
        retry_until(stack, until, async || stack.fleet().terminate(&ids).await).await?;
    }
    let machines = retry_until(stack, until, async || stack.fleet().describe(&ids).await).await?;
    let mut buried = Vec::new();
    for record in batch {
        let seen = machines.iter().find(|machine| machine.id == record.id);
        let young = stack.now().since(record.facts.launched_at) < stack.limits.reconcile_grace;
        let gone = match seen {
            Some(_) if sabotage!("terminate-is-not-confirmed") => true,
            Some(machine) => machine.state == MachineState::Gone,
            // Not visible: gone, unless it is so young that it may not be visible yet.
            None => !young,
        };
        if !gone {
            continue;
        }
        let now = stack.now();
        let event =
            InstanceEvent::Gone { at: now, forget_at: now.after(stack.limits.tombstone_ttl) };
        if let Moved::To(_) = transition::apply(stack, record, &event, until).await? {
            buried.push(record.id.to_string());
        }
    }
    Ok(buried)
}
