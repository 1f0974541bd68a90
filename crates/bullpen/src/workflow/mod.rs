//! The workflow commands: `provision`, `release`, `refresh`, `status`, `destroy`, `ledger verify`.
//!
//! Each command reads its inputs and the files that they name, builds a runtime, calls the engine
//! and prints the result: data to stdout, messages to stderr, one exit code.
//!
//! Not here: valid inputs (`inputs`), building (`runtime`), the use cases (`bullpen-engine`).

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

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// The error in one line.
    pub(crate) what: String,
    /// The advice.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// The failure for an error, with its causes.
    pub(crate) fn new(exit: Exit, error: &dyn Error) -> Self {
        Self { exit, what: chain(error), hint: None }
    }

    /// The failure for a port's fault.
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

/// An error and its causes in one line, without causes that repeat the text before them.
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

/// Runs a command to its end and prints its failure.
pub(crate) fn run_command(
    command: impl AsyncFnOnce(&Environment) -> Result<Exit, Failure>,
) -> Exit {
    let environment = inputs::environment();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(command(&environment));
            // No task is awaited: the next command or replica finishes what this one leaves.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Failure::new(Exit::Failed, &error)),
    };
    result.unwrap_or_else(|failure| {
        render::error(&failure.what, failure.hint.as_deref());
        failure.exit
    })
}

/// The inputs and `bullpen.toml`.
pub(crate) struct Loaded {
    /// The inputs, completed by `bullpen.toml`.
    pub(crate) common: CommonInputs,
    /// `bullpen.toml`.
    pub(crate) file: StackFile,
}

/// Completes the inputs by `bullpen.toml`, and masks the secrets before the command prints anything
/// else. The masks go to stderr: the runner reads commands there too, and a script that captures
/// stdout must not get a secret.
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
async fn execute<T, C: Command<Outcome = Result<T, Failure>>>(
    common: &CommonInputs,
    environment: &Environment,
    command: C,
) -> Result<T, Failure> {
    let Loaded { common, file } = load(common, environment)?;
    let config = files::config(&common.stack)?;
    let plan = RuntimePlan { common: &common, config: config.as_ref(), file: &file, environment };
    runtime::run(&plan, command).await?
}

/// A name for a request without one. The standard library seeds its hashers from the system's
/// entropy, which is good enough for a name.
pub(crate) fn fresh_name() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}
