//! Runs the bursts: queues every job at the stand-in, and waits until the service has settled it.
//!
//! Not here: the jobs (`script`), or judging the outcome (`report`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use bullpen_core::explain::Explanation;
use bullpen_core::ids::{JobId, PoolName};
use bullpen_core::job::{Job, JobState};
use bullpen_core::pool::Blueprints;
use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::StandIn;
use bullpen_github::stand_in::protocol::{JobOrder, JobView, NoticeView};
use futures_util::future::try_join_all;

use super::script::{BURSTS, DemoJob, ExpectedEnd};
use crate::demo::REPOSITORY;
use crate::demo::work::{CHECKSUM, JOB};
use crate::explain;
use crate::pools::{self, PoolSummary};
use crate::render;
use crate::runtime::Runtime;
use crate::workflow::Failure;
use crate::workflow::verify::{Verified, findings};

/// The time between two reads of a row.
const POLL: Duration = Duration::from_millis(40);
/// The time between two reads of the pools, which cost more.
const POLL_POOLS: Duration = Duration::from_millis(200);
/// The delay of the webhook of the job that takes another job's runner.
const LATE: Duration = Duration::from_secs(3);
/// When a job is cancelled: while its machine pretends to boot.
const CANCELLED_AFTER: Duration = Duration::from_millis(700);

/// A running service with its stand-in.
pub(super) struct ServiceDemo<'a> {
    /// The runtime of the service.
    pub(super) runtime: &'a Runtime,
    /// The stand-in for GitHub.
    pub(super) stand_in: &'a StandIn,
    /// The directory of the jobs' notes.
    pub(super) place: &'a Path,
    /// The time since the demo's start.
    pub(super) clock: SystemClock,
    /// The configured pools.
    pub(super) pools: Blueprints,
}

/// The outcome of one job.
#[derive(Debug)]
pub(super) struct JobOutcome {
    /// The index of its burst.
    pub(super) burst: usize,
    /// The job in the script.
    pub(super) order: DemoJob,
    /// The job at GitHub.
    pub(super) view: JobView,
    /// The job in its row.
    pub(super) job: Job,
    /// Why it waited.
    pub(super) explanation: Explanation,
    /// Whether its script did its work.
    pub(super) worked: bool,
}

/// The outcome of the demo.
#[derive(Debug)]
pub(super) struct ServiceOutcome {
    /// Every job, in order.
    pub(super) rows: Vec<JobOutcome>,
    /// The status codes of the service's answers to webhooks.
    pub(super) webhooks: Vec<u16>,
    /// The notices at commits.
    pub(super) notices: Vec<NoticeView>,
    /// The number of records that `ledger verify` checked.
    pub(super) records: usize,
    /// The violations that it found.
    pub(super) violations: Vec<String>,
    /// When the pools first had the machines of their targets.
    pub(super) filled: Duration,
    /// The time from the last job until they had them again.
    pub(super) refilled: Duration,
    /// The pools at that time.
    pub(super) pools: Vec<PoolSummary>,
}

/// Runs all bursts, and verifies the ledger after them.
pub(super) async fn play(demo: &ServiceDemo<'_>) -> Result<ServiceOutcome, Failure> {
    let mut rows: Vec<JobOutcome> = Vec::new();
    render::talk_page("\ntwo pools: ci keeps two hot machines, nightly two stopped ones");
    let pools = wait_for_full_pools(demo).await?;
    let filled = demo.clock.monotonic();
    render::talk(&pools_text(demo, &pools));
    for (burst, script) in BURSTS.iter().enumerate() {
        render::talk_page(&format!("\n{}", script.title));
        let first = rows.len() + 1;
        let jobs = script.orders.iter().enumerate();
        let jobs = jobs.map(|(index, order)| job(demo, burst, order, first + index));
        rows.extend(try_join_all(jobs).await?);
    }
    demo.stand_in.webhooks_sent().await;
    let over = demo.clock.monotonic();
    render::talk_page("\nthe pools are refilled");
    let pools = wait_for_full_pools(demo).await?;
    let refilled = demo.clock.monotonic().saturating_sub(over);
    // Read the rows again, because a webhook that the demo delays may have come since.
    for row in &mut rows {
        (row.job, row.explanation) = read_job(demo, &row.job.id.clone()).await?;
    }
    let found = findings(&demo.runtime.stack, None).await;
    let Verified { records, violations, .. } =
        found.map_err(|fault| Failure::of("could not read the stack", &fault))?;
    Ok(ServiceOutcome {
        rows,
        webhooks: demo.stand_in.webhook_answers(),
        notices: demo.stand_in.notices(),
        records,
        violations: violations.iter().map(ToString::to_string).collect(),
        filled,
        refilled,
        pools,
    })
}

