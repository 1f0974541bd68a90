//! `bullpen provision`: gets machines for a workflow and prints their label.
//!
//! Not here: claiming and launching machines (`bullpen_engine::provision`).

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bullpen_core::config::Config;
use bullpen_core::ids::{ClassName, InstanceId, Repository, RunnerGroup, TrustGroup};
use bullpen_core::job::OnlyUnused;
use bullpen_core::ports::Ports;
use bullpen_core::request::Request;
use bullpen_engine::progress::ProgressEvent;
use bullpen_engine::provision::creation::CreationError;
use bullpen_engine::provision::entry::CannotBegin;
use bullpen_engine::provision::undo::{Abandoned, dump};
use bullpen_engine::provision::worker::{AcquiredBy, HeldMachine};
use bullpen_engine::provision::{Call, ProvisionError, Provisioned, Timings, provision as fulfil};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::progress::Progress;
use super::{Failure, Loaded, exit_of, fresh_name, load, run_command};
use crate::exit::Exit;
use crate::inputs::{
    self, CommonInputs, Environment, OutputFiles, ProvisionArgs, ProvisionInputs, Scope,
    UsageError, files,
};
use crate::render;
use crate::runtime::{self, Command, GithubAccess, Runtime, RuntimePlan};
use crate::signals::{EndSignal, Signals};
use crate::table::count;

/// The trust group of requests without a scope.
const LOCAL: &str = "local";

/// Runs `bullpen provision`.
pub(crate) fn provision(args: &ProvisionArgs) -> Exit {
    run_command(async |environment| Box::pin(run(args, environment)).await)
}

async fn run(args: &ProvisionArgs, environment: &Environment) -> Result<Exit, Failure> {
    // Taken over before the request begins, so that the command misses no cancellation.
    let signals = Signals::take_over().map_err(|error| Failure::new(Exit::Failed, &error))?;
    let mut inputs = ProvisionInputs::read(args, environment, &fresh_name())?;
    let Loaded { common, file } = load(&inputs.common, environment)?;
    runtime::require_ceiling(&file, &common.stack)?;
    let config = files::config(&common.stack)?;
    inputs.common = common.clone();
    let config = config.as_ref();
    let plan = RuntimePlan { common: &common, config, file: &file, environment };
    runtime::run(&plan, ProvisionCommand { inputs, config, environment, signals }).await?
}

/// `bullpen provision`, once its arguments are read.
struct ProvisionCommand<'a> {
    inputs: ProvisionInputs,
    config: Option<&'a Config>,
    environment: &'a Environment,
    signals: Signals,
}

impl Command for ProvisionCommand<'_> {
    type Outcome = Result<Exit, Failure>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, mut runtime: Runtime<P>) -> Self::Outcome {
        let ProvisionCommand { mut inputs, config, environment, signals } = self;
        if inputs.machine.table.is_empty() {
            inputs.machine.table = runtime.parameters.classes.clone().unwrap_or_default();
        }
        if let Some(max_runtime) = inputs.max_runtime {
            runtime.stack.limits.max_runtime_workflow = max_runtime;
        }
        // Wrong inputs are refused before missing inputs.
        let is_untrusted = has_untrusted_code(environment, config);
        let only_unused = is_untrusted.then_some(OnlyUnused::UntrustedCode);
        let request = Request { only_unused, ..request(&inputs, &runtime, config)? };
        require_scope_and_program(&inputs.common)?;
        require_lasting_credential(&inputs, &runtime)?;
        let workflow = environment.get("GITHUB_REPOSITORY").map(String::as_str);
        let scope = inputs.common.github.scope.as_ref();
        let group = config.map(|config| group(scope, workflow, &request.class.name, config));
        let group = group.transpose()?.flatten();
        warn_of_a_shared_runner(environment);
        let files = OutputFiles::of(environment);
        files.begin(&request.id).map_err(|error| cannot_write(&error))?;
        let repository = runtime.repository.as_ref();
        let is_untrusted = Some(is_untrusted);
        let call = Call { repository, is_untrusted, group, ..Call::silent(&request) };
        let provisioned = Box::pin(carry_out(&runtime, call, &files, signals)).await?;
        let outputs = outputs(&request, &provisioned);
        files.finish(&outputs).map_err(|error| cannot_write(&error))?;
        show(&inputs, &outputs, &provisioned, in_a_workflow(environment));
        Ok(Exit::Done)
    }
}

