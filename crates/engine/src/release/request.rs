//! Releasing a request, or every request of a run attempt.
//!
//! A process that died between launch and record left machines that its request does not own yet.
//! A release finds them by their tag, records them, and ends them with the rest.
//!
//! Not here: taking one owner's machines back ([`super::release`]).

use bullpen_core::creation::Intent;
use bullpen_core::ids::{InstanceId, RequestId, RunAttempt};
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::ports::{Fault, Forge, Ledger, Machine, MachineState, Ports};
use bullpen_core::request::Request;
use bullpen_core::request::entry::{RequestEntry, RequestStage, split};
use bullpen_core::time::Timestamp;
use futures_util::future::join_all;

use super::{Released, release, withdraw};
use crate::Stack;
use crate::ending;
use crate::progress::ProgressObserver;
use crate::provision::creation::{launches, record};
use crate::provision::entry::{self, CannotBegin};
use crate::retry::retry_until;

/// Every request of a run attempt, in any state.
pub async fn requests_of<P: Ports>(
    stack: &Stack<P>,
    run: &RunAttempt,
) -> Result<Vec<RequestId>, Fault> {
    let until = stack.now().after(stack.limits.release_retry);
    let collection = run.collection();
    let stored = retry_until(stack, until, || stack.ports.ledger().documents(&collection)).await?;
    let mut requests = Vec::new();
    for document in stack.readable(stored) {
        match entry::decode(&document) {
            Ok(entry) => requests.push(entry.request.id),
            Err(bad) => stack.unreadable_items.note(&bad),
        }
    }
    Ok(requests)
}

/// Releases everything a request holds, in every state, and waits for it until `until`. Safe to run
/// twice, and after a crash of itself.
pub async fn release_request<P: Ports>(
    stack: &Stack<P>,
    id: &RequestId,
    until: Timestamp,
    tell: ProgressObserver<'_>,
) -> Result<Released, Fault> {
    let known = match entry::find(stack, id, until).await {
        Ok(known) => known.map(|(entry, _)| entry),
        Err(CannotBegin::Store(fault)) => return Err(fault),
        // Not an id of ours: it can still own something by that name.
        Err(CannotBegin::BadId { .. } | CannotBegin::Differs { .. }) => None,
    };
    // First of all no process may take more machines for it.
    let mut released = Released::default();
    if let Some(entry) = &known {
        close(stack, id, until).await?;
        ask_for_origin(stack, entry).await?;
        end_unrecorded(stack, &entry.request, until, &mut released).await?;
    }
    let owner = Owner::Request(id.clone());
    let held = release(stack, &owner, until, tell).await?;
    released.returned.extend(held.returned);
    released.ended.extend(held.ended);
    released.waiting.extend(held.waiting);
    if known.is_some()
        && let Ok(Some((entry, _))) = entry::find(stack, id, until).await
    {
        released.strangers = entry.strangers;
    }
    Box::pin(ending::end_before_leaving(stack)).await;
    Ok(released)
}

/// Stores whether the run has code that is not trusted, before any of its machines can be idle again.
/// Where neither the command that began the request nor GitHub says, its machines end.
async fn ask_for_origin<P: Ports>(stack: &Stack<P>, entry: &RequestEntry) -> Result<(), Fault> {
    let id = &entry.request.id;
    let (Some((run, _)), Some(repository)) = (split(id), &entry.repository) else { return Ok(()) };
    if entry.from_fork.is_some() || run.at_github().is_none() {
        return Ok(());
    }
    // Asked once: an outage of GitHub's must not hold machines back.
    let from_fork = match stack.ports.forge().is_from_fork(repository, &run).await {
        Ok(from_fork) => from_fork,
        Err(fault) => {
            tracing::info!(request = %id, %fault, "origin of a run unknown");
            return Ok(());
        }
    };
    let until = stack.now().after(stack.limits.release_retry);
    match entry::note_origin(stack, id, from_fork, until).await {
        Err(CannotBegin::Store(fault)) => Err(fault),
        Ok(()) | Err(_) => Ok(()),
    }
}

async fn close<P: Ports>(stack: &Stack<P>, id: &RequestId, until: Timestamp) -> Result<(), Fault> {
    match entry::end(stack, id, RequestStage::Finished, until).await {
        Ok(()) | Err(CannotBegin::BadId { .. } | CannotBegin::Differs { .. }) => Ok(()),
        Err(CannotBegin::Store(fault)) => Err(fault),
    }
}

/// Ends machines that were launched for the request and never recorded.
async fn end_unrecorded<P: Ports>(
    stack: &Stack<P>,
    request: &Request,
    until: Timestamp,
    released: &mut Released,
) -> Result<(), Fault> {
    let of = (&request.id, request.incarnation);
    let mut open = launches(stack, of, until, |_| false).await?;
    open.retain(|intent| intent.outstanding > 0);
    if open.is_empty() {
        return Ok(());
    }
    let machines = retry_until(stack, until, async || stack.fleet().list().await).await?;
    let machines = stack.readable(machines);
    let alive = machines.iter().filter(|machine| machine.state != MachineState::Gone);
    let theirs = alive.filter_map(|machine| {
        Some((machine, open.iter().find(|intent| intent.id == machine.intent)?))
    });
    let ended = join_all(theirs.map(|(machine, intent)| end(stack, intent, machine, until))).await;
    released.ended.extend(ended.into_iter().flatten());
    Ok(())
}

/// Records a machine and takes it back, as any other: the process that launched it may be recording
/// and assigning it at this moment. `None`: it may run a job, and goes back with the rest.
async fn end<P: Ports>(
    stack: &Stack<P>,
    intent: &Intent,
    machine: &Machine,
    until: Timestamp,
) -> Option<InstanceId> {
    let recorded = record(stack, intent, machine).await?;
    match withdraw(stack, &intent.owner, recorded, until).await {
        Ok(Some(Record { state: State::Terminating { .. }, .. })) => {}
        Ok(_) => return None,
        Err(fault) => {
            tracing::info!(instance_id = %machine.id, %fault, "left for the reaper to end");
            return None;
        }
    }
    if let Err(fault) = stack.fleet().terminate_one(&machine.id).await {
        tracing::info!(instance_id = %machine.id, %fault, "left for the reaper to end");
    }
    Some(machine.id.clone())
}
