//! Ending machines: asks the cloud to terminate what this process condemned, at once, and buries what
//! the cloud confirms gone, so that its place under a ceiling is free again.
//!
//! [`transition`] notes each record that it stores as terminating. [`run`] works on the noted
//! machines for as long as its process lives; [`end_noted`] works on them once, at the end of a
//! command. A crash loses the notes, and the reaper finds the records.
//!
//! Not here: condemning, or records of other processes ([`crate::reap`]).

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{InstanceEvent, Record};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Clock, Fault, MachineState, Ports};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;
use tokio::sync::Notify;

use crate::Stack;
use crate::at_once::at_once;
use crate::capacity;
use crate::retry::retry_until;
use crate::transition::{self, Moved};

/// When a machine is looked at again that the cloud does not confirm gone yet. EC2 takes up to a
/// minute; after the last look the reaper continues.
const LOOK_AGAIN: [Duration; 5] = [
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(30),
];

/// The machines that this process condemned and the cloud has not confirmed gone.
#[derive(Debug, Default)]
pub(crate) struct CondemnedMachines {
    noted: Mutex<BTreeMap<InstanceId, Condemned>>,
    added: Notify,
}

#[derive(Debug)]
struct Condemned {
    record: Record,
    looks: usize,
    not_before: Timestamp,
}

impl CondemnedMachines {
    /// Notes a record that is terminating.
    pub(crate) fn note(&self, record: Record) {
        let id = record.id.clone();
        self.noted().insert(id, Condemned { record, looks: 0, not_before: Timestamp::EPOCH });
        self.added.notify_one();
    }

    /// Takes the machines that are due.
    fn due(&self, now: Timestamp) -> Vec<Condemned> {
        self.noted().extract_if(.., |_, it| it.not_before <= now).map(|(_, it)| it).collect()
    }

    /// Notes a machine again that is not gone yet, unless it was looked at often enough.
    fn look_again(&self, condemned: Condemned, now: Timestamp) {
        let Some(wait) = LOOK_AGAIN.get(condemned.looks) else { return };
        let again =
            Condemned { looks: condemned.looks + 1, not_before: now.after(*wait), ..condemned };
        self.noted().entry(again.record.id.clone()).or_insert(again);
    }

    fn next(&self) -> Option<Timestamp> {
        self.noted().values().map(|condemned| condemned.not_before).min()
    }

