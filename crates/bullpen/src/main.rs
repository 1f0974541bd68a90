//! The `bullpen` command: parses arguments, builds a runtime, runs a subcommand and prints its
//! result.
//!
//! This crate reads arguments, environment and files, and constructs the wall clock and the entropy
//! that it gives to the other crates.
//!
//! Not here: decisions (`bullpen-core`), or the use cases (`bullpen-engine`).

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
mod jobs;
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
mod table;
mod workflow;

fn main() -> ExitCode {
    cli::main()
}
