//! The reconciler compares the ledger with the cloud's tagged machines: it ends machines without a
//! record, condemns records without a machine, and gives back abandoned intents.
//!
//! The order of the reads makes it safe. For machines without a record it lists the machines first
//! and reads the ledger second, so it sees a record that is written meanwhile; for records without
//! a machine it does the reverse. Both have a grace, because a launch and its visibility take time.
//!
//! Not here: deadlines of records ([`crate::reap`]).

use std::collections::{BTreeMap, BTreeSet};

use bullpen_core::creation::Intent;
use bullpen_core::ids::{InstanceId, IntentId};
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, Record, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Fault, Ledger, Listing, Machine, MachineState, Ports, Written};
use bullpen_core::sabotage;

use crate::Stack;
use crate::capacity;
use crate::retry::retry_until;
use crate::transition::{self, Moved};

/// How much one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Machines without a record that the reconciler ended.
    pub orphans_ended: usize,
    /// Records without a machine that it condemned.
    pub records_condemned: usize,
    /// Intents whose outstanding part it gave back.
    pub intents_given_back: usize,
}

/// Makes one pass in both directions.
pub async fn reconcile<P: Ports>(stack: &Stack<P>) -> Result<Reconciled, Fault> {
    let mut done = Reconciled::default();
    records_without_machines(stack, &mut done).await?;
    let machines = stack.readable(list(stack).await?);
    machines_without_records(stack, &machines, &mut done).await?;
    abandoned_intents(stack, &machines, &mut done).await?;
    Ok(done)
}

async fn list<P: Ports>(stack: &Stack<P>) -> Result<Listing<Machine>, Fault> {
    let until = stack.now().after(stack.limits.release_retry);
    retry_until(stack, until, async || stack.fleet().list().await).await
}

async fn records_without_machines<P: Ports>(
    stack: &Stack<P>,
    done: &mut Reconciled,
) -> Result<(), Fault> {
    let records = live_records(stack).await?;
    let listed = list(stack).await?;
    // A machine that cannot be read is not gone.
    let unreadable: BTreeSet<String> =
        listed.unreadable.iter().map(|machine| machine.key.clone()).collect();
    let machines = stack.readable(listed).into_iter();
    let machines: BTreeMap<InstanceId, MachineState> =
        machines.map(|machine| (machine.id, machine.state)).collect();
    for record in records {
        if unreadable.contains(record.id.as_str()) && !sabotage!("unreadable-machines-are-gone") {
            continue;
        }
        let young = stack.now().since(record.facts.launched_at) < stack.limits.reconcile_grace;
        let gone = match machines.get(&record.id) {
            Some(state) => *state == MachineState::Gone,
            None => !young || sabotage!("reconcile-without-grace"),
        };
        if !gone || matches!(record.state, State::Terminating { .. }) {
            continue;
        }
        let now = stack.now();
        let event = InstanceEvent::Condemned {
            authority: Authority::Cloud,
            why: EndReason::MachineGone,
            at: now,
        };
        let until = now.after(stack.limits.release_retry);
        if let Moved::To(_) = transition::apply(stack, &record, &event, until).await? {
            tracing::info!(instance_id = %record.id, "condemned record whose machine is gone");
            done.records_condemned += 1;
        }
    }
    Ok(())
}

/// Reads every live record that this program can read, on all pages. The list may lag a little.
pub async fn live_records<P: Ports>(stack: &Stack<P>) -> Result<Vec<Record>, Fault> {
    Ok(stack.readable(live(stack).await?))
}

/// Lists every live record, on all pages. The list may lag a little.
pub async fn live<P: Ports>(stack: &Stack<P>) -> Result<Listing<Record>, Fault> {
    let mut records = Listing::from(Vec::new());
    let mut cursor: Option<String> = None;
    loop {
        let until = stack.now().after(stack.limits.release_retry);
        let page =
            retry_until(stack, until, || stack.ports.ledger().live(cursor.as_deref())).await?;
        records.items.extend(page.items);
        records.unreadable.extend(page.unreadable);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(records),
        }
    }
}

