//! The reconciler compares the ledger with the cloud's tagged machines: it ends machines without a
//! record, condemns records without a machine, and gives back abandoned intents.
//!
//! One pass reads the live records first, then lists the machines, and then reads the records of
//! those machines that had none: so it sees a record that is written meanwhile. Both directions have
//! a grace, because a launch and its visibility take time.
//!
//! Not here: deadlines of records ([`crate::reap`]), or what an answer proves (`core::presence`).

use std::collections::{BTreeMap, BTreeSet};

use bullpen_core::claim::{Silence, Watch};
use bullpen_core::creation::Intent;
use bullpen_core::ids::{InstanceId, IntentId};
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, Record};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::mailbox::Report;
use bullpen_core::ports::{
    Clock, Fault, Ledger, Listing, Machine, MachineState, Ports, Unreadable, Written,
};
use bullpen_core::presence::Presence;
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::at_once::at_once;
use crate::capacity;
use crate::reports;
use crate::retry::retry_until;
use crate::silence;
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

/// Makes one pass in both directions. A direction that fails does not stop the other.
pub async fn reconcile<P: Ports>(stack: &Stack<P>) -> Result<Reconciled, Fault> {
    let now = stack.now();
    let records = live_records(stack).await?;
    let until = patience(stack);
    let machines = retry_until(stack, until, async || stack.fleet().list().await).await?;
    let machines = stack.readable(machines);
    let recorded: BTreeSet<&InstanceId> = records.iter().map(|record| &record.id).collect();
    let orphans = at_once(
        machines.iter().filter(|machine| {
            machine.state != MachineState::Gone && !recorded.contains(&machine.id)
        }),
        async |machine: &Machine| (machine, has_record(stack, machine, now).await),
    )
    .await;
    let ended = end_orphans(stack, &orphans).await;
    let condemned = records_without_machines(stack, &records, &machines, now).await;
    let given_back = abandoned_intents(stack, &orphans, now).await;
    Ok(Reconciled {
        orphans_ended: ended?,
        records_condemned: condemned?,
        intents_given_back: given_back?,
    })
}

/// Until when one call of the pass is retried.
fn patience<P: Ports>(stack: &Stack<P>) -> Timestamp {
    stack.now().after(stack.limits.release_retry)
}

/// Condemns the records whose machines are gone; returns how many.
async fn records_without_machines<P: Ports>(
    stack: &Stack<P>,
    records: &[Record],
    machines: &[Machine],
    now: Timestamp,
) -> Result<usize, Fault> {
    let listed: BTreeMap<&InstanceId, MachineState> =
        machines.iter().map(|machine| (&machine.id, machine.state)).collect();
    let (mut gone, mut missing) = (Vec::new(), Vec::new());
    for record in records {
        let state = listed.get(&record.id).copied();
        match Presence::listed(record, state, now, &stack.limits) {
            Presence::Here => {}
            Presence::Gone => gone.push(record),
            Presence::Missing => missing.push(record),
        }
    }
    let condemned = condemn(stack, &gone).await;
    let looked_for = look_for(stack, missing).await?;
    Ok(condemned? + condemn(stack, &looked_for).await?)
}

/// Looks for machines that a listing missed: by their ids, twice, and whether their agents beat in
/// between while others do. Returns the records of those that are gone.
async fn look_for<'r, P: Ports>(
    stack: &Stack<P>,
    missing: Vec<&'r Record>,
) -> Result<Vec<&'r Record>, Fault> {
    let (mut gone, missing) = look_up(stack, missing).await?;
    if missing.is_empty() {
        return Ok(gone);
    }
    let first = reports::of_each(stack, &missing, patience(stack)).await?;
    stack.ports.clock().sleep(stack.limits.absence_watch).await;
    // If other agents are silent too, the way to the mailbox is gone, and silence proves nothing.
    let watched = missing.into_iter().zip(&first);
    let judged = at_once(watched, async |(record, first): (&'r Record, &Option<Report>)| {
        let watch = Watch::Since(first.as_ref());
        (record, silence::judge_watched(stack, record, watch).await)
    });
    let own = judged
        .await
        .into_iter()
        .filter(|(_, silence)| *silence == Silence::Own || sabotage!("beats-prove-nothing"));
    let (found, missing) = look_up(stack, own.map(|(record, _)| record).collect()).await?;
    gone.extend(found.into_iter().chain(missing));
    Ok(gone)
}

/// Looks machines up by their ids; returns the records of those that are gone, and of those that no
/// answer shows. A machine that cannot be read is there.
async fn look_up<'r, P: Ports>(
    stack: &Stack<P>,
    records: Vec<&'r Record>,
) -> Result<(Vec<&'r Record>, Vec<&'r Record>), Fault> {
    let (mut gone, mut missing) = (Vec::new(), Vec::new());
    for batch in records.chunks(IDS_PER_CALL_MAX) {
        let ids: Vec<InstanceId> = batch.iter().map(|record| record.id.clone()).collect();
        let found =
            retry_until(stack, patience(stack), async || stack.fleet().describe(&ids).await)
                .await?;
        let unreadable: BTreeSet<String> = keys(&found.unreadable);
        let states: BTreeMap<InstanceId, MachineState> =
            stack.readable(found).into_iter().map(|machine| (machine.id, machine.state)).collect();
        for record in batch {
            match Presence::described(states.get(&record.id).copied()) {
                _ if unreadable.contains(record.id.as_str()) => {
                    if sabotage!("unreadable-machines-are-gone") {
                        gone.push(*record);
                    }
                }
                Presence::Here => {}
                Presence::Gone => gone.push(*record),
                Presence::Missing => missing.push(*record),
            }
        }
    }
    Ok((gone, missing))
}

