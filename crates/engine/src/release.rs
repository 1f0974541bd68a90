//! Release: takes instances back from an owner and makes them idle again.
//!
//! `withdraw_each` fences the owner in the ledger. [`finish`] makes one pass of the handshake over one
//! releasing record: it performs the effects that [`Release`] asks for and feeds the answers back. A
//! pass is idempotent; a second release or the reaper makes the next one.
//!
//! Not here: any decision (`core::tenure`).

use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::ids::{Generation, InstanceId, JobId, RequestId, RunnerName};
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, Owner, Record, State};
use bullpen_core::job::{AfterJob, Job};
use bullpen_core::mailbox::{Order, Withdrawal, WithdrawalMode};
use bullpen_core::ports::{Fault, Forge, Ledger, MachineState, Mailbox, Ports};
use bullpen_core::request::entry::RequestEntry;
use bullpen_core::request::stranger::Stranger;
use bullpen_core::sabotage;
use bullpen_core::tenure::{
    OwnerMayEnd, Release, ReleaseEffect, ReleaseInput, ReleaseSettings, end_of_tenure,
    owner_may_end,
};
use bullpen_core::time::Timestamp;
use futures_util::future::join_all;

use crate::Stack;
use crate::advertise::advertise;
use crate::capacity;
use crate::jobs::rows::SeenRow;
use crate::mail::{self, PostOutcome};
use crate::progress::{ProgressEvent, ProgressObserver};
use crate::provision::entry::{self, CannotBegin};
use crate::reports;
use crate::retry::retry_until;
use crate::silence;
use crate::transition::{self, Moved};

pub mod request;

/// The state of a release after one pass.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseProgress {
    /// The instance is idle again.
    Returned(Box<Record>),
    /// The instance is ending.
    Ended,
    /// The release waits for the agent, or for a job.
    Waiting,
    /// Another process has carried the instance further.
    Overtaken,
}

/// The outcome of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Instances that are idle again.
    pub returned: Vec<InstanceId>,
    /// Instances that are ending.
    pub ended: Vec<InstanceId>,
    /// Instances whose release is not complete; the reaper carries on with them.
    pub waiting: Vec<InstanceId>,
    /// Jobs of other runs that GitHub started on the request's instances, which end for it.
    pub strangers: Vec<Stranger>,
}

/// Releases everything an owner holds and waits, until `until`, for the machines to be idle. A fault
/// at one machine is returned after all others are released.
pub async fn release<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
    until: Timestamp,
    tell: ProgressObserver<'_>,
) -> Result<Released, Fault> {
    let withdrawn = withdraw_all(stack, owner).await?;
    let passes = withdrawn.releasing.into_iter().map(|record| async {
        let id = record.id.clone();
        (id, see_through(stack, record, None, until, tell).await)
    });
    let mut released = Released::default();
    for (id, progress) in join_all(passes).await {
        match progress {
            ReleaseProgress::Returned(_) => released.returned.push(id),
            ReleaseProgress::Ended | ReleaseProgress::Overtaken => released.ended.push(id),
            ReleaseProgress::Waiting => released.waiting.push(id),
        }
    }
    withdrawn.fault.map_or(Ok(released), Err)
}

