//! Release: taking machines back from an owner, and the handshake that makes them idle again.
//!
//! `withdraw_each` fences the owner in the ledger. [`finish`] is one pass of the handshake for one
//! releasing record; it is idempotent, and whoever comes next (a second release, the reaper) makes
//! the next pass: the withdrawal is stored as `drain`, GitHub is asked to delete the runner, the
//! same generation becomes `stop`, the agent acknowledges, and only then the machine is idle.
//!
//! A job is never interrupted: GitHub's 422 means wait.
//!
//! Not here: deciding that nobody listens (`core::mailbox::prove_unexposed`).

use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::ids::{Generation, InstanceId, JobId, RequestId};
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, Owner, Record, State, Tier};
use bullpen_core::job::{AfterJob, Job};
use bullpen_core::mailbox::{
    AgentPhase, Inbox, Order, RemovalProof, Report, SignalKind, Unexposed, Withdrawal,
    WithdrawalMode, prove_unexposed,
};
use bullpen_core::ports::{Fault, Forge, Ledger, MachineState, Mailbox, Ports};
use bullpen_core::request::entry::RequestEntry;
use bullpen_core::request::stranger::{OwnRun, Stranger};
use bullpen_core::sabotage;
use bullpen_core::spec_hash::is_outdated;
use bullpen_core::time::Timestamp;
use futures_util::future::join_all;

use crate::Stack;
use crate::advertise::advertise;
use crate::jobs::capacity;
use crate::jobs::rows::SeenRow;
use crate::mail::{self, PostOutcome};
use crate::progress::{ProgressEvent, ProgressObserver};
use crate::provision::entry::{self, CannotBegin};
use crate::reports;
use crate::retry::retry_until;
use crate::transition::{self, Moved};

pub mod request;

/// Where a release stands after one pass.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseProgress {
    /// The machine is idle again.
    Returned(Box<Record>),
    /// The machine is ending.
    Ended,
    /// The agent, or a job, is waited for.
    Waiting,
    /// Somebody else is further.
    Overtaken,
}

/// What a release came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Machines that are idle again.
    pub returned: Vec<InstanceId>,
    /// Machines that are ending.
    pub ended: Vec<InstanceId>,
    /// Machines still waited for; the reaper carries on with them.
    pub waiting: Vec<InstanceId>,
    /// Jobs of other runs that GitHub started on the request's machines, which end for it.
    pub strangers: Vec<Stranger>,
}

/// Releases everything an owner holds and waits, until `until`, for the machines to be idle.
pub async fn release<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
    until: Timestamp,
    tell: ProgressObserver<'_>,
) -> Result<Released, Fault> {
    let records = withdraw_all(stack, owner).await?;
    let passes = records.into_iter().map(|record| async {
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
    Ok(released)
}

/// Makes passes over one releasing machine until it is done or time is up. Whoever knows that it ends
/// with its job says why.
pub(crate) async fn see_through<P: Ports>(
    stack: &Stack<P>,
    record: Record,
    ends: Option<EndReason>,
    until: Timestamp,
    tell: ProgressObserver<'_>,
) -> ReleaseProgress {
    /// How soon a second pass is made where nothing wakes us: an idle agent answers within a second.
    const LOOK_SOON: Duration = Duration::from_millis(250);
    /// How often passes are made after a while.
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
                        tell(ProgressEvent::Ended { instance })
                    }
                    ReleaseProgress::Waiting => {}
                }
                return progress;
            }
            Err(_) => return ReleaseProgress::Waiting,
        }
    }
}

/// Everything an owner holds, or has not seen returned yet.
///
/// The owner directory never misses, so what a cancelled provision has just claimed is found.
pub(crate) async fn held_by<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
) -> Result<Vec<Record>, Fault> {
    let until = stack.now().after(stack.limits.release_acknowledgement);
    retry_until(stack, until, || stack.ports.ledger().owned_by(owner)).await
}

/// Fences an owner out of everything it holds; returns what is releasing now.
pub(crate) async fn withdraw_all<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
) -> Result<Vec<Record>, Fault> {
    withdraw_each(stack, owner, held_by(stack, owner).await?).await
}

