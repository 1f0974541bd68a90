//! What agents said while no process listened: at its start a process reads the reports of the
//! machines that run jobs, and asks GitHub about each job whose listener has ended.
//!
//! Not here: jobs whose agents say nothing of the kind; the sweep comes to their rows.

use bullpen_core::ids::JobId;
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::mailbox::SignalKind;
use bullpen_core::ports::{Fault, JobForge, Ports};
use bullpen_core::sabotage;

use super::{Service, finish, rows};
use crate::at_once::at_once;
use crate::reconcile::live_records;
use crate::reports;

/// Makes one pass over the machines that run jobs.
pub(super) async fn recall<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
) -> Result<(), Fault> {
    let stack = service.stack;
    let records = live_records(stack).await?;
    let running: Vec<(&Record, &JobId)> = records.iter().filter_map(of_job).collect();
    for batch in running.chunks(IDS_PER_CALL_MAX) {
        let read: Vec<&Record> = batch.iter().map(|(record, _)| *record).collect();
        let reports = reports::of_each(stack, &read, service.patience()).await?;
        let ended = batch.iter().zip(reports).filter_map(|((record, job), report)| {
            report?.signal(SignalKind::ListenerEnded, record.generation)?;
            Some(*job)
        });
        at_once(ended, async |job: &JobId| {
            if let Err(fault) = ask(service, job).await {
                tracing::info!(job_id = %job, %fault, "could not ask GitHub about job");
            }
        })
        .await;
    }
    Ok(())
}

fn of_job(record: &Record) -> Option<(&Record, &JobId)> {
    match &record.state {
        State::Running { owner: Owner::Job(job), .. } => Some((record, job)),
        _ => None,
    }
}

/// Asks GitHub whether the job, or the job that took its machine, is over; the answer wakes a worker.
async fn ask<P: Ports, J: JobForge>(service: &Service<'_, P, J>, job: &JobId) -> Result<(), Fault> {
    let load = async |job: &JobId| rows::load(service.stack, job, service.patience()).await;
    let Some(mut seen) = load(job).await? else { return Ok(()) };
    if let Some(taker) = seen.job.taken_by.clone()
        && let Some(taken) = load(&taker).await?
    {
        seen = taken;
    }
    if !seen.job.is_over() && !sabotage!("what-agents-said-is-forgotten") {
        finish::is_wanted(service, &seen.job).await?;
    }
    Ok(())
}
