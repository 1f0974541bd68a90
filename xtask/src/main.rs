//! Chores of this repository: `cargo xtask test` is the gate, `cargo xtask tidy` one part of it,
//! `cargo xtask tools` what it needs. `cargo xtask agent` builds what instances run, and
//! `cargo xtask verify-live` is for a real account.
//!
//! Exit codes: 0 done, 1 a check failed, 64 the command line was not understood.
//!
//! Not here: anything the product needs at run time. No crate depends on this one.

#![expect(clippy::print_stderr, clippy::print_stdout, reason = "a command's output is its purpose")]

mod act;
mod agent;
mod clean_tree;
mod debian;
mod deny;
mod dynamodb_local;
mod ec2;
mod gate;
mod long_tests;
mod ministack;
mod npm;
mod place;
mod previous;
mod programs;
mod sabotage;
mod seeds;
mod shellcheck;
mod steps;
mod tidy;
mod tools;
mod venv;
mod verify_live;

use std::process::ExitCode;

use anyhow::Result;

use crate::gate::{Choice, Part};
use crate::place::Place;

const USAGE: &str = "\
usage: cargo xtask test                    run the quick part of the gate
       cargo xtask test --deep             run everything else that the gate has
       cargo xtask test --only STEP...     run the named steps alone; --only before each
       cargo xtask test --list             name the gate's steps
       cargo xtask tidy                    check the crate rules and the source rules
       cargo xtask tools                   install the tools that the gate needs
       cargo xtask advisories              ask for known vulnerabilities of the dependencies
       cargo xtask agent                   build the agent of an EC2 instance, as it is released
       cargo xtask verify-live [N [--yes]] list what only a real account can show; say or run script N";

const EXIT_FAILED: u8 = 1;
/// `EX_USAGE` of sysexits.h.
const EXIT_USAGE: u8 = 64;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Test(Choice),
    List,
    Tidy,
    Tools,
    Advisories,
    Agent,
    VerifyLive(verify_live::Chosen),
    Help,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(command) = understand(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(EXIT_USAGE);
    };
    match run(&command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn understand(arguments: &[&str]) -> Option<Command> {
    match arguments {
        ["test", "--list"] => Some(Command::List),
        ["test"] => Some(Command::Test(Choice::All(Part::Quick))),
        ["test", "--deep"] => Some(Command::Test(Choice::All(Part::Deep))),
        ["test", rest @ ..] => {
            let pairs = rest.chunks(2).map(|pair| match pair {
                ["--only", name] => Some((*name).to_owned()),
                _ => None,
            });
            Some(Command::Test(Choice::Only(pairs.collect::<Option<_>>()?)))
        }
        ["tidy"] => Some(Command::Tidy),
        ["tools"] => Some(Command::Tools),
        ["advisories"] => Some(Command::Advisories),
        ["agent"] => Some(Command::Agent),
        ["verify-live", rest @ ..] => verify_live::understand(rest).map(Command::VerifyLive),
        ["help" | "--help" | "-h"] => Some(Command::Help),
        _ => None,
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Help => println!("{USAGE}"),
        Command::List => {
            for step in steps::ALL {
                let part = match step.part {
                    Some(Part::Quick) => "quick",
                    Some(Part::Deep) => "deep",
                    None => "both",
                };
                println!("{:<11} {part:<6} {}", step.name, step.what);
            }
        }
        Command::Tidy => tidy::run(&Place::find()?)?,
        Command::Tools => {
            let place = Place::find()?;
            tools::install(&place, Part::Deep)?;
            tools::for_tests(&place, Part::Deep)?;
        }
        Command::Advisories => deny::advisories(&Place::find()?)?,
        Command::Agent => agent::run(&Place::find()?)?,
        Command::VerifyLive(command) => verify_live::run(&Place::find()?, *command)?,
        Command::Test(choice) => gate::run(&Place::find()?, steps::ALL, choice)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_runs_by_part_or_by_named_steps() {
        assert_eq!(understand(&["test"]), Some(Command::Test(Choice::All(Part::Quick))));
        assert_eq!(understand(&["test", "--deep"]), Some(Command::Test(Choice::All(Part::Deep))));
        let named = vec!["fmt".to_owned(), "tidy".to_owned()];
        assert_eq!(
            understand(&["test", "--only", "fmt", "--only", "tidy"]),
            Some(Command::Test(Choice::Only(named)))
        );
    }

    #[test]
    fn an_unknown_or_incomplete_argument_is_not_guessed_at() {
        assert_eq!(understand(&["test", "--only"]), None);
        assert_eq!(understand(&["test", "fmt"]), None);
        assert_eq!(understand(&["test", "--deep", "--only", "fmt"]), None);
        assert_eq!(understand(&["tidy", "--fix"]), None);
        assert_eq!(understand(&["tools", "act"]), None);
        assert_eq!(understand(&["advisories"]), Some(Command::Advisories));
        assert_eq!(understand(&[]), None);
    }
}
