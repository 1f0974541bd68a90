//! Destroying a stack: ends every machine of it, at an operator's explicit command.
//!
//! Jobs that run there die with their machines. It touches only machines with the stack's tag and
//! runners with its prefix.
//!
//! Not here: removing the stores themselves (the command does, once they are empty).

use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Fault, Fleet, Forge, Ledger, MachineState, Ports, Site};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::reap::reap;
use crate::reconcile::{live_records, open_intents};
use crate::retry::retry_until;
use crate::transition;

/// The outcome of destroying a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destroyed {
    /// Machines that ended.
    pub machines: Vec<InstanceId>,
    /// How many runners GitHub deleted.
    pub runners: usize,
    /// How many runners GitHub did not delete; none of them has a machine any more.
    pub runners_left: usize,
    /// The other things removed from the cloud, in words.
    pub dismantled: Vec<String>,
}

/// Ends every machine and waits until all are gone; checks that at an interval of `every`.
pub async fn destroy<P: Ports>(
    stack: &Stack<P>,
    until: Timestamp,
    every: Duration,
) -> Result<Destroyed, Fault> {
    let mut destroyed = Destroyed::default();
    let mut launching_at = None;
    loop {
        // First, so that a process that still launches may not record its machines, and ends them.
        let was_launching = give_back_intents(stack, until).await?;
        condemn_all(stack, until).await?;
        let is_empty = end_machines(stack, until, &mut destroyed).await?;
        reap(stack).await?;
        if was_launching {
            launching_at = Some(stack.now());
        }
        // The cloud may not list the machines of the last launch yet.
        let shows_within = stack.ports.fleet().shows_within();
        let may_be_late = launching_at.is_some_and(|at| stack.now().since(at) < shows_within);
        if is_empty && !may_be_late && live_records(stack).await?.is_empty() {
            break;
        }
        wait(stack, until, every).await?;
    }
    remove_runners(stack, &mut destroyed).await;
    destroyed.dismantled = stack.ports.site().dismantle().await?;
    Ok(destroyed)
}

/// Does the same for a stack whose ledger is gone, and finds its machines by their tags.
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
    destroyed.dismantled = stack.ports.site().dismantle().await?;
    Ok(destroyed)
}

/// Asks the cloud to end every machine that it lists; returns whether there was none.
async fn end_machines<P: Ports>(
    stack: &Stack<P>,
    until: Timestamp,
    destroyed: &mut Destroyed,
) -> Result<bool, Fault> {
    let (alive, is_complete) = alive(stack, until).await?;
    for id in &alive {
        if !destroyed.machines.contains(id) {
            destroyed.machines.push(id.clone());
        }
    }
    for batch in alive.chunks(IDS_PER_CALL_MAX) {
        match retry_until(stack, until, async || stack.fleet().terminate(batch).await).await {
            // The others end meanwhile, and an operator can still allow it.
            Err(Fault::Denied(why)) if stack.now() < until => {
                tracing::warn!(why, "cloud denies ending a machine; the others end");
            }
            ended => ended?,
        }
    }
    Ok(alive.is_empty() && is_complete)
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
        // If another process overtakes this write, the next round reads the record again.
        let _ = transition::apply(stack, &record, &event, until).await?;
    }
    Ok(())
}

/// The machines that are not gone, and whether these are all: a machine that cannot be read may be
/// alive.
async fn alive<P: Ports>(
    stack: &Stack<P>,
    until: Timestamp,
) -> Result<(Vec<InstanceId>, bool), Fault> {
    let machines = retry_until(stack, until, async || stack.fleet().list().await).await?;
    let is_complete = machines.unreadable.is_empty();
    let machines = stack.readable(machines).into_iter();
    let alive = machines.filter(|machine| machine.state != MachineState::Gone);
    Ok((alive.map(|machine| machine.id).collect(), is_complete))
}

/// Deletes runners as far as GitHub lets it: GitHub forgets runners that stay offline.
async fn remove_runners<P: Ports>(stack: &Stack<P>, destroyed: &mut Destroyed) {
    let Ok(runners) = stack.ports.forge().runners().await else { return };
    for runner in runners {
        match stack.ports.forge().delete(&runner.name).await {
            Deletion::Deleted | Deletion::NotFound => destroyed.runners += 1,
            Deletion::Busy | Deletion::Unavailable => destroyed.runners_left += 1,
        }
    }
}

/// Gives back the open intents, so that no process can record their machines any more; returns
/// whether there were any.
async fn give_back_intents<P: Ports>(stack: &Stack<P>, until: Timestamp) -> Result<bool, Fault> {
    let open = open_intents(stack).await?;
    for intent in &open {
        let given = retry_until(stack, until, || stack.ports.ledger().give_back(intent)).await?;
        tracing::debug!(intent = %intent.id, ?given, "gave back an open intent");
    }
    Ok(!open.is_empty())
}
