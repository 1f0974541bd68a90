//! Moves a record: the pure transition first, then the conditional write, until its answer is
//! known.
//!
//! The process settles a lost answer by reading: its write has landed if the stored record is
//! exactly the one it wrote. If the record is unchanged, it makes the same write again; only one of
//! the two can land, because both carry the same revision.
//!
//! Not here: which event to write.

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{InstanceEvent, InstanceRefusal, Record, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{ClaimWrite, Fault, Ledger, Ports, Written};
use bullpen_core::sabotage;
use bullpen_core::tenure::{SettledClaim, Won, is_same_tenure, settle};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::retry::{Backoff, retry_until};

/// The outcome of an attempt to move a record.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It moved; this is what is stored.
    To(Record),
    /// Another process wrote first. Read the record again before doing anything else.
    Overtaken,
    /// The transition is not allowed from what was read.
    Refused(InstanceRefusal),
}

/// Applies `event` to a record as it was read.
pub async fn apply<P: Ports>(
    stack: &Stack<P>,
    seen: &Record,
    event: &InstanceEvent,
    until: Timestamp,
) -> Result<Moved, Fault> {
    match next(seen, event) {
        Ok(next) => store(stack, seen, &next, false, until).await,
        Err(refusal) => Ok(Moved::Refused(refusal)),
    }
}

/// Applies events to records of different machines, in as few calls as the ledger can make of it.
/// Returns one answer for each, in their order. No event may bury a record.
pub async fn apply_all<P: Ports>(
    stack: &Stack<P>,
    events: &[(Record, InstanceEvent)],
    until: Timestamp,
) -> Vec<Result<Moved, Fault>> {
    let mut moved = Vec::with_capacity(events.len());
    for batch in events.chunks(IDS_PER_CALL_MAX) {
        let nexts: Vec<_> = batch.iter().map(|(seen, event)| next(seen, event)).collect();
        let legal = batch.iter().zip(&nexts);
        let writes: Vec<_> = legal
            .filter_map(|((seen, _), next)| Some((seen.clone(), next.as_ref().ok()?.clone())))
            .collect();
        let mut answers = stack.ports.ledger().replace_all(&writes).await.into_iter();
        for ((seen, _), next) in batch.iter().zip(nexts) {
            moved.push(match next {
                Err(refusal) => Ok(Moved::Refused(refusal)),
                Ok(next) => match answers.next() {
                    Some(Ok(Written::Won(record))) => Ok(moved_to(stack, record)),
                    Some(Ok(Written::Lost)) => Ok(Moved::Overtaken),
                    Some(Ok(Written::Unknown)) => store(stack, seen, &next, true, until).await,
                    Some(Err(_)) | None => store(stack, seen, &next, false, until).await,
                },
            });
        }
    }
    moved
}

fn next(seen: &Record, event: &InstanceEvent) -> Result<Record, InstanceRefusal> {
    seen.on(event).inspect_err(|refusal| {
        tracing::debug!(
            instance_id = %seen.id, event = event.name(), %refusal, "transition of record refused"
        );
    })
}

/// Stores `next`. `unsure`: an earlier try had no answer.
async fn store<P: Ports>(
    stack: &Stack<P>,
    seen: &Record,
    next: &Record,
    mut unsure: bool,
    until: Timestamp,
) -> Result<Moved, Fault> {
    let ledger = stack.ports.ledger();
    let expected = Record { revision: seen.revision.next(), ..next.clone() };
    let mut backoff = Backoff::default();
    loop {
        let answer = match next.state {
            State::Terminated { .. } => ledger.bury(seen, next).await,
            _ => ledger.replace(seen, next).await,
        };
        match answer {
            Ok(Written::Won(record)) => return Ok(moved_to(stack, record)),
            Ok(Written::Lost) if !unsure => return Ok(Moved::Overtaken),
            Ok(Written::Lost | Written::Unknown) => {
                unsure = true;
                let stored = read(stack, &seen.id, until).await?;
                if stored.as_ref() == Some(&expected) {
                    return Ok(moved_to(stack, expected));
                }
                if stored.is_none_or(|stored| stored.revision != seen.revision) {
                    return Ok(Moved::Overtaken);
                }
            }
            Err(fault) if fault.is_transient() && stack.now() < until => {}
            Err(fault) => return Err(fault),
        }
        backoff.wait_until(stack, until).await?;
    }
}

/// Notes a machine that is to end, so that this process ends it at once.
fn moved_to<P: Ports>(stack: &Stack<P>, record: Record) -> Moved {
    if matches!(record.state, State::Terminating { .. }) && !sabotage!("the-condemned-wait") {
        stack.condemned().note(record.clone());
    }
    Moved::To(record)
}

/// Reads one record, retrying until `until`.
pub async fn read<P: Ports>(
    stack: &Stack<P>,
    id: &InstanceId,
    until: Timestamp,
) -> Result<Option<Record>, Fault> {
    retry_until(stack, until, || stack.ports.ledger().read(id)).await
}

/// Claims an idle instance at the generation that was seen. `None`: another worker has claimed it,
/// or its record forbids the claim or cannot be read. [`settle`] decides after a lost answer.
pub async fn claim<P: Ports>(
    stack: &Stack<P>,
    write: &ClaimWrite,
    until: Timestamp,
) -> Result<Option<Won>, Fault> {
    let mut backoff = Backoff::default();
    let mut unsure = false;
    loop {
        match stack.ports.ledger().claim(write).await {
            Ok(Written::Won(record)) => return Ok(Won::claimed(write, record)),
            Ok(Written::Lost) if !unsure => return Ok(None),
            Ok(Written::Lost | Written::Unknown) => {
                unsure = true;
                match settle(write, read(stack, &write.id, until).await?) {
                    SettledClaim::Won(won) => return Ok(Some(won)),
                    SettledClaim::Again => {}
                    SettledClaim::Lost => return Ok(None),
                }
            }
            Err(fault) if fault.is_transient() && sabotage!("fault-is-a-lost-race") => {
                return Ok(None);
            }
            Err(fault) if fault.is_transient() && stack.now() < until => {}
            Err(Fault::Unreadable(why)) if !unsure => {
                tracing::debug!(instance_id = %write.id, why, "passed over unreadable record");
                return Ok(None);
            }
            Err(fault) => return Err(fault),
        }
        backoff.wait_until(stack, until).await?;
    }
}

/// Applies an owner's event to the record as it is now, unless the machine runs by now
/// ([`is_same_tenure`]).
pub async fn latest<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    event: &InstanceEvent,
    until: Timestamp,
) -> Result<Moved, Fault> {
    let mut seen = record.clone();
    loop {
        match apply(stack, &seen, event, until).await? {
            Moved::Overtaken if stack.now() < until => {
                match read(stack, &record.id, until).await? {
                    Some(fresh) if is_same_tenure(&fresh, record) => seen = fresh,
                    _ => return Ok(Moved::Overtaken),
                }
            }
            moved => return Ok(moved),
        }
    }
}
