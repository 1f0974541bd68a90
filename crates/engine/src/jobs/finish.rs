//! Ending jobs: storing the end, releasing the machine, telling the author, cancelling the run.
//!
//! The worker first stores the end in the row, with its tasks; each worker that looks at the row
//! then carries out the tasks that are left. The service tells the author before it cancels the
//! run, so that the author finds the reason where the run stopped.
//!
//! Not here: deciding that a job has failed, except because its deadline has passed.

use std::time::Duration;

use bullpen_core::ids::JobId;
use bullpen_core::instance::{EndReason, Record, State};
use bullpen_core::job::search::may_show_later;
use bullpen_core::job::{
    AfterJob, Conclusion, End, EndTasks, Job, JobEvent, JobFact, JobMachine, JobPhase, JobState,
    JobStep, JobStepAt, Origin, Reason, ReportedStatus, after_job, ends_anyway,
};
use bullpen_core::ports::{Fault, JobForge, Notice, Ports};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use super::rows::{self, RowChange, SeenRow};
use super::{Processed, Service, ingest, origin, owner_of, runners};
use crate::Stack;
use crate::progress::unobserved;
use crate::release::{self, ReleaseProgress, Withdrawn};
use crate::transition;

/// How long one look waits until a machine is idle or ended: an agent answers within seconds, and
/// the next look continues.
const RELEASE_WITHIN: Duration = Duration::from_secs(20);
/// How long a released machine waits for GitHub to say whose code ran there: less than a pool would
/// keep it idle.
const ORIGIN_WITHIN: Duration = Duration::from_secs(5 * 60);
/// The conclusion of a started job that GitHub does not know any more.
const VANISHED: &str = "vanished";

/// Fails a job, with a reason that its author sees. Does nothing to a job that is over, or runs.
pub async fn fail<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    id: &JobId,
    reason: Reason,
) -> Result<Processed, Fault> {
    let stack = service.stack;
    let cancels = service.settings().cancels();
    let failed = rows::change(stack, id, service.patience(), |stored| {
        let job = &stored.ok_or(())?.job;
        let at = stack.now();
        let cancel_by = cancels.then(|| deadline(job).unwrap_or(at).max(at));
        job.on(&JobEvent::Failed { reason: reason.clone(), at, cancel_by }).map_err(drop)
    });
    match failed.await? {
        RowChange::To(seen) => {
            tracing::info!(job_id = %id, reason = reason.code(), "service gave up on job");
            service.note_change(None, &seen.job);
            run_end_tasks(service, &seen).await
        }
        RowChange::Not(()) => Ok(Processed::Done),
    }
}

/// Ends a row whose repository is outside the scope and tells GitHub nothing, because the service
/// stored the row under another scope. None if the repository is inside.
pub(super) async fn end_out_of_scope<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
) -> Result<Option<Processed>, Fault> {
    let settings = service.settings();
    if settings.scope().serves(seen.job.repository()) {
        return Ok(None);
    }
    let why = format!("this service serves only {}", settings.scope().served);
    let reason = Reason::Refused { why: vec![why] };
    let event = JobEvent::Dismissed { reason, at: service.stack.now() };
    match rows::apply(service.stack, &seen.job.id, &event, service.patience()).await? {
        RowChange::To(ended) => {
            if !seen.job.is_over() {
                let repository = seen.job.repository();
                tracing::info!(job_id = %seen.job.id, %repository, "ended row outside scope");
                service.note_change(Some(&seen.job), &ended.job);
            }
            Box::pin(run_end_tasks(service, &ended)).await.map(Some)
        }
        RowChange::Not(_) => Ok(Some(Processed::Done)),
    }
}

/// When a job must have a runner.
pub(super) const fn deadline(job: &Job) -> Option<Timestamp> {
    match &job.state {
        JobState::Waiting { deadline, .. }
        | JobState::Assigning { deadline, .. }
        | JobState::Assigned { deadline, .. } => Some(*deadline),
        JobState::Dormant | JobState::Elsewhere | JobState::Ended { .. } => None,
    }
}

