//! `bullpen stand-in-runner`: the stand-in's runner program, which replaces the official program.
//!
//! Not here: the program itself (`bullpen_github::stand_in::runner`).

use std::io;
use std::process::ExitCode;

use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::runner::{self, Start};

use crate::exit::Exit;
use crate::render;
use crate::signals::Signals;

/// The official program's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct RunnerArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs to its end; exit codes are the official program's.
pub(crate) fn run(args: RunnerArgs) -> ExitCode {
    match start(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            render::error(&format!("could not start the stand-in runner: {error}"), None);
            Exit::Failed.into()
        }
    }
}

fn start(args: RunnerArgs) -> io::Result<u8> {
    let text = |word: std::ffi::OsString| word.into_string().ok();
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
    let start = Start {
        arguments: args.arguments,
        environment: environment.collect(),
        root: std::env::current_dir()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::take_over()?;
        let over = async move {
            signals.next().await;
        };
        Ok(runner::main(start, &SystemClock::new(), over, io::stdout()).await)
    })
}
