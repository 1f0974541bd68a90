//! The command: parses arguments, builds what they ask for, prints what came of it.
//!
//! Not here: anything that decides. This room reads arguments, environment and files, and makes the
//! wall clock and entropy that the other rooms are given.

use std::process::ExitCode;

mod agent;
mod cli;
mod config_file;
mod demo;
mod doctor;
mod exit;
mod explain;
mod explore;
mod inputs;
mod labels;
mod lint;
mod log;
#[cfg(feature = "aws")]
mod policies;
mod pools;
mod render;
mod runtime;
mod serve;
mod signals;
mod sim;
mod stand_in;
mod stand_in_runner;
mod supervise;
mod workflow;

fn main() -> ExitCode {
    cli::main()
}
