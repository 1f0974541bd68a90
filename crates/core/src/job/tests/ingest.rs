//! Ingest with a stack's routing: facts in every order, jobs of others, and labels left out.
//!
//! Not here: routes themselves (`route::tests`).

use std::collections::BTreeSet;

use super::*;
use crate::class::RunnerClass;
use crate::instance::EndReason;
use crate::labels::class::Catalogue;
use crate::labels::policy::Policy;
use crate::route::{NotOurs, Routing};
use crate::scope::{ServedRepositories, ServiceScope};

struct Stack {
    pools: BTreeSet<PoolName>,
    classes: Catalogue,
    policy: Policy,
}

fn stack() -> Stack {
    Stack {
        pools: [PoolName::new("ci")].into(),
        classes: Catalogue::of_classes(&RunnerClass::defaults()),
        policy: Policy::default(),
    }
}

impl Stack {
    fn routing(&self, config_loaded: bool) -> Routing<'_> {
        Routing {
            scope: const { &ServiceScope::EVERYTHING },
            env: "production",
            region: "eu-west-1",
            pools: &self.pools,
            broken: const { &BTreeSet::new() },
            classes: &self.classes,
            default_pool: None,
            policy: &self.policy,
            config_loaded,
        }
    }

    fn ingest(&self, stored: Option<&Job>, fact: &JobFact) -> IngestOutcome {
        ingest(stored, fact, &self.routing(true), None, at(100), &LIMITS, true)
            .expect("one job's facts")
    }

    /// The row that these facts leave, in this order.
    fn row(&self, facts: &[JobFact]) -> Option<Job> {
        facts.iter().fold(None, |stored, fact| match self.ingest(stored.as_ref(), fact) {
            IngestOutcome::Store(job) => Some(job),
            IngestOutcome::Unchanged | IngestOutcome::NotOurs(_) => stored,
        })
    }
}

/// GitHub leaves the labels out of some reports.
fn without_labels(mut fact: JobFact) -> JobFact {
    fact.about.labels.clear();
    fact
}

fn for_labels(mut fact: JobFact, labels: &[&str]) -> JobFact {
    fact.about.labels = labels.iter().map(|&label| label.to_owned()).collect();
    fact
}

#[test]
fn every_order_leaves_the_same_end_with_labels_or_without() {
    let stack = stack();
    let over = without_labels(completed("success"));
    let facts = [queued(), started(), over];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let facts: Vec<JobFact> = order.iter().map(|&index: &usize| facts[index].clone()).collect();
        let row = stack.row(&facts).expect("it is ours");
        assert!(row.is_over(), "{order:?}: {row:?}");
        assert_eq!(row.known.about.labels, about().labels, "{order:?}");
    }
}

#[test]
fn a_queued_job_gets_its_lane_and_saying_it_again_changes_nothing() {
    let stack = stack();
    let row = stack.row(&[held_back(), queued()]).unwrap();
    assert_eq!((row.lane.clone(), row.state.name()), (Some(lane()), JobStateName::Waiting));
    assert_eq!(stack.ingest(Some(&row), &queued()), IngestOutcome::Unchanged);
    assert_eq!(stack.ingest(Some(&row), &held_back()), IngestOutcome::Unchanged);
}

#[test]
fn a_pool_that_there_is_not_fails_at_once_and_visibly_but_not_before_it_is_queued() {
    let stack = stack();
    let wrong = |fact| for_labels(fact, &["runs-on=77/pool=c1"]);
    let held = stack.row(&[wrong(fact(ReportedStatus::Held))]).unwrap();
    assert_eq!(held.state, JobState::Dormant);
    let row = stack.row(&[wrong(fact(ReportedStatus::Held)), wrong(queued())]).unwrap();
    let JobState::Ended { end: End::Failed(reason), debts, .. } = &row.state else {
        panic!("{row:?}")
    };
    assert_eq!(reason.to_string(), "there is no pool `c1`");
    assert!(debts.tell && debts.cancel_by == Some(at(100).after(LIMITS.job_deadline)));
}