/// Why a job is overdue, if this process can tell.
pub(super) fn is_overdue<P: Ports>(stack: &Stack<P>, job: &Job) -> Option<Reason> {
    job.overdue(stack.now()).filter(|_| stack.clock_error().is_none())
}

/// Fails a job whose deadline has passed, unless GitHub says that it wants no runner any more. If
/// GitHub does not answer, the job fails too: its author must not also wait for GitHub.
pub(super) async fn overdue<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
    reason: Reason,
) -> Result<Processed, Fault> {
    if let Ok(false) = is_wanted(service, job).await {
        return Ok(Processed::Done);
    }
    fail(service, &job.id, reason).await
}

/// Asks GitHub about a job, merges the answer into the row, and returns whether the job still wants
/// a runner.
pub async fn is_wanted<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
) -> Result<bool, Fault> {
    let fact = match service.forge.job(job.repository(), &job.id).await {
        Ok(fact) => fact,
        Err(Fault::NotFound)
            if may_show_later(job.known.queued_at(), service.stack.now())
                && !sabotage!("what-github-does-not-show-is-gone") =>
        {
            return Err(Fault::unavailable("GitHub does not show the job yet"));
        }
        Err(Fault::NotFound) => {
            vanished(service, job).await?;
            return Ok(false);
        }
        Err(fault) => return Err(fault),
    };
    ingest::ingest(service, &fact).await?;
    let seen = rows::load(service.stack, &job.id, service.patience()).await?;
    Ok(seen.is_some_and(|seen| !seen.job.is_over() && seen.job.known.phase() == JobPhase::Queued))
}

/// Ends a job that GitHub does not know any more. A job that never started fails, and its author is
/// told; a started job completes with an unknown result.
async fn vanished<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
) -> Result<(), Fault> {
    if job.known.phase() < JobPhase::Started {
        let _ = Box::pin(fail(service, &job.id, Reason::Vanished)).await?;
        return Ok(());
    }
    let (conclusion, at) = (Conclusion::new(VANISHED), Some(service.stack.now()));
    let said = ReportedStatus::Completed { conclusion, runner: None, at };
    let fact = JobFact { job: job.id.clone(), about: job.known.about.clone(), said };
    ingest::ingest(service, &fact).await?;
    Ok(())
}

/// Carries out the tasks that are left for a job that is over, as far as possible now.
pub(super) async fn run_end_tasks<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
) -> Result<Processed, Fault> {
    let JobState::Ended { end, debts, .. } = &seen.job.state else { return Ok(Processed::Done) };
    let stack = service.stack;
    let mut row = seen.clone();
    let mut done = Vec::new();
    let mut releases = false;
    if let Some(held) = &debts.release {
        // The end of the job that needs it comes here too, and so does the sweep.
        releases = !runners::is_needed(stack, &seen.job, held, service.patience()).await?;
        if releases {
            done.extend(released(service, &mut row, held).await?);
        }
    }
    // An outage of GitHub must not keep a machine, so the calls to GitHub come last.
    let told = !debts.tell || tell(service, &seen.job, end).await;
    if told && debts.tell {
        done.push(JobEvent::Told { at: stack.now() });
    }
    if told && is_cancelled(service, &seen.job, debts).await {
        done.push(JobEvent::RunCancelled { at: stack.now() });
    }
    let count = done.len();
    for event in done {
        if let RowChange::To(next) =
            rows::apply_to(stack, &row, &[event], service.patience()).await?
        {
            row = next;
        }
    }
    let owed = [releases, debts.tell, debts.cancel_by.is_some()];
    if owed.into_iter().filter(|owed| *owed).count() == count {
        return Ok(Processed::Done);
    }
    Ok(Processed::Again { at: stack.now().after(bullpen_core::job::ENDED_LOOK_AGAIN) })
}

