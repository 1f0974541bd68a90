//! The gate's steps, in order: cheap ones first, so that a slip is known in seconds.
//!
//! Not here: how they are run (`gate`), and any step of more than a few lines, which has a module.

use crate::gate::Step;
use crate::place::succeed;
use crate::{clean_tree, deny, ec2, programs, sabotage, seeds, tidy, tools};

/// The whole product, AWS included: what releases are built with.
pub(crate) const AWS: &str = "--features=bullpen/aws";

/// Every step.
pub(crate) const ALL: &[Step] = &[
    Step { name: "tools", what: "install what is missing", run: |gate| tools::install(gate.place) },
    Step {
        name: "fmt",
        what: "cargo fmt --all --check",
        run: |gate| gate.place.cargo(&["fmt", "--all", "--check"]),
    },
    Step {
        name: "tidy",
        what: "room rules, source rules, documents",
        run: |gate| tidy::run(gate.place),
    },
    deny::STEP,
    ec2::STEP,
    Step {
        name: "clippy",
        what: "cargo clippy --workspace --all-targets, with and without AWS, warnings denied",
        run: |gate| {
            let all = ["clippy", "--workspace", "--all-targets", AWS, "--", "-D", "warnings"];
            gate.place.cargo(&all)?;
            // Without it other code is left over, and has to be as clean.
            gate.place.cargo(&["clippy", "-p", "bullpen", "--all-targets", "--", "-D", "warnings"])
        },
    },
    Step {
        name: "doc",
        what: "cargo doc --workspace --no-deps, with warnings denied",
        run: |gate| {
            let mut doc = gate.place.command("cargo");
            succeed(
                doc.args(["doc", "--workspace", "--no-deps", AWS])
                    .env("RUSTDOCFLAGS", "-D warnings"),
            )
        },
    },
    programs::STEP,
    seeds::STEP,
    sabotage::STEP,
    clean_tree::STEP,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_step_has_its_own_name() {
        let names: BTreeSet<&str> = ALL.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn the_tree_is_checked_last() {
        assert_eq!(ALL.last().map(|step| step.name), Some(clean_tree::STEP.name));
    }
}
