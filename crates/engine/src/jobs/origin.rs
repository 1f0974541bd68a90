//! Where the code of a job comes from: by its row, else as this process remembers it of its run, else
//! by one question to GitHub, whose answer the row keeps.
//!
//! Not here: what follows from it (`core::job::origin`), or when to ask (`super::assign`,
//! `super::finish`).

use std::time::Duration;

use bullpen_core::job::{
    Job, JobFact, Provenance, ReportedStatus, RunFact, UsedMachines, used_machines,
};
use bullpen_core::ports::{Fault, JobForge, Ports};
use bullpen_core::scope::ScopeVerdict;
use bullpen_core::time::Timestamp;

use super::Service;
use super::rows;
use crate::retry::retry_until;

/// How long a job that wants a machine waits for GitHub's word: a machine that nobody used serves it
/// without.
const ASKED_FOR: Duration = Duration::from_secs(5);

/// A webhook said where the code of a run comes from. It is remembered by this process alone:
/// forgetting it costs a question. What is outside the service's scope is not remembered.
pub fn note_run<P: Ports, J>(
    service: &Service<'_, P, J>,
    fact: &RunFact,
    installation: Option<u64>,
) {
    if service.settings().scope().judge(&fact.repository, installation) != ScopeVerdict::Inside {
        return;
    }
    service.github_cache().came_from(&fact.repository, &fact.run, fact.provenance);
}

/// A fact with what this process remembers of its run.
pub(super) fn enriched<P: Ports, J>(service: &Service<'_, P, J>, fact: &JobFact) -> JobFact {
    let mut fact = fact.clone();
    let about = &mut fact.about;
    if let Some(known) = service.github_cache().provenance(&about.repository, &about.run) {
        about.provenance = about.provenance.join(known);
    }
    fact
}

/// Where a job's code comes from, asked of GitHub until `until` if nobody said.
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
    // Jobs of one run come together: one of them asks, and the others hear the answer.
    let turn = service.github_cache().turn(repository, run);
    let _turn = turn.lock().await;
    let known = remembered();
    if is_whole(known) {
        return Ok(known);
    }
    if service.github_cache().is_silent(repository, run, stack.now()) {
        return Err(Fault::unavailable("GitHub has just not said whose code a run has"));
    }
    let asked = retry_until(stack, until, || service.forge.provenance(repository, run)).await;
    match asked {
        Ok(said) => {
            service.github_cache().came_from(repository, run, said);
            Ok(known.join(said))
        }
        Err(fault) => {
            service.github_cache().was_silent(repository, run, stack.now());
            tracing::info!(job_id = %job.id, %fault, "GitHub did not say whose code a run has");
            Err(fault)
        }
    }
}

/// Whether a job may have a machine that another job used. GitHub is asked if that depends on its
/// word, and the answer is in the row before anything is decided by it.
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
    let until = service.stack.now().after(ASKED_FOR);
    let Ok(known) = find(service, job, until).await else { return decided.after_asking() };
    about.provenance = about.provenance.join(known);
    let decided = used_machines(&about, settings.code()).after_asking();
    // A word on what stays the same, and none on where the job stands.
    let fact = JobFact { job: job.id.clone(), about, said: ReportedStatus::Held };
    let stack = service.stack;
    let stored = rows::change(stack, &job.id, service.patience(), |stored| {
        let stored = &stored.ok_or(())?.job;
        stored.learn(&fact, stack.now(), &stack.limits).map_err(drop)
    });
    match stored.await {
        Ok(_) => decided,
        Err(fault) => {
            tracing::info!(job_id = %job.id, %fault, "its row does not say whose code it runs");
            UsedMachines::Ask.after_asking()
        }
    }
}