    fn noted(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Condemned>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends what this process condemns, as soon as it does.
pub(crate) async fn run<P: Ports>(stack: &Stack<P>) -> Infallible {
    let condemned = stack.condemned();
    loop {
        match condemned.next() {
            None => condemned.added.notified().await,
            Some(at) => tokio::select! {
                biased;
                () = stack.ports.clock().sleep(at.since(stack.now())) => {}
                () = condemned.added.notified() => {}
            },
        }
        // Machines that are condemned together share a call.
        stack.ports.clock().sleep(stack.limits.coalesce_idle).await;
        if let Err(fault) = end_noted(stack).await {
            tracing::info!(%fault, "could not end machines; tries again");
        }
    }
}

/// Ends the machines that this process condemned and that are due, and returns how many the cloud
/// confirmed gone.
pub(crate) async fn end_noted<P: Ports>(stack: &Stack<P>) -> Result<usize, Fault> {
    let (mut gone, mut failed) = (0, Ok(()));
    let mut due = stack.condemned().due(stack.now());
    // The reaper notes again what is left out here.
    due.retain(|condemned| stack.may_end(&condemned.record.id));
    while !due.is_empty() {
        let rest = due.split_off(due.len().min(IDS_PER_CALL_MAX));
        let batch = std::mem::replace(&mut due, rest);
        let records: Vec<&Record> = batch.iter().map(|condemned| &condemned.record).collect();
        let buried = bury(stack, &records).await;
        // A failed batch does not delay the next one.
        let buried = buried.unwrap_or_else(|fault| {
            failed = Err(fault);
            Vec::new()
        });
        gone += buried.len();
        if !buried.is_empty() {
            stack.shortages().note_ended();
            capacity::freed(stack, &buried).await;
        }
        for condemned in batch {
            if !buried.contains(&condemned.record.id.to_string()) {
                stack.condemned().look_again(condemned, stack.now());
            }
        }
    }
    failed.map(|()| gone)
}

/// Ends, at the end of a command, the machines that it condemned. The reaper continues where that fails.
pub(crate) async fn end_before_leaving<P: Ports>(stack: &Stack<P>) {
    if let Err(fault) = end_noted(stack).await {
        tracing::info!(%fault, "could not end machines; left for the reaper");
    }
}

/// Asks the cloud to end machines, and buries those it confirms gone; returns their ids.
async fn bury<P: Ports>(stack: &Stack<P>, batch: &[&Record]) -> Result<Vec<String>, Fault> {
    let ids: Vec<_> = batch.iter().map(|record| record.id.clone()).collect();
    let until = stack.now().after(stack.limits.release_retry);
    let mut is_denied = false;
    if sabotage!("terminate-is-not-confirmed") {
        let _ = stack.fleet().terminate(&ids).await;
    } else {
        match retry_until(stack, until, async || stack.fleet().terminate(&ids).await).await {
            Err(Fault::Denied(why)) if !sabotage!("one-denied-machine-keeps-the-others") => {
                let machines = ids.len();
                tracing::warn!(machines, why, "cloud denies ending a machine; the others end");
                is_denied = true;
            }
            // The fleet has ended all that it can read.
            Ok(()) | Err(Fault::Unreadable(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    let described = retry_until(stack, until, async || stack.fleet().describe(&ids).await).await?;
    let unreadable: BTreeSet<String> =
        described.unreadable.iter().map(|machine| machine.key.clone()).collect();
    let machines = stack.readable(described);
    // A machine that the cloud neither ends nor shows is not gone.
    let is_shown = |id: &InstanceId| {
        unreadable.contains(id.as_str()) || machines.iter().any(|machine| machine.id == *id)
    };
    let missing: Vec<InstanceId> =
        ids.iter().filter(|id| is_denied && !is_shown(id)).cloned().collect();
    let may_be_gone = missing.is_empty() || stack.fleet().terminate(&missing).await.is_ok();
    let is_gone = |record: &&&Record| {
        if unreadable.contains(record.id.as_str()) {
            return false;
        }
        let seen = machines.iter().find(|machine| machine.id == record.id);
        let young = stack.clock_error().is_some()
            || stack.now().since(record.facts.launched_at) < stack.limits.reconcile_grace;
        match seen {
            Some(_) if sabotage!("terminate-is-not-confirmed") => true,
            Some(machine) => machine.state == MachineState::Gone,
            // Not listed: gone, unless it is so young that the cloud may not list it yet.
            None => !young && may_be_gone,
        }
    };
    // Which of them is denied the answer does not say; those that end are not asked for again.
    for record in batch.iter().filter(|record| is_denied && !is_gone(record)) {
        stack.note_denied(&record.id);
    }
    let gone = batch.iter().filter(is_gone);
    let buried = at_once(gone, async |record: &&Record| bury_one(stack, record, until).await).await;
    let buried: Result<Vec<_>, Fault> = buried.into_iter().collect();
    Ok(buried?.into_iter().flatten().collect())
}

/// Stores that a machine is gone; returns its id if this process did.
async fn bury_one<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    until: Timestamp,
) -> Result<Option<String>, Fault> {
    let now = stack.now();
    let event = InstanceEvent::Gone { at: now, forget_at: now.after(stack.limits.tombstone_ttl) };
    stack.denied_ends().forget(&record.id);
    let moved = transition::apply(stack, record, &event, until).await?;
    Ok(matches!(moved, Moved::To(_)).then(|| record.id.to_string()))
}
