//! Helpers of the input tests: arguments and variables in, inputs or the error's line out.
//!
//! Not here: the built command (`tests/inputs.rs`).

mod any_text;
mod common;
mod names;
mod numbers;
mod provision;
mod refresh;
mod release;

use std::collections::BTreeSet;

use clap::{Args, Command, Parser};

use super::common::StackInputs;
use super::*;

/// A command that has only these arguments.
#[derive(Debug, Parser)]
struct Only<T: Args> {
    #[command(flatten)]
    args: T,
}

/// The arguments as clap parses them, or its error.
fn args<T: Args>(flags: &[&str]) -> Result<T, String> {
    let words = std::iter::once("bullpen").chain(flags.iter().copied());
    Only::try_parse_from(words).map(|only| only.args).map_err(|error| error.to_string())
}

/// The flags of these arguments.
fn flags<T: Args>() -> BTreeSet<String> {
    let command = T::augment_args(Command::new("bullpen"));
    command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned).collect()
}

/// An environment with a home and these variables.
fn variables(pairs: &[(&str, &str)]) -> Environment {
    let home = [("HOME", "/home/me")];
    let all = home.iter().chain(pairs);
    all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn provision(flags: &[&str], pairs: &[(&str, &str)]) -> Result<ProvisionInputs, String> {
    ProvisionInputs::read(&args(flags)?, &variables(pairs), "fresh").map_err(|e| e.to_string())
}

fn release(flags: &[&str], pairs: &[(&str, &str)]) -> Result<ReleaseInputs, String> {
    ReleaseInputs::read(&args(flags)?, &variables(pairs)).map_err(|e| e.to_string())
}

fn refresh(flags: &[&str], pairs: &[(&str, &str)]) -> Result<RefreshInputs, String> {
    RefreshInputs::read(&args(flags)?, &variables(pairs)).map_err(|e| e.to_string())
}

fn stack_inputs(flags: &[&str], pairs: &[(&str, &str)]) -> Result<StackInputs, String> {
    StackInputs::read(&args(flags)?, &variables(pairs)).map_err(|e| e.to_string())
}

fn common(flags: &[&str], pairs: &[(&str, &str)]) -> Result<CommonInputs, String> {
    CommonInputs::read(&args(flags)?, &variables(pairs)).map_err(|e| e.to_string())
}
