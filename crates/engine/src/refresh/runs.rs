//! Runs that ended without a release: GitHub is asked, and what they hold is released.
//!
//! Not here: releasing ([`crate::release`]).

use std::collections::{BTreeMap, BTreeSet};

use bullpen_core::ids::{Repository, RequestId, RunAttempt};
use bullpen_core::instance::{Owner, State};
use bullpen_core::ports::{Fault, Forge, Ports};
use bullpen_core::request::entry::split;

use super::patience;
use crate::Stack;
use crate::provision::entry;
use crate::reconcile::live_records;
use crate::release::request::release_request;
use crate::tell::nobody;

/// One pass over every run that holds machines.
pub(super) async fn release_ended<P: Ports>(stack: &Stack<P>) -> Result<Vec<String>, Fault> {
    let mut holders: BTreeMap<RunAttempt, BTreeSet<RequestId>> = BTreeMap::new();
    for record in live_records(stack).await? {
        // What is being released already needs nobody's word.
        if let (Some(Owner::Request(id)), false) =
            (record.state.owner(), matches!(record.state, State::Releasing { .. }))
            && let Some((run, _)) = split(id)
            && run.at_github().is_some()
        {
            holders.entry(run).or_default().insert(id.clone());
        }
    }
    let mut done = Vec::new();
    let mut trouble = None;
    for (run, requests) in holders {
        match release_if_over(stack, &run, &requests).await {
            Ok(lines) => done.extend(lines),
            // The next run's answer may come.
            Err(fault) => trouble = Some(fault),
        }
    }
    match trouble {
        Some(fault) if done.is_empty() => Err(fault),
        _ => Ok(done),
    }
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
        // One pass; the reaper goes on with what has to be waited for.
        let released = release_request(stack, id, stack.now(), &nobody).await?;
        let count = released.returned.len() + released.ended.len() + released.waiting.len();
        done.push(format!("released {count} of {id}: its run is over"));
    }
    Ok(done)
}

/// Whose run it is, as its first request that says so.
async fn repository<P: Ports>(
    stack: &Stack<P>,
    requests: &BTreeSet<RequestId>,
) -> Result<Option<Repository>, Fault> {
    for id in requests {
        if let Ok(Some((entry, _))) = entry::find(stack, id, patience(stack)).await
            && entry.repository.is_some()
        {
            return Ok(entry.repository);
        }
    }
    Ok(None)
}
