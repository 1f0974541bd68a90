//! `bullpen destroy`: ends a stack and removes its state, and nothing else.
//!
//! Not here: ending its machines (`bullpen_engine::destroy`).

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

#[cfg(feature = "aws")]
mod aws;

/// How long processes may take to be gone, and how often it is looked.
const PROCESSES: Patience =
    Patience { within: Duration::from_secs(60), every: Duration::from_millis(200) };
/// What a state directory holds of ours. Anything else in it is somebody else's, and stays.
const OURS: [&str; 4] = ["ledger.db", "mailbox.db", "machines", "wake"];

/// How long machines may take to be gone.
#[derive(Clone, Copy, Debug)]
struct Patience {
    within: Duration,
    every: Duration,
}

/// What is destroyed.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DestroyArgs {
    /// Really do it: jobs that run there die
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Ends a stack.
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
        Engine::Embedded => Box::pin(of_files(&plan)).await?,
        #[cfg(feature = "aws")]
        Engine::Aws => Some(aws::destroy(&plan).await?),
    };
    if let Some(destroyed) = destroyed {
        show(common.stack.json, &destroyed);
    }
    Ok(Exit::Done)
}

/// A stack of this machine's files; nothing if there is none.
async fn of_files(plan: &RuntimePlan<'_>) -> Result<Option<Destroyed>, Failure> {
    let state = &plan.common.stack.state;
    if !state.exists() {
        render::talk(&format!("there is no state in {}", state.display()));
        return Ok(None);
    }
    let runtime = runtime::build(plan).await?;
    Box::pin(tear_down(runtime, state)).await.map(Some)
}

fn cannot_end(fault: &Fault) -> Failure {
    Failure::of("could not end everything", fault)
}

/// Ends every machine of a runtime of this host, waits until they are gone, and removes the runtime's state.
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
        let what = format!("every machine is gone, but not {}: {error}", state.display());
        Failure { exit: Exit::Failed, what, hint: None }
    })
}

/// Removes what is ours, and the directory if nothing else is in it.
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
        let told = json!({
            "machines": machines, "runners": runners, "runners_left": left, "removed": dismantled,
        });
        render::json(&told.to_string());
        return;
    }
    render::data(&format!("{} machines ended, {runners} runners deleted", machines.len()));
    for what in dismantled {
        render::data(what);
    }
    if *runners_left > 0 {
        render::talk(&format!(
            "{runners_left} runners are left at GitHub; it forgets them in time"
        ));
    }
}
