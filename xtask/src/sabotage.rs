//! The `sabotage` step: builds the simulator's tests with the planted bugs in, and they must be
//! found.
//!
//! This is the only place that sets `--cfg sabotage`, and it builds into a target directory of its
//! own, so that no other build can pick a sabotaged crate up. The `seeds` step uses the same build.
//!
//! Not here: the bugs (`sabotage!` where they are planted) and the tests (`bullpen-sim`).

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;

use crate::gate::{Context, Part, Step};
use crate::place::{Place, succeed, variable};

const FLAG: &str = "--cfg sabotage";

/// The step.
pub(crate) const STEP: Step = Step {
    name: "sabotage",
    what: "every planted bug is found by the simulator",
    part: Some(Part::Deep),
    run,
};

fn run(gate: &Context<'_>) -> Result<()> {
    succeed(test(gate.place).args(["--test", "planted_bugs", "--test", "protocol"]))
}

/// Builds the simulator's tests with the planted bugs in, optimised; which of them is the caller's to say.
pub(crate) fn test(place: &Place) -> Command {
    let mut test = place.command("cargo");
    test.args(["test", "--profile", "sim", "-p", "bullpen-sim"])
        .env("CARGO_TARGET_DIR", place.target.join("sabotage"))
        .env("RUSTFLAGS", with_flag(variable("RUSTFLAGS")));
    test
}

/// Keeps what the caller set: a flag such as a linker may be needed to build at all.
fn with_flag(flags: Option<OsString>) -> OsString {
    let mut flags = flags.unwrap_or_default();
    if !flags.is_empty() {
        flags.push(" ");
    }
    flags.push(FLAG);
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_flags_are_kept() {
        assert_eq!(with_flag(None), "--cfg sabotage");
        assert_eq!(with_flag(Some("-C x=y".into())), "-C x=y --cfg sabotage");
    }
}
