//! The `seeds` step: the simulator on a fixed range of seeds, optimised and with assertions.
//!
//! A fixed range, not a random one: the gate gives one tree one answer. A seed that fails prints
//! the command that runs it again.
//!
//! Not here: what a seed decides and what is checked (`bullpen-sim`).

use std::ops::Range;

use anyhow::Result;

use crate::gate::{Context, Step};

/// The seeds of every gate.
const SEEDS: Range<u64> = 0..1_000;

/// The step.
pub(crate) const STEP: Step =
    Step { name: "seeds", what: "the simulator on the gate's seeds", run };

fn run(gate: &Context<'_>) -> Result<()> {
    let seeds = format!("{}..{}", SEEDS.start, SEEDS.end);
    let program = ["run", "--profile", "sim", "-p", "bullpen", "--"];
    gate.place.cargo(&[&program[..], &["sim", "run", "--seeds", &seeds]].concat())
}
