//! The agent of the process fleet's machines as a small binary of its own; `bullpen agent` is the
//! same.
//!
//! Exit 0: the machine is to end. Anything else: the agent could not live, and may be started again.
//!
//! Not here: anything but arguments and the clock.
#![expect(clippy::print_stderr, reason = "a binary tells why it could not do its work")]

use std::path::Path;
use std::process::ExitCode;

use bullpen_agent::machine;
use bullpen_core::printable;
use bullpen_embedded::machine::InFile;
use bullpen_embedded::system::SystemClock;

/// The arguments are off.
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
