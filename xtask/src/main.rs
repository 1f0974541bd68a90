//! Chores of this repository: `cargo xtask test` is the gate, `cargo xtask tidy` one part of it,
//! `cargo xtask tools` what it needs. `cargo xtask agent` builds what instances run, and
//! `cargo xtask verify-live` is for a real account.
//!
//! Exit codes: 0 done, 1 a check failed, 64 the command line was not understood.
//!
//! Not here: anything the product needs at run time. No room depends on this crate.

#![expect(clippy::print_stderr, clippy::print_stdout, reason = "a command's output is its purpose")]

mod act;
mod agent;
mod clean_tree;
mod debian;
mod deny;
mod dynamodb_local;
mod ec2;
mod gate;
mod ministack;
mod npm;
mod place;
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

use crate::place::Place;

const USAGE: &str = "\
usage: cargo xtask test [--only STEP]...   run the gate, or the named steps alone
       cargo xtask test --list             name the gate's steps
       cargo xtask tidy                    check the room rules and the source rules
       cargo xtask tools                   install the tools that the gate needs
       cargo xtask advisories              ask for known vulnerabilities of the dependencies
       cargo xtask agent                   build the agent of an EC2 instance, as it is released
       cargo xtask verify-live [N [--yes]] list what only a real account can show; say or run script N";

const EXIT_FAILED: u8 = 1;
/// `EX_USAGE` of sysexits.h.
const EXIT_USAGE: u8 = 64;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Test { only: Vec<String> },
    List,
    Tidy,
    Tools,
    Advisories,
    Agent,
    VerifyLive(verify_live::Wish),
    Help,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(wish) = understand(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(EXIT_USAGE);
    };
    match grant(&wish) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn understand(arguments: &[&str]) -> Option<Wish> {
    match arguments {
        ["test", "--list"] => Some(Wish::List),
        ["test", rest @ ..] => {
            let pairs = rest.chunks(2).map(|pair| match pair {
                ["--only", name] => Some((*name).to_owned()),
                _ => None,
            });
            Some(Wish::Test { only: pairs.collect::<Option<_>>()? })
        }
        ["tidy"] => Some(Wish::Tidy),
        ["tools"] => Some(Wish::Tools),
        ["advisories"] => Some(Wish::Advisories),
        ["agent"] => Some(Wish::Agent),
        ["verify-live", rest @ ..] => verify_live::understand(rest).map(Wish::VerifyLive),
        ["help" | "--help" | "-h"] => Some(Wish::Help),
        _ => None,
    }
}

fn grant(wish: &Wish) -> Result<()> {
    match wish {
        Wish::Help => println!("{USAGE}"),
        Wish::List => {
            for step in steps::ALL {
                println!("{:<11} {}", step.name, step.what);
            }
        }
        Wish::Tidy => tidy::run(&Place::find()?)?,
        Wish::Tools => tools::install(&Place::find()?)?,
        Wish::Advisories => deny::advisories(&Place::find()?)?,
        Wish::Agent => agent::run(&Place::find()?)?,
        Wish::VerifyLive(wish) => verify_live::run(&Place::find()?, *wish)?,
        Wish::Test { only } => gate::run(&Place::find()?, steps::ALL, only)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_runs_whole_or_by_named_steps() {
        assert_eq!(understand(&["test"]), Some(Wish::Test { only: vec![] }));
        assert_eq!(
            understand(&["test", "--only", "fmt", "--only", "tidy"]),
            Some(Wish::Test { only: vec!["fmt".to_owned(), "tidy".to_owned()] })
        );
    }

    #[test]
    fn an_unknown_or_incomplete_argument_is_not_guessed_at() {
        assert_eq!(understand(&["test", "--only"]), None);
        assert_eq!(understand(&["test", "fmt"]), None);
        assert_eq!(understand(&["tidy", "--fix"]), None);
        assert_eq!(understand(&["tools", "act"]), None);
        assert_eq!(understand(&["advisories"]), Some(Wish::Advisories));
        assert_eq!(understand(&[]), None);
    }
}
