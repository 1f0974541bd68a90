//! The agent of the process fleet's machines as a separate small binary; `bullpen agent` does the
//! same.
//!
//! Exit code 0: the machine must end. Every other code: the agent failed, and the supervisor may
//! start it again.
//!
//! Not here: everything except arguments and the clock.
#![expect(clippy::print_stderr, reason = "a binary prints why it failed")]

use std::path::Path;
use std::process::ExitCode;

use bullpen_agent::machine;
use bullpen_core::printable;
use bullpen_embedded::machine::InFile;
use bullpen_embedded::system::SystemClock;

/// The exit code for wrong arguments.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ["--machine", dir, "--boot", boot] = words[..] else {
        eprintln!("error: write it as bullpen-agent --machine DIR --boot BOOT");
        return ExitCode::from(USAGE);
    };
    match machine::run(Path::new(dir), boot, &SystemClock::new(), &InFile) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            let source = std::error::Error::source(&error);
            let cause = source.map(|source| format!(": {source}")).unwrap_or_default();
            eprintln!("{}", printable::one_line(&format!("error: {error}{cause}")));
            ExitCode::FAILURE
        }
    }
}
