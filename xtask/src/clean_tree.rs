//! The `clean-tree` step: the gate changed nothing that git would show.
//!
//! The tree is compared with itself from before the first step, so work in progress is no failure;
//! only a file that a build, a test or a tool wrote into the repository is.
//!
//! Not here: files git ignores, and a second change to a file that was already changed.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::gate::{Context, Step};
use crate::place::Place;

/// The step.
pub(crate) const STEP: Step = Step {
    name: "clean-tree",
    what: "the gate changed nothing in the repository",
    part: None,
    run,
};

/// What git would show, now.
pub(crate) fn status(place: &Place) -> Result<String> {
    place.git(&["status", "--porcelain", "--untracked-files=all"])
}

fn run(gate: &Context<'_>) -> Result<()> {
    let after = status(gate.place)?;
    let changed = changes(&gate.tree_before, &after);
    ensure!(
        changed.is_empty(),
        "the tree changed while the gate ran:\n{}",
        changed.into_iter().collect::<Vec<_>>().join("\n")
    );
    // Cargo brings the lock file up to date before it runs us, so comparing with before cannot
    // show it. Where no person edits the tree, the commit lacked it.
    ensure!(
        !gate.place.ci || !lock_was_stale(&gate.tree_before),
        "Cargo.lock does not match the manifests; commit the updated one"
    );
    Ok(())
}

/// The lines that are in only one of the two.
fn changes<'a>(before: &'a str, after: &'a str) -> BTreeSet<&'a str> {
    let before: BTreeSet<&str> = before.lines().collect();
    let after: BTreeSet<&str> = after.lines().collect();
    before.symmetric_difference(&after).copied().collect()
}

fn lock_was_stale(status: &str) -> bool {
    status.lines().any(|line| line.ends_with(" Cargo.lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_in_progress_is_no_change_of_the_gates() {
        let status = " M README.md\n?? notes.txt\n";
        assert!(changes(status, status).is_empty());
    }

    #[test]
    fn a_file_a_test_left_behind_is() {
        let changed = changes(" M README.md\n", " M README.md\n?? left-behind.txt\n");
        assert_eq!(changed, BTreeSet::from(["?? left-behind.txt"]));
    }

    #[test]
    fn a_rewritten_lock_file_is_seen() {
        assert!(lock_was_stale(" M README.md\n M Cargo.lock\n"));
        assert!(!lock_was_stale(" M README.md\n"));
    }
}
