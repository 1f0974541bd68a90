//! Requests that are over and whose label a job carries.
//!
//! Not here: whether the job has a claim to it (`core::job::again`).

use bullpen_core::ids::RequestId;
use bullpen_core::job::rerun::{RequestRelation, one_runner_request, relation};
use bullpen_core::job::{Job, JobFact, Reason, ReportedStatus, used_machines};
use bullpen_core::labels;
use bullpen_core::ports::{Fault, Ports};
use bullpen_core::request::entry::{RequestEntry, RequestStage};
use bullpen_core::time::Timestamp;

use super::settings::{JobSettings, WantDecision, WantedMachine};
use crate::Stack;
use crate::provision::entry::{self, CannotBegin};

/// The request whose label a queued job carries, and what it is to the job.
pub(super) async fn request_of<P: Ports>(
    stack: &Stack<P>,
    fact: &JobFact,
    until: Timestamp,
) -> Result<Option<(RequestId, RequestRelation)>, Fault> {
    // Only those that want a runner are looked up: every job of a live request carries its label.
    let ReportedStatus::Queued { .. } = fact.said else { return Ok(None) };
    let Some(id) = labels::request_of(&fact.about.labels) else { return Ok(None) };
    let bond = find(stack, &id, until)
        .await?
        .map_or(RequestRelation::None, |entry| relation(&entry, fact));
    Ok(Some((id, bond)))
}

async fn find<P: Ports>(
    stack: &Stack<P>,
    id: &RequestId,
    until: Timestamp,
) -> Result<Option<RequestEntry>, Fault> {
    match entry::find(stack, id, until).await {
        Ok(found) => Ok(found.map(|(entry, _)| entry)),
        Err(CannotBegin::Store(fault)) => Err(fault),
        // Not an id of ours.
        Err(CannotBegin::BadId { .. } | CannotBegin::Differs { .. }) => Ok(None),
    }
}

/// What a job of a request that is over wants until `deadline`.
pub(super) async fn want<P: Ports>(
    stack: &Stack<P>,
    (job, settings): (&Job, &JobSettings),
    request: &RequestId,
    deadline: Timestamp,
    until: Timestamp,
) -> Result<WantDecision, Fault> {
    Ok(match find(stack, request, until).await? {
        // It was begun anew, and has runners of its own.
        Some(RequestEntry { stage: RequestStage::Live, .. }) => WantDecision::Unknown,
        // A row of an older version: its labels were not compared one by one when it was stored.
        Some(entry) if !entry.owns_all(&job.known.about.labels) => {
            let why = format!("it has labels beside that of request {request}; leave them out");
            WantDecision::Nothing(Reason::Refused { why: vec![why] })
        }
        Some(entry) => {
            let built_from = stack.built(&entry.request.class);
            let request = one_runner_request(&entry, job, &built_from, deadline);
            let used = used_machines(&job.known.about, settings.code());
            let (pool, group) = (None, settings.group(job, None, &request.class.name));
            WantDecision::Machine(Box::new(WantedMachine {
                request,
                pool,
                reuse: true,
                used,
                group,
            }))
        }
        None => {
            let why = format!("its label belongs to request {request}, which nobody remembers");
            WantDecision::Nothing(Reason::Refused { why: vec![why] })
        }
    })
}