/// Waits until every pool has the machines of its target, and prints the changes until then.
async fn wait_for_full_pools(demo: &ServiceDemo<'_>) -> Result<Vec<PoolSummary>, Failure> {
    let mut printed: BTreeMap<PoolName, String> = BTreeMap::new();
    loop {
        let pools = pools::pool_summaries(&demo.runtime.stack, Some(&demo.pools)).await;
        let pools = pools.map_err(|fault| Failure::of("could not read the pools", &fault))?;
        for pool in &pools {
            let machines = pool.machines();
            let last = printed.insert(pool.name.clone(), machines.clone());
            if last.as_ref() != Some(&machines) {
                say(demo, pool.name.as_str(), &machines);
            }
        }
        if pools.iter().all(PoolSummary::is_full) {
            return Ok(pools);
        }
        demo.clock.sleep(POLL_POOLS).await;
    }
}

/// The text of `bullpen pools`.
fn pools_text(demo: &ServiceDemo<'_>, pools: &[PoolSummary]) -> String {
    let now = demo.runtime.stack.now();
    pools.iter().fold(String::new(), |text, pool| text + "\n" + &pool.text(now))
}

/// Runs one job to its end. Jobs are queued in the order of the script, before the first await.
async fn job(
    demo: &ServiceDemo<'_>,
    burst: usize,
    order: &DemoJob,
    number: usize,
) -> Result<JobOutcome, Failure> {
    let note = demo.place.join(format!("note-{number}"));
    let id = queue(demo, order, number, &note).id;
    if order.expected == ExpectedEnd::Cancelled {
        demo.clock.sleep(CANCELLED_AFTER).await;
        demo.stand_in.cancel(id);
    }
    let key = JobId::new(id.to_string());
    tokio::select! {
        view = demo.stand_in.started(id) => {
            let runner = view.runner.as_deref().unwrap_or("no runner").to_owned();
            say(demo, order.name, &format!("runs on {runner}"));
        }
        settled = settled(demo, &key) => settled?,
    }
    settled(demo, &key).await?;
    let view = demo.stand_in.over(id).await;
    let (job, explanation) = read_job(demo, &key).await?;
    say(demo, order.name, &explanation.verdict);
    let worked = fs::read_to_string(&note).is_ok_and(|text| text.ends_with(CHECKSUM));
    Ok(JobOutcome { burst, order: *order, view, job, explanation, worked })
}

async fn read_job(demo: &ServiceDemo<'_>, id: &JobId) -> Result<(Job, Explanation), Failure> {
    let found = explain::explain_job(&demo.runtime.stack, id).await;
    let found = found.map_err(|fault| Failure::of("could not read the ledger", &fault))?;
    found.ok_or_else(|| super::failed(format!("job {id} is gone from the ledger")))
}

fn queue(demo: &ServiceDemo<'_>, order: &DemoJob, number: usize, note: &Path) -> JobView {
    let late = |delay: Duration| {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        demo.stand_in.pull(|levers| levers.webhooks.delay_ms = delay);
    };
    if order.expected == ExpectedEnd::Takes {
        late(LATE);
    }
    let queued = demo.stand_in.submit(JobOrder {
        repository: REPOSITORY.to_owned(),
        labels: vec![order.names.label(number)],
        name: Some(order.name.to_owned()),
        script: JOB.to_owned(),
        env: [("NOTE".to_owned(), note.display().to_string())].into(),
        ..JobOrder::default()
    });
    late(Duration::ZERO);
    queued
}

/// Waits until a job has ended and the service has settled its debts.
async fn settled(demo: &ServiceDemo<'_>, id: &JobId) -> Result<(), Failure> {
    loop {
        let job = explain::row(&demo.runtime.stack, id).await;
        match job.map_err(|fault| Failure::of("could not read the ledger", &fault))? {
            Some((_, Job { state: JobState::Ended { debts, .. }, .. })) if debts.is_settled() => {
                return Ok(());
            }
            _ => demo.clock.sleep(POLL).await,
        }
    }
}

fn say(demo: &ServiceDemo<'_>, name: &str, what: &str) {
    let elapsed = demo.clock.monotonic().as_secs_f64();
    render::talk(&format!("{elapsed:7.2} s  {name:<10} {what}"));
}
