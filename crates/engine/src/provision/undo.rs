//! Undoing a request: after a failure, after a cancellation, after something nobody expected.
//!
//! A failure gives back and sees to the first steps of the handshake. A cancellation has seconds:
//! it fences the owner out of everything and leaves the handshake to whoever comes next, so that
//! no warm machine is lost. A dump ends everything the request holds.
//!
//! Not here: the handshake ([`crate::release`]).

use std::time::Duration;

use bullpen_core::ids::{InstanceId, RequestId};
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, Owner, Record, State};
use bullpen_core::ports::{Clock, Fault, Ledger, Ports};
use bullpen_core::request::entry::RequestStage;
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;
use futures_util::future::join_all;

use super::ProvisionError;
use super::entry::{self, Begun};
use crate::Stack;
use crate::release;
use crate::retry::retry_until;
use crate::transition::{self, Moved};

/// What a cancelled command may take: GitHub kills it soon after.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// What a cancelled request left behind, all of it fenced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abandoned {
    /// Machines that were warm and are on their way back.
    pub returning: Vec<InstanceId>,
    /// Machines that were not, and end.
    pub ending: Vec<InstanceId>,
}

/// A request failed: whatever it holds goes back, and its entry says so.
///
/// What it holds is listed first and whose it is asked second: if nobody had superseded this process
/// by then, all of it is this process's to give back. What another process of the request takes
/// later is not in the list.
pub(super) async fn give_up<P: Ports>(
    stack: &Stack<P>,
    begun: &Begun,
) -> Result<(), ProvisionError> {
    let id = &begun.request.id;
    let owner = Owner::Request(id.clone());
    let held = release::held_by(stack, &owner).await;
    if entry::is_superseded(stack, begun).await {
        return Err(ProvisionError::Superseded);
    }
    give_back(stack, &owner, held).await;
    let until = stack.now().after(stack.limits.release_retry);
    if let Err(error) = entry::end(stack, id, RequestStage::Finished, until).await {
        tracing::info!(%error, "the failed request's entry is still live");
    }
    Ok(())
}

/// Whatever an abandoned incarnation of the request still holds goes back.
pub(super) async fn clear<P: Ports>(stack: &Stack<P>, id: &RequestId) {
    let owner = Owner::Request(id.clone());
    let held = release::held_by(stack, &owner).await;
    give_back(stack, &owner, held).await;
}

async fn give_back<P: Ports>(stack: &Stack<P>, owner: &Owner, held: Result<Vec<Record>, Fault>) {
    let withdrawn = async { release::withdraw_each(stack, owner, held?).await };
    match withdrawn.await {
        Ok(releasing) => {
            // The first pass stores the withdrawals and asks GitHub; whoever comes next goes on.
            join_all(releasing.iter().map(|record| release::finish(stack, record))).await;
        }
        // The lease of every claim and the deadline of every machine remain.
        Err(fault) => tracing::warn!(%fault, "a failed request left machines for the reaper"),
    }
}

/// A request was cancelled: one round of writes, in the time there is.
pub(super) async fn abandon<P: Ports>(stack: &Stack<P>, id: &RequestId) -> Abandoned {
    let until = stack.now().after(CANCEL_WITHIN);
    tokio::select! {
        biased;
        abandoned = fence(stack, id, until) => abandoned,
        () = stack.ports.clock().sleep(CANCEL_WITHIN) => Abandoned::default(),
    }
}

async fn fence<P: Ports>(stack: &Stack<P>, id: &RequestId, until: Timestamp) -> Abandoned {
    let owner = Owner::Request(id.clone());
    let entry = entry::end(stack, id, RequestStage::Abandoned, until);
    let moved = async {
        let held = retry_until(stack, until, || stack.ports.ledger().owned_by(&owner)).await?;
        // What is on its way back already needs nothing more in the time there is.
        let held = held.into_iter().filter(|record| record.state.owner() == Some(&owner));
        if sabotage!("cancel-ends-warm-machines") {
            let end = async |record: Record| {
                let authority =
                    Authority::Owner { owner: owner.clone(), generation: record.generation };
                let why = EndReason::RequestFailed;
                let event = InstanceEvent::Condemned { authority, why, at: stack.now() };
                match transition::apply(stack, &record, &event, until).await? {
                    Moved::To(moved) => Ok(Some(moved)),
                    Moved::Overtaken | Moved::Refused(_) => Ok(None),
                }
            };
            return Ok(join_all(held.map(end)).await);
        }
        let moves = held.map(|record| release::withdraw(stack, &owner, record, until));
        Ok::<_, Fault>(join_all(moves).await)
    };
    let (ended, moved) = futures_util::future::join(entry, moved).await;
    if let Err(error) = ended {
        tracing::warn!(%error, "the cancelled request's entry is still live");
    }
    let mut abandoned = Abandoned::default();
    // One that could not be fenced is left to its lease, and does not hold up the others.
    for record in moved.into_iter().flatten().filter_map(Result::ok).flatten() {
        match record.state {
            State::Terminating { .. } => abandoned.ending.push(record.id),
            _ => abandoned.returning.push(record.id),
        }
    }
    if !abandoned.ending.is_empty()
        && let Err(fault) = stack.fleet().terminate(&abandoned.ending).await
    {
        tracing::info!(%fault, "left for the reaper to end");
    }
    abandoned
}

/// Something happened that nobody expected: everything the request holds ends. Returns every id,
/// for a person to look at.
pub async fn dump<P: Ports>(stack: &Stack<P>, id: &RequestId) -> Result<Vec<InstanceId>, Fault> {
    let owner = Owner::Request(id.clone());
    let until = stack.now().after(stack.limits.release_acknowledgement);
    let held = retry_until(stack, until, || stack.ports.ledger().owned_by(&owner)).await?;
    let ids: Vec<_> = held.iter().map(|record| record.id.clone()).collect();
    for record in &held {
        let authority = match record.state {
            State::Releasing { .. } => Authority::Release { generation: record.generation },
            _ => Authority::Owner { owner: owner.clone(), generation: record.generation },
        };
        let event = InstanceEvent::Condemned { authority, why: EndReason::Dumped, at: stack.now() };
        let _ = transition::apply(stack, record, &event, until).await?;
    }
    if !ids.is_empty() {
        retry_until(stack, until, async || stack.fleet().terminate(&ids).await).await?;
    }
    let ended = entry::end(stack, id, RequestStage::Finished, until).await;
    if let Err(error) = ended {
        tracing::warn!(%error, "the dumped request's entry is still live");
    }
    Ok(ids)
}
