//! The reaper: visits every record whose deadline has come, in every state, on all pages.
//!
//! Each of its writes is conditional on the record being exactly as read, so an owner that renewed
//! meanwhile keeps its machine. It allows for the stated clock skew: a deadline counts only when it
//! has passed on every clock.
//!
//! Not here: machines without a record ([`crate::reconcile`]).

use bullpen_core::instance::Record;
use bullpen_core::ports::{Fault, Ledger, Ports};
use bullpen_core::sabotage;
use bullpen_core::tenure::{DueAction, due, due_while_running};

use crate::Stack;
use crate::ending;
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
    let mut cursor: Option<String> = None;
    loop {
        let until = stack.now().after(stack.limits.release_retry);
        let page =
            retry_until(stack, until, || stack.ports.ledger().due(stack.now(), cursor.as_deref()))
                .await?;
        if sabotage!("one-bad-record-stops-the-reaper")
            && let Some(bad) = page.unreadable.first()
        {
            return Err(bad.fault());
        }
        let (records, next) = stack.readable_page(page);
        for record in records {
            reaped.looked_at += 1;
            let id = record.id.clone();
            let visit = stack.caught("record", &id, visit(stack, record, &mut reaped)).await;
            if let Err(fault) = visit.unwrap_or_else(|defect| Err(defect.into())) {
                tracing::info!(instance_id = %id, %fault, "record left for the next pass");
            }
        }
        match next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    reaped.buried = ending::end_noted(stack).await?;
    Ok(reaped)
}

/// Does what is due for one record ([`due`]).
async fn visit<P: Ports>(
    stack: &Stack<P>,
    record: Record,
    reaped: &mut Reaped,
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
            if let Moved::To(_) = transition::apply(stack, &record, &event, until).await? {
                reaped.condemned += 1;
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
        DueAction::Terminate => stack.condemned().note(record),
    }
    Ok(())
}
