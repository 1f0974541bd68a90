//! The `deny` step: cargo-deny checks licences, sources and duplicate versions of everything in
//! `Cargo.lock` by the rules of `deny.toml`.
//!
//! The check for known vulnerabilities is no step: it fetches a database, so its answer changes
//! without a change of ours, and a gate must give one tree one answer. `cargo xtask advisories`
//! runs it.
//!
//! Not here: its schedule (`.github/workflows/advisories.yml`).

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

/// Checks everything in `Cargo.lock` for known vulnerabilities.
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
