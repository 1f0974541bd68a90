//! `bullpen refresh`.
//!
//! Not here: the steps (`bullpen_engine::refresh`).

use std::time::Duration;

use bullpen_core::parameters::Parameters;
use bullpen_core::ports::Ports;
use bullpen_engine::Stack;
use bullpen_engine::advertise::AdvertMemory;
use bullpen_engine::refresh::dry_run::DryRun;
use bullpen_engine::refresh::{DesiredStack, StepReport, refresh as put_in_order};
use serde_json::json;

use super::{Failure, execute, run_command};
#[cfg(feature = "aws")]
use super::{Loaded, load};
use crate::exit::Exit;
#[cfg(feature = "aws")]
use crate::inputs::files;
use crate::inputs::{Engine, Environment, RefreshArgs, RefreshInputs};
use crate::render;
use crate::runtime::{Command, GithubAccess, Runtime};
#[cfg(feature = "aws")]
use crate::runtime::{IfMissing, RuntimePlan, first_refresh};

/// How old kept tokens become where nobody says: half of their hour.
const TOKENS_EVERY: Duration = Duration::from_secs(30 * 60);

/// Brings the stack in order.
pub(crate) fn refresh(args: &RefreshArgs) -> Exit {
    run_command(async |environment| Box::pin(run(args, environment)).await)
}

async fn run(args: &RefreshArgs, environment: &Environment) -> Result<Exit, Failure> {
    let inputs = RefreshInputs::read(args, environment)?;
    for place in &inputs.unused {
        render::talk(&format!("{place}: not used here; [aws] and [images] of bullpen.toml say it"));
    }
    #[cfg(feature = "aws")]
    if inputs.dry_run && inputs.common.stack.engine == Engine::Aws {
        let Loaded { common, file } = load(&inputs.common, environment)?;
        let config = files::config(&common.stack)?;
        let plan =
            RuntimePlan { common: &common, config: config.as_ref(), file: &file, environment };
        if let Some(reports) = first_refresh::dry_run(&plan, inputs.classes.as_deref()).await? {
            return Ok(told_of(&inputs, &reports, &[]));
        }
    }
    execute(&inputs.common, environment, PuttingInOrder { inputs: &inputs }).await
}

/// A stack that is about to be put in order.
struct PuttingInOrder<'a> {
    inputs: &'a RefreshInputs,
}

impl Command for PuttingInOrder<'_> {
    type Outcome = Result<Exit, Failure>;

    #[cfg(feature = "aws")]
    fn if_missing(&self) -> IfMissing {
        if self.inputs.dry_run { IfMissing::Refuse } else { IfMissing::Make }
    }

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let desired = desired(self.inputs, &runtime);
        let (steps, notes) = if self.inputs.dry_run {
            rehearse(&runtime, &desired).await
        } else {
            (put_in_order(&runtime.stack, &desired, &mut AdvertMemory::default()).await, Vec::new())
        };
        let mut reports = Vec::new();
        if self.inputs.common.stack.engine != Engine::Embedded {
            reports.push(StepReport { step: "tables", outcome: Ok(runtime.made) });
        }
        reports.extend(steps);
        Ok(told_of(self.inputs, &reports, &notes))
    }
}

/// Tells what came of it.
fn told_of(inputs: &RefreshInputs, reports: &[StepReport], notes: &[String]) -> Exit {
    show(inputs, reports, notes);
    let failed = reports.iter().any(|report| report.outcome.is_err());
    if failed { Exit::Failed } else { Exit::Done }
}

fn desired<P: Ports<Forge = GithubAccess>>(
    inputs: &RefreshInputs,
    runtime: &Runtime<P>,
) -> DesiredStack {
    let parameters = Parameters {
        idle_time_s: inputs.idle_time.map(|time| time.as_secs()),
        max_runtime_min: inputs.max_runtime.map(|time| time.as_secs() / 60),
        pre_runner_script: inputs.pre_runner_script.clone(),
        classes: inputs.classes.clone(),
        runner_version: inputs.runner_version.clone(),
    };
    let forge = runtime.stack.ports.forge();
    DesiredStack {
        classes: inputs.classes.clone().unwrap_or_else(|| runtime.classes.clone()),
        parameters,
        tokens_every: tokens_every(forge, inputs.token_refresh),
        reads_runs: forge.reads(),
        manages_runners: forge.manages(),
    }
}

/// How old kept tokens may become; none are kept by whoever cannot get any.
pub(crate) fn tokens_every(forge: &GithubAccess, said: Option<Duration>) -> Option<Duration> {
    forge.manages().then_some(said.unwrap_or(TOKENS_EVERY))
}

async fn rehearse<P: Ports>(
    runtime: &Runtime<P>,
    desired: &DesiredStack,
) -> (Vec<StepReport>, Vec<String>) {
    let stack = &runtime.stack;
    let rehearsal = DryRun::new(&stack.ports);
    let (limits, ceilings) = (stack.limits.clone(), stack.ceilings.clone());
    let stage = Stack::new(rehearsal, &stack.name, limits, ceilings, stack.spec_hash.clone());
    let reports = put_in_order(&stage, desired, &mut AdvertMemory::default()).await;
    let notes = stage.ports.notes();
    (reports, notes)
}

fn show(inputs: &RefreshInputs, reports: &[StepReport], notes: &[String]) {
    if inputs.common.stack.json {
        let steps: Vec<_> = reports
            .iter()
            .map(|report| match &report.outcome {
                Ok(done) => json!({"step": report.step, "done": done}),
                Err(why) => json!({"step": report.step, "failed": why}),
            })
            .collect();
        let (dry_run, would) = (inputs.dry_run, notes);
        render::json(&json!({"dry_run": dry_run, "steps": steps, "would": would}).to_string());
        return;
    }
    for report in reports {
        let what = match &report.outcome {
            Ok(done) if done.is_empty() => "as it should be".to_owned(),
            Ok(done) => done.join("; "),
            Err(why) => format!("FAILED: {why}"),
        };
        let verb = if inputs.dry_run { "would: " } else { "" };
        render::data(&format!("{:<12} {verb}{what}", report.step));
    }
    for note in notes {
        render::talk(&format!("would write {note}"));
    }
}
