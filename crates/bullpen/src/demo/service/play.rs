//! Going through the bursts: every job is queued at GitHub, and watched until all is done about it.
//!
//! Not here: which jobs there are (`script`), or whether it went as it should (`report`).

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
use crate::workflow::verify::findings;

/// How often a row is looked at.
const LOOK: Duration = Duration::from_millis(40);
/// How often pools are looked at, which costs more.
const LOOK_AT_POOLS: Duration = Duration::from_millis(200);
/// How late the webhook of the job is that takes another's runner.
const LATE: Duration = Duration::from_secs(3);
/// When a job is cancelled: while its machine pretends to boot.
const CANCELLED_AFTER: Duration = Duration::from_millis(700);

/// Everything that is there.
pub(super) struct ServiceStage<'a> {
    /// The runtime that the service is in.
    pub(super) runtime: &'a Runtime,
    /// GitHub.
    pub(super) stand_in: &'a StandIn,
    /// Where jobs leave notes.
    pub(super) place: &'a Path,
    /// Since when it goes on.
    pub(super) clock: SystemClock,
    /// What is configured of pools.
    pub(super) pools: Blueprints,
}

/// What came of one job.
#[derive(Debug)]
pub(super) struct JobOutcome {
    /// Of which burst, from 0.
    pub(super) burst: usize,
    /// What was asked for.
    pub(super) order: DemoJob,
    /// The job as GitHub has it.
    pub(super) view: JobView,
    /// The job as its row has it.
    pub(super) job: Job,
    /// Why it waited.
    pub(super) told: Explanation,
    /// Whether it did its work.
    pub(super) worked: bool,
}

/// What came of it all.
#[derive(Debug)]
pub(super) struct ServiceOutcome {
    /// Every job, in order.
    pub(super) rows: Vec<JobOutcome>,
    /// What GitHub's webhooks were answered with.
    pub(super) webhooks: Vec<u16>,
    /// What was said at commits.
    pub(super) notices: Vec<NoticeView>,
    /// How many records `ledger verify` looks at.
    pub(super) records: usize,
    /// What it says about them.
    pub(super) violations: Vec<String>,
    /// When the pools first had what they are to keep.
    pub(super) filled: Duration,
    /// How long after the last job they had it again.
    pub(super) refilled: Duration,
    /// What they were like then.
    pub(super) pools: Vec<PoolSummary>,
}

/// All bursts, and a look at what they leave.
pub(super) async fn play(stage: &ServiceStage<'_>) -> Result<ServiceOutcome, Failure> {
    let mut rows: Vec<JobOutcome> = Vec::new();
    render::talk_page("\ntwo pools: ci keeps two hot machines, nightly two stopped ones");
    let pools = full(stage).await?;
    let filled = stage.clock.monotonic();
    render::talk(&told(stage, &pools));
    for (burst, script) in BURSTS.iter().enumerate() {
        render::talk_page(&format!("\n{}", script.title));
        let first = rows.len() + 1;
        let jobs = script.orders.iter().enumerate();
        let jobs = jobs.map(|(index, order)| job(stage, burst, order, first + index));
        rows.extend(try_join_all(jobs).await?);
    }
    stage.stand_in.webhooks_sent().await;
    let over = stage.clock.monotonic();
    render::talk_page("\nthe pools are refilled");
    let pools = full(stage).await?;
    let refilled = stage.clock.monotonic().saturating_sub(over);
    // One webhook was late on purpose, and says more.
    for row in &mut rows {
        (row.job, row.told) = look(stage, &row.job.id.clone()).await?;
    }
    let found = findings(&stage.runtime.stack).await;
    let (records, violations) =
        found.map_err(|fault| Failure::of("could not read the ledger", &fault))?;
    Ok(ServiceOutcome {
        rows,
        webhooks: stage.stand_in.webhook_answers(),
        notices: stage.stand_in.notices(),
        records,
        violations: violations.iter().map(ToString::to_string).collect(),
        filled,
        refilled,
        pools,
    })
}