/// Makes passes over one releasing instance until the release is complete or `until` has passed. `ends`
/// says why the instance ends with its job, if the caller has decided that it does.
pub(crate) async fn see_through<P: Ports>(
    stack: &Stack<P>,
    record: Record,
    ends: Option<EndReason>,
    until: Timestamp,
    tell: ProgressObserver<'_>,
) -> ReleaseProgress {
    /// The first wait for a wake-up: an idle agent answers within a second.
    const LOOK_SOON: Duration = Duration::from_millis(250);
    /// The longest wait between two passes.
    const LOOK_AGAIN: Duration = Duration::from_secs(2);
    let mut wait = LOOK_SOON;
    let instance = record.id.clone();
    let mut told = false;
    loop {
        match finish_as(stack, &record, ends.map(AfterJob::End)).await {
            Ok(ReleaseProgress::Waiting) | Err(_) if stack.now() < until => {
                if !std::mem::replace(&mut told, true) {
                    tell(ProgressEvent::Waiting { instance: instance.clone() });
                }
                stack.ports.mailbox().wait(&record.facts.mailbox, wait).await;
                wait = (wait * 2).min(LOOK_AGAIN);
            }
            Ok(progress) => {
                match &progress {
                    ReleaseProgress::Returned(_) => tell(ProgressEvent::Returned { instance }),
                    ReleaseProgress::Ended | ReleaseProgress::Overtaken => {
                        tell(ProgressEvent::Ended { instance });
                    }
                    ReleaseProgress::Waiting => {}
                }
                return progress;
            }
            Err(_) => return ReleaseProgress::Waiting,
        }
    }
}

/// Lists the instances that an owner holds, or whose release is not complete. The owner directory never
/// misses one, so it also lists what a cancelled provision has just claimed.
pub(crate) async fn held_by<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
) -> Result<Vec<Record>, Fault> {
    let until = stack.now().after(stack.limits.release_acknowledgement);
    let held = retry_until(stack, until, || stack.ports.ledger().owned_by(owner)).await?;
    Ok(stack.readable(held))
}

/// What became of the instances of an owner that was fenced out of them.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Withdrawn {
    /// Those that are releasing now.
    pub(crate) releasing: Vec<Record>,
    /// Why the owner was not fenced out of one or more of them, which it still holds.
    pub(crate) fault: Option<Fault>,
}

/// Fences an owner out of every instance it holds.
pub(crate) async fn withdraw_all<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
) -> Result<Withdrawn, Fault> {
    Ok(withdraw_each(stack, owner, held_by(stack, owner).await?).await)
}

/// Fences an owner out of every instance it holds and makes one pass over each; the reaper makes the
/// others.
pub(crate) async fn take_back<P: Ports>(stack: &Stack<P>, owner: &Owner) -> Result<(), Fault> {
    let withdrawn = withdraw_all(stack, owner).await?;
    let passes = join_all(withdrawn.releasing.iter().map(|record| finish(stack, record))).await;
    let faults = passes.into_iter().filter_map(Result::err).chain(withdrawn.fault);
    faults.last().map_or(Ok(()), Err)
}

/// Takes back one instance, at the generation for which the caller decided it: the owner may have
/// claimed the instance again since.
pub(crate) async fn take_back_one<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
    (instance, generation): (&InstanceId, Generation),
) -> Result<(), Fault> {
    let until = stack.now().after(stack.limits.release_acknowledgement);
    let Some(record) = transition::read(stack, instance, until).await? else { return Ok(()) };
    if record.generation != generation {
        return Ok(());
    }
    if let Some(releasing) = withdraw(stack, owner, record, until).await?
        && matches!(releasing.state, State::Releasing { .. })
    {
        let _ = finish(stack, &releasing).await?;
    }
    Ok(())
}

/// Fences an owner out of these instances. A fault at one instance leaves the others on their way.
pub(crate) async fn withdraw_each<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
    mut held: Vec<Record>,
) -> Withdrawn {
    let until = stack.now().after(stack.limits.release_acknowledgement);
    if sabotage!("release-takes-running-only") {
        held.retain(|record| matches!(record.state, State::Running { .. }));
    }
    let each = held.into_iter().map(|record| withdraw(stack, owner, record, until));
    let mut withdrawn = Withdrawn::default();
    for outcome in join_all(each).await {
        match outcome {
            Ok(Some(record)) if matches!(record.state, State::Releasing { .. }) => {
                withdrawn.releasing.push(record);
            }
            Ok(_) => {}
            Err(fault) => withdrawn.fault = Some(fault),
        }
    }
    withdrawn
}

