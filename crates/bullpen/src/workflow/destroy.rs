//! `bullpen destroy`: ends a stack's machines and removes its state, and nothing else.
//!
//! Not here: ending the machines (`bullpen_engine::destroy`).

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use bullpen_core::ports::{Fault, Ports};
use bullpen_engine::destroy::{Destroyed, destroy as end_everything};
use serde_json::json;

use super::{Failure, Loaded, load, run_command};
use crate::exit::Exit;
use crate::inputs::{CommonArgs, CommonInputs, Engine, Environment, files};
use crate::render;
use crate::runtime::{self, Runtime, RuntimePlan};
use crate::table::count;

#[cfg(feature = "aws")]
mod aws;

/// The wait for machines that are processes.
const PROCESSES: Wait = Wait { within: Duration::from_secs(60), every: Duration::from_millis(200) };
/// Our entries of a state directory. `destroy` leaves every other entry alone.
const OURS: [&str; 5] = ["ledger.db", "mailbox.db", "machines", "wake", runtime::OWNER_FILE];

/// How long to wait until machines are gone, and how often to check.
#[derive(Clone, Copy, Debug)]
struct Wait {
    within: Duration,
    every: Duration,
}

/// The stack to destroy.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DestroyArgs {
    /// Confirm: running jobs die
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Runs `bullpen destroy`.
pub(crate) fn destroy(args: &DestroyArgs) -> Exit {
    run_command(async |environment| Box::pin(run(args, environment)).await)
}

async fn run(args: &DestroyArgs, environment: &Environment) -> Result<Exit, Failure> {
    let common = CommonInputs::read(&args.common, environment)?;
    let Loaded { common, file } = load(&common, environment)?;
    if !args.yes {
        let would = match common.stack.engine {
            Engine::Embedded => format!("ends every machine of {}", common.stack.state.display()),
            #[cfg(feature = "aws")]
            Engine::Aws => aws::would(&common.stack, &file.name),
        };
        let what = format!("--yes: not given; it {would}");
        return Err(Failure { exit: Exit::Usage, what, hint: None });
    }
    let config = files::config(&common.stack)?;
    let plan = RuntimePlan { common: &common, config: config.as_ref(), file: &file, environment };
    let destroyed = match common.stack.engine {
        Engine::Embedded => Box::pin(destroy_embedded(&plan)).await?,
        #[cfg(feature = "aws")]
        Engine::Aws => Some(aws::destroy(&plan).await?),
    };
    if let Some(destroyed) = destroyed {
        show(common.stack.json, &destroyed);
    }
    Ok(Exit::Done)
}

/// Destroys a stack in files of this machine; `None` if there is none.
async fn destroy_embedded(plan: &RuntimePlan<'_>) -> Result<Option<Destroyed>, Failure> {
    let state = &plan.common.stack.state;
    if !state.exists() {
        render::talk(&format!("there is no state in {}", state.display()));
        return Ok(None);
    }
    let runtime = runtime::build(plan).await?;
    Box::pin(tear_down(runtime, state)).await.map(Some)
}

fn cannot_end(fault: &Fault) -> Failure {
    Failure::of("could not end every machine", fault)
}

/// Ends every machine of a runtime on this host, waits until they are gone, and removes the state.
pub(crate) async fn tear_down<P: Ports>(
    runtime: Runtime<P>,
    state: &Path,
) -> Result<Destroyed, Failure> {
    let until = runtime.stack.now().after(PROCESSES.within);
    let destroyed = end_everything(&runtime.stack, until, PROCESSES.every).await;
    let destroyed = destroyed.map_err(|fault| cannot_end(&fault))?;
    drop(runtime);
    remove_state(state)?;
    Ok(destroyed)
}

fn remove_state(state: &Path) -> Result<(), Failure> {
    remove(state).map_err(|error| {
        let what = format!("every machine is gone, but {} is not: {error}", state.display());
        Failure { exit: Exit::Failed, what, hint: None }
    })
}

/// Removes our entries, and then the directory if it is empty.
fn remove(state: &Path) -> io::Result<()> {
    for entry in fs::read_dir(state)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let ours = OURS.iter().any(|ours| name == *ours || name.starts_with(&format!("{ours}-")));
        if !ours {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    match fs::remove_dir(state) {
        Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
        _ => Ok(()),
    }
}

fn show(json: bool, destroyed: &Destroyed) {
    let Destroyed { machines, runners, runners_left, dismantled } = destroyed;
    if json {
        let left = runners_left;
        let object = json!({
            "machines": machines, "runners": runners, "runners_left": left, "removed": dismantled,
        });
        render::json(&object.to_string());
        return;
    }
    let (machines, runners) = (count(machines.len(), "machine"), count(*runners, "runner"));
    render::data(&format!("{machines} ended, {runners} deleted"));
    for what in dismantled {
        render::data(what);
    }
    if *runners_left > 0 {
        let left = count(*runners_left, "runner");
        render::talk(&format!("{left} left at GitHub, which deletes what is left after a while"));
    }
}
