//! The `deny` step: licences, sources and duplicate versions of everything in `Cargo.lock`, judged
//! by cargo-deny from `deny.toml`.
//!
//! Known vulnerabilities are no step: that check fetches a database, so its answer changes without a
//! change of ours, and a gate must give one tree one answer. `cargo xtask advisories` asks.
//!
//! Not here: when it is asked (`.github/workflows/advisories.yml`).

use anyhow::Result;

use crate::gate::{Context, Part, Step};
use crate::place::{Place, succeed};
use crate::tools;

/// The step.
pub(crate) const STEP: Step = Step {
    name: "deny",
    what: "cargo deny check bans licenses sources",
    part: Some(Part::Deep),
    run,
};

/// Asks for known vulnerabilities of everything in `Cargo.lock`.
pub(crate) fn advisories(place: &Place) -> Result<()> {
    let mut check = place.command(tools::cargo_deny(place)?);
    check.args(["--workspace", "check", "advisories"]);
    succeed(&mut check)
}

fn run(gate: &Context<'_>) -> Result<()> {
    let program = tools::cargo_deny(gate.place)?;
    let mut check = gate.place.command(program);
    check.args(["--workspace", "check", "bans", "licenses", "sources"]);
    succeed(&mut check)
}
