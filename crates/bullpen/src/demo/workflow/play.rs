//! Going through the runs: each request is fulfilled, its jobs run, its machines go back.
//!
//! Not here: what is asked for (`script`), or whether it went as it should (`report`).

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
use crate::workflow::Failure;
use crate::workflow::progress::Progress;
use crate::workflow::provision::{outputs, request};
use crate::workflow::release::release_one;
use crate::workflow::verify::findings;

/// Everything that is there.
pub(super) struct WorkflowStage<'a> {
    /// The engine.
    pub(super) runtime: &'a Runtime,
    /// GitHub.
    pub(super) stand_in: &'a StandIn,
    /// What every request is told.
    pub(super) args: &'a CommonArgs,
    /// Where jobs leave notes.
    pub(super) place: &'a Path,
    /// Since when it goes on.
    pub(super) clock: SystemClock,
}

/// What came of one request. Times count from its beginning; of machines the last one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestOutcome {
    /// Which run, in a word.
    pub(super) run: &'static str,
    /// What was asked for.
    pub(super) ask: DemoRequest,
    /// How its machines were come by.
    pub(super) tiers: Tiers,
    /// When every assignment was stored.
    pub(super) assigned: Duration,
    /// When every machine was seen to listen.
    pub(super) listening: Duration,
    /// When the first of its jobs started.
    pub(super) first_job: Duration,
    /// How many jobs did their work.
    pub(super) jobs: u32,
    /// How many machines are idle again.
    pub(super) returned: usize,
}

/// What came of it all.
#[derive(Debug)]
pub(super) struct WorkflowOutcome {
    /// Every request, in order.
    pub(super) rows: Vec<RequestOutcome>,
    /// How many records `ledger verify` looks at.
    pub(super) records: usize,
    /// What it says about them.
    pub(super) violations: Vec<String>,
}

/// All runs, and a look at what they leave.
pub(super) async fn play(stage: &WorkflowStage<'_>) -> Result<WorkflowOutcome, Failure> {
    let mut rows = Vec::new();
    for run in &RUNS {
        render::talk_page(&format!("\n{}", run.title));
        rows.extend(try_join_all(run.asks.iter().map(|ask| serve(stage, run, ask))).await?);
    }
    let found = findings(&stage.runtime.stack).await;
    let (records, violations) =
        found.map_err(|fault| Failure::of("could not read the ledger", &fault))?;
    let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
    render::talk_page(&format!(
        "\nledger verify: {records} records, {} violations",
        violations.len()
    ));
    Ok(WorkflowOutcome { rows, records, violations })
}

/// One request's life.
async fn serve(
    stage: &WorkflowStage<'_>,
    run: &Run,
    ask: &DemoRequest,
) -> Result<RequestOutcome, Failure> {
    let runtime = stage.runtime;
    let wanted = usize::try_from(ask.count).unwrap_or(usize::MAX);
    let progress = Progress::of(&format!("{:<9}", ask.request), wanted, stage.clock);
    let tell = |told: ProgressEvent| progress.show(&told);
    let inputs = ProvisionInputs::read(&args(stage, ask), &Environment::new(), "")?;
    let request = request(&inputs, runtime, None)?;
    let began = stage.clock.monotonic();
    let (repository, is_untrusted) = (runtime.repository.as_ref(), Some(false));
    let call = Call { repository, is_untrusted, tell: &tell, ..Call::silent(&request) };
    let provisioned = Box::pin(provision(&runtime.stack, call, pending())).await;
    let provisioned = provisioned.map_err(|error| Failure::new(Exit::Failed, &error))?;
    let counts = outputs(&request, &provisioned);
    let tiers = Tiers { reused: counts.reused, started: counts.started, created: counts.created };
    let jobs = (0..ask.count).map(|number| job(stage, ask, &provisioned.label, number, &progress));
    let jobs = join_all(jobs).await;
    let released = release_one(runtime, &request.id, &tell).await?;
    let first = jobs.iter().map(|job| job.started).min().unwrap_or_default();
    let worked = jobs.iter().filter(|job| job.worked).count();
    let (assigned, listening) = slowest(&provisioned);
    Ok(RequestOutcome {
        run: run.word,
        ask: *ask,
        tiers,
        assigned,
        listening,
        first_job: first.saturating_sub(began),
        jobs: u32::try_from(worked).unwrap_or(u32::MAX),
        returned: released.returned.len(),
    })
}

fn args(stage: &WorkflowStage<'_>, ask: &DemoRequest) -> ProvisionArgs {
    ProvisionArgs {
        identity: IdentityArgs { request: Some(ask.request.to_owned()), ..IdentityArgs::default() },
        count: Some(ask.count.to_string()),
        usage_class: Some(ask.usage.as_str().to_owned()),
        common: stage.args.clone(),
        ..ProvisionArgs::default()
    }
}

/// When the last machine was assigned, and when the last one listened.
fn slowest(provisioned: &Provisioned) -> (Duration, Duration) {
    let of = |time: fn(&bullpen_engine::provision::worker::HeldMachine) -> Duration| {
        provisioned.runners.iter().map(time).max().unwrap_or_default()
    };
    (of(|held| held.assigned), of(|held| held.ready))
}

/// A job that is over.
struct Over {
    started: Duration,
    worked: bool,
}

async fn job(
    stage: &WorkflowStage<'_>,
    ask: &DemoRequest,
    label: &str,
    number: u32,
    progress: &Progress,
) -> Over {
    let name = format!("job {}", number + 1);
    let note = stage.place.join(format!("{}-{number}", ask.request));
    let order = JobOrder {
        repository: REPOSITORY.to_owned(),
        labels: vec![label.to_owned()],
        name: Some(name.clone()),
        // A request's machines are for the jobs of its own run.
        run_id: ask.request.split('.').next().and_then(|run| run.parse().ok()),
        script: JOB.to_owned(),
        env: [("NOTE".to_owned(), note.display().to_string())].into(),
        ..JobOrder::default()
    };
    let id = stage.stand_in.submit(order).id;
    let view = stage.stand_in.started(id).await;
    let started = stage.clock.monotonic();
    progress.say(&format!("{name} runs on {}", view.runner.as_deref().unwrap_or("no runner")));
    let view = stage.stand_in.over(id).await;
    let written = fs::read_to_string(&note).unwrap_or_default();
    progress.say(&format!("{name} is over: {}, {written}", conclusion(&view)));
    let worked = view.conclusion == Some(Conclusion::Success) && written.ends_with(CHECKSUM);
    Over { started, worked }
}

fn conclusion(view: &JobView) -> &'static str {
    view.conclusion.map_or("nothing", Conclusion::as_str)
}
