//! Two hours of the day of a hundred thousand jobs: the search leaves GitHub's hour to runners.
//!
//! Not here: the whole day (`examples/githubs_day.rs`).

#![expect(clippy::print_stdout, reason = "the counts are reported in docs/simulation.md")]

use std::time::Duration;

use bullpen_core::forge_rates::CallPurpose;
use bullpen_sim::githubs_day::{GithubsDay, run};

#[test]
fn no_mint_waits_for_looking() {
    let hours = 2;
    let day = GithubsDay {
        runs: GithubsDay::EVEN.runs / 24 * hours,
        within: GithubsDay::EVEN.within / 24 * hours,
        ..GithubsDay::EVEN
    };
    let report = run(day);
    println!("{report}");
    let jobs = u64::from(day.runs * day.jobs_a_run);
    assert_eq!((report.completed, report.failed), (jobs, 0));
    assert_eq!(report.postponed.get(&CallPurpose::Mint), None, "a mint waited for GitHub's hour");
    assert!(report.wait(1_000) < Duration::from_secs(30), "a job waited {:?}", report.wait(1_000));
    let mints = report.paid(CallPurpose::Mint);
    assert!(mints <= jobs + jobs / 100, "a job costs one mint: {mints} for {jobs}");
    let runs = u64::from(day.runs);
    assert!(report.paid(CallPurpose::Origin) <= runs + runs / 10, "a run costs one question");
    assert_eq!(report.paid(CallPurpose::Remove), 0, "GitHub forgets a runner after its job");
    assert_eq!(report.paid(CallPurpose::Job), 0, "webhooks say it");
    let looked = report.calls.get(&CallPurpose::Look).expect("it looked").sent;
    assert!(looked > 100, "the search had only {looked} calls");
}