/// The request that the inputs describe.
pub(crate) fn request<P: Ports>(
    inputs: &ProvisionInputs,
    runtime: &Runtime<P>,
    config: Option<&Config>,
) -> Result<Request, UsageError> {
    let machine = inputs.machine.machine(config)?;
    let deadline = inputs.deadline.unwrap_or(runtime.stack.limits.request_deadline);
    let built_from = runtime.stack.built(&machine.class);
    Ok(Request {
        id: inputs.request.clone(),
        incarnation: 0,
        class: machine.class,
        count: inputs.count,
        usage: machine.usage,
        allowed_types: machine.allowed_types,
        trust: trust(inputs),
        deadline: runtime.stack.now().after(deadline),
        on_partial: inputs.on_partial,
        on_demand_fallback: inputs.on_demand_fallback,
        spec_hash: Some(built_from),
        ephemeral: inputs.ephemeral,
        only_unused: None,
    })
}

/// The runner group that is configured for the workflow's repository, else for the class, else for
/// all repositories.
fn group<'c>(
    scope: Option<&Scope>,
    workflow: Option<&str>,
    class: &ClassName,
    config: &'c Config,
) -> Result<Option<&'c RunnerGroup>, UsageError> {
    let repository = match scope {
        Some(Scope::Repository(repository)) => repository.clone(),
        Some(Scope::Organisation(_)) | None => Repository::new(workflow.unwrap_or_default()),
    };
    let of_class = config.runners.get(class).and_then(|runner| runner.group.as_ref());
    let group = config.labels.groups.of(&repository, None, of_class);
    match (scope, group) {
        (Some(Scope::Repository(_)), Some(group)) => Err(UsageError::new(format!(
            "--repository: a repository has no runner groups, and `group: {group}` is configured; give \
             an organisation, or leave the group out"
        ))),
        _ => Ok(group),
    }
}

/// Refuses inputs without a scope or a runner program: no machine can be launched without them, and
/// idle machines may not be enough.
fn require_scope_and_program(common: &CommonInputs) -> Result<(), UsageError> {
    if common.github.scope.is_none() {
        let line = "--repository: not given; give OWNER/NAME, or an organisation";
        return Err(UsageError::new(line));
    }
    runtime::require_runner_program(common)
}

/// Refuses ephemeral runners without a lasting credential: each job uses up a runner, and only such
/// a credential can register another after this step has ended.
fn require_lasting_credential<P: Ports<Forge = GithubAccess>>(
    inputs: &ProvisionInputs,
    runtime: &Runtime<P>,
) -> Result<(), Failure> {
    if !inputs.ephemeral || runtime.stack.ports.forge().manages() {
        return Ok(());
    }
    Err(Failure {
        exit: Exit::Usage,
        what: String::from("--ephemeral: needs a credential that outlives this step"),
        hint: Some(String::from(
            "give --app-id and --app-key, or INPUT_GITHUB-TOKEN with a personal access token; tokens \
             that refresh keeps, and the workflow's own GITHUB_TOKEN, are not enough",
        )),
    })
}

/// Whether this command's workflow runs untrusted code. Outside of a workflow a person runs the
/// command, and that person's code is trusted.
fn has_untrusted_code(environment: &Environment, config: Option<&Config>) -> bool {
    if !in_a_workflow(environment) {
        return false;
    }
    let rules = config.map(|config| config.code.clone()).unwrap_or_default();
    let origin = inputs::origin_of_run(environment, |path| std::fs::read_to_string(path).ok());
    if origin.is_none() {
        render::warning(
            "GitHub's variables do not show whose code this run has: it gets unused machines, and \
             they end with it",
            true,
        );
    }
    origin.is_none_or(|origin| !rules.trusts(origin))
}

fn in_a_workflow(environment: &Environment) -> bool {
    environment.get("GITHUB_ACTIONS").is_some_and(|value| value == "true")
}

