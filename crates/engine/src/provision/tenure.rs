//! A request's tenure over its machines: its process renews the claims while the request lives, and
//! marks runners as running once they listen.
//!
//! Not here: taking machines ([`super::worker`]), or giving them back ([`super::undo`]).

use bullpen_core::instance::{InstanceEvent, Owner, Record, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Ledger, Ports, Written};
use bullpen_core::tenure::{is_marked, registered};
use futures_util::future::join_all;

use super::worker::HeldMachine;
use crate::Stack;
use crate::transition::{self, Moved};

/// Marks runners as running and returns those it marked. It leaves out a runner whose lease was
/// lost meanwhile, and the caller replaces that one.
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
                    marked.push(HeldMachine { record, ..held.clone() });
                }
                // Renewed or overtaken meanwhile, or without an answer: tried again one by one.
                _ => left.push(held.clone()),
            }
        }
    }
    let others = join_all(left.into_iter().map(|held| mark_one(stack, held))).await;
    marked.extend(others.into_iter().flatten());
    marked
}

/// The event that marks a runner as running; `None` unless its record is created or claimed.
fn event<P: Ports>(stack: &Stack<P>, record: &Record) -> Option<InstanceEvent> {
    registered(record, stack.max_runtime(record.state.owner()?), stack.now(), &stack.limits)
}

/// The record that was read, and the record to store.
fn running<P: Ports>(stack: &Stack<P>, held: &HeldMachine) -> Option<(Record, Record)> {
    let next = held.record.on(&event(stack, &held.record)?).ok()?;
    Some((held.record.clone(), next))
}

async fn mark_one<P: Ports>(stack: &Stack<P>, held: HeldMachine) -> Option<HeldMachine> {
    let Some(event) = event(stack, &held.record) else {
        return matches!(held.record.state, State::Running { .. }).then_some(held);
    };
    let until = stack.now().after(stack.limits.claim_lease);
    let record = match transition::latest(stack, &held.record, &event, until).await.ok()? {
        Moved::To(record) => record,
        Moved::Overtaken | Moved::Refused(_) => {
            let fresh = transition::read(stack, &held.record.id, until).await.ok()??;
            is_marked(&fresh, &held.record).then_some(fresh)?
        }
    };
    Some(HeldMachine { record, ..held })
}

/// Renews the leases of the request's claims. Never returns; the request drops it at its end.
pub(super) async fn renew<P: Ports>(stack: &Stack<P>, owner: &Owner) -> std::convert::Infallible {
    loop {
        stack.ports.clock().sleep(stack.limits.claim_renew).await;
        let Ok(records) = stack.ports.ledger().owned_by(owner).await else { continue };
        for record in stack.readable(records) {
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
            // Overtaken is fine: the newer write is by this request, or fences it.
            let _ = transition::apply(stack, &record, &event, now.after(stack.limits.claim_renew))
                .await;
        }
    }
}
