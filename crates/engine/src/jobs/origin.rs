//! Finding out where a job's code comes from: from its row, else from this process's memory of its
//! run, else from the note of another replica, else by one question to GitHub, whose answer the row
//! and the note keep.
//!
//! Not here: the decisions based on it (`core::job::origin`), or when to ask (`super::assign`,
//! `super::finish`).

use std::time::Duration;

use bullpen_core::ids::{Repository, RunAttempt};
use bullpen_core::job::run_note::{self, RunTurn};
use bullpen_core::job::{
    Job, JobFact, Provenance, ReportedStatus, RunFact, UsedMachines, used_machines,
};
use bullpen_core::ports::{Clock, Fault, JobForge, Ports};
use bullpen_core::scope::ScopeVerdict;
use bullpen_core::time::Timestamp;

use super::Service;
use super::rows;
use crate::Stack;
use crate::document;
use crate::retry::retry_until;

/// How long a job that wants a machine waits for GitHub's answer: without one it gets an unused
/// machine.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// How long a replica waits before it looks whether another one has the answer.
const ANSWERED_SOON: Duration = Duration::from_millis(300);
/// How long a note in the ledger may take; a job waits for it.
const NOTED_WITHIN: Duration = Duration::from_secs(1);

/// Remembers where the code of a run comes from, as a webhook said. Only this process remembers it,
/// and forgetting it costs one question. Ignores repositories outside the service's scope.
pub fn note_run<P: Ports, J>(
    service: &Service<'_, P, J>,
    fact: &RunFact,
    installation: Option<u64>,
) {
    if service.settings().scope().judge(&fact.repository, installation) != ScopeVerdict::Inside {
        return;
    }
    service.github_cache().note_provenance(&fact.repository, &fact.run, fact.provenance);
}

/// Adds the provenance that this process remembers of the run to a fact.
pub(super) fn enriched<P: Ports, J>(service: &Service<'_, P, J>, fact: &JobFact) -> JobFact {
    let mut fact = fact.clone();
    let about = &mut fact.about;
    if let Some(known) = service.github_cache().provenance(&about.repository, &about.run) {
        about.provenance = about.provenance.join(known);
    }
    fact
}

/// Returns where a job's code comes from. Asks GitHub, until `until`, if neither the row nor this
/// process knows.
pub(super) async fn find<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
    until: Timestamp,
) -> Result<Provenance, Fault> {
    let (stack, about) = (service.stack, &job.known.about);
    let (repository, run) = (&about.repository, &about.run);
    let remembered = || {
        let known = service.github_cache().provenance(repository, run).unwrap_or_default();
        about.provenance.join(known)
    };
    let is_whole = |known: Provenance| known.origin.is_some() && known.visibility.is_some();
    if is_whole(remembered()) {
        return Ok(remembered());
    }
    // Jobs of one run arrive together: one asks GitHub, and the others wait for the answer.
    let asking = service.github_cache().asking(repository, run);
    let _asking = asking.lock().await;
    let known = remembered();
    if is_whole(known) {
        return Ok(known);
    }
    if service.github_cache().is_unanswered(repository, run, stack.now()) {
        return Err(Fault::unavailable("GitHub recently failed to say whose code a run has"));
    }
    match ask(service, repository, run, until).await {
        Ok(answer) => {
            service.github_cache().note_provenance(repository, run, answer);
            Ok(known.join(answer))
        }
        Err(fault) => {
            service.github_cache().note_unanswered(repository, run, stack.now());
            tracing::info!(job_id = %job.id, %fault, "GitHub did not say whose code a run has");
            Err(fault)
        }
    }
}

/// Asks GitHub about a run, unless another replica has asked or does. If the ledger does not say, a
/// question too many is asked.
async fn ask<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    repository: &Repository,
    run: &RunAttempt,
    until: Timestamp,
) -> Result<Provenance, Fault> {
    let (stack, name) = (service.stack, run_note::name(repository, run));
    while stack.now() < until {
        match turn(stack, &name).await {
            Ok(RunTurn::Known(known)) => return Ok(known),
            Ok(RunTurn::Wait) => stack.ports.clock().sleep(ANSWERED_SOON).await,
            Ok(RunTurn::Ask) | Err(_) => break,
        }
    }
    let answer = retry_until(stack, until, || service.forge.provenance(repository, run)).await?;
    let place = (run_note::COLLECTION, name.as_str());
    let noted = document::change(stack, place, stack.now().after(NOTED_WITHIN), |_| {
        Ok(Some(run_note::document(&name, Some(answer), stack.now())))
    });
    if let Err(fault) = noted.await {
        tracing::info!(%repository, %run, %fault, "could not note whose code a run has");
    }
    Ok(answer)
}

/// Whether this replica asks about a run; if it does, its note tells the others.
async fn turn<P: Ports>(stack: &Stack<P>, name: &str) -> Result<RunTurn, Fault> {
    let (now, mut turn) = (stack.now(), RunTurn::Ask);
    let place = (run_note::COLLECTION, name);
    document::change(stack, place, now.after(NOTED_WITHIN), |stored| {
        turn = run_note::turn(stored, now);
        Ok((turn == RunTurn::Ask).then(|| run_note::document(name, None, now)))
    })
    .await?;
    Ok(turn)
}

/// Decides whether a job may have a machine that another job used. If that depends on GitHub's
/// answer, asks for it and stores it in the row before the decision is used.
pub(super) async fn may_have_used<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    job: &Job,
) -> UsedMachines {
    let settings = service.settings();
    let mut about = job.known.about.clone();
    let decided = used_machines(&about, settings.code());
    if decided != UsedMachines::Ask {
        return decided;
    }
    let until = service.stack.now().after(ASK_WITHIN);
    let Ok(known) = find(service, job, until).await else { return decided.after_asking() };
    about.provenance = about.provenance.join(known);
    let decided = used_machines(&about, settings.code()).after_asking();
    // The fact carries the provenance and leaves the job's status as it is.
    let fact = JobFact { job: job.id.clone(), about, said: ReportedStatus::Held };
    let stack = service.stack;
    let stored = rows::change(stack, &job.id, service.patience(), |stored| {
        let stored = &stored.ok_or(())?.job;
        stored.learn(&fact, stack.now(), &stack.limits).map_err(drop)
    });
    match stored.await {
        Ok(_) => decided,
        Err(fault) => {
            tracing::info!(job_id = %job.id, %fault, "could not store whose code the job runs");
            UsedMachines::Ask.after_asking()
        }
    }
}