/// Fences an owner out of one instance. `None`: the owner does not hold it any more, or has claimed it
/// again since it was listed.
pub(crate) async fn withdraw<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
    listed: Record,
    until: Timestamp,
) -> Result<Option<Record>, Fault> {
    let generation = listed.generation;
    let mut record = listed;
    loop {
        match owner_may_end(&record, owner, generation) {
            OwnerMayEnd::Yes => {}
            OwnerMayEnd::Releasing => return Ok(Some(record)),
            OwnerMayEnd::No => return Ok(None),
        }
        let authority = Authority::Owner { owner: owner.clone(), generation: record.generation };
        let event = end_event(stack, &record, authority, until).await?;
        match transition::apply(stack, &record, &event, until).await? {
            Moved::To(moved) => return Ok(Some(moved)),
            Moved::Refused(_) => return Ok(None),
            // The claim was renewed, or another release was faster: judge the record as it is now.
            Moved::Overtaken => match transition::read(stack, &record.id, until).await? {
                Some(fresh) => record = fresh,
                None => return Ok(None),
            },
        }
    }
}

/// The event that takes an instance back ([`end_of_tenure`]). The agent of a created instance is told
/// to start no listener before its report is read.
pub(crate) async fn end_event<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    authority: Authority,
    until: Timestamp,
) -> Result<InstanceEvent, Fault> {
    let mut report = None;
    if let State::Created { .. } = record.state {
        if !sabotage!("warm-up-judged-before-the-drain") {
            let _ = post(stack, record, WithdrawalMode::Drain, until).await?;
        }
        report = reports::of(stack, record, until).await?;
    }
    Ok(end_of_tenure(record, report.as_ref(), authority, stack.now(), &stack.limits))
}

/// Makes one pass of the handshake over one releasing record. The row of the job that ran there says
/// what becomes of the instance.
pub async fn finish<P: Ports>(stack: &Stack<P>, record: &Record) -> Result<ReleaseProgress, Fault> {
    finish_as(stack, record, None).await
}

/// Makes one pass over a stopped instance that the caller did not start for its owner: if it is still
/// stopped, it is idle again.
pub(crate) async fn finish_unstarted<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
) -> Result<ReleaseProgress, Fault> {
    finish_as(stack, record, Some(AfterJob::Pool)).await
}

/// Makes one pass of the handshake: performs one effect after the other until the pass is over.
async fn finish_as<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    known_after: Option<AfterJob>,
) -> Result<ReleaseProgress, Fault> {
    let until = stack.now().after(stack.limits.release_retry);
    let settings = ReleaseSettings {
        stack: &stack.name,
        limits: &stack.limits,
        spec_hash: &stack.spec_hash,
        is_shared: stack.is_shared(&record.facts),
    };
    let mut release = Release::new(record.clone(), known_after);
    let mut input = ReleaseInput::Begun;
    loop {
        input = match release.on(input, stack.now(), &settings) {
            ReleaseEffect::Post(mode) => {
                let (PostOutcome::Stored(inbox) | PostOutcome::Overtaken(inbox)) =
                    post(stack, record, mode, until).await?;
                ReleaseInput::Posted(inbox)
            }
            ReleaseEffect::ReadReport => {
                let report = reports::of(stack, record, until).await?;
                ReleaseInput::Report(report.unwrap_or_default())
            }
            ReleaseEffect::ReadRequest(id) => {
                ReleaseInput::Request(read_request(stack, &id, until).await?)
            }
            ReleaseEffect::NoteStranger(id, stranger) => {
                note_stranger(stack, &id, &stranger, until).await?;
                ReleaseInput::StrangerNoted
            }
            ReleaseEffect::Describe => {
                let machine = stack.fleet().describe_one(&record.id).await?;
                let stopped = machine.is_some_and(|it| it.state == MachineState::Stopped);
                ReleaseInput::Described { stopped }
            }
            ReleaseEffect::ReadJob(id) => ReleaseInput::Job(read_job(stack, &id).await),
            ReleaseEffect::CompareSilence => {
                ReleaseInput::Compared(silence::judge(stack, record).await)
            }
            ReleaseEffect::DeleteRunners(names) => {
                ReleaseInput::Deleted(delete_runners(stack, &names).await)
            }
            ReleaseEffect::Write(event) => return write(stack, record, &event, until).await,
            ReleaseEffect::Wait => return Ok(ReleaseProgress::Waiting),
            ReleaseEffect::Overtaken => return Ok(ReleaseProgress::Overtaken),
            ReleaseEffect::Fail(fault) => return Err(fault),
        };
    }
}

