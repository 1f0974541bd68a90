//! The sweep: processes every row that is due.
//!
//! The sweep does not serve a waiting row itself, because it must never wait for a machine: it
//! sends a new wake-up to the workers.
//!
//! Not here: what a row needs ([`super::resume`]), or jobs without a row ([`mod@super::find`]).

use bullpen_core::job::{JobState, reroute};
use bullpen_core::ports::{Fault, JobForge, JobRow, Ledger, Ports};
use futures_util::future::join_all;

use super::resume::process_row;
use super::rows::{self, RowChange, SeenRow};
use super::{Service, finish, queues};
use crate::retry::retry_until;

/// How many rows the sweep processes at once.
const ROWS_AT_ONCE: usize = 10;

/// The result of one sweep over the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Rows that the sweep processed.
    pub looked_at: usize,
    /// Rows whose processing failed; the next sweep tries them again.
    pub left: usize,
}

/// Processes every row that is due, once.
pub async fn sweep<P: Ports, J: JobForge>(service: &Service<'_, P, J>) -> Result<Swept, Fault> {
    let stack = service.stack;
    let now = stack.now();
    let mut swept = Swept::default();
    if stack.misleads().is_some() {
        return Ok(swept);
    }
    let mut cursor: Option<String> = None;
    loop {
        let page = retry_until(stack, service.patience(), || {
            stack.ports.ledger().rows_due(now, cursor.as_deref())
        });
        let (rows, next) = stack.readable_page(page.await?);
        for rows in rows.chunks(ROWS_AT_ONCE) {
            swept.looked_at += rows.len();
            let looks = rows.iter().map(|row| service.attempt(&row.job, look(service, row)));
            let looks = join_all(looks).await;
            swept.left += looks.iter().filter(|look| look.is_err()).count();
            for fault in looks.into_iter().filter_map(Result::err) {
                tracing::info!(%fault, "could not process row; next sweep retries");
            }
        }
        match next {
            Some(next) => cursor = Some(next),
            None => return Ok(swept),
        }
    }
}

async fn look<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    row: &JobRow,
) -> Result<(), Fault> {
    let stack = service.stack;
    // The list of due rows may lag, so the row itself decides.
    let Some(seen) = rows::load(stack, &row.job, service.patience()).await? else { return Ok(()) };
    if !seen.is_due(stack.now()) {
        return Ok(());
    }
    if finish::end_out_of_scope(service, &seen).await?.is_some() {
        return Ok(());
    }
    match &seen.job.state {
        JobState::Waiting { .. } | JobState::Assigning { .. } => {
            if let Some(reason) = finish::is_overdue(stack, &seen.job) {
                let _ = finish::overdue(service, &seen.job, reason).await?;
                return Ok(());
            }
            if service.is_set_aside(&seen.job.id) {
                return rows::touch(stack, &seen, service.patience()).await;
            }
            reroute_and_wake(service, &seen).await
        }
        _ if service.is_set_aside(&seen.job.id) => {
            rows::touch(stack, &seen, service.patience()).await
        }
        JobState::Dormant
        | JobState::Assigned { .. }
        | JobState::Elsewhere
        | JobState::Ended { .. } => {
            let processed = process_row(service, &seen.job.id).await;
            rows::touch(stack, &seen, service.patience()).await?;
            let _ = processed?;
            service.forgive(&seen.job.id);
            Ok(())
        }
    }
}

/// Routes a row that could not be routed before, and wakes a worker. The write gives the row a new
/// revision, because the queue drops a wake-up with the old revision as a duplicate.
async fn reroute_and_wake<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
) -> Result<(), Fault> {
    let (stack, settings) = (service.stack, service.settings());
    let written = rows::change(stack, &seen.job.id, service.patience(), |stored| {
        let stored = stored.filter(|stored| stored.revision == seen.revision).ok_or(())?;
        let (job, now) = (stored.job.clone(), stack.now());
        reroute(job, &settings.routing(), now, &stack.limits, settings.cancels()).map_err(drop)
    });
    if let RowChange::To(seen) = written.await? {
        queues::wake(stack, &seen).await;
    }
    Ok(())
}