/// Waits until every pool has what it is to keep, and tells how it goes on.
async fn full(stage: &ServiceStage<'_>) -> Result<Vec<PoolSummary>, Failure> {
    let mut said: BTreeMap<PoolName, String> = BTreeMap::new();
    loop {
        let pools = pools::pool_summaries(&stage.runtime.stack, Some(&stage.pools)).await;
        let pools = pools.map_err(|fault| Failure::of("could not read the pools", &fault))?;
        for pool in &pools {
            let has = pool.machines();
            if said.insert(pool.name.clone(), has.clone()).as_ref() != Some(&has) {
                say(stage, pool.name.as_str(), &has);
            }
        }
        if pools.iter().all(PoolSummary::is_full) {
            return Ok(pools);
        }
        stage.clock.sleep(LOOK_AT_POOLS).await;
    }
}

/// What `bullpen pools` would show.
fn told(stage: &ServiceStage<'_>, pools: &[PoolSummary]) -> String {
    let now = stage.runtime.stack.now();
    pools.iter().fold(String::new(), |told, pool| told + "\n" + &pool.text(now))
}

/// One job's life. Everything up to the first wait happens in the order of the script.
async fn job(
    stage: &ServiceStage<'_>,
    burst: usize,
    order: &DemoJob,
    number: usize,
) -> Result<JobOutcome, Failure> {
    let note = stage.place.join(format!("note-{number}"));
    let id = queue(stage, order, number, &note).id;
    if order.fate == ExpectedEnd::Cancelled {
        stage.clock.sleep(CANCELLED_AFTER).await;
        stage.stand_in.cancel(id);
    }
    let key = JobId::new(id.to_string());
    tokio::select! {
        view = stage.stand_in.started(id) => {
            let runner = view.runner.as_deref().unwrap_or("no runner").to_owned();
            say(stage, order.name, &format!("runs on {runner}"));
        }
        settled = settled(stage, &key) => settled?,
    }
    settled(stage, &key).await?;
    let view = stage.stand_in.over(id).await;
    let (job, told) = look(stage, &key).await?;
    say(stage, order.name, &told.verdict);
    let worked = fs::read_to_string(&note).is_ok_and(|text| text.ends_with(CHECKSUM));
    Ok(JobOutcome { burst, order: *order, view, job, told, worked })
}

async fn look(stage: &ServiceStage<'_>, id: &JobId) -> Result<(Job, Explanation), Failure> {
    let found = explain::look(&stage.runtime.stack, id).await;
    let found = found.map_err(|fault| Failure::of("could not read the ledger", &fault))?;
    found.ok_or_else(|| super::failed(format!("job {id} is gone from the ledger")))
}

fn queue(stage: &ServiceStage<'_>, order: &DemoJob, number: usize, note: &Path) -> JobView {
    let late = |delay: Duration| {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        stage.stand_in.pull(|levers| levers.webhooks.delay_ms = delay);
    };
    if order.fate == ExpectedEnd::Takes {
        late(LATE);
    }
    let queued = stage.stand_in.submit(JobOrder {
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

/// Waits until a job is over and nothing is left to do about it.
async fn settled(stage: &ServiceStage<'_>, id: &JobId) -> Result<(), Failure> {
    loop {
        let job = explain::row(&stage.runtime.stack, id).await;
        match job.map_err(|fault| Failure::of("could not read the ledger", &fault))? {
            Some((_, Job { state: JobState::Ended { debts, .. }, .. })) if debts.is_settled() => {
                return Ok(());
            }
            _ => stage.clock.sleep(LOOK).await,
        }
    }
}

fn say(stage: &ServiceStage<'_>, who: &str, what: &str) {
    let elapsed = stage.clock.monotonic().as_secs_f64();
    render::talk(&format!("{elapsed:7.2} s  {who:<10} {what}"));
}
