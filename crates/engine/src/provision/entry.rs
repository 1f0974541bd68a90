//! The request's entry in the ledger: a process begins or resumes the request with it, sees in it
//! that another process has superseded it, and ends the request with it.
//!
//! Not here: deciding (`core::request::entry`), or what the request holds.

use bullpen_core::ids::{ClaimId, Repository, RequestId, Revision, RunAttempt};
use bullpen_core::ports::{Document, Fault, Ids, ItemKind, Ledger, Ports, Unreadable, Written};
use bullpen_core::request::Request;
use bullpen_core::request::entry::{
    BeginDecision, RequestEntry, RequestStage, begin_decision, fresh_label, split,
};
use bullpen_core::request::stranger::{OwnRun, Stranger};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::document;
use crate::retry::{Backoff, retry_until};

/// Why a request cannot be begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotBegin {
    /// The id is not `<run>.<attempt>.<name>`.
    #[error("{id:?} is not a request id: it has the form <run>.<attempt>.<name>")]
    BadId {
        /// The given id.
        id: RequestId,
    },
    /// The live request of this id asks for something else.
    #[error(
        "request {id} is live and differs in its {field}: release it first, or use another name"
    )]
    Differs {
        /// The request's id.
        id: RequestId,
        /// The field that differs.
        field: &'static str,
    },
    /// The ledger failed, for good or for too long.
    #[error("could not store the request")]
    Store(#[source] Fault),
}

/// A request that this process has begun or resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// The request with its incarnation.
    pub(crate) request: Request,
    /// Whether it may have machines and intents already.
    pub(crate) resumed: bool,
    /// Whether an abandoned incarnation may still hold machines.
    pub(crate) after_abandonment: bool,
    /// The label of its runners.
    pub(crate) label: String,
    /// The only run whose jobs may run on its machines.
    pub(crate) own_run: Option<OwnRun>,
    worker: ClaimId,
}

/// Stores the request's entry with this process as its worker.
pub(crate) async fn begin<P: Ports>(
    stack: &Stack<P>,
    wanted: &Request,
    (repository, is_untrusted): (Option<&Repository>, Option<bool>),
) -> Result<Begun, CannotBegin> {
    let worker = stack.ports.ids().claim();
    let bits = stack.ports.ids().label_bits();
    let mut backoff = Backoff::default();
    // Nearly all requests are new, so the first write expects no entry and reads none.
    let mut stored: Option<(RequestEntry, Revision)> = None;
    let (run, name) =
        split(&wanted.id).ok_or_else(|| CannotBegin::BadId { id: wanted.id.clone() })?;
    loop {
        let known = stored.as_ref().map(|(entry, _)| entry);
        if let Some(entry) = known
            && entry.worker == worker
        {
            // The answer to our own write was lost.
            return Ok(begun(entry, &after_lost_answer(entry)));
        }
        let decision = begin_decision(known, wanted);
        let incarnation = match decision {
            BeginDecision::Anew { incarnation, .. } | BeginDecision::Resume { incarnation } => {
                incarnation
            }
            BeginDecision::Differs { field } => {
                return Err(CannotBegin::Differs { id: wanted.id.clone(), field });
            }
        };
        let entry = RequestEntry {
            request: Request { incarnation, ..wanted.clone() },
            stage: RequestStage::Live,
            worker: worker.clone(),
            repository: repository.cloned(),
            secret_label: None,
            from_fork: is_untrusted,
            strangers: Vec::new(),
        };
        let entry = match (&decision, known) {
            // Its runners have the stored label; an entry of an older version stores none.
            (BeginDecision::Resume { .. }, Some(known)) => RequestEntry {
                secret_label: known.secret_label.clone(),
                // If two processes disagree, the less trusting answer stays.
                from_fork: known.from_fork.max(is_untrusted),
                strangers: known.strangers.clone(),
                ..entry
            },
            // Jobs have seen the old label, so a new incarnation gets a new one.
            _ => RequestEntry { secret_label: Some(fresh_label(&wanted.id, bits)), ..entry },
        };
        let seen = stored.as_ref().map(|(_, revision)| *revision);
        let next = document(stack, &run, name, &entry);
        match stack.ports.ledger().write_document(seen, &next).await {
            Ok(Written::Won(_)) => return Ok(begun(&entry, &decision)),
            // Another process wrote meanwhile, or our own write landed: read again.
            Ok(Written::Lost | Written::Unknown) => {}
            Err(fault) if fault.is_transient() => {}
            Err(fault) => return Err(CannotBegin::Store(fault)),
        }
        backoff.wait_until(stack, wanted.deadline).await.map_err(CannotBegin::Store)?;
        stored = find(stack, &wanted.id, wanted.deadline).await?;
    }
}

/// After a lost answer this process does not know the entry that was there before; resuming is
/// right in every case.
fn after_lost_answer(entry: &RequestEntry) -> BeginDecision {
    BeginDecision::Resume { incarnation: entry.request.incarnation }
}

