//! The `seeds` step: the simulator on a hundred fixed seeds and on nine hundred that the commit's id
//! decides, optimised and with assertions.
//!
//! The fixed ones are compared from commit to commit; the others are new worlds for every commit, and
//! still the gate gives one commit one answer. A seed that fails prints the command that runs it again.
//!
//! Not here: what a seed decides and what is checked (`bullpen-sim`).

use std::ops::Range;

use anyhow::{Context as _, Result};

use crate::gate::{Context, Step};

/// The seeds of every gate.
const FIXED: Range<u64> = 0..100;
/// How many the commit decides.
const DRAWN: u64 = 900;

/// The step.
pub(crate) const STEP: Step =
    Step { name: "seeds", what: "the simulator on the gate's seeds", run };

fn run(gate: &Context<'_>) -> Result<()> {
    let commit = gate.place.git(&["rev-parse", "HEAD"])?;
    for seeds in [FIXED, drawn(&commit)?] {
        let seeds = format!("{}..{}", seeds.start, seeds.end);
        let program = ["run", "--profile", "sim", "-p", "bullpen", "--"];
        gate.place.cargo(&[&program[..], &["sim", "run", "--seeds", &seeds]].concat())?;
    }
    Ok(())
}

/// The seeds of this commit, far from the fixed ones.
fn drawn(commit: &str) -> Result<Range<u64>> {
    let id = commit.trim().get(..8).context("a commit's id has at least eight digits")?;
    let first = 1_000_000 + u64::from(u32::from_str_radix(id, 16)?);
    Ok(first..first + DRAWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_decides_its_seeds() {
        let seeds = drawn("0000000a1b2c3d4e5f60718293a4b5c6d7e8f900\n").unwrap();
        assert_eq!(seeds, 1_000_010..1_000_910);
        assert!(drawn("short").is_err());
        assert!(drawn("not hexadecimal").is_err());
    }
}
