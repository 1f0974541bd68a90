//! Jobs that are run again after their request is over: finds the request whose label they carry.
//!
//! Not here: whether the request's label entitles the job to a runner (`core::job::rerun`).

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

/// Finds the request whose label a queued job carries, and how the job is related to it.
pub(super) async fn request_of<P: Ports>(
    stack: &Stack<P>,
    fact: &JobFact,
    until: Timestamp,
) -> Result<Option<(RequestId, RequestRelation)>, Fault> {
    // Looks up queued jobs only: every fact about a job of a live request carries the label.
    let ReportedStatus::Queued { .. } = fact.said else { return Ok(None) };
    let Some(id) = labels::request_of(&fact.about.labels) else { return Ok(None) };
    let relation = find(stack, &id, until)
        .await?
        .map_or(RequestRelation::None, |entry| relation(&entry, fact));
    Ok(Some((id, relation)))
}

async fn find<P: Ports>(
    stack: &Stack<P>,
    id: &RequestId,
    until: Timestamp,
) -> Result<Option<RequestEntry>, Fault> {
    match entry::find(stack, id, until).await {
        Ok(found) => Ok(found.map(|(entry, _)| entry)),
        Err(CannotBegin::Store(fault)) => Err(fault),
        // The label holds no request id of this stack.
        Err(CannotBegin::BadId { .. } | CannotBegin::Differs { .. }) => Ok(None),
    }
}

/// Decides which machine a job gets whose request is over; `deadline` is for the new request.
pub(super) async fn want<P: Ports>(
    stack: &Stack<P>,
    (job, settings): (&Job, &JobSettings),
    request: &RequestId,
    deadline: Timestamp,
    until: Timestamp,
) -> Result<WantDecision, Fault> {
    Ok(match find(stack, request, until).await? {
        // The request was begun again, and its own runners serve the job.
        Some(RequestEntry { stage: RequestStage::Live, .. }) => WantDecision::Unknown,
        // An older version stored the row without comparing each of its labels.
        Some(entry) if !entry.owns_all(&job.known.about.labels) => {
            let why = format!("it has labels besides that of request {request}; leave them out");
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
            let why = format!("its label belongs to request {request}, which is no longer stored");
            WantDecision::Nothing(Reason::Refused { why: vec![why] })
        }
    })
}
