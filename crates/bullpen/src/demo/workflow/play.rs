//! Runs the script: fulfils each request, runs its jobs, and releases its machines.
//!
//! Not here: the requests (`script`), or judging the outcome (`report`).

use std::fs;
use std::future::pending;
use std::path::Path;
use std::time::Duration;

use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use bullpen_engine::progress::ProgressEvent;
use bullpen_engine::provision::{Call, Provisioned, provision};
use bullpen_github::stand_in::StandIn;
use bullpen_github::stand_in::protocol::{Conclusion, JobOrder, JobView};
use futures_util::future::{join_all, try_join_all};

use super::script::{DemoRequest, RUNS, Run, Tiers};
use crate::demo::REPOSITORY;
use crate::demo::work::{CHECKSUM, JOB};
use crate::exit::Exit;
use crate::inputs::{CommonArgs, Environment, IdentityArgs, ProvisionArgs, ProvisionInputs};
use crate::render;
use crate::runtime::Runtime;
use crate::table;
use crate::workflow::Failure;
use crate::workflow::progress::Progress;
use crate::workflow::provision::{outputs, request};
use crate::workflow::release::release_one;
use crate::workflow::verify::{Verified, findings};

/// A runtime with its stand-in.
pub(super) struct WorkflowDemo<'a> {
    /// The runtime of the requests.
    pub(super) runtime: &'a Runtime,
    /// The stand-in for GitHub.
    pub(super) stand_in: &'a StandIn,
    /// The arguments of every request.
    pub(super) args: &'a CommonArgs,
    /// The directory of the jobs' notes.
    pub(super) place: &'a Path,
    /// The time since the demo's start.
    pub(super) clock: SystemClock,
}

/// The outcome of one request. Times count from its beginning to the last machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestOutcome {
    /// The name of its run.
    pub(super) run: &'static str,
    /// The request in the script.
    pub(super) wanted: DemoRequest,
    /// The sources of its machines.
    pub(super) tiers: Tiers,
    /// When every assignment was stored.
    pub(super) assigned: Duration,
    /// When the engine had seen every machine listen.
    pub(super) listening: Duration,
    /// When the first of its jobs started.
    pub(super) first_job: Duration,
    /// The number of jobs that did their work.
    pub(super) jobs: u32,
    /// The number of machines that are idle again.
    pub(super) returned: usize,
}

/// The outcome of the demo.
#[derive(Debug)]
pub(super) struct WorkflowOutcome {
    /// Every request, in order.
    pub(super) rows: Vec<RequestOutcome>,
    /// The number of records that `ledger verify` checked.
    pub(super) records: usize,
    /// The violations that it found.
    pub(super) violations: Vec<String>,
}

/// Runs the script, and verifies the ledger after it.
pub(super) async fn play(demo: &WorkflowDemo<'_>) -> Result<WorkflowOutcome, Failure> {
    let mut rows = Vec::new();
    for run in &RUNS {
        render::talk_page(&format!("\n{}", run.title));
        rows.extend(
            try_join_all(run.requests.iter().map(|wanted| fulfil(demo, run, wanted))).await?,
        );
    }
    let found = findings(&demo.runtime.stack, None).await;
    let Verified { records, violations, .. } =
        found.map_err(|fault| Failure::of("could not read the stack", &fault))?;
    let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
    render::talk_page(&format!(
        "\nledger verify: {}, {}",
        table::count(records, "record"),
        table::count(violations.len(), "violation")
    ));
    Ok(WorkflowOutcome { rows, records, violations })
}

