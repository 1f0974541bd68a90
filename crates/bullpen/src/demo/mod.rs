//! `bullpen demo`: three workflow runs on this machine, from the first machine to the last one's end.
//!
//! The GitHub is the stand-in, in this process; the state is a new directory, and both are gone at
//! the end. Agents, runner programs and jobs are processes, as they always are with this engine.
//! Nothing is read from the environment but where programs are found and temporary files belong.
//!
//! Not here: what the runs are (`script`), going through them (`play`), or telling (`report`).

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::{Options, StandIn};
use futures_util::FutureExt as _;

use crate::exit::Exit;
use crate::house::{self, House, Plans};
use crate::inputs::{CommonArgs, CommonInputs, Environment, GithubArgs, StackArgs, files};
use crate::render;
use crate::signals::{Ending, Signals};
use crate::workflow::destroy::tear_down;
use crate::workflow::{Failure, fresh_name, told};

mod play;
mod report;
mod script;

use report::Report;

/// Whose runs these are.
const REPOSITORY: &str = "acme/app";
/// The stand-in takes any token.
const TOKEN: &str = "ghp_of_the_demo";
/// All runs together. They take a quarter of it, unless something is wrong.
const WITHIN: Duration = Duration::from_secs(25);
/// Sockets lie below the state, and their paths have at most about a hundred bytes.
const TEMPORARY_BYTES_MAX: usize = 32;

/// How the result is told.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Shows it.
pub(crate) fn demo(args: &DemoArgs) -> Exit {
    told(async |environment| Box::pin(run(args, environment)).await)
}

async fn run(args: &DemoArgs, environment: &Environment) -> Result<Exit, Failure> {
    // Taken over before anything is begun, so that nothing is left behind.
    let mut signals = Signals::take_over().map_err(|error| Failure::new(Exit::Failed, &error))?;
    let place = make_place()?;
    let opened = match open(&place, environment).await {
        Ok(opened) => opened,
        Err(failure) => {
            // Nothing was started; a directory that stays is the smaller of two troubles.
            let _ = fs::remove_dir_all(&place);
            return Err(failure);
        }
    };
    let report = Box::pin(stage(&place, opened, &mut signals)).await?;
    render::data(&if args.json { report.json().to_string() } else { report.text() });
    let wrong = report.wrong();
    if wrong.is_empty() { Ok(Exit::Done) } else { Err(failed(wrong.join("; "))) }
}

fn failed(what: String) -> Failure {
    Failure { exit: Exit::Failed, what, hint: None }
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

/// What is there before the first run.
struct Opened {
    house: House,
    stand_in: StandIn,
    args: CommonArgs,
    clock: SystemClock,
    /// What a boot pretends to take.
    boot: Duration,
}

async fn open(place: &Path, environment: &Environment) -> Result<Opened, Failure> {
    let clock = SystemClock::new();
    let address = ([127, 0, 0, 1], 0).into();
    let stand_in = StandIn::start(address, Options::default(), Arc::new(clock)).await;
    let stand_in = stand_in.map_err(|error| Failure::new(Exit::Failed, &error))?;
    let args = common(&stand_in, &state(place));
    let inputs = CommonInputs::read(&args, &Environment::new())?;
    let file = files::stack(&inputs.stack, &Environment::new())?;
    let plans = Plans { common: &inputs, config: None, file: &file, environment };
    let house = house::build(&plans).await?;
    Ok(Opened { house, stand_in, args, clock, boot: file.process_fleet.boot_delay })
}

fn state(place: &Path) -> PathBuf {
    place.join("state")
}

/// Goes through the runs, and takes everything down again, however they went.
async fn stage(place: &Path, opened: Opened, signals: &mut Signals) -> Result<Report, Failure> {
    let Opened { house, stand_in, args, clock, boot } = opened;
    render::talk(&format!(
        "a GitHub of its own at {}, a new state in {}, machines that pretend to boot for {} s",
        stand_in.url(),
        state(place).display(),
        boot.as_secs_f64()
    ));
    let stage = play::Stage { house: &house, stand_in: &stand_in, args: &args, place, clock };
    let played = Box::pin(watched(&stage, signals)).await;
    let ended = Box::pin(end(house, place)).await;
    stand_in.stop().await;
    match (played, ended) {
        (Ok(played), Ok(machines)) => Ok(Report::new(played, boot, machines, clock.monotonic())),
        (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
        (Err(first), Err(second)) => {
            Err(Failure { what: format!("{}; {}", first.what, second.what), ..second })
        }
    }
}

/// What the commands would be told, and nothing that the environment says.
fn common(stand_in: &StandIn, state: &Path) -> CommonArgs {
    CommonArgs {
        stack: StackArgs { state: Some(state.display().to_string()), ..StackArgs::default() },
        github: GithubArgs {
            repository: Some(REPOSITORY.to_owned()),
            api_url: Some(stand_in.url()),
            github_token: Some(Secret::new(TOKEN)),
            ..GithubArgs::default()
        },
    }
}

/// The runs, until they are over, somebody interrupts them, or they take too long.
async fn watched(stage: &play::Stage<'_>, signals: &mut Signals) -> Result<play::Played, Failure> {
    let play = AssertUnwindSafe(Box::pin(play::play(stage))).catch_unwind();
    tokio::select! {
        biased;
        ending = signals.next() => Err(interrupted(ending)),
        played = play => played.unwrap_or_else(|_| Err(failed("this is a defect".to_owned()))),
        () = stage.clock.sleep(WITHIN) => {
            Err(failed(format!("the runs were not over after {} s", WITHIN.as_secs())))
        }
    }
}

fn interrupted(ending: Ending) -> Failure {
    render::talk("interrupted: everything that was started ends now");
    Failure { exit: ending.exit(), what: "interrupted".to_owned(), hint: None }
}

/// Ends every machine, and removes what is left; answers how many there were.
async fn end(house: House, place: &Path) -> Result<usize, Failure> {
    let state = state(place);
    let destroyed = tear_down(house, &state).await.map_err(|failure| {
        let hint = format!("`bullpen destroy --yes --state {}` tries again", state.display());
        Failure { hint: Some(hint), ..failure }
    })?;
    let removed = fs::remove_dir_all(place);
    removed.map_err(|error| failed(format!("could not remove {}: {error}", place.display())))?;
    render::talk(&format!("{} machines ended, the state is removed", destroyed.machines.len()));
    Ok(destroyed.machines.len())
}