fn keys(unreadable: &[Unreadable]) -> BTreeSet<String> {
    unreadable.iter().map(|item| item.key.clone()).collect()
}

async fn condemn<P: Ports>(stack: &Stack<P>, gone: &[&Record]) -> Result<usize, Fault> {
    let events = gone.iter().map(|record| {
        let (authority, why) = (Authority::Cloud, EndReason::MachineGone);
        ((*record).clone(), InstanceEvent::Condemned { authority, why, at: stack.now() })
    });
    let events: Vec<_> = events.collect();
    let moved = transition::apply_all(stack, &events, patience(stack)).await;
    let (mut condemned, mut failed) = (0, None);
    for (moved, (record, _)) in moved.into_iter().zip(&events) {
        match moved {
            Ok(Moved::To(_)) => {
                tracing::info!(instance_id = %record.id, "condemned record whose machine is gone");
                condemned += 1;
            }
            Ok(Moved::Overtaken | Moved::Refused(_)) => {}
            Err(fault) => failed = Some(fault),
        }
    }
    failed.map_or(Ok(condemned), Err)
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

/// The record of a machine that had none when the pass began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    /// It has a live record.
    Live,
    /// It has none yet, and its launch may still record it.
    NotYet,
    /// It has none, and none will come; or its record is over although it still runs.
    Never {
        /// Whether it has no record at all.
        is_absent: bool,
    },
}

async fn has_record<P: Ports>(
    stack: &Stack<P>,
    machine: &Machine,
    now: Timestamp,
) -> Result<Recorded, Fault> {
    let until = patience(stack);
    let read = match transition::read(stack, &machine.id, until).await {
        // It has a record, of another version: a process of that version judges the machine.
        Err(Fault::Unreadable(_)) if !sabotage!("unreadable-is-unrecorded") => {
            return Ok(Recorded::Live);
        }
        Err(Fault::Unreadable(_)) => None,
        read => read?,
    };
    let never = Recorded::Never { is_absent: read.is_none() };
    match read {
        Some(record) if record.state.is_live() => Ok(Recorded::Live),
        // A tombstone whose machine still runs: the reconciler ends it again.
        Some(_) => Ok(never),
        None if sabotage!("orphans-despite-their-intent") => Ok(never),
        None if now.since(machine.launched_at) < stack.limits.reconcile_grace => {
            Ok(Recorded::NotYet)
        }
        None => {
            let ledger = stack.ports.ledger();
            match retry_until(stack, until, || ledger.intent(&machine.intent)).await {
                Err(Fault::Unreadable(_)) => Ok(Recorded::NotYet),
                intent => {
                    let is_alive = intent?.is_some_and(|intent| is_alive(stack, &intent, now));
                    Ok(if is_alive { Recorded::NotYet } else { never })
                }
            }
        }
    }
}

type Orphan<'m> = (&'m Machine, Result<Recorded, Fault>);

/// Ends the machines that have no record and get none; returns how many. A call that fails does not
/// stop the next.
async fn end_orphans<P: Ports>(stack: &Stack<P>, found: &[Orphan<'_>]) -> Result<usize, Fault> {
    let mut orphans = Vec::new();
    let (mut ended, mut failed) = (0, None);
    for (machine, recorded) in found {
        match recorded {
            Ok(Recorded::Never { .. }) if stack.may_end(&machine.id) => {
                tracing::warn!(instance_id = %machine.id, "ending machine without a record");
                orphans.push(machine.id.clone());
            }
            Ok(Recorded::Live | Recorded::NotYet | Recorded::Never { .. }) => {}
            Err(fault) => failed = Some(fault.clone()),
        }
    }
    for batch in orphans.chunks(IDS_PER_CALL_MAX) {
        let until = patience(stack);
        match retry_until(stack, until, async || stack.fleet().terminate(batch).await).await {
            Ok(()) => ended += batch.len(),
            Err(fault) => {
                if matches!(fault, Fault::Denied(_)) {
                    for id in batch {
                        stack.note_denied(id);
                    }
                }
                failed = Some(fault);
            }
        }
    }
    failed.map_or(Ok(ended), Err)
}

/// Whether the intent's creator may still record machines under it.
fn is_alive<P: Ports>(stack: &Stack<P>, intent: &Intent, now: Timestamp) -> bool {
    let end = intent.deadline.after(stack.limits.clock_skew);
    intent.outstanding > 0 && now < end
}

async fn abandoned_intents<P: Ports>(
    stack: &Stack<P>,
    found: &[Orphan<'_>],
    now: Timestamp,
) -> Result<usize, Fault> {
    let mut given_back = 0;
    // The intent still counts its machines without a record, so they end first.
    let unrecorded = |recorded: &Result<Recorded, Fault>| match recorded {
        Ok(Recorded::Live) => false,
        Ok(Recorded::Never { is_absent }) => *is_absent,
        Ok(Recorded::NotYet) | Err(_) => true,
    };
    let counted = found.iter().filter(|(_, recorded)| unrecorded(recorded));
    let counted: BTreeSet<&IntentId> = counted.map(|(machine, _)| &machine.intent).collect();
    for intent in open_intents(stack).await? {
        let ended = intent.deadline.after(stack.limits.reconcile_grace);
        if (now < ended && !sabotage!("intent-given-back-early")) || counted.contains(&intent.id) {
            continue;
        }
        if let Ok(Written::Won(())) = stack.ports.ledger().give_back(&intent).await {
            given_back += 1;
            capacity::freed(stack, &[intent.id.to_string()]).await;
        }
    }
    Ok(given_back)
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
