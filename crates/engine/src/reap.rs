//! The reaper: visits every record whose deadline has come, in every state, on all pages.
//!
//! Each of its writes is conditional on the record being exactly as read, so an owner that renewed
//! meanwhile keeps its machine. It allows for the stated clock skew: a deadline counts only when it
//! has passed on every clock.
//!
//! Not here: machines without a record ([`crate::reconcile`]).

use bullpen_core::instance::{InstanceEvent, Record};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Fault, Ledger, MachineState, Ports};
use bullpen_core::sabotage;
use bullpen_core::tenure::{DueAction, due, due_while_running};

use crate::Stack;
use crate::capacity;
use crate::release;
use crate::reports;
use crate::retry::retry_until;
use crate::transition::{self, Moved};

/// How much one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Records visited.
    pub looked_at: usize,
    /// Machines condemned.
    pub condemned: usize,
    /// Machines taken back from an owner whose time was up.
    pub withdrawn: usize,
    /// Machines confirmed gone.
    pub buried: usize,
}

/// Makes one pass over all records that are due. A record that fails is left for the next pass and
/// does not delay the others.
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
            let id = record.id.clone();
            if let Err(fault) = visit(stack, record, &mut reaped, &mut ending).await {
                tracing::info!(instance_id = %id, %fault, "record left for the next pass");
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
                if !buried.is_empty() {
                    stack.shortages().note_ended();
                }
                capacity::freed(stack, &buried).await;
            }
            // A failed batch does not delay the next one.
            Err(fault) => failed = failed.or(Some(fault)),
        }
    }
    failed.map_or(Ok(reaped), Err)
}

/// Does what is due for one record ([`due`]).
async fn visit<P: Ports>(
    stack: &Stack<P>,
    record: Record,
    reaped: &mut Reaped,
    ending: &mut Vec<Record>,
) -> Result<(), Fault> {
    let now = stack.now();
    let until = now.after(stack.limits.release_retry);
    let mut action = due(&record, now, &stack.limits);
    if action == DueAction::ReadReport {
        let report = reports::of(stack, &record, until).await?;
        let max_runtime = record.state.owner().map(|owner| stack.max_runtime(owner));
        let max_runtime = max_runtime.unwrap_or_default();
        action = due_while_running(&record, report.as_ref(), max_runtime, now, &stack.limits);
    }
    match action {
        DueAction::Leave | DueAction::ReadReport => {}
        DueAction::Condemn(event) => {
            if let Moved::To(moved) = transition::apply(stack, &record, &event, until).await? {
                reaped.condemned += 1;
                ending.push(moved);
            }
        }
        DueAction::TakeBack(authority) => {
            let event = release::end_event(stack, &record, authority, until).await?;
            if let Moved::To(moved) = transition::apply(stack, &record, &event, until).await? {
                reaped.withdrawn += 1;
                let _ = release::finish(stack, &moved).await?;
            }
        }
        DueAction::Extend(event) => {
            let _ = transition::apply(stack, &record, &event, until).await?;
        }
        DueAction::Release => {
            let _ = release::finish(stack, &record).await?;
        }
        DueAction::Terminate => ending.push(record),
    }
    Ok(())
}

/// Asks the cloud to end machines, and buries those it confirms gone; returns their ids.
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
            // Not listed: gone, unless it is so young that the cloud may not list it yet.
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