async fn tell<P: Ports, J: JobForge>(service: &Service<'_, P, J>, job: &Job, end: &End) -> bool {
    let End::Failed(reason) = end else { return true };
    let about = &job.known.about;
    let notice = Notice {
        job: job.id.clone(),
        name: about.name.clone(),
        repository: about.repository.clone(),
        commit: about.commit.clone(),
        reason: reason.clone(),
    };
    match service.forge.tell(&notice).await {
        // The commit is gone, so the author cannot be told.
        Ok(()) | Err(Fault::NotFound) => true,
        Err(fault) => {
            tracing::info!(job_id = %job.id, %fault, "could not tell the job's author");
            false
        }
    }
}

/// Cancels the run if its time has come or its other jobs are completed; returns whether it did.
async fn is_cancelled<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
    debts: &EndTasks,
) -> bool {
    let Some(by) = debts.cancel_by else { return false };
    let about = &job.known.about;
    if service.stack.now() < by {
        let Ok(facts) = service.forge.jobs_of(&about.repository, &about.run).await else {
            return false;
        };
        let goes_on = |fact: &JobFact| {
            fact.job != job.id && !matches!(fact.said, ReportedStatus::Completed { .. })
        };
        if facts.iter().any(goes_on) {
            return false;
        }
    }
    service.forge.cancel(&about.repository, &about.run).await.is_ok()
}

/// When the job's runner began to listen: only the machine's record knows, until its release.
fn listened(record: Option<&Record>, job: &JobId) -> Vec<JobStepAt> {
    match record.map(|record| &record.state) {
        Some(State::Running { owner, since, .. }) if *owner == owner_of(job) => {
            vec![JobStepAt { at: *since, step: JobStep::Listens }]
        }
        _ => Vec::new(),
    }
}

/// Releases the machine of a job that runs on another one, unless a job needs the machine.
pub(super) async fn release_early<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
    held: &JobMachine,
) -> Result<Processed, Fault> {
    let stack = service.stack;
    if runners::is_needed(stack, &seen.job, held, service.patience()).await? {
        return Ok(Processed::Done);
    }
    let mut row = seen.clone();
    let Some(event) = released(service, &mut row, held).await? else {
        return Ok(Processed::Again { at: stack.now().after(bullpen_core::job::ENDED_LOOK_AGAIN) });
    };
    let _ = rows::apply_to(stack, &row, &[event], service.patience()).await?;
    Ok(Processed::Done)
}

/// Releases a job's machine; returns the event for the row once the release is complete.
async fn released<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    row: &mut SeenRow,
    held: &JobMachine,
) -> Result<Option<JobEvent>, Fault> {
    let stack = service.stack;
    let record = transition::read(stack, &held.instance, service.patience()).await?;
    let notes = listened(record.as_ref(), &row.job.id);
    let is_released = is_released(service, row, held, record).await?;
    let held = held.clone();
    Ok(is_released.then(|| JobEvent::Released { held, at: stack.now(), notes }))
}

/// Releases everything a job holds and waits a while; returns whether the release is complete.
/// `record` is the machine that its row names. A job that never was set back has no other.
async fn is_released<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &mut SeenRow,
    held: &JobMachine,
    record: Option<Record>,
) -> Result<bool, Fault> {
    let (stack, owner) = (service.stack, owner_of(&seen.job.id));
    let Withdrawn { releasing, fault } = match record {
        Some(record) if seen.job.is_on_first_attempt() => {
            release::withdraw_each(stack, &owner, vec![record]).await
        }
        _ => release::withdraw_all(stack, &owner).await?,
    };
    if releasing.is_empty() {
        return fault.map_or(Ok(true), Err);
    }
    let ends = match releasing.iter().find(|record| record.id == held.instance) {
        Some(record) => end_reason(service, seen, held, record).await?,
        None => None,
    };
    let until = stack.now().after(RELEASE_WITHIN);
    let passes = releasing.into_iter().map(|record| {
        let ends = if record.id == held.instance { ends } else { None };
        release::see_through(stack, record, ends, until, &unobserved)
    });
    let passes = futures_util::future::join_all(passes).await;
    let is_complete = passes.iter().all(|progress| *progress != ReleaseProgress::Waiting);
    fault.map_or(Ok(is_complete), Err)
}

