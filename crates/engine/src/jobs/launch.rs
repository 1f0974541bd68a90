//! A new machine for one job: launch intent, launch, record, warm-up.
//!
//! A job's launches are numbered, and each number is one intent. A worker that finds an open intent
//! repeats the same launch and gets the same machine.
//!
//! Not here: one launch ([`crate::provision::creation`]).

use std::time::Duration;

use bullpen_core::claim::{CheckFailure, Silence};
use bullpen_core::class::Usage;
use bullpen_core::creation::{Intent, LaunchKind, RungResult, next_rung};
use bullpen_core::ids::JobId;
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::job::{Setback, request_id};
use bullpen_core::pool::WarmUp;
use bullpen_core::ports::{Fault, Mailbox, Ports};
use bullpen_core::request::Request;
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::provision::creation::{self, CreationError, Reservation};
use crate::reports;
use crate::silence;

/// How often the worker reads a report without a wake-up.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How many launches on one rung may bring nothing, each leaving out more, before the next rung.
const TRIES_MAX: u32 = 3;

/// Launches a machine for the job, over every rung of the ladder. A rung is tried again while the
/// cloud names new shortages, which the next launch leaves out, and is skipped while its kind of
/// machine is exhausted.
pub(super) async fn launch<P: Ports>(
    stack: &Stack<P>,
    request: &Request,
    owner: &Owner,
) -> Result<Record, Setback> {
    let mut last = None;
    let mut tries = 0;
    while let Some(usage) = next_rung(request.usage, request.on_demand_fallback, last) {
        if let Some(reserved) = reservation(stack, request, owner, usage).await? {
            let records = creation::launch_and_record(stack, request.into(), &reserved).await;
            let records = records.map_err(|error| set_back(&error))?;
            let own = |record: &Record| matches!(&record.state, State::Created { owner: of, .. } if of == owner);
            if let Some(record) = records.into_iter().find(own) {
                return Ok(record);
            }
            tries += 1;
        }
        if tries >= TRIES_MAX || is_exhausted(stack, request, usage) {
            (last, tries) = (Some(RungResult { usage, any_came: false }), 0);
        }
    }
    Err(Setback::NoCapacity)
}

/// Whether the cloud was asked for such machines lately, and had none.
fn is_exhausted<P: Ports>(stack: &Stack<P>, request: &Request, usage: Usage) -> bool {
    let (class, allowed_types) = (request.class.name.clone(), request.allowed_types.clone());
    let kind = LaunchKind { class, allowed_types, usage };
    stack.shortages().is_exhausted(&kind, stack.now())
}

/// Finds the job's first open launch intent, or reserves a new one. None if its kind of machine is
/// exhausted.
async fn reservation<P: Ports>(
    stack: &Stack<P>,
    request: &Request,
    owner: &Owner,
    usage: Usage,
) -> Result<Option<Reservation>, Setback> {
    // After its deadline a refresh gives an intent back, so no launch may use it any more.
    let is_open = |intent: &Intent| intent.outstanding > 0 && stack.now() < intent.deadline;
    let of = (&request.id, request.incarnation);
    let known = creation::launches(stack, of, request.deadline, is_open).await;
    let mut known = known.map_err(|fault| outage(&fault))?;
    let number = creation::number_after(&known);
    if let Some(open) = known.pop().filter(is_open) {
        return Ok(Some(Reservation::found(open)));
    }
    if is_exhausted(stack, request, usage) {
        return Ok(None);
    }
    let new = creation::intend(stack, (request, owner), usage, 1, number);
    creation::reserve(stack, &new).await.map(Some).map_err(|error| set_back(&error))
}

/// Whether the job has an open launch intent.
pub(super) async fn is_launching<P: Ports>(
    stack: &Stack<P>,
    job: &JobId,
    until: Timestamp,
) -> Result<bool, Fault> {
    let is_open = |intent: &Intent| intent.outstanding > 0;
    let known = creation::launches(stack, (&request_id(job), 0), until, is_open).await?;
    Ok(known.last().is_some_and(|last| is_open(last) && stack.now() < last.deadline))
}

/// Waits until the agent reports that a created machine is warm.
pub(super) async fn warm_up<P: Ports>(stack: &Stack<P>, record: &Record) -> Result<(), NotWarm> {
    let key = &record.facts.mailbox;
    let until = stack.now().after(stack.limits.fleet_validation);
    loop {
        let report = reports::of(stack, record, until).await.map_err(NotWarm::Unknown)?;
        match WarmUp::of(report.as_ref()) {
            WarmUp::Complete => return Ok(()),
            WarmUp::Failed => {
                let said = CheckFailure::WarmUpFailed.told(report.as_ref());
                return Err(NotWarm::Failed(said));
            }
            WarmUp::Underway if stack.now() >= until => {
                // The machine may be warm and unable to say so.
                if silence::judge(stack, record).await == Silence::Shared {
                    let why = "several machines' agents do not answer";
                    return Err(NotWarm::Unknown(Fault::unavailable(why)));
                }
                return Err(NotWarm::Failed(CheckFailure::NotWarm.as_str().to_owned()));
            }
            WarmUp::Underway => stack.ports.mailbox().wait(key, LOOK_AGAIN).await,
        }
    }
}

/// Why a machine is not warm.
#[derive(Debug)]
pub(super) enum NotWarm {
    /// Its warm-up failed, or took too long.
    Failed(String),
    /// Its report could not be read.
    Unknown(Fault),
}

/// The setback of a fault that no machine caused.
pub(super) fn outage(fault: &Fault) -> Setback {
    Setback::Outage { said: fault.to_string() }
}

fn set_back(error: &CreationError) -> Setback {
    match error {
        CreationError::Ceiling(_) => Setback::Ceiling,
        CreationError::Port { source: Fault::NoCapacity, .. } => Setback::NoCapacity,
        CreationError::Port { what, source } if source.is_transient() => {
            Setback::Outage { said: format!("could not {what}: {source}") }
        }
        CreationError::Port { what, source } => {
            Setback::LaunchFailed { said: format!("could not {what}: {source}") }
        }
    }
}
