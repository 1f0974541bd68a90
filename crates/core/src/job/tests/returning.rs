//! What happens to a machine after its job.
//!
//! Not here: carrying it out (`bullpen-engine`).

use std::time::Duration;

use super::*;
use crate::config::runner::Reuse;
use crate::instance::{EndReason, Record, Tier};
use crate::samples;

fn record() -> Record {
    samples::record(samples::idle(Tier::Released))
}

fn over() -> Job {
    assigned().learn(&completed("success"), at(300), &LIMITS).expect("it is this job's")
}

fn judged(after: AfterJob) -> Job {
    self::after(&over(), &[JobEvent::Judged { held: held(), taken_by: None, after }])
}

#[test]
fn a_machine_serves_on_only_if_its_class_says_so_and_it_is_not_worn() {
    let mut record = record();
    record.uses = 2;
    let now = record.facts.launched_at.after(Duration::from_secs(60));
    let ends = |reuse: Option<&Reuse>| ends_anyway(&record, reuse, now);
    let age = |seconds| Reuse { max_uses: None, max_age: Some(Duration::from_secs(seconds)) };
    let uses = |most| Reuse { max_uses: Some(most), max_age: None };
    assert_eq!(ends(None), Some(EndReason::WornOut));
    assert_eq!(ends(Some(&Reuse::default())), None);
    assert_eq!((ends(Some(&uses(2))), ends(Some(&uses(3)))), (Some(EndReason::WornOut), None));
    assert_eq!((ends(Some(&age(60))), ends(Some(&age(61)))), (Some(EndReason::WornOut), None));
}

/// Its own job ran elsewhere. If the agent saw a job and no row names one, its code is unknown.
#[test]
fn a_machine_whose_job_ran_elsewhere_is_untrusted_if_an_unknown_job_ran_there() {
    let runner = Some(other().runner);
    let ran = fact(ReportedStatus::Completed {
        conclusion: Conclusion::new("success"),
        runner,
        at: None,
    });
    let job = assigned().learn(&ran, at(300), &LIMITS).unwrap();
    let judged = JobEvent::Judged { held: held(), taken_by: None, after: AfterJob::Pool };
    let job = self::after(&job, std::slice::from_ref(&judged));
    let mine = held().instance;
    assert_eq!(job.says_of(&mine, false), Some(AfterJob::Pool), "no job ran there");
    assert_eq!(job.says_of(&mine, true), Some(AfterJob::End(EndReason::Untrusted)));
    let other_job = JobId::new("71");
    let taken = JobEvent::Taken { runner: held().runner, by: other_job.clone() };
    let job = self::after(&job, &[taken]);
    assert_eq!(job.says_of(&mine, true), None, "the decision was about no code");
    assert_eq!(job.on(&judged), Err(JobRefusal::AnotherMachine), "and so is a late one");
    let judged =
        JobEvent::Judged { held: held(), taken_by: Some(other_job), after: AfterJob::Pool };
    assert_eq!(self::after(&job, &[judged]).says_of(&mine, true), Some(AfterJob::Pool));
}

#[test]
fn only_the_repositorys_own_code_leaves_a_machine_to_others() {
    let rules = CodeRules::default();
    assert_eq!(after_job(Some(Origin::Own), &rules), AfterJob::Pool);
    assert_eq!(after_job(Some(Origin::PullRequest), &rules), AfterJob::Pool);
    let ends = AfterJob::End(EndReason::Untrusted);
    for origin in [Some(Origin::Fork), Some(Origin::Dependabot), None] {
        assert_eq!(after_job(origin, &rules), ends, "{origin:?}");
    }
    let strict = CodeRules { distrusts_pull_requests: true, ..rules };
    assert_eq!(after_job(Some(Origin::PullRequest), &strict), ends);
    assert_eq!(after_job(Some(Origin::Own), &strict), AfterJob::Pool);
}

#[test]
fn a_row_speaks_of_the_machine_that_it_owes_and_of_no_other() {
    let (mine, worn) = (held().instance, Some(AfterJob::End(EndReason::WornOut)));
    assert_eq!(over().says_of(&mine, true), None, "it is undecided");
    assert_eq!(judged(AfterJob::Pool).says_of(&mine, true), Some(AfterJob::Pool));
    assert_eq!(judged(AfterJob::Pool).says_of(&other().instance, true), worn);
    assert_eq!(assigned().says_of(&mine, false), worn, "it was taken from a job that is not over");
    let again = JobEvent::Judged { held: held(), taken_by: None, after: AfterJob::Pool };
    let first = judged(AfterJob::End(EndReason::Untrusted));
    assert_eq!(after(&first, &[again]), first, "the first decision holds");
}

/// The row of a job that never began does not show that a stranger's job ran on its machine.
#[test]
fn a_strangers_job_is_seen_by_the_machine_alone() {
    let mut last = completed("cancelled");
    last.said = ReportedStatus::Completed {
        conclusion: Conclusion::new("cancelled"),
        runner: None,
        at: None,
    };
    let job = assigned().learn(&last, at(300), &LIMITS).unwrap();
    let job =
        after(&job, &[JobEvent::Judged { held: held(), taken_by: None, after: AfterJob::Pool }]);
    assert_eq!(job.says_of(&held().instance, false), Some(AfterJob::Pool));
    let untrusted = Some(AfterJob::End(EndReason::Untrusted));
    assert_eq!(job.says_of(&held().instance, true), untrusted);
}
