//! A day of a hundred thousand jobs on GitHub's hour, and as many in office hours: the calls by
//! purpose, for `docs/simulation.md`. Takes minutes.
//!
//! `cargo run --profile sim -p bullpen-sim --example githubs_day`
//!
//! Not here: the part of it that the gate runs (`tests/githubs_hour.rs`).

#![expect(clippy::print_stdout, reason = "a developer wants to see the table")]

use bullpen_core::forge_rates::CallPurpose;
use bullpen_sim::githubs_day::{GithubsDay, run};

fn main() {
    for (name, day) in [("evenly", GithubsDay::EVEN), ("in office hours", GithubsDay::OFFICE)] {
        let report = run(day);
        println!("## {name}\n\n{report}");
        assert_eq!(report.failed, 0, "no job may be lost");
        assert_eq!(report.unexplained, 0, "a long wait must be explained");
        let waited = report.postponed.contains_key(&CallPurpose::Mint);
        assert!(!waited || name != "evenly", "a mint waited for looking");
    }
}
