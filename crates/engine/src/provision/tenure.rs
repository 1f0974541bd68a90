//! A request's tenure over its machines: claims that are renewed while it lives, and runners that are
//! marked as running once they listen.
//!
//! Not here: taking machines ([`super::worker`]), or giving them back ([`super::undo`]).

use bullpen_core::instance::{InstanceEvent, Owner, Record, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Ledger, Ports, Written};
use futures_util::future::join_all;

use super::worker::{self, HeldMachine};
use crate::Stack;
use crate::transition::{self, Moved};

/// Marks runners as running; one whose lease was lost meanwhile is left out, and topped up.
pub(crate) async fn mark_running<P: Ports>(
    stack: &Stack<P>,
    held: Vec<HeldMachine>,
) -> Vec<HeldMachine> {
    let mut marked = Vec::new();
    let mut left = Vec::new();
    for batch in held.chunks(IDS_PER_CALL_MAX) {
        let writes: Vec<_> = batch.iter().map(|held| running(stack, held)).collect();
        let wanted: Vec<_> = writes.iter().flatten().cloned().collect();
        let mut answers = stack.ports.ledger().replace_all(&wanted).await.into_iter();
        for (held, write) in batch.iter().zip(writes) {
            let answer = write.and_then(|_| answers.next());
            match answer {
                Some(Ok(Written::Won(record))) => {
                    marked.push(HeldMachine { record, ..held.clone() })
                }
                // Renewed, or overtaken, or without an answer: looked at one by one.
                _ => left.push(held.clone()),
            }
        }
    }
    let others = join_all(left.into_iter().map(|held| mark_one(stack, held))).await;
    marked.extend(others.into_iter().flatten());
    marked
}

/// The event that marks a runner, if it is not marked yet.
fn registered<P: Ports>(stack: &Stack<P>, held: &HeldMachine) -> Option<InstanceEvent> {
    let (State::Created { owner, .. } | State::Claimed { owner, .. }) = &held.record.state else {
        return None;
    };
    let now = stack.now();
    Some(InstanceEvent::Registered {
        owner: owner.clone(),
        generation: held.record.generation,
        claim: held.claim.clone(),
        at: now,
        deadline: now.after(stack.max_runtime(owner)),
        cap: now.after(stack.limits.hard_cap),
    })
}

/// What was seen and what is to be stored.
fn running<P: Ports>(stack: &Stack<P>, held: &HeldMachine) -> Option<(Record, Record)> {
    let next = held.record.on(&registered(stack, held)?).ok()?;
    Some((held.record.clone(), next))
}

async fn mark_one<P: Ports>(stack: &Stack<P>, held: HeldMachine) -> Option<HeldMachine> {
    let Some(event) = registered(stack, &held) else {
        return matches!(held.record.state, State::Running { .. }).then_some(held);
    };
    let owner = held.record.state.owner();
    let until = stack.now().after(stack.limits.claim_lease);
    let record = match worker::latest(stack, &held.record, &event, until).await.ok()? {
        Moved::To(record) => record,
        // Another process of the same request may have marked it, which is just as good.
        Moved::Overtaken | Moved::Refused(_) => {
            let fresh = transition::read(stack, &held.record.id, until).await.ok()??;
            let is_marked =
                matches!(fresh.state, State::Running { .. }) && fresh.state.owner() == owner;
            (is_marked && fresh.generation == held.record.generation).then_some(fresh)?
        }
    };
    Some(HeldMachine { record, ..held })
}

/// Keeps the request's claims alive. Never returns; it ends with the request.
pub(super) async fn renew<P: Ports>(stack: &Stack<P>, owner: &Owner) -> std::convert::Infallible {
    loop {
        stack.ports.clock().sleep(stack.limits.claim_renew).await;
        let Ok(records) = stack.ports.ledger().owned_by(owner).await else { continue };
        for record in records {
            let State::Claimed { claim, owner: holder, .. } = &record.state else { continue };
            if holder != owner {
                continue;
            }
            let now = stack.now();
            let event = InstanceEvent::Renewed {
                claim: claim.clone(),
                generation: record.generation,
                lease: now.after(stack.limits.claim_lease),
            };
            // Overtaken is fine: whoever wrote meanwhile is us, or has fenced us.
            let _ = transition::apply(stack, &record, &event, now.after(stack.limits.claim_renew))
                .await;
        }
    }
}
