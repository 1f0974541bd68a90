//! Undoing a request: after a failure, after a cancellation, or as a dump after an unexpected
//! error.
//!
//! A failing request gives its machines back and makes the first pass of the release handshake. A
//! cancelled command has only seconds: it fences the owner out of all machines and leaves the
//! handshake to the release or the reaper, so that no warm machine is lost. A dump ends every
//! machine that the request holds.
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
use crate::at_once::at_once;
use crate::release;
use crate::retry::retry_until;
use crate::transition::{self, Moved};

/// How long a cancelled command may take: GitHub kills it soon after.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// The machines that a cancelled request held; its owner is fenced out of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abandoned {
    /// Warm machines, which are on their way back.
    pub returning: Vec<InstanceId>,
    /// The others, which end.
    pub ending: Vec<InstanceId>,
}

/// Gives back every machine of a failed request, and marks its entry as finished.
///
/// It lists the machines first and checks second that no process has superseded this one. If none
/// has, every machine in the list is this process's to give back; a machine that another process of
/// the request takes later is not in the list.
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

/// Gives back every machine that an abandoned incarnation of the request still holds.
pub(super) async fn clear<P: Ports>(stack: &Stack<P>, id: &RequestId) {
    let owner = Owner::Request(id.clone());
    let held = release::held_by(stack, &owner).await;
    give_back(stack, &owner, held).await;
}

async fn give_back<P: Ports>(stack: &Stack<P>, owner: &Owner, held: Result<Vec<Record>, Fault>) {
    let fault = match held {
        Ok(held) => {
            let withdrawn = release::withdraw_each(stack, owner, held).await;
            // The first pass stores the withdrawals and asks GitHub; the reaper continues.
            join_all(withdrawn.releasing.iter().map(|record| release::finish(stack, record))).await;
            withdrawn.fault
        }
        Err(fault) => Some(fault),
    };
    if let Some(fault) = fault {
        // The reaper takes the machines when their leases or deadlines have passed.
        tracing::warn!(%fault, "a failed request left machines for the reaper");
    }
}

/// Abandons a cancelled request in one round of writes, within `CANCEL_WITHIN`.
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
        // A machine that is already on its way back needs no write now.
        let held =
            stack.readable(held).into_iter().filter(|record| record.state.owner() == Some(&owner));
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
    // A machine that could not be fenced is left to its lease and does not delay the others.
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

/// Ends every machine of a request after an unexpected error, and returns their ids for the
/// operator to inspect.
pub async fn dump<P: Ports>(stack: &Stack<P>, id: &RequestId) -> Result<Vec<InstanceId>, Fault> {
    let owner = Owner::Request(id.clone());
    let until = stack.now().after(stack.limits.release_acknowledgement);
    let held = retry_until(stack, until, || stack.ports.ledger().owned_by(&owner)).await?;
    let condemned = at_once(stack.readable(held), async |record: Record| {
        let authority = match record.state {
            State::Releasing { .. } => Authority::Release { generation: record.generation },
            _ => Authority::Owner { owner: owner.clone(), generation: record.generation },
        };
        let event = InstanceEvent::Condemned { authority, why: EndReason::Dumped, at: stack.now() };
        transition::apply(stack, &record, &event, until).await
    })
    .await;
    let (mut ids, mut failed) = (Vec::new(), None);
    for moved in condemned {
        match moved {
            Ok(Moved::To(record)) => ids.push(record.id),
            // Another owner may have the machine by now, or it ends already.
            Ok(Moved::Overtaken | Moved::Refused(_)) => {}
            Err(fault) => failed = Some(fault),
        }
    }
    if !ids.is_empty()
        && let Err(fault) =
            retry_until(stack, until, async || stack.fleet().terminate(&ids).await).await
    {
        failed = Some(fault);
    }
    let ended = entry::end(stack, id, RequestStage::Finished, until).await;
    if let Err(error) = ended {
        tracing::warn!(%error, "the dumped request's entry is still live");
    }
    failed.map_or(Ok(ids), Err)
}
