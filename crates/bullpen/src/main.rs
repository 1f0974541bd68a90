//! The command: parses arguments, builds what they ask for, prints what came of it.
//!
//! Not here: anything that decides. This room reads arguments, environment and files, and makes the
//! wall clock and entropy that the other rooms are given.

use std::process::ExitCode;

mod cli;
mod config_file;
mod exit;
mod inputs;
mod labels;
mod lint;
mod pools;
mod render;
mod sim;
mod workflow;

fn main() -> ExitCode {
    cli::main().into()
}