/// Warns if this job runs on a self-hosted runner: other workflows on that runner could read the
/// credential.
fn warn_of_a_shared_runner(environment: &Environment) {
    let is_shared = environment.get("RUNNER_ENVIRONMENT").is_some_and(|it| it == "self-hosted");
    if in_a_workflow(environment) && is_shared {
        render::warning(
            "this job has the credential that registers runners, and runs on a self-hosted runner: \
             if other workflows can use that runner, their code can read the credential",
            in_a_workflow(environment),
        );
    }
}

fn trust(inputs: &ProvisionInputs) -> TrustGroup {
    match &inputs.common.github.scope {
        Some(Scope::Repository(repository)) => TrustGroup::new(repository.as_str()),
        Some(Scope::Organisation(name)) => TrustGroup::new(name),
        None => TrustGroup::new(LOCAL),
    }
}

fn cannot_write(error: &std::io::Error) -> Failure {
    let what = format!("could not write GITHUB_OUTPUT: {error}");
    Failure { exit: Exit::Failed, what, hint: None }
}

async fn carry_out<P: Ports>(
    runtime: &Runtime<P>,
    call: Call<'_>,
    files: &OutputFiles,
    mut signals: Signals,
) -> Result<Provisioned, Failure> {
    let request = call.request;
    let progress = Progress::new(usize::try_from(request.count).unwrap_or(usize::MAX));
    let tell = |event| match &event {
        // If this write fails, `finish` writes the label again and reports the error.
        ProgressEvent::Begun { label } => drop(files.begun(label)),
        _ => progress.show(&event),
    };
    let call = Call { tell: &tell, ..call };
    let mut cancelled_by = None;
    let cancelled = async { cancelled_by = Some(signals.next().await) };
    let work = Box::pin(fulfil(&runtime.stack, call, cancelled));
    let work = AssertUnwindSafe(work).catch_unwind().await;
    match work {
        Ok(Ok(provisioned)) => Ok(provisioned),
        Ok(Err(ProvisionError::Cancelled(abandoned))) => {
            let exit = cancelled_by.map_or(Exit::Interrupted, EndSignal::exit);
            Err(cancelled_with(exit, &abandoned))
        }
        Ok(Err(error)) => Err(Failure::new(exit_code(&error), &error)),
        Err(_panic) => Err(end_after_panic(runtime, request).await),
    }
}

fn cancelled_with(exit: Exit, abandoned: &Abandoned) -> Failure {
    let (returning, ending) = (abandoned.returning.len(), abandoned.ending.len());
    let what = format!("cancelled: {returning} machines go back, {ending} end");
    let hint = "`bullpen release` or the next `bullpen refresh` finishes the cancellation";
    Failure { exit, what, hint: Some(hint.to_owned()) }
}

/// Ends every machine of the request and names them. The panic has printed its own message.
async fn end_after_panic<P: Ports>(runtime: &Runtime<P>, request: &Request) -> Failure {
    let what = match dump(&runtime.stack, &request.id).await {
        Ok(ids) => {
            let ids: Vec<&str> = ids.iter().map(InstanceId::as_str).collect();
            format!("defect in bullpen; the request's machines are ended: {}", ids.join(" "))
        }
        Err(fault) => format!("defect in bullpen; could not end the request's machines: {fault}"),
    };
    let hint = "`bullpen status` shows the remaining machines; please report the message above";
    Failure { exit: Exit::Failed, what, hint: Some(hint.to_owned()) }
}

fn exit_code(error: &ProvisionError) -> Exit {
    match error {
        ProvisionError::CannotBegin(CannotBegin::Store(fault))
        | ProvisionError::NoCredential(fault)
        | ProvisionError::Closed(fault)
        | ProvisionError::Creation { source: CreationError::Port { source: fault, .. }, .. } => {
            exit_of(fault)
        }
        ProvisionError::CannotBegin(_) => Exit::Usage,
        ProvisionError::Short { .. }
        | ProvisionError::Creation { source: CreationError::Ceiling(_), .. } => Exit::NoCapacity,
        ProvisionError::Unfit { .. } | ProvisionError::Superseded => Exit::Failed,
        ProvisionError::Cancelled(_) => Exit::Interrupted,
    }
}

