//! `bullpen refresh`: brings the stack to its desired state, or shows the steps.
//!
//! Not here: the steps (`bullpen_engine::refresh`).

use std::time::Duration;

use bullpen_core::parameters::Parameters;
use bullpen_core::ports::Ports;
use bullpen_engine::Stack;
use bullpen_engine::advertise::AdvertMemory;
use bullpen_engine::refresh::dry_run::DryRun;
use bullpen_engine::refresh::{DesiredStack, StepReport, refresh as refresh_stack};
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

/// The default age at which kept tokens are replaced: half of their hour.
const TOKENS_EVERY: Duration = Duration::from_secs(30 * 60);

/// Runs `bullpen refresh`.
pub(crate) fn refresh(args: &RefreshArgs) -> Exit {
    run_command(async |environment| Box::pin(run(args, environment)).await)
}

async fn run(args: &RefreshArgs, environment: &Environment) -> Result<Exit, Failure> {
    let inputs = RefreshInputs::read(args, environment)?;
    for place in &inputs.unused {
        render::talk(&format!("{place}: not used; set it under [aws] or [images] of bullpen.toml"));
    }
    #[cfg(feature = "aws")]
    if inputs.dry_run && inputs.common.stack.engine == Engine::Aws {
        let Loaded { common, file } = load(&inputs.common, environment)?;
        let config = files::config(&common.stack)?;
        let plan =
            RuntimePlan { common: &common, config: config.as_ref(), file: &file, environment };
        if let Some(reports) = first_refresh::dry_run(&plan, inputs.classes.as_deref()).await? {
            return Ok(report(&inputs, &reports, &[]));
        }
    }
    execute(&inputs.common, environment, RefreshCommand { inputs: &inputs }).await
}

/// `bullpen refresh`, once its arguments are read.
struct RefreshCommand<'a> {
    inputs: &'a RefreshInputs,
}

impl Command for RefreshCommand<'_> {
    type Outcome = Result<Exit, Failure>;

    #[cfg(feature = "aws")]
    fn if_missing(&self) -> IfMissing {
        if self.inputs.dry_run { IfMissing::Refuse } else { IfMissing::Make }
    }

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let desired = desired(self.inputs, &runtime);
        let (steps, notes) = if self.inputs.dry_run {
            dry_run(&runtime, &desired).await
        } else {
            let steps = refresh_stack(&runtime.stack, &desired, &AdvertMemory::default()).await;
            (steps, Vec::new())
        };
        let mut reports = Vec::new();
        if self.inputs.common.stack.engine != Engine::Embedded {
            reports.push(StepReport { step: "tables", outcome: Ok(runtime.created) });
        }
        reports.extend(steps);
        Ok(report(self.inputs, &reports, &notes))
    }
}

/// Prints the steps and returns the exit code.
fn report(inputs: &RefreshInputs, reports: &[StepReport], notes: &[String]) -> Exit {
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
        are_classes_known: true,
        parameters,
        tokens_every: tokens_every(forge, inputs.token_refresh),
        reads_runs: forge.reads(),
        manages_runners: forge.manages(),
    }
}

/// The age at which kept tokens are replaced; `None` for a credential that cannot get any.
pub(crate) fn tokens_every(forge: &GithubAccess, given: Option<Duration>) -> Option<Duration> {
    forge.manages().then_some(given.unwrap_or(TOKENS_EVERY))
}

async fn dry_run<P: Ports>(
    runtime: &Runtime<P>,
    desired: &DesiredStack,
) -> (Vec<StepReport>, Vec<String>) {
    let stack = &runtime.stack;
    let ports = DryRun::new(&stack.ports);
    let (limits, ceilings) = (stack.limits.clone(), stack.ceilings.clone());
    let unwritten = Stack::new(ports, &stack.name, limits, ceilings, stack.spec_hash.clone());
    let reports = refresh_stack(&unwritten, desired, &AdvertMemory::default()).await;
    let notes = unwritten.ports.notes();
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
