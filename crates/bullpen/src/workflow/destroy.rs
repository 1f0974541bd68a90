//! `bullpen destroy`: ends a stack and removes its state, and nothing else.
//!
//! Not here: ending its machines (`bullpen_engine::destroy`).

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use bullpen_core::ports::Ports;
use bullpen_engine::destroy::{Destroyed, destroy as end_everything};
use serde_json::json;

use super::{Failure, told, visit};
use crate::exit::Exit;
use crate::house::{Door, Errand, House};
use crate::inputs::{CommonArgs, CommonInputs, Environment};
use crate::render;

/// How long machines may take to be gone.
const WITHIN: Duration = Duration::from_secs(60);
/// What a state directory holds of ours. Anything else in it is somebody else's, and stays.
const OURS: [&str; 4] = ["ledger.db", "mailbox.db", "machines", "wake"];

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
    told(async |environment| run(args, environment).await)
}

async fn run(args: &DestroyArgs, environment: &Environment) -> Result<Exit, Failure> {
    let common = CommonInputs::read(&args.common, environment)?;
    let state = &common.stack.state;
    if !args.yes {
        let what = format!("--yes: not given; it ends every machine of {}", state.display());
        return Err(Failure { exit: Exit::Usage, what, hint: None });
    }
    if !state.exists() {
        render::talk(&format!("there is no state in {}", state.display()));
        return Ok(Exit::Done);
    }
    let destroyed = visit(&common, environment, TearingDown { state }).await?;
    show(common.stack.json, &destroyed);
    Ok(Exit::Done)
}

/// A stack that is about to go.
struct TearingDown<'a> {
    state: &'a Path,
}

impl Errand for TearingDown<'_> {
    type Outcome = Result<Destroyed, Failure>;

    async fn run<P: Ports<Forge = Door>>(self, house: House<P>) -> Self::Outcome {
        tear_down(house, self.state).await
    }
}

/// Ends every machine of a house, waits until they are gone, and removes the house's state.
pub(crate) async fn tear_down<P: Ports>(
    house: House<P>,
    state: &Path,
) -> Result<Destroyed, Failure> {
    let until = house.stack.now().after(WITHIN);
    let destroyed = end_everything(&house.stack, until).await;
    let destroyed = destroyed.map_err(|fault| Failure::of("could not end everything", &fault))?;
    drop(house);
    remove(state).map_err(|error| {
        let what = format!("every machine is gone, but not {}: {error}", state.display());
        Failure { exit: Exit::Failed, what, hint: None }
    })?;
    Ok(destroyed)
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
        render::data(&told.to_string());
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
