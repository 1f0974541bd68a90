//! The `deny` step: licences, sources and duplicate versions of everything in `Cargo.lock`, judged
//! by cargo-deny from `deny.toml`.
//!
//! Not here: known vulnerabilities. That check fetches a database, so its answer changes without
//! a change of ours; a gate must give one tree one answer.

use anyhow::Result;

use crate::gate::{Context, Step};
use crate::place::succeed;
use crate::tools;

/// The step.
pub(crate) const STEP: Step =
    Step { name: "deny", what: "cargo deny check bans licenses sources", run };

fn run(gate: &Context<'_>) -> Result<()> {
    let program = tools::cargo_deny(gate.place)?;
    let mut check = gate.place.command(program);
    check.args(["--workspace", "check", "bans", "licenses", "sources"]);
    succeed(&mut check)
}
