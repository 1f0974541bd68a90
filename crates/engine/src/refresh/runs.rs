//! Asks GitHub which runs ended without a release, and releases their machines. It also ends
//! machines on which a stranger's job was started, even while their run goes on.
//!
//! Not here: releasing ([`crate::release`]).

use std::collections::{BTreeMap, BTreeSet};

use bullpen_core::ids::{Repository, RequestId, RunAttempt};
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::ports::{Fault, Forge, Ports};
use bullpen_core::request::entry::split;

use super::retry_deadline;
use crate::Stack;
use crate::at_once::at_once;
use crate::progress::unobserved;
use crate::provision::entry;
use crate::reconcile::live_records;
use crate::release::request::release_request;
use crate::release::take_back_one;
use crate::strangers::strangers;

/// Makes one pass over every run that holds machines.
pub(super) async fn release_ended<P: Ports>(stack: &Stack<P>) -> Result<Vec<String>, Fault> {
    let mut holders: BTreeMap<RunAttempt, BTreeSet<RequestId>> = BTreeMap::new();
    let records = live_records(stack).await?;
    let mut done = end_strangers(stack, &records).await;
    for record in records {
        // A machine that is already being released needs no answer from GitHub.
        if let (Some(Owner::Request(id)), false) =
            (record.state.owner(), matches!(record.state, State::Releasing { .. }))
            && let Some((run, _)) = split(id)
            && run.at_github().is_some()
        {
            holders.entry(run).or_default().insert(id.clone());
        }
    }
    let mut trouble = None;
    let asked = at_once(holders, async |(run, requests): (RunAttempt, BTreeSet<RequestId>)| {
        release_if_over(stack, &run, &requests).await
    });
    for answer in asked.await {
        match answer {
            Ok(lines) => done.extend(lines),
            // GitHub may have answered for the other runs.
            Err(fault) => trouble = Some(fault),
        }
    }
    match trouble {
        Some(fault) if done.is_empty() => Err(fault),
        _ => Ok(done),
    }
}

/// Ends machines on which GitHub started a job of another run; their request keeps the others. A
/// machine that cannot be read or written now is left for the next pass.
async fn end_strangers<P: Ports>(stack: &Stack<P>, records: &[Record]) -> Vec<String> {
    let found = match strangers(stack, records).await {
        Ok(found) => found,
        Err(fault) => {
            tracing::info!(%fault, "strangers left for the next pass");
            return Vec::new();
        }
    };
    let mut done = Vec::new();
    for record in records.iter().filter(|record| found.contains_key(&record.id)) {
        let Some(owner) = record.state.owner() else { continue };
        let (id, seen) = (&record.id, (&record.id, record.generation));
        match take_back_one(stack, owner, seen).await {
            Ok(()) => done.push(format!("{id}: ends, because it was given a job of another run")),
            Err(fault) => {
                tracing::info!(instance_id = %id, %fault, "machine left for the next pass");
            }
        }
    }
    done
}

async fn release_if_over<P: Ports>(
    stack: &Stack<P>,
    run: &RunAttempt,
    requests: &BTreeSet<RequestId>,
) -> Result<Vec<String>, Fault> {
    let Some(repository) = repository(stack, requests).await? else { return Ok(Vec::new()) };
    if !stack.ports.forge().is_over(&repository, run).await? {
        return Ok(Vec::new());
    }
    let mut done = Vec::new();
    for id in requests {
        // One pass; the reaper continues with machines that must be waited for.
        let released = release_request(stack, id, stack.now(), &unobserved).await?;
        let count = released.returned.len() + released.ended.len() + released.waiting.len();
        done.push(format!("released {count} of {id}: its run is over"));
    }
    Ok(done)
}

/// The repository of a run, from the first of its requests that names it.
async fn repository<P: Ports>(
    stack: &Stack<P>,
    requests: &BTreeSet<RequestId>,
) -> Result<Option<Repository>, Fault> {
    for id in requests {
        if let Ok(Some((entry, _))) = entry::find(stack, id, retry_deadline(stack)).await
            && entry.repository.is_some()
        {
            return Ok(entry.repository);
        }
    }
    Ok(None)
}
