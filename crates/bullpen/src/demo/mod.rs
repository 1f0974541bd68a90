//! `bullpen demo`: shows the service or workflow runs on this machine, with real agents and jobs.
//!
//! GitHub is the stand-in in this process, and the state is a new directory; the demo removes both
//! at the end. Of the environment it reads only the search path and the temporary directory.
//!
//! Not here: the service and its jobs (`service`), or workflow runs without a service (`workflow`).

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bullpen_core::config::Stack as StackFile;
use bullpen_core::isolation::IsolationMode;
use bullpen_embedded::system::{SystemClock, fresh_secret};
use bullpen_github::stand_in::{Options, StandIn};
use futures_util::FutureExt as _;

use crate::exit::Exit;
use crate::inputs::{CommonArgs, CommonInputs, Environment, GithubArgs, StackArgs, files};
use crate::render;
use crate::runtime::{self, Runtime, RuntimePlan};
use crate::signals::{EndSignal, Signals};
use crate::table::count;
use crate::workflow::destroy::tear_down;
use crate::workflow::{Failure, fresh_name, run_command};

mod service;
mod work;
mod workflow;

/// The repository of all jobs.
const REPOSITORY: &str = "acme/app";
/// The configuration files, as a user would write them.
const RUNS_ON: &str = "runs-on.yml";
const BULLPEN: &str = "bullpen.toml";
/// The longest temporary directory: sockets lie in the state, and a socket's path has at most about
/// a hundred bytes.
const TEMPORARY_BYTES_MAX: usize = 32;

/// The demo to show, and the output.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Show three workflow runs without a service instead
    #[arg(long)]
    workflow: bool,
    /// Leave the service running until it is interrupted
    #[arg(long, conflicts_with = "workflow")]
    keep: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `bullpen demo`.
pub(crate) fn demo(args: &DemoArgs) -> Exit {
    run_command(async |environment| Box::pin(run(args, environment)).await)
}

async fn run(args: &DemoArgs, environment: &Environment) -> Result<Exit, Failure> {
    // Taken over before the demo starts anything, so that it always cleans up.
    let mut signals = Signals::take_over().map_err(|error| Failure::new(Exit::Failed, &error))?;
    let place = make_place()?;
    let files: &[(&str, &str)] = if args.workflow {
        &[]
    } else {
        &[(RUNS_ON, service::CONFIGURATION), (BULLPEN, service::STACK)]
    };
    let setup = match set_up(&place, files, environment).await {
        Ok(setup) => setup,
        Err(failure) => {
            // The demo has started no process; the first failure matters more than the directory.
            let _ = fs::remove_dir_all(&place);
            return Err(failure);
        }
    };
    if args.workflow {
        workflow::show(args, &place, setup, &mut signals).await
    } else {
        service::show(args, &place, setup, &mut signals).await
    }
}

fn failed(what: String) -> Failure {
    Failure { exit: Exit::Failed, what, hint: None }
}

impl Failure {
    /// Joins two failures; the exit code and the advice are the second one's.
    fn and(self, second: Self) -> Self {
        Self { what: format!("{}; {}", self.what, second.what), ..second }
    }
}

/// Turns a panic into a failure, so that the demo cleans up after it.
async fn catch_panic<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let caught = AssertUnwindSafe(Box::pin(future)).catch_unwind().await;
    caught.unwrap_or_else(|_| Err(failed("defect in bullpen".to_owned())))
}

/// Creates a directory with a short path, for this user only.
fn make_place() -> Result<PathBuf, Failure> {
    let temporary = std::env::temp_dir();
    let is_short = temporary.as_os_str().len() <= TEMPORARY_BYTES_MAX;
    let parent = if is_short { temporary } else { PathBuf::from("/tmp") };
    let place = parent.join(format!("bullpen-demo-{}", fresh_name()));
    let created = DirBuilder::new().mode(0o700).create(&place);
    created.map_err(|error| failed(format!("could not create {}: {error}", place.display())))?;
    Ok(place)
}

/// The stand-in, the runtime and the inputs of a demo.
struct DemoSetup {
    runtime: Runtime,
    stand_in: StandIn,
    args: CommonArgs,
    inputs: CommonInputs,
    file: StackFile,
    clock: SystemClock,
}

async fn set_up(
    place: &Path,
    files: &[(&str, &str)],
    environment: &Environment,
) -> Result<DemoSetup, Failure> {
    let clock = SystemClock::new();
    let address = ([127, 0, 0, 1], 0).into();
    let stand_in = StandIn::start(address, Options::new(fresh_secret()), Arc::new(clock)).await;
    let stand_in = stand_in.map_err(|error| Failure::new(Exit::Failed, &error))?;
    for (name, text) in files {
        write(&place.join(name), text)?;
    }
    let args = common(&stand_in, place, !files.is_empty());
    let inputs = CommonInputs::read(&args, &Environment::new())?;
    let mut file = files::stack(&inputs.stack, &Environment::new())?;
    // The demo's jobs are trusted, and they write notes beside its state.
    file.process_fleet.isolation = IsolationMode::None;
    let plan = RuntimePlan { common: &inputs, config: None, file: &file, environment };
    let runtime = runtime::build(&plan).await?;
    Ok(DemoSetup { runtime, stand_in, args, inputs, file, clock })
}

fn state(place: &Path) -> PathBuf {
    place.join("state")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| failed(format!("could not write {}: {error}", path.display())))
}

/// The arguments that a command would get, without any from the environment.
fn common(stand_in: &StandIn, place: &Path, has_files: bool) -> CommonArgs {
    let text = |path: PathBuf| path.display().to_string();
    let file = |name: &str| has_files.then(|| text(place.join(name)));
    CommonArgs {
        stack: StackArgs {
            state: Some(text(state(place))),
            config: file(RUNS_ON),
            stack: file(BULLPEN),
            ..StackArgs::default()
        },
        github: GithubArgs {
            repository: Some(REPOSITORY.to_owned()),
            api_url: Some(stand_in.url()),
            github_token: Some(stand_in.token().clone()),
            ..GithubArgs::default()
        },
    }
}

fn interrupted(signal: EndSignal) -> Failure {
    render::talk("interrupted: the demo ends its service, machines and jobs");
    Failure { exit: signal.exit(), what: "interrupted".to_owned(), hint: None }
}

/// Ends every machine and removes the demo's directory; returns the number of machines.
async fn end(runtime: Runtime, place: &Path) -> Result<usize, Failure> {
    let state = state(place);
    let destroyed = Box::pin(tear_down(runtime, &state)).await.map_err(|failure| {
        let hint = format!("`bullpen destroy --yes --state {}` tries again", state.display());
        Failure { hint: Some(hint), ..failure }
    })?;
    let removed = fs::remove_dir_all(place);
    removed.map_err(|error| failed(format!("could not remove {}: {error}", place.display())))?;
    let machines = count(destroyed.machines.len(), "machine");
    render::talk(&format!("{machines} ended, the state is removed"));
    Ok(destroyed.machines.len())
}