/// Fulfils one request, runs its jobs, and releases its machines.
async fn fulfil(
    demo: &WorkflowDemo<'_>,
    run: &Run,
    wanted: &DemoRequest,
) -> Result<RequestOutcome, Failure> {
    let runtime = demo.runtime;
    let count = usize::try_from(wanted.count).unwrap_or(usize::MAX);
    let progress = Progress::of(&format!("{:<9}", wanted.id), count, demo.clock);
    let tell = |event: ProgressEvent| progress.show(&event);
    let inputs = ProvisionInputs::read(&args(demo, wanted), &Environment::new(), "")?;
    let request = request(&inputs, runtime, None)?;
    let began = demo.clock.monotonic();
    let (repository, is_untrusted) = (runtime.repository.as_ref(), Some(false));
    let call = Call { repository, is_untrusted, tell: &tell, ..Call::silent(&request) };
    let provisioned = Box::pin(provision(&runtime.stack, call, pending())).await;
    let provisioned = provisioned.map_err(|error| Failure::new(Exit::Failed, &error))?;
    let counts = outputs(&request, &provisioned);
    let tiers = Tiers { reused: counts.reused, started: counts.started, created: counts.created };
    let jobs =
        (0..wanted.count).map(|number| job(demo, wanted, &provisioned.label, number, &progress));
    let jobs = join_all(jobs).await;
    let released = release_one(runtime, &request.id, &tell).await?;
    let first = jobs.iter().map(|job| job.started).min().unwrap_or_default();
    let worked = jobs.iter().filter(|job| job.worked).count();
    let (assigned, listening) = slowest(&provisioned);
    Ok(RequestOutcome {
        run: run.name,
        wanted: *wanted,
        tiers,
        assigned,
        listening,
        first_job: first.saturating_sub(began),
        jobs: u32::try_from(worked).unwrap_or(u32::MAX),
        returned: released.returned.len(),
    })
}

fn args(demo: &WorkflowDemo<'_>, wanted: &DemoRequest) -> ProvisionArgs {
    ProvisionArgs {
        identity: IdentityArgs { request: Some(wanted.id.to_owned()), ..IdentityArgs::default() },
        count: Some(wanted.count.to_string()),
        usage_class: Some(wanted.usage.as_str().to_owned()),
        common: demo.args.clone(),
        ..ProvisionArgs::default()
    }
}

/// The times of the last assignment and of the last machine that listened.
fn slowest(provisioned: &Provisioned) -> (Duration, Duration) {
    let of = |time: fn(&bullpen_engine::provision::worker::HeldMachine) -> Duration| {
        provisioned.runners.iter().map(time).max().unwrap_or_default()
    };
    (of(|held| held.assigned), of(|held| held.ready))
}

/// The outcome of one job.
struct JobOutcome {
    started: Duration,
    worked: bool,
}

async fn job(
    demo: &WorkflowDemo<'_>,
    wanted: &DemoRequest,
    label: &str,
    number: u32,
    progress: &Progress,
) -> JobOutcome {
    let name = format!("job {}", number + 1);
    let note = demo.place.join(format!("{}-{number}", wanted.id));
    let order = JobOrder {
        repository: REPOSITORY.to_owned(),
        labels: vec![label.to_owned()],
        name: Some(name.clone()),
        // A request's machines serve only jobs of the same run.
        run_id: wanted.id.split('.').next().and_then(|run| run.parse().ok()),
        script: JOB.to_owned(),
        env: [("NOTE".to_owned(), note.display().to_string())].into(),
        ..JobOrder::default()
    };
    let id = demo.stand_in.submit(order).id;
    let view = demo.stand_in.started(id).await;
    let started = demo.clock.monotonic();
    progress.say(&format!("{name} runs on {}", view.runner.as_deref().unwrap_or("no runner")));
    let view = demo.stand_in.over(id).await;
    let written = fs::read_to_string(&note).unwrap_or_default();
    progress.say(&format!("{name} is over: {}, {written}", conclusion(&view)));
    let worked = view.conclusion == Some(Conclusion::Success) && written.ends_with(CHECKSUM);
    JobOutcome { started, worked }
}

fn conclusion(view: &JobView) -> &'static str {
    view.conclusion.map_or("nothing", Conclusion::as_str)
}
