//! The workflow commands: `provision`, `release`, `refresh`, `status`, `destroy`, `ledger verify`.
//!
//! Each reads its inputs and the files they name, builds a runtime, has the engine do the work, and
//! tells what came of it: data to stdout, talk to stderr, one exit code.
//!
//! Not here: what inputs may be (`inputs`), building (`runtime`), or doing it (`bullpen-engine`).

use std::error::Error;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::iter::successors;

use bullpen_core::config::Stack as StackFile;
use bullpen_core::ports::Fault;

use crate::exit::Exit;
use crate::inputs::{self, CommonInputs, Credential, Environment, UsageError, files, masks};
use crate::render;
use crate::runtime::{self, Command, RuntimeError, RuntimePlan};

pub(crate) mod destroy;
pub(crate) mod progress;
pub(crate) mod provision;
mod refresh;
pub(crate) mod release;
mod status;
pub(crate) mod verify;

pub(crate) use destroy::{DestroyArgs, destroy};
pub(crate) use provision::provision;
pub(crate) use refresh::{refresh, tokens_every};
pub(crate) use release::release;
pub(crate) use status::{inspect, must_exist, status};
pub(crate) use verify::ledger_verify;

/// Why a command did not do what it was told.
#[derive(Debug)]
pub(crate) struct Failure {
    /// With which code it ends.
    pub(crate) exit: Exit,
    /// In one line.
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// An error with everything that caused it.
    pub(crate) fn new(exit: Exit, error: &dyn Error) -> Self {
        Self { exit, what: chain(error), hint: None }
    }

    /// A port that gave up.
    pub(crate) fn of(doing: &str, fault: &Fault) -> Self {
        Self { exit: exit_of(fault), what: format!("{doing}: {fault}"), hint: None }
    }
}

impl From<UsageError> for Failure {
    fn from(error: UsageError) -> Self {
        Self { exit: Exit::Usage, what: error.to_string(), hint: None }
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        let exit = match &error {
            RuntimeError::Usage(_) | RuntimeError::Github(_) | RuntimeError::Key(_) => Exit::Usage,
            RuntimeError::Parameters(fault) => exit_of(fault),
            _ => Exit::Failed,
        };
        Self { exit, what: chain(&error), hint: error.hint() }
    }
}

/// The exit code of a port's fault.
pub(crate) const fn exit_of(fault: &Fault) -> Exit {
    match fault {
        Fault::Unavailable(_) | Fault::Throttled => Exit::Unavailable,
        Fault::NoCapacity => Exit::NoCapacity,
        Fault::NotFound | Fault::Denied(_) | Fault::Unreadable(_) | Fault::Unclassified(_) => {
            Exit::Failed
        }
    }
}

/// An error and its causes in one line; a cause that only repeats what was said is left out.
fn chain(error: &dyn Error) -> String {
    let mut line = String::new();
    for cause in successors(Some(error), |&error| error.source()) {
        let cause = cause.to_string();
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Runs a command to its end and tells why it failed, if it did.
pub(crate) fn run_command(
    command: impl AsyncFnOnce(&Environment) -> Result<Exit, Failure>,
) -> Exit {
    let environment = inputs::environment();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(command(&environment));
            // Nothing that still runs is waited for: all of it is settled by whoever comes next.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(Failure::new(Exit::Failed, &error)),
    };
    ended.unwrap_or_else(|failure| {
        render::error(&failure.what, failure.hint.as_deref());
        failure.exit
    })
}

/// What the inputs and `bullpen.toml` say together.
pub(crate) struct Loaded {
    /// The inputs, completed by `bullpen.toml`.
    pub(crate) common: CommonInputs,
    /// `bullpen.toml`.
    pub(crate) file: StackFile,
}

/// Completes the inputs by `bullpen.toml`. Secrets are hidden before anything else is said, on stderr: the
/// runner reads commands there too, and what a script captures from stdout must not hold a secret.
pub(crate) fn load(common: &CommonInputs, environment: &Environment) -> Result<Loaded, UsageError> {
    let file = files::stack(&common.stack, environment)?;
    let github = common.github.clone().completed_by(&file.github, environment)?;
    let key = match &github.credential {
        Some(Credential::App { key, .. }) => Some(files::app_key(key)?),
        Some(Credential::TokenFile(path)) => Some(files::token(path)?),
        Some(Credential::Token(_)) | None => None,
    };
    let mut secrets = github.secrets();
    secrets.extend(&key);
    for line in masks(&secrets, environment) {
        render::talk(&line);
    }
    Ok(Loaded { common: CommonInputs { stack: common.stack.clone(), github }, file })
}

/// Runs a command with the runtime that the inputs name.
async fn execute<T, E: Command<Outcome = Result<T, Failure>>>(
    common: &CommonInputs,
    environment: &Environment,
    command: E,
) -> Result<T, Failure> {
    let Loaded { common, file } = load(common, environment)?;
    let config = files::config(&common.stack)?;
    let plan = RuntimePlan { common: &common, config: config.as_ref(), file: &file, environment };
    runtime::run(&plan, command).await?
}

/// A name for a request that nobody named. The standard library seeds its hashers from the system's
/// entropy, which is all that is needed here.
pub(crate) fn fresh_name() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}
