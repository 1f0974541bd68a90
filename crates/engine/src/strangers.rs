//! Finds machines of requests on which GitHub started a job of another run.
//!
//! Not here: ending them (`release`), or what makes a job a stranger (`core::request::stranger`).

use std::collections::BTreeMap;

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::mailbox::{Report, SignalKind};
use bullpen_core::ports::{Fault, Mailbox, Ports};
use bullpen_core::request::stranger::RanJob;

use crate::Stack;
use crate::provision::entry;

/// The strangers on these machines, as their agents report them. It leaves out the machines of a
/// request that cannot be read.
pub async fn strangers<P: Ports>(
    stack: &Stack<P>,
    records: &[Record],
) -> Result<BTreeMap<InstanceId, RanJob>, Fault> {
    let used = |record: &&Record| {
        matches!(
            record.state,
            State::Running { owner: Owner::Request(_), .. }
                | State::Releasing { owner: Owner::Request(_), .. }
        )
    };
    let used: Vec<&Record> = records.iter().filter(used).collect();
    let keys: Vec<_> = used.iter().map(|record| record.facts.mailbox.clone()).collect();
    if keys.is_empty() {
        return Ok(BTreeMap::new());
    }
    let reports = stack.ports.mailbox().reports(&keys).await?;
    let mut found = BTreeMap::new();
    for (record, report) in used.into_iter().zip(reports) {
        let report = report.report();
        if let Some(ran) = report.as_ref().and_then(|report| last_job(record, report))
            && is_stranger(stack, record, ran).await
        {
            found.insert(record.id.clone(), ran.clone());
        }
    }
    Ok(found)
}

/// The job that started last on a machine for the request that has it. Until that request's first
/// job starts, the agent still reports the last job of the owner before.
fn last_job<'r>(record: &Record, report: &'r Report) -> Option<&'r RanJob> {
    let started = report.signals.get(&SignalKind::JobStarted)?;
    let is_of_this_owner = match record.state {
        // A release raises the generation by one.
        State::Releasing { .. } => started.generation.next() == record.generation,
        _ => started.generation == record.generation,
    };
    started.ran.as_ref().filter(|_| is_of_this_owner)
}

async fn is_stranger<P: Ports>(stack: &Stack<P>, record: &Record, ran: &RanJob) -> bool {
    let Some(Owner::Request(id)) = record.state.listed_under() else { return false };
    let until = stack.now().after(stack.limits.release_retry);
    match entry::find(stack, id, until).await {
        Ok(Some((entry, _))) => entry.own_run().is_some_and(|own| own.is_stranger(ran)),
        Ok(None) | Err(_) => false,
    }
}