#[test]
fn strangers_leave_no_row_and_our_own_stay_ours() {
    let stack = stack();
    let theirs = |fact| for_labels(fact, &["ubuntu-latest"]);
    for fact in [queued(), started(), completed("success")] {
        assert_eq!(stack.ingest(None, &theirs(fact)), IngestOutcome::NotOurs(NotOurs::NoHead));
    }
    for fact in [held_back(), without_labels(queued()), without_labels(started())] {
        let answer = stack.ingest(None, &fact);
        assert_eq!(
            answer,
            IngestOutcome::NotOurs(NotOurs::NoHead),
            "it asks for a group of runners"
        );
    }
    let ours = stack.row(&[queued()]).unwrap();
    let moved = Routing { env: "another", ..stack.routing(true) };
    let answer = ingest(Some(&ours), &completed("success"), &moved, None, at(200), &LIMITS, true);
    assert!(matches!(answer, Ok(IngestOutcome::Store(job)) if job.is_over()), "it still ends");
}

/// A signed webhook with our labels from a repository that this stack does not serve: no order of
/// facts, no final report and no request's label makes the fact ours, and it changes no stored row.
#[test]
fn a_fact_outside_the_scope_is_never_learned() {
    let stack = stack();
    let scope = ServiceScope::of(ServedRepositories::Repository("octo/other".into()));
    let narrow = Routing { scope: &scope, ..stack.routing(true) };
    let row = stack.row(&[queued()]).unwrap();
    let request = RequestId::new("1.1.build");
    let facts = [queued(), started(), completed("success"), without_labels(completed("success"))];
    for fact in facts {
        for (stored, again) in [(None, None), (None, Some(&request)), (Some(&row), None)] {
            let answer = ingest(stored, &fact, &narrow, again, at(100), &LIMITS, true);
            assert_eq!(answer, Ok(IngestOutcome::NotOurs(NotOurs::Outside)), "{fact:?}");
        }
    }
}

/// A row outside the scope ends from every state. Its author is not told, its run is not cancelled,
/// and its machine ends.
#[test]
fn a_row_outside_the_scope_ends_quietly() {
    let assigned = JobState::Assigned { held: held(), deadline: at(500), after: None };
    let waiting = stack().row(&[queued()]).unwrap();
    let with_tasks = after(&waiting, &[failed()]);
    for (job, release) in [
        (waiting.clone(), None),
        (Job { state: JobState::Elsewhere, ..waiting.clone() }, None),
        (Job { state: assigned, ..waiting }, Some(held())),
        (with_tasks, None),
    ] {
        let job = after(&job, &[dismissed()]);
        let JobState::Ended { debts, .. } = &job.state else { panic!("{job:?}") };
        let after = release.as_ref().map(|_| AfterJob::End(EndReason::Untrusted));
        assert_eq!(*debts, EndTasks { tell: false, cancel_by: None, release, after });
        assert_eq!(self::after(&job, &[dismissed()]), job, "a second dismissal changes nothing");
    }
}

#[test]
fn without_a_configuration_a_job_waits_and_is_routed_later() {
    let stack = stack();
    let early =
        ingest(None, &queued(), &stack.routing(false), None, at(100), &LIMITS, true).unwrap();
    let IngestOutcome::Store(row) = early else { panic!("{early:?}") };
    assert_eq!((row.lane.as_ref(), row.state.name()), (None, JobStateName::Waiting));
    let IngestOutcome::Store(routed) = stack.ingest(Some(&row), &queued()) else {
        panic!("the same fact finds a lane now");
    };
    assert_eq!(routed.lane, Some(lane()));
    let swept = reroute(row, &stack.routing(true), at(100), &LIMITS, true);
    assert_eq!(swept, Ok(routed), "the sweep finds the lane too");
}

#[test]
fn a_job_that_waits_follows_the_configuration() {
    let stack = stack();
    let row = stack.row(&[queued()]).unwrap();
    let without = Stack { pools: BTreeSet::new(), ..stack };
    let failed = reroute(row.clone(), &without.routing(true), at(101), &LIMITS, false).unwrap();
    assert!(matches!(&failed.state, JobState::Ended { end: End::Failed(reason), .. }
        if reason.code() == "unknown-pool"));
    let moved = Routing { env: "another", ..without.routing(true) };
    assert_eq!(reroute(row.clone(), &moved, at(101), &LIMITS, false), Ok(row));
}