/// Stores the withdrawal of the record's generation; an equal or newer order is just as good.
async fn post<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    mode: WithdrawalMode,
    until: Timestamp,
) -> Result<PostOutcome, Fault> {
    let now = stack.now();
    let order = Order::Withdrawn(Withdrawal {
        generation: record.generation,
        mode,
        at: now,
        idle_deadline: now.after(if sabotage!("idle-machines-wait-long") {
            stack.limits.idle_released * 4
        } else {
            stack.limits.idle_released
        }),
        removal_token: stack.removal_token.clone(),
    });
    mail::post(stack, &record.facts.mailbox, &order, until).await
}

/// Reads a request's entry; `None` if it is forgotten or unreadable.
async fn read_request<P: Ports>(
    stack: &Stack<P>,
    id: &RequestId,
    until: Timestamp,
) -> Result<Option<RequestEntry>, Fault> {
    match entry::find(stack, id, until).await {
        Ok(found) => Ok(found.map(|(entry, _)| entry)),
        Err(CannotBegin::Store(fault)) if fault.is_transient() => Err(fault),
        Err(_) => Ok(None),
    }
}

/// Records a stranger with the request. An entry that can never be written keeps no instance.
async fn note_stranger<P: Ports>(
    stack: &Stack<P>,
    id: &RequestId,
    stranger: &Stranger,
    until: Timestamp,
) -> Result<(), Fault> {
    match entry::note_stranger(stack, id, stranger, until).await {
        Ok(()) => {}
        Err(CannotBegin::Store(fault)) if fault.is_transient() => return Err(fault),
        Err(error) => tracing::warn!(request = %id, %error, "could not record a stranger's job"),
    }
    tracing::warn!(instance_id = %stranger.instance, request = %id, "stranger's job on a machine");
    Ok(())
}

async fn read_job<P: Ports>(stack: &Stack<P>, id: &JobId) -> Result<Option<Job>, Fault> {
    let Some(row) = stack.ports.ledger().row(id).await? else { return Ok(None) };
    Ok(Some(SeenRow::of(&row)?.job))
}

async fn delete_runners<P: Ports>(stack: &Stack<P>, names: &[RunnerName]) -> Vec<Deletion> {
    let forge = stack.ports.forge();
    join_all(names.iter().map(|name| forge.delete(name))).await
}

/// Writes the event that completes a release, and tells the waiting jobs of an instance that is idle.
async fn write<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    event: &InstanceEvent,
    until: Timestamp,
) -> Result<ReleaseProgress, Fault> {
    match transition::apply(stack, record, event, until).await? {
        Moved::To(idle) if matches!(idle.state, State::Idle { .. }) => {
            advertise(stack, &idle).await;
            capacity::freed(stack, &[format!("{}.{}", idle.id, idle.generation)]).await;
            Ok(ReleaseProgress::Returned(Box::new(idle)))
        }
        Moved::To(ended) => {
            if let State::Terminating { why, .. } = &ended.state {
                tracing::info!(instance_id = %ended.id, ?why, "release ended machine");
            }
            Ok(ReleaseProgress::Ended)
        }
        Moved::Overtaken | Moved::Refused(_) => Ok(ReleaseProgress::Overtaken),
    }
}
