//! The gate's steps, in order: cheap ones first, so that a slip is known in seconds.
//!
//! Not here: how they are run (`gate`), and any step of more than a few lines, which has a module.

use anyhow::Result;

use crate::gate::{Context, Part, Step};
use crate::place::succeed;
use crate::{clean_tree, deny, ec2, programs, sabotage, seeds, tidy, tools};

/// The whole product, AWS included: what releases are built with.
pub(crate) const AWS: &str = "--features=bullpen/aws";

/// Every step.
pub(crate) const ALL: &[Step] = &[
    Step {
        name: "tools",
        what: "install what the quick steps need and is missing",
        part: Some(Part::Quick),
        run: |gate| install(gate, Part::Quick),
    },
    Step {
        name: "tools-deep",
        what: "install what the deep steps need and is missing",
        part: Some(Part::Deep),
        run: |gate| install(gate, Part::Deep),
    },
    Step {
        name: "fmt",
        what: "cargo fmt --all --check",
        part: Some(Part::Quick),
        run: |gate| gate.place.cargo(&["fmt", "--all", "--check"]),
    },
    Step {
        name: "tidy",
        what: "crate rules, source rules, documents",
        part: Some(Part::Quick),
        run: |gate| tidy::run(gate.place),
    },
    Step {
        name: "clippy",
        what: "cargo clippy on everything but AWS, warnings denied",
        part: Some(Part::Quick),
        run: |gate| {
            let quick = ["clippy", "--workspace", "--exclude", "bullpen-aws", "--all-targets"];
            gate.place.cargo(&[&quick[..], &["--", "-D", "warnings"]].concat())
        },
    },
    programs::QUICK,
    deny::STEP,
    ec2::STEP,
    Step {
        name: "clippy-deep",
        what: "cargo clippy --workspace with AWS, warnings denied",
        part: Some(Part::Deep),
        run: |gate| {
            let all = ["clippy", "--workspace", "--all-targets", AWS, "--", "-D", "warnings"];
            gate.place.cargo(&all)
        },
    },
    Step {
        name: "doc",
        what: "cargo doc --workspace --no-deps with warnings denied, and the documentation's examples",
        part: Some(Part::Deep),
        run: |gate| {
            let mut doc = gate.place.command("cargo");
            succeed(
                doc.args(["doc", "--workspace", "--no-deps", AWS])
                    .env("RUSTDOCFLAGS", "-D warnings"),
            )?;
            gate.place.cargo(&["test", "--workspace", AWS, "--doc"])
        },
    },
    programs::DEEP,
    seeds::STEP,
    sabotage::STEP,
    clean_tree::STEP,
];

fn install(gate: &Context<'_>, part: Part) -> Result<()> {
    tools::install(gate.place, part)?;
    gate.tools(part).map(drop)
}

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