/// Fences an owner out of everything it holds, and makes one pass over each; the reaper goes on from
/// there.
pub(crate) async fn take_back<P: Ports>(stack: &Stack<P>, owner: &Owner) -> Result<(), Fault> {
    for record in withdraw_all(stack, owner).await? {
        let _ = finish(stack, &record).await?;
    }
    Ok(())
}

/// The same with one machine, as it was when that was decided: what the owner has by now may be
/// another one, and good.
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

/// Fences an owner out of what it holds; returns what is releasing now.
pub(crate) async fn withdraw_each<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
    mut held: Vec<Record>,
) -> Result<Vec<Record>, Fault> {
    let until = stack.now().after(stack.limits.release_acknowledgement);
    if sabotage!("release-takes-running-only") {
        held.retain(|record| matches!(record.state, State::Running { .. }));
    }
    let withdrawn = held.into_iter().map(|record| withdraw(stack, owner, record, until));
    let mut releasing = Vec::new();
    for outcome in join_all(withdrawn).await {
        let is_releasing = |record: &Record| matches!(record.state, State::Releasing { .. });
        releasing.extend(outcome?.filter(is_releasing));
    }
    Ok(releasing)
}

/// Fences an owner out of one machine: one that never completed its warm-up ends, any other is
/// withdrawn, because a job may run there. `None`: it is not this owner's any more, or is again, at
/// a later generation.
pub(crate) async fn withdraw<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
    listed: Record,
    until: Timestamp,
) -> Result<Option<Record>, Fault> {
    let generation = listed.generation;
    let mut record = listed;
    loop {
        if record.state.listed_under() != Some(owner) {
            return Ok(None);
        }
        if let State::Releasing { .. } = record.state {
            return Ok(Some(record));
        }
        if record.generation != generation {
            return Ok(None);
        }
        let authority = Authority::Owner { owner: owner.clone(), generation: record.generation };
        let event = give_up_event(stack, &record, authority, until).await?;
        match transition::apply(stack, &record, &event, until).await? {
            Moved::To(moved) => return Ok(Some(moved)),
            Moved::Refused(_) => return Ok(None),
            // A renewal, or another release: look again.
            Moved::Overtaken => match transition::read(stack, &record.id, until).await? {
                Some(fresh) => record = fresh,
                None => return Ok(None),
            },
        }
    }
}

/// A machine that never completed its warm-up cannot be reused; it ends. Its assignment is withdrawn
/// before that is judged: an agent stores `UD_OK` before it reads its orders, so one that has not
/// stored it by now will read the withdrawal, and start nothing.
pub(crate) async fn give_up_event<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    authority: Authority,
    until: Timestamp,
) -> Result<InstanceEvent, Fault> {
    let now = stack.now();
    if let State::Created { .. } = record.state {
        if !sabotage!("warm-up-judged-before-the-drain") {
            let _ = post(stack, record, WithdrawalMode::Drain, until).await?;
        }
        let report = report(stack, record, until).await?;
        if sabotage!("created-always-ends") || !report.signals.contains_key(&SignalKind::WarmUpOk) {
            return Ok(InstanceEvent::Condemned {
                authority,
                why: EndReason::RequestFailed,
                at: now,
            });
        }
    }
    let cap = match record.state {
        State::Running { cap, .. } => cap,
        _ => now.after(stack.limits.hard_cap),
    };
    Ok(InstanceEvent::Withdrawn { authority, warm: true, at: now, cap })
}

async fn report<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    until: Timestamp,
) -> Result<Report, Fault> {
    Ok(reports::of(stack, record, until).await?.unwrap_or_default())
}

/// One pass of the handshake over one releasing record. What becomes of a machine that a job ran on
/// is in the job's row.
pub async fn finish<P: Ports>(stack: &Stack<P>, record: &Record) -> Result<ReleaseProgress, Fault> {
    finish_as(stack, record, None).await
}

/// One pass of the handshake over a stopped machine, by whoever knows that it was not started for its
/// owner: if it is still stopped, it is what it was.
pub(crate) async fn finish_unstarted<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
) -> Result<ReleaseProgress, Fault> {
    finish_as(stack, record, Some(AfterJob::Pool)).await
}