/// The outputs of a fulfilled request.
pub(crate) fn outputs(request: &Request, provisioned: &Provisioned) -> inputs::Provisioned {
    let of = |how| {
        let count = provisioned.runners.iter().filter(|held| held.how == how).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    inputs::Provisioned {
        request: request.id.clone(),
        label: provisioned.label.clone(),
        requested: request.count,
        reused: of(AcquiredBy::Reused),
        started: of(AcquiredBy::Started),
        created: of(AcquiredBy::Created),
        instances: provisioned.runners.iter().map(|held| held.record.id.clone()).collect(),
        timings: timings(&provisioned.timings),
    }
}

fn timings(timings: &Timings) -> Vec<(String, Duration)> {
    let Timings { beginning, credential, selection, creation, waiting, total } = *timings;
    [
        ("credential", credential),
        ("beginning", beginning),
        ("selection", selection),
        ("creation", creation),
        ("waiting", waiting),
        ("total", total),
    ]
    .map(|(name, took)| (name.to_owned(), took))
    .to_vec()
}

/// A duration in milliseconds, rounded to the microsecond.
pub(crate) fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

fn instance(held: &HeldMachine) -> Value {
    let facts = &held.record.facts;
    json!({
        "id": held.record.id,
        "how": match held.how {
            AcquiredBy::Reused => "reused",
            AcquiredBy::Started => "started",
            AcquiredBy::Created => "created",
        },
        "type": facts.instance_type,
        "zone": facts.zone,
        "usage": facts.usage,
        "generation": held.record.generation,
        "assigned_ms": millis(held.assigned),
        "ready_ms": millis(held.ready),
    })
}

/// Prints the result. In a workflow the label is only an output: all readers of the repository can
/// read the log, and a masked value cannot be an output between jobs.
fn show(
    inputs: &ProvisionInputs,
    outputs: &inputs::Provisioned,
    provisioned: &Provisioned,
    in_a_workflow: bool,
) {
    if !inputs.common.stack.json {
        let shown = if in_a_workflow { outputs.request.as_str() } else { &outputs.label };
        render::data(shown);
        let inputs::Provisioned { reused, started, created, .. } = outputs;
        let total = provisioned.timings.total.as_secs_f64();
        render::talk(&format!(
            "{} in {total:.2} s: {reused} reused, {started} started, {created} created",
            count(outputs.requested, "machine")
        ));
        return;
    }
    let timings: serde_json::Map<String, Value> = outputs
        .timings
        .iter()
        .map(|(name, took)| (format!("{name}_ms"), json!(millis(*took))))
        .collect();
    let instances: Vec<Value> = provisioned.runners.iter().map(instance).collect();
    render::json(
        &json!({
            "request": outputs.request,
            "label": outputs.label,
            "requested": outputs.requested,
            "reused": outputs.reused,
            "started": outputs.started,
            "created": outputs.created,
            "instances": instances,
            "timings": timings,
        })
        .to_string(),
    );
}

#[cfg(test)]
mod tests {
    use bullpen_core::config::runs_on;

    use super::*;

    #[test]
    fn a_requests_runners_join_the_group_of_their_repository_or_class() {
        let text = "runners:\n  large: {cpu: 2}\n  small: {cpu: 1}\nx-bullpen:\n  labels:\n    \
                    group: all\n    repositories:\n      acme/app: {group: own}\n  runners:\n    \
                    large: {group: builders}\n";
        let config = runs_on::read(text.as_bytes()).value().expect("it is good").clone();
        let acme = Scope::Organisation("acme".to_owned());
        let of = |workflow, class: &str| {
            let group = group(Some(&acme), workflow, &ClassName::new(class), &config);
            group.expect("an organisation has groups").map(RunnerGroup::as_str)
        };
        assert_eq!(of(Some("Acme/App"), "large"), Some("own"));
        assert_eq!(of(Some("acme/other"), "large"), Some("builders"));
        assert_eq!(of(None, "small"), Some("all"));
        let repository = Scope::Repository(Repository::new("acme/other"));
        let large = ClassName::new("large");
        let refused = group(Some(&repository), None, &large, &config).expect_err("it has none");
        assert!(refused.to_string().contains("group: builders"), "{refused}");
        assert_eq!(group(Some(&repository), None, &large, &Config::default()), Ok(None));
    }
}