/// Decides why a machine ends after the job that ran there. None if it will serve other jobs; the row
/// then says so, because the first process to prove that no runner listens on the machine makes it
/// idle.
async fn end_reason<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &mut SeenRow,
    held: &JobMachine,
    record: &Record,
) -> Result<Option<EndReason>, Fault> {
    let (stack, settings, job) = (service.stack, service.settings(), &seen.job);
    let taker = match &job.taken_by {
        Some(id) => match rows::load(stack, id, service.patience()).await? {
            Some(taker) => Some(taker.job),
            None => return Ok(Some(EndReason::Untrusted)),
        },
        None => None,
    };
    let ran = taker.as_ref().unwrap_or(job);
    let reuse = settings.reuse_after(ran, &record.facts.class);
    if let Some(why) = ends_anyway(record, reuse.as_ref(), stack.now()) {
        return Ok(Some(why));
    }
    if taker.is_some() && settings.trust_of(ran, stack) != record.trust {
        return Ok(Some(EndReason::Untrusted));
    }
    let decided = match &job.state {
        JobState::Ended { debts, .. } => debts.after,
        JobState::Assigned { after, .. } => *after,
        _ => None,
    };
    let after = match decided {
        Some(after) => after,
        // It is not known that a job ran there. If the agent saw one, the machine ends all the same.
        None if ran.is_elsewhere(held) => AfterJob::Pool,
        None => after_job(origin(service, ran).await?, settings.code()),
    };
    if let AfterJob::End(why) = after {
        return Ok(Some(why));
    }
    if decided.is_none() {
        let (held, taken_by) = (held.clone(), job.taken_by.clone());
        let event = JobEvent::Judged { held, taken_by, after };
        if let RowChange::To(next) =
            rows::apply_to(stack, seen, &[event], service.patience()).await?
        {
            *seen = next;
        }
    }
    Ok(None)
}

/// Finds out whose code ran in a job, if GitHub says. Soon after the job's end, a transient fault
/// is an error: the machine then waits for GitHub's answer instead of ending without it.
async fn origin<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
) -> Result<Option<Origin>, Fault> {
    if let Some(origin) = job.known.about.provenance.origin {
        return Ok(Some(origin));
    }
    let stack = service.stack;
    let until = stack.now().after(stack.limits.forge_patience);
    match (origin::find(service, job, until).await, &job.state) {
        (Ok(known), _) => Ok(known.origin),
        (Err(fault), JobState::Ended { at, .. })
            if fault.is_transient() && stack.now().since(*at) < ORIGIN_WITHIN =>
        {
            Err(fault)
        }
        (Err(_), _) => Ok(None),
    }
}

/// Releases everything a job holds if it wants no machine any more. A job that another worker
/// serves keeps its machine.
pub(super) async fn give_back_unwanted<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    id: &JobId,
) -> Result<(), Fault> {
    let stack = service.stack;
    let seen = rows::load(stack, id, service.patience()).await?;
    let unwanted = seen.is_none_or(|seen| match seen.job.state {
        JobState::Dormant | JobState::Elsewhere => true,
        // `run_end_tasks` releases the machine.
        JobState::Ended { debts, .. } => debts.release.is_none(),
        JobState::Waiting { .. } | JobState::Assigning { .. } | JobState::Assigned { .. } => false,
    });
    if unwanted {
        release::take_back(stack, &owner_of(id)).await?;
    }
    Ok(())
}
