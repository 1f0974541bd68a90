//! `bullpen demo`: the main job on this machine, from the first machine to the last one's end.
//!
//! The GitHub is the stand-in, in this process; the state is a new directory, and both are gone at
//! the end. Agents, runner programs and jobs are processes, as they always are with this engine.
//! Nothing is read from the environment but where programs are found and temporary files belong.
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
use crate::workflow::destroy::tear_down;
use crate::workflow::{Failure, fresh_name, run_command};

mod service;
mod work;
mod workflow;

/// Whose runs these are.
const REPOSITORY: &str = "acme/app";
/// The files that say what is wanted, as anybody would write them.
const RUNS_ON: &str = "runs-on.yml";
const BULLPEN: &str = "bullpen.toml";
/// Sockets lie below the state, and their paths have at most about a hundred bytes.
const TEMPORARY_BYTES_MAX: usize = 32;

/// What is shown, and how it is told.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Show three workflow runs without a service instead
    #[arg(long)]
    workflow: bool,
    /// Leave the service running for a look, until it is interrupted
    #[arg(long, conflicts_with = "workflow")]
    keep: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Shows it.
pub(crate) fn demo(args: &DemoArgs) -> Exit {
    run_command(async |environment| Box::pin(run(args, environment)).await)
}

async fn run(args: &DemoArgs, environment: &Environment) -> Result<Exit, Failure> {
    // Taken over before anything is begun, so that nothing is left behind.
    let mut signals = Signals::take_over().map_err(|error| Failure::new(Exit::Failed, &error))?;
    let place = make_place()?;
    let files: &[(&str, &str)] = if args.workflow {
        &[]
    } else {
        &[(RUNS_ON, service::CONFIGURATION), (BULLPEN, service::STACK)]
    };
    let opened = match open(&place, files, environment).await {
        Ok(opened) => opened,
        Err(failure) => {
            // Nothing was started; a directory that stays is the smaller of two troubles.
            let _ = fs::remove_dir_all(&place);
            return Err(failure);
        }
    };
    if args.workflow {
        workflow::show(args, &place, opened, &mut signals).await
    } else {
        service::show(args, &place, opened, &mut signals).await
    }
}

fn failed(what: String) -> Failure {
    Failure { exit: Exit::Failed, what, hint: None }
}

impl Failure {
    /// Both; the second one decides what to do about it.
    fn and(self, second: Self) -> Self {
        Self { what: format!("{}; {}", self.what, second.what), ..second }
    }
}

/// What this comes to; a panic is a failure like any other, so that everything is taken down.
async fn defect<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let caught = AssertUnwindSafe(Box::pin(future)).catch_unwind().await;
    caught.unwrap_or_else(|_| Err(failed("this is a defect".to_owned())))
}

/// A new directory with a short path, for this user only.
fn make_place() -> Result<PathBuf, Failure> {
    let temporary = std::env::temp_dir();
    let short = temporary.as_os_str().len() <= TEMPORARY_BYTES_MAX;
    let parent = if short { temporary } else { PathBuf::from("/tmp") };
    let place = parent.join(format!("bullpen-demo-{}", fresh_name()));
    let made = DirBuilder::new().mode(0o700).create(&place);
    made.map_err(|error| failed(format!("could not make {}: {error}", place.display())))?;
    Ok(place)
}

/// What is there before anything is shown.
struct Opened {
    runtime: Runtime,
    stand_in: StandIn,
    args: CommonArgs,
    inputs: CommonInputs,
    file: StackFile,
    clock: SystemClock,
}

async fn open(
    place: &Path,
    written: &[(&str, &str)],
    environment: &Environment,
) -> Result<Opened, Failure> {
    let clock = SystemClock::new();
    let address = ([127, 0, 0, 1], 0).into();
    let stand_in = StandIn::start(address, Options::new(fresh_secret()), Arc::new(clock)).await;
    let stand_in = stand_in.map_err(|error| Failure::new(Exit::Failed, &error))?;
    for (name, text) in written {
        write(&place.join(name), text)?;
    }
    let args = common(&stand_in, place, !written.is_empty());
    let inputs = CommonInputs::read(&args, &Environment::new())?;
    let mut file = files::stack(&inputs.stack, &Environment::new())?;
    // Its jobs are its own, and note their work beside its state.
    file.process_fleet.isolation = IsolationMode::None;
    let plan = RuntimePlan { common: &inputs, config: None, file: &file, environment };
    let runtime = runtime::build(&plan).await?;
    Ok(Opened { runtime, stand_in, args, inputs, file, clock })
}

fn state(place: &Path) -> PathBuf {
    place.join("state")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| failed(format!("could not write {}: {error}", path.display())))
}

/// What the commands would be told, and nothing that the environment says.
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

fn interrupted(ending: EndSignal) -> Failure {
    render::talk("interrupted: everything that was started ends now");
    Failure { exit: ending.exit(), what: "interrupted".to_owned(), hint: None }
}

/// Ends every machine, and removes what is left; answers how many there were.
async fn end(runtime: Runtime, place: &Path) -> Result<usize, Failure> {
    let state = state(place);
    let destroyed = Box::pin(tear_down(runtime, &state)).await.map_err(|failure| {
        let hint = format!("`bullpen destroy --yes --state {}` tries again", state.display());
        Failure { hint: Some(hint), ..failure }
    })?;
    let removed = fs::remove_dir_all(place);
    removed.map_err(|error| failed(format!("could not remove {}: {error}", place.display())))?;
    render::talk(&format!("{} machines ended, the state is removed", destroyed.machines.len()));
    Ok(destroyed.machines.len())
}