fn begun(entry: &RequestEntry, decision: &BeginDecision) -> Begun {
    Begun {
        request: entry.request.clone(),
        resumed: matches!(decision, BeginDecision::Resume { .. }),
        after_abandonment: matches!(decision, BeginDecision::Anew { after_abandonment: true, .. }),
        label: entry.label(),
        own_run: entry.own_run(),
        worker: entry.worker.clone(),
    }
}

/// Reads a request's entry and its revision, retrying until `until`.
pub(crate) async fn find<P: Ports>(
    stack: &Stack<P>,
    id: &RequestId,
    until: Timestamp,
) -> Result<Option<(RequestEntry, Revision)>, CannotBegin> {
    let (run, name) = split(id).ok_or_else(|| CannotBegin::BadId { id: id.clone() })?;
    let collection = run.collection();
    let stored = retry_until(stack, until, || stack.ports.ledger().document(&collection, name));
    let Some(stored) = stored.await.map_err(CannotBegin::Store)? else { return Ok(None) };
    match decode(&stored) {
        Ok(entry) => Ok(Some((entry, stored.revision))),
        Err(bad) => Err(CannotBegin::Store(bad.into())),
    }
}

/// Decodes a stored entry.
pub(crate) fn decode(stored: &Document) -> Result<RequestEntry, Unreadable> {
    RequestEntry::decode(&stored.body).map_err(|error| {
        let Document { collection, name, .. } = stored;
        let key = format_args!("{collection}/{name}");
        Unreadable::of(ItemKind::Document, key, &stored.body, error)
    })
}

/// Whether another process works on the request by now, or has ended it. False if the store does
/// not answer.
pub(crate) async fn is_superseded<P: Ports>(stack: &Stack<P>, begun: &Begun) -> bool {
    let until = stack.now().after(stack.limits.release_retry);
    match find(stack, &begun.request.id, until).await {
        Ok(Some(_)) if sabotage!("superseded-goes-on") => false,
        Ok(Some((entry, _))) => entry.worker != begun.worker,
        Ok(None) | Err(_) => false,
    }
}

/// Stores the request's new stage, which supersedes every process that works on the request. If
/// this fails, the next process that runs the request finds that it holds nothing.
pub(crate) async fn end<P: Ports>(
    stack: &Stack<P>,
    id: &RequestId,
    stage: RequestStage,
    until: Timestamp,
) -> Result<(), CannotBegin> {
    let (run, name) = split(id).ok_or_else(|| CannotBegin::BadId { id: id.clone() })?;
    let collection = run.collection();
    document::change(stack, (&collection, name), until, |stored| {
        let entry = stored.map(decode).transpose()?.filter(|entry| entry.stage != stage);
        let worker = stack.ports.ids().claim();
        Ok(entry.map(|entry| document(stack, &run, name, &RequestEntry { stage, worker, ..entry })))
    })
    .await
    .map_err(CannotBegin::Store)?;
    Ok(())
}

/// Stores a stranger in the entry, so that the run learns of it no matter which process ends the
/// machine.
pub(crate) async fn note_stranger<P: Ports>(
    stack: &Stack<P>,
    id: &RequestId,
    stranger: &Stranger,
    until: Timestamp,
) -> Result<(), CannotBegin> {
    amend(stack, id, until, |entry| entry.with_stranger(stranger)).await
}

/// Stores in the entry whether the request's run has a fork's code.
pub(crate) async fn note_origin<P: Ports>(
    stack: &Stack<P>,
    id: &RequestId,
    from_fork: bool,
    until: Timestamp,
) -> Result<(), CannotBegin> {
    let known = Some(from_fork);
    amend(stack, id, until, |entry| {
        (entry.from_fork != known).then(|| RequestEntry { from_fork: known, ..entry.clone() })
    })
    .await
}

/// Stores the entry that `next` returns, if it returns one. The worker in it stays the same, so
/// this supersedes no process.
async fn amend<P: Ports>(
    stack: &Stack<P>,
    id: &RequestId,
    until: Timestamp,
    next: impl Fn(&RequestEntry) -> Option<RequestEntry>,
) -> Result<(), CannotBegin> {
    let (run, name) = split(id).ok_or_else(|| CannotBegin::BadId { id: id.clone() })?;
    let collection = run.collection();
    document::change(stack, (&collection, name), until, |stored| {
        let entry = stored.map(decode).transpose()?;
        Ok(entry.and_then(|entry| next(&entry)).map(|entry| document(stack, &run, name, &entry)))
    })
    .await
    .map_err(CannotBegin::Store)?;
    Ok(())
}

/// Encodes an entry as a document.
fn document<P: Ports>(
    stack: &Stack<P>,
    run: &RunAttempt,
    name: &str,
    entry: &RequestEntry,
) -> Document {
    Document {
        collection: run.collection(),
        name: name.to_owned(),
        revision: Revision(0),
        body: entry.encode(),
        forget_at: Some(stack.now().after(stack.limits.job_row_ttl)),
    }
}