/// One pass of the handshake, by whoever may know what becomes of the machine after its job.
async fn finish_as<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    known: Option<AfterJob>,
) -> Result<ReleaseProgress, Fault> {
    let State::Releasing { tier, since, cap, .. } = record.state else {
        return Ok(ReleaseProgress::Overtaken);
    };
    let until = stack.now().after(stack.limits.release_retry);
    // Before anything that the machine says, and before anything that may fail.
    if stack.now() >= cap && !sabotage!("machines-are-asked-before-their-cap") {
        return end(stack, record, EndReason::DeadlinePassed, until).await;
    }
    let (PostOutcome::Stored(inbox) | PostOutcome::Overtaken(inbox)) =
        post(stack, record, WithdrawalMode::Drain, until).await?;
    let report = report(stack, record, until).await?;
    if had_a_stranger(stack, record, &inbox, &report, until).await? {
        return end(stack, record, EndReason::Untrusted, until).await;
    }
    let stopped = tier == Tier::Stopped && is_stopped(stack, record).await?;
    if let Ok(proof) = prove_unexposed(Some(&inbox), Some(&report), record.generation, stopped) {
        if ran_untrusted_code(stack, record, proof, until).await? {
            return end(stack, record, EndReason::Untrusted, until).await;
        }
        let after = match known {
            Some(after) if has_served(record, proof) => Some(after),
            None if has_served(record, proof) => after_job(stack, record, &inbox, &report).await?,
            _ => Some(AfterJob::Pool),
        };
        return match after {
            Some(after) => settle(stack, record, proof, after, until).await,
            None => Ok(ReleaseProgress::Waiting),
        };
    }
    let Order::Withdrawn(withdrawal) = &inbox.order else { return Ok(ReleaseProgress::Overtaken) };
    if withdrawal.generation != record.generation {
        return Ok(ReleaseProgress::Overtaken);
    }
    match withdrawal.mode {
        WithdrawalMode::Drain => {
            if may_stop(stack, record, &inbox, &report, since).await {
                // Overtaken only by a pass of somebody else's, which is just as good.
                let _ = post(stack, record, WithdrawalMode::Stop, until).await?;
            }
            Ok(ReleaseProgress::Waiting)
        }
        WithdrawalMode::Stop => unacknowledged(stack, record, &inbox, withdrawal, until).await,
    }
}

/// Whether a request's machine ran a job of another run. It ends at once: GitHub may take the
/// stranger's job for running long after the agent has killed it.
async fn had_a_stranger<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    inbox: &Inbox,
    report: &Report,
    until: Timestamp,
) -> Result<bool, Fault> {
    let State::Releasing { owner: Owner::Request(id), .. } = &record.state else {
        return Ok(false);
    };
    let Some(ran) = report.ran(inbox.assigned) else { return Ok(false) };
    let own = match entry_of(stack, id, until).await? {
        Some(entry) => entry.own_run(),
        // It is forgotten: what its id says is all there is to compare with.
        None => OwnRun::of_request(id, None),
    };
    if !own.is_some_and(|own| own.is_stranger(ran)) {
        return Ok(false);
    }
    let stranger = Stranger { instance: record.id.clone(), ran: ran.clone() };
    // Before the machine ends, so that the run is told whichever process carries the release on; what
    // cannot be stored for good keeps no machine.
    match entry::note_stranger(stack, id, &stranger, until).await {
        Err(CannotBegin::Store(fault)) if fault.is_transient() => return Err(fault),
        Err(error) => {
            tracing::warn!(request = %id, %error, "a stranger's job was not written down");
        }
        Ok(()) => {}
    }
    tracing::warn!(instance_id = %record.id, request = %id, "stranger's job on a machine");
    Ok(true)
}

/// Whether a request's machine ran code that is not trusted, or code that is not known to be.
async fn ran_untrusted_code<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    proof: Unexposed,
    until: Timestamp,
) -> Result<bool, Fault> {
    let State::Releasing { owner: Owner::Request(id), .. } = &record.state else {
        return Ok(false);
    };
    if proof.removal() == RemovalProof::NeverAssigned {
        return Ok(false);
    }
    let entry = entry_of(stack, id, until).await?;
    Ok(entry.is_some_and(|entry| !entry.is_trusted()))
}

