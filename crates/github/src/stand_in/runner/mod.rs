//! The stand-in *runner*: a program with the contract of the official `bin/Runner.Listener`, for the
//! stand-in server. It registers, listens, really runs jobs, and ends with the official exit codes.
//!
//! Its commands are `configure`, `run` and `remove`; an option comes as `--name value` or as
//! `ACTIONS_RUNNER_INPUT_NAME` in the environment, which jobs do not see. It keeps its registration in
//! `.runner` and `.credentials` of its root directory, and prints the official program's lines, with
//! the time where those have it. Two differences: a configured runner is online before it is run,
//! because the protocol has no way to be registered and offline, and so can be run once only; waits
//! between attempts are shorter.
//!
//! Not here: the server (`stand_in`), what the two say to each other ([`super::protocol`]), reading
//! the process's own arguments, environment and signals.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::pin::pin;

use bullpen_core::ports::Clock;

mod act;
mod configure;
mod console;
mod files;
mod inputs;
mod job;
mod line;
mod listen;
mod server;

use console::Console;
use inputs::{Command, Inputs};

/// How the program ends.
mod exit {
    /// In order: a job for one is done, a signal came, the registration is gone.
    pub(super) const DONE: u8 = 0;
    /// It cannot go on, and starting it again would not help.
    pub(super) const TERMINATED: u8 = 1;
    /// It failed, and could be started again.
    pub(super) const RETRYABLE: u8 = 2;
    /// Another session has taken its place.
    pub(super) const CONFLICT: u8 = 5;
}

/// What a process is started with. Secrets are among it, so it is never printed.
pub struct Start {
    /// The arguments, without the program's name.
    pub arguments: Vec<String>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// The program's directory, where it keeps its registration.
    pub root: PathBuf,
}

/// Why a command did not succeed, in the official program's words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failed {
    words: String,
    code: u8,
}

impl Failed {
    fn for_good(words: impl Into<String>) -> Self {
        Self { words: words.into(), code: exit::TERMINATED }
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self { words: format!("An error occurred: {error}"), code: exit::RETRYABLE }
    }
}

/// Runs the program to its end and returns its exit code. `interrupted` is SIGINT or SIGTERM. Must be
/// called on a runtime that watches sockets and child processes.
pub async fn main<C: Clock>(
    start: Start,
    clock: &C,
    interrupted: impl Future<Output = ()> + Send,
    out: impl Write + Send,
) -> u8 {
    let console = Console::new(clock, out);
    let outcome = match Inputs::read(start) {
        Ok(inputs) => match inputs.command {
            Command::Version => {
                console.say(env!("CARGO_PKG_VERSION"));
                Ok(exit::DONE)
            }
            Command::Configure => configure::configure(&inputs, clock, &console).await,
            Command::Remove => configure::remove(&inputs, clock, &console).await,
            Command::Run => listen::run(&inputs, clock, &console, pin!(interrupted)).await,
        },
        Err(failed) => Err(failed),
    };
    outcome.unwrap_or_else(|failed| {
        console.say(&failed.words);
        failed.code
    })
}
