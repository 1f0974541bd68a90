//! Destroying a stack: every machine of it ends, by an operator's explicit word.
//!
//! Jobs that run there die with them. Only machines with the stack's tag and runners with its prefix
//! are touched.
//!
//! Not here: removing the stores themselves (the command does, once nothing is left in them).

use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Fault, Fleet, Forge, Ledger, MachineState, Ports};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::reap::reap;
use crate::reconcile::{live_records, open_intents};
use crate::retry::retry_until;
use crate::transition;

/// What was destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destroyed {
    /// Machines that were ended.
    pub machines: Vec<InstanceId>,
    /// Runners that were deleted at GitHub.
    pub runners: usize,
    /// Runners that GitHub did not delete; none of them has a machine any more.
    pub runners_left: usize,
    /// What else was removed from the cloud, in words.
    pub dismantled: Vec<String>,
}

/// Ends everything and waits until it is gone; whether it is, is looked at every so often.
pub async fn destroy<P: Ports>(
    stack: &Stack<P>,
    until: Timestamp,
    every: Duration,
) -> Result<Destroyed, Fault> {
    let mut destroyed = Destroyed::default();
    let mut launching_at = None;
    loop {
        // First: whoever launches still is not allowed to record it, and ends it.
        let was_launching = give_back_intents(stack, until).await?;
        condemn_all(stack, until).await?;
        let is_empty = end_machines(stack, until, &mut destroyed).await?;
        reap(stack).await?;
        if was_launching {
            launching_at = Some(stack.now());
        }
        // What was launched last may not be shown yet.
        let shows_within = stack.ports.fleet().shows_within();
        let may_be_late = launching_at.is_some_and(|at| stack.now().since(at) < shows_within);
        if is_empty && !may_be_late && live_records(stack).await?.is_empty() {
            break;
        }
        wait(stack, until, every).await?;
    }
    remove_runners(stack, &mut destroyed).await;
    destroyed.dismantled = stack.ports.fleet().dismantle().await?;
    Ok(destroyed)
}

/// The same for a stack whose ledger is gone: its machines are known by their tags.
pub async fn destroy_unrecorded<P: Ports>(
    stack: &Stack<P>,
    until: Timestamp,
    every: Duration,
) -> Result<Destroyed, Fault> {
    let mut destroyed = Destroyed::default();
    while !end_machines(stack, until, &mut destroyed).await? {
        wait(stack, until, every).await?;
    }
    remove_runners(stack, &mut destroyed).await;
    destroyed.dismantled = stack.ports.fleet().dismantle().await?;
    Ok(destroyed)
}

/// Has every machine that is there ended; whether none was.
async fn end_machines<P: Ports>(
    stack: &Stack<P>,
    until: Timestamp,
    destroyed: &mut Destroyed,
) -> Result<bool, Fault> {
    let alive = alive(stack, until).await?;
    for id in &alive {
        if !destroyed.machines.contains(id) {
            destroyed.machines.push(id.clone());
        }
    }
    for batch in alive.chunks(IDS_PER_CALL_MAX) {
        retry_until(stack, until, async || stack.fleet().terminate(batch).await).await?;
    }
    Ok(alive.is_empty())
}

async fn wait<P: Ports>(stack: &Stack<P>, until: Timestamp, every: Duration) -> Result<(), Fault> {
    if stack.now() >= until {
        return Err(Fault::unavailable(
            "some machines are not gone yet; end every `bullpen serve` of this stack, and try again",
        ));
    }
    stack.ports.clock().sleep(every).await;
    Ok(())
}

async fn condemn_all<P: Ports>(stack: &Stack<P>, until: Timestamp) -> Result<(), Fault> {
    for record in live_records(stack).await? {
        if matches!(record.state, State::Terminating { .. }) {
            continue;
        }
        let (authority, why) = (Authority::Operator, EndReason::Operator);
        let event = InstanceEvent::Condemned { authority, why, at: stack.now() };
        // Overtaken: the next round sees it as it is then.
        let _ = transition::apply(stack, &record, &event, until).await?;
    }
    Ok(())
}

async fn alive<P: Ports>(stack: &Stack<P>, until: Timestamp) -> Result<Vec<InstanceId>, Fault> {
    let machines = retry_until(stack, until, async || stack.fleet().list().await).await?;
    let alive = machines.into_iter().filter(|machine| machine.state != MachineState::Gone);
    Ok(alive.map(|machine| machine.id).collect())
}

/// Best effort: GitHub forgets runners that stay offline.
async fn remove_runners<P: Ports>(stack: &Stack<P>, destroyed: &mut Destroyed) {
    let Ok(runners) = stack.ports.forge().runners().await else { return };
    for runner in runners {
        match stack.ports.forge().delete(&runner.name).await {
            Deletion::Deleted | Deletion::NotFound => destroyed.runners += 1,
            Deletion::Busy | Deletion::Unavailable => destroyed.runners_left += 1,
        }
    }
}

/// Nothing of what is being launched will be recorded any more; whether anything was.
async fn give_back_intents<P: Ports>(stack: &Stack<P>, until: Timestamp) -> Result<bool, Fault> {
    let open = open_intents(stack).await?;
    for intent in &open {
        let given = retry_until(stack, until, || stack.ports.ledger().give_back(intent)).await?;
        tracing::debug!(intent = %intent.id, ?given, "given back");
    }
    Ok(!open.is_empty())
}
