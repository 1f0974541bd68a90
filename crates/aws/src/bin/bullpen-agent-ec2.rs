//! The agent of an EC2 instance, installed there as `bullpen-agent`.
//!
//! Exit code 0: the machine must power off. Another code: the agent failed and may be restarted.
//!
//! It reads the arguments and the boot's id, and builds the clock and the log.
//!
//! Not here: the agent itself (`bullpen_aws::instance`).
#![expect(clippy::print_stderr, reason = "a binary tells why it could not do its work")]

use std::path::Path;
use std::process::ExitCode;

use bullpen_agent::log::OneLine;
use bullpen_agent::system::SystemClock;
use bullpen_aws::instance;
use bullpen_core::printable;

/// The exit code for wrong arguments.
const USAGE: u8 = 64;
/// The kernel's random id of this boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (dir, boot) = match words[..] {
        ["--machine", dir] => (dir, None),
        ["--machine", dir, "--boot", boot] => (dir, Some(boot.to_owned())),
        _ => {
            eprintln!("error: write it as bullpen-agent-ec2 --machine DIR [--boot BOOT]");
            return ExitCode::from(USAGE);
        }
    };
    // The log goes to the journal, where an operator looks for causes later.
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO);
    // The subscriber would print that it cannot print, which panics where the disk is full.
    let log = log.log_internal_errors(false);
    log.with_writer(|| OneLine(std::io::stderr())).with_ansi(false).with_target(false).init();
    match live(Path::new(dir), boot) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            eprintln!("{}", printable::one_line(&format!("error: {error}{cause}")));
            ExitCode::FAILURE
        }
    }
}

fn live(dir: &Path, boot: Option<String>) -> Result<(), Box<dyn std::error::Error>> {
    let boot = boot.map_or_else(|| std::fs::read_to_string(BOOT), Ok)?;
    let ending = instance::run(dir, boot.trim(), &SystemClock::new())?;
    tracing::info!(?ending, "agent ended; the machine must power off");
    Ok(())
}