/// A request's entry; none if it is forgotten, or cannot be read any more.
async fn entry_of<P: Ports>(
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

/// Stores the withdrawal; an equal or higher one is just as good.
async fn post<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    mode: WithdrawalMode,
    until: Timestamp,
) -> Result<PostOutcome, Fault> {
    let order = withdrawal(stack, record, mode);
    mail::post(stack, &record.facts.mailbox, &order, until).await
}

fn withdrawal<P: Ports>(stack: &Stack<P>, record: &Record, mode: WithdrawalMode) -> Order {
    let now = stack.now();
    Order::Withdrawn(Withdrawal {
        generation: record.generation,
        mode,
        at: now,
        idle_deadline: now.after(stack.limits.idle_released),
        removal_token: stack.removal_token.clone(),
    })
}

async fn is_stopped<P: Ports>(stack: &Stack<P>, record: &Record) -> Result<bool, Fault> {
    let machine = stack.fleet().describe_one(&record.id).await?;
    Ok(machine.is_some_and(|machine| machine.state == MachineState::Stopped))
}

/// Whether the listener may be stopped: GitHub can give it no job any more.
async fn may_stop<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    inbox: &Inbox,
    report: &Report,
    since: Timestamp,
) -> bool {
    let registered = report.signal(SignalKind::Registered, inbox.assigned).is_some();
    match delete_runner(stack, record, inbox).await {
        Deletion::Deleted => true,
        // Not there, and never seen there: it may be registering this very moment.
        Deletion::NotFound => registered || stack.now() >= last_registration(stack, since),
        Deletion::Busy => sabotage!("busy-is-gone"),
        Deletion::Unavailable => {
            report.is_fresh(stack.now(), stack.limits.heartbeat_stale, None)
                && report.beat.as_ref().is_some_and(|beat| beat.phase != AgentPhase::Busy)
                && registered
        }
    }
}

/// Has the machine's runner deleted at GitHub. A job's runner is called after its job and attempt, and
/// its row says which; of several answers the one counts that asks for most care.
async fn delete_runner<P: Ports>(stack: &Stack<P>, record: &Record, inbox: &Inbox) -> Deletion {
    let forge = stack.ports.forge();
    let Some(Owner::Job(job)) = record.state.listed_under() else {
        return forge.delete(&stack.runner_name(&record.id, inbox.assigned)).await;
    };
    let names = match row(stack, job).await {
        Ok(None) => Vec::new(),
        Ok(Some(job)) => {
            let names = job.runners_on(&stack.name, &record.id);
            names.into_iter().filter(|name| !job.is_done_on(name)).collect()
        }
        Err(_) => return Deletion::Unavailable,
    };
    let answers = join_all(names.iter().map(|name| forge.delete(name))).await;
    let order = [Deletion::Busy, Deletion::Unavailable, Deletion::Deleted];
    let first = order.into_iter().find(|answer| answers.contains(answer));
    first.unwrap_or(Deletion::NotFound)
}

/// A job as its row has it.
async fn row<P: Ports>(stack: &Stack<P>, job: &JobId) -> Result<Option<Job>, Fault> {
    let Some(row) = stack.ports.ledger().row(job).await? else { return Ok(None) };
    Ok(Some(SeenRow::of(&row)?.job))
}

/// When an assignment made before the withdrawal can no longer be registered, on any clock.
fn last_registration<P: Ports>(stack: &Stack<P>, since: Timestamp) -> Timestamp {
    let limits = &stack.limits;
    let longest = limits
        .fleet_validation
        .max(limits.first_beat_stopped + limits.registration_stopped)
        .max(limits.assignment_acknowledged + limits.registration);
    since.after(longest + limits.clock_skew)
}

/// The agent has been told to stop and has not said so. Before the machine ends for that, GitHub
/// is asked once more whether a job runs there.
async fn unacknowledged<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    inbox: &Inbox,
    stop: &Withdrawal,
    until: Timestamp,
) -> Result<ReleaseProgress, Fault> {
    let patience = if sabotage!("impatient-for-the-acknowledgement") {
        Duration::ZERO
    } else {
        stack.limits.release_acknowledgement + stack.limits.clock_skew
    };
    if stack.now().since(stop.at) < patience {
        return Ok(ReleaseProgress::Waiting);
    }
    match delete_runner(stack, record, inbox).await {
        Deletion::Busy if sabotage!("busy-is-gone") => {
            end(stack, record, EndReason::NotAcknowledged, until).await
        }
        Deletion::Deleted | Deletion::NotFound => {
            end(stack, record, EndReason::NotAcknowledged, until).await
        }
        Deletion::Busy | Deletion::Unavailable => Ok(ReleaseProgress::Waiting),
    }
}

