//! The reaper: visits every record whose deadline has come, in every state, on all pages.
//!
//! Each of its writes is conditional on the record being exactly as read, so an owner that renewed
//! meanwhile keeps its machine. It allows for the stated clock skew: a deadline counts only when it
//! has passed on every clock. A pass has one *now*. Ending machines ([`end_due`]) asks only the
//! ledger and the cloud; taking them back ([`take_back_due`]) asks GitHub too, which may be slow.
//!
//! Not here: machines without a record ([`crate::reconcile`]).

use std::time::Duration;

use bullpen_core::instance::{InstanceEvent, Record};
use bullpen_core::ports::{Fault, Ledger, Ports};
use bullpen_core::sabotage;
use bullpen_core::tenure::{DueAction, due, due_while_running};
use bullpen_core::time::Timestamp;
use futures_util::future::join;

use crate::Stack;
use crate::at_once::at_once;
use crate::ending;
use crate::release;
use crate::reports;
use crate::retry::retry_until;
use crate::transition::{self, Moved};

/// How many machines one pass ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Machines condemned.
    pub condemned: usize,
    /// Machines confirmed gone.
    pub buried: usize,
}

/// Makes one pass over all records that are due.
pub async fn reap<P: Ports>(stack: &Stack<P>) -> Result<(), Fault> {
    let (ended, taken_back) = join(end_due(stack), take_back_due(stack)).await;
    ended.and(taken_back).map(drop)
}

/// Ends the machines that no owner may use any more, in few calls for all of them.
pub async fn end_due<P: Ports>(stack: &Stack<P>) -> Result<Reaped, Fault> {
    let mut reaped = Reaped::default();
    let mut condemned: Vec<(Record, InstanceEvent)> = Vec::new();
    let (found, failed) = each_due(stack).await;
    for (record, action) in found {
        match action {
            DueAction::Terminate if is_kept_waiting(stack, &record) => {}
            DueAction::Terminate => stack.condemned().note(record),
            DueAction::Condemn(event) => condemned.push((record, event)),
            DueAction::Leave
            | DueAction::TakeBack(_)
            | DueAction::ReadReport
            | DueAction::Extend(_)
            | DueAction::Release => {}
        }
    }
    let until = stack.now().after(stack.limits.release_retry);
    let moved = transition::apply_all(stack, &condemned, until).await;
    for (moved, (record, _)) in moved.into_iter().zip(&condemned) {
        match moved {
            Ok(Moved::To(_)) => reaped.condemned += 1,
            Ok(Moved::Overtaken | Moved::Refused(_)) => {}
            Err(fault) => {
                tracing::info!(instance_id = %record.id, %fault, "record left for the next pass");
            }
        }
    }
    reaped.buried = ending::end_noted(stack).await?;
    failed.map_or(Ok(reaped), Err)
}

/// Takes machines back from owners whose time is up, and continues every release; returns how many
/// machines it took. A record that fails is left for the next pass and does not delay the others.
pub async fn take_back_due<P: Ports>(stack: &Stack<P>) -> Result<usize, Fault> {
    let (found, failed) = each_due(stack).await;
    let visits = found.into_iter().filter(|(_, action)| match action {
        DueAction::TakeBack(_)
        | DueAction::ReadReport
        | DueAction::Extend(_)
        | DueAction::Release => true,
        DueAction::Leave | DueAction::Condemn(_) | DueAction::Terminate => false,
    });
    let visited = at_once(visits, async |(record, action): (Record, DueAction)| {
        let visit = stack.caught("record", &record.id, visit(stack, &record, action)).await;
        visit.unwrap_or_else(|defect| Err(defect.into())).unwrap_or_else(|fault| {
            tracing::info!(instance_id = %record.id, %fault, "record left for the next pass");
            false
        })
    })
    .await;
    let taken = visited.into_iter().filter(|is_taken| *is_taken).count();
    failed.map_or(Ok(taken), Err)
}

/// Planted bugs only: the reaper lets a condemned machine run on for minutes.
fn is_kept_waiting<P: Ports>(stack: &Stack<P>, record: &Record) -> bool {
    sabotage!("the-condemned-wait")
        && stack.now().since(record.state.deadline()) < Duration::from_secs(300)
}

/// The records that are due now, and what is due for each ([`due`]); and why the list is not whole,
/// if it is not.
async fn each_due<P: Ports>(stack: &Stack<P>) -> (Vec<(Record, DueAction)>, Option<Fault>) {
    let mut now = stack.now();
    if sabotage!("the-reaper-comes-late") {
        now = now.before(Duration::from_secs(300));
    }
    let mut found = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let until = stack.now().after(stack.limits.release_retry);
        let page =
            retry_until(stack, until, || stack.ports.ledger().due(now, cursor.as_deref())).await;
        let page = match page {
            Ok(page) => page,
            Err(fault) => return (found, Some(fault)),
        };
        if sabotage!("one-bad-record-stops-the-reaper")
            && let Some(bad) = page.unreadable.first()
        {
            return (found, Some(bad.fault()));
        }
        let (records, next) = stack.readable_page(page);
        found.extend(records.into_iter().map(|record| {
            let action = due(&record, now, &stack.limits);
            (record, action)
        }));
        cursor = next;
        if cursor.is_none() {
            return (found, None);
        }
    }
}

/// Does what is due for one record; returns whether it took the machine from its owner.
async fn visit<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    mut action: DueAction,
) -> Result<bool, Fault> {
    let now = stack.now();
    let until = now.after(stack.limits.release_retry);
    if action == DueAction::ReadReport {
        action = judged_by_report(stack, record, now, until).await?;
    }
    match action {
        DueAction::TakeBack(authority) => {
            let event = release::end_event(stack, record, authority, until).await?;
            if let Moved::To(moved) = transition::apply(stack, record, &event, until).await? {
                let _ = release::finish(stack, &moved).await?;
                return Ok(true);
            }
        }
        DueAction::Extend(event) => {
            let _ = transition::apply(stack, record, &event, until).await?;
        }
        DueAction::Release => {
            let _ = release::finish(stack, record).await?;
        }
        DueAction::Leave | DueAction::ReadReport | DueAction::Condemn(_) | DueAction::Terminate => {
        }
    }
    Ok(false)
}

async fn judged_by_report<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    now: Timestamp,
    until: Timestamp,
) -> Result<DueAction, Fault> {
    let report = reports::of(stack, record, until).await?;
    let max_runtime = record.state.owner().map(|owner| stack.max_runtime(owner));
    let max_runtime = max_runtime.unwrap_or_default();
    Ok(due_while_running(record, report.as_ref(), max_runtime, now, &stack.limits))
}