async fn machines_without_records<P: Ports>(
    stack: &Stack<P>,
    machines: &[Machine],
    done: &mut Reconciled,
) -> Result<(), Fault> {
    let mut orphans = Vec::new();
    for machine in machines.iter().filter(|machine| machine.state != MachineState::Gone) {
        if is_orphan(stack, machine).await? {
            tracing::warn!(instance_id = %machine.id, "ending machine without a record");
            orphans.push(machine.id.clone());
        }
    }
    for batch in orphans.chunks(IDS_PER_CALL_MAX) {
        let until = stack.now().after(stack.limits.release_retry);
        retry_until(stack, until, async || stack.fleet().terminate(batch).await).await?;
        done.orphans_ended += batch.len();
    }
    Ok(())
}

async fn is_orphan<P: Ports>(stack: &Stack<P>, machine: &Machine) -> Result<bool, Fault> {
    let until = stack.now().after(stack.limits.release_retry);
    let read = match transition::read(stack, &machine.id, until).await {
        // It has a record, of another version: a process of that version judges the machine.
        Err(Fault::Unreadable(_)) => return Ok(sabotage!("unreadable-is-unrecorded")),
        read => read?,
    };
    match read {
        // A tombstone whose machine still runs: the reconciler ends it again.
        Some(record) => Ok(!record.state.is_live()),
        None if sabotage!("orphans-despite-their-intent") => Ok(true),
        None if stack.now().since(machine.launched_at) < stack.limits.reconcile_grace => Ok(false),
        None => {
            let ledger = stack.ports.ledger();
            match retry_until(stack, until, || ledger.intent(&machine.intent)).await {
                Err(Fault::Unreadable(_)) => Ok(false),
                intent => Ok(!intent?.is_some_and(|intent| is_alive(stack, &intent))),
            }
        }
    }
}

/// Whether the intent's creator may still record machines under it.
fn is_alive<P: Ports>(stack: &Stack<P>, intent: &Intent) -> bool {
    let end = intent.deadline.after(stack.limits.clock_skew);
    intent.outstanding > 0 && stack.now() < end
}

async fn abandoned_intents<P: Ports>(
    stack: &Stack<P>,
    machines: &[Machine],
    done: &mut Reconciled,
) -> Result<(), Fault> {
    let launched: BTreeSet<&IntentId> = machines
        .iter()
        .filter(|machine| machine.state != MachineState::Gone)
        .map(|machine| &machine.intent)
        .collect();
    for intent in open_intents(stack).await? {
        let ended = intent.deadline.after(stack.limits.reconcile_grace);
        // The intent still counts its machines without a record, so they end first.
        if (stack.now() < ended && !sabotage!("intent-given-back-early"))
            || launched.contains(&intent.id) && has_orphans(stack, &intent, machines).await?
        {
            continue;
        }
        if let Ok(Written::Won(())) = stack.ports.ledger().give_back(&intent).await {
            done.intents_given_back += 1;
            capacity::freed(stack, &[intent.id.to_string()]).await;
        }
    }
    Ok(())
}

/// Reads every intent with machines outstanding, on all pages. The list may lag a little.
pub async fn open_intents<P: Ports>(stack: &Stack<P>) -> Result<Vec<Intent>, Fault> {
    let mut intents = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let until = stack.now().after(stack.limits.release_retry);
        let ledger = stack.ports.ledger();
        let page = retry_until(stack, until, || ledger.intents(cursor.as_deref())).await?;
        let (items, next) = stack.readable_page(page);
        intents.extend(items);
        match next {
            Some(next) => cursor = Some(next),
            None => return Ok(intents),
        }
    }
}

async fn has_orphans<P: Ports>(
    stack: &Stack<P>,
    intent: &Intent,
    machines: &[Machine],
) -> Result<bool, Fault> {
    let until = stack.now().after(stack.limits.release_retry);
    for machine in machines.iter().filter(|machine| machine.intent == intent.id) {
        if machine.state == MachineState::Gone {
            continue;
        }
        match transition::read(stack, &machine.id, until).await {
            Ok(None) => return Ok(true),
            // A machine with a record, of any version, is no orphan.
            Ok(Some(_)) | Err(Fault::Unreadable(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(false)
}