/// What becomes of a machine that a job had for itself, by the job's row; none while whoever works off
/// the job's end has yet to decide. It is not waited for longer than for an agent.
async fn after_job<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    inbox: &Inbox,
    report: &Report,
) -> Result<Option<AfterJob>, Fault> {
    let ended = Some(AfterJob::End(EndReason::WornOut));
    let State::Releasing { owner: Owner::Job(job), since, .. } = &record.state else {
        return Ok(ended);
    };
    let job = match row(stack, job).await {
        Ok(Some(job)) => job,
        Ok(None) | Err(Fault::Unreadable(_)) => return Ok(ended),
        Err(fault) => return Err(fault),
    };
    let ran = report.signal(SignalKind::JobStarted, inbox.assigned).is_some();
    let patience = stack.limits.release_acknowledgement + stack.limits.clock_skew;
    let said = job.says_of(&record.id, ran);
    Ok(said.or(if stack.now().since(*since) < patience { None } else { ended }))
}

/// Nobody listens: back to idle, or to its end if it has served its time.
async fn settle<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    proof: Unexposed,
    after: AfterJob,
    until: Timestamp,
) -> Result<ReleaseProgress, Fault> {
    let ends = match after {
        AfterJob::End(why) => Some(why),
        // How old a machine becomes while it stands by is its pool's to say.
        AfterJob::Pool if proof.removal() == RemovalProof::MachineStopped => None,
        AfterJob::Pool => unfit(stack, record),
    };
    if let Some(why) = ends {
        return end(stack, record, why, until).await;
    }
    let now = stack.now();
    let State::Releasing { tier, .. } = record.state else { return Ok(ReleaseProgress::Overtaken) };
    let lifetime = match tier {
        Tier::Stopped => stack.limits.idle_stopped,
        Tier::Hot => stack.limits.hot_lifetime,
        Tier::Released => stack.limits.idle_released,
    };
    let shared = stack.is_shared(&record.facts);
    let event = InstanceEvent::Returned { proof, at: now, deadline: now.after(lifetime), shared };
    match transition::apply(stack, record, &event, until).await? {
        Moved::To(idle) => {
            advertise(stack, &idle).await;
            capacity::freed(stack, &[format!("{}.{}", idle.id, idle.generation)]).await;
            Ok(ReleaseProgress::Returned(Box::new(idle)))
        }
        Moved::Overtaken | Moved::Refused(_) => Ok(ReleaseProgress::Overtaken),
    }
}

/// Whether a job has had this machine for itself: it was exposed to it, or launched for it.
fn has_served(record: &Record, proof: Unexposed) -> bool {
    let State::Releasing { owner: Owner::Job(_), tier, .. } = &record.state else { return false };
    let was_launched_for_it = *tier == Tier::Released && record.uses == 0;
    proof.removal() != RemovalProof::NeverAssigned || was_launched_for_it
}

fn unfit<P: Ports>(stack: &Stack<P>, record: &Record) -> Option<EndReason> {
    let age = stack.now().since(record.facts.launched_at);
    if record.tainted {
        Some(EndReason::Untrusted)
    } else if sabotage!("uses-never-counted") {
        None
    } else if record.uses >= stack.limits.uses_max || age >= stack.limits.age_max {
        Some(EndReason::WornOut)
    } else if record.facts.pool.is_none() && is_outdated(&record.facts.spec_hash, &stack.spec_hash)
    {
        // How long an old machine of a pool stands by is its rollout's to decide.
        Some(EndReason::Outdated)
    } else {
        None
    }
}

async fn end<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    why: EndReason,
    until: Timestamp,
) -> Result<ReleaseProgress, Fault> {
    let authority = Authority::Release { generation: record.generation };
    let event = InstanceEvent::Condemned { authority, why, at: stack.now() };
    match transition::apply(stack, record, &event, until).await? {
        Moved::To(_) => Ok(ReleaseProgress::Ended),
        Moved::Overtaken | Moved::Refused(_) => Ok(ReleaseProgress::Overtaken),
    }
}
