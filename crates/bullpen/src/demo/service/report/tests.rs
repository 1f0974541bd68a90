//! Tests of the report: the expected outcome has no errors, and each difference from it is named.
//!
//! Not here: jobs that really run (`tests/demo.rs`).

use bullpen_core::explain::{ExplainInput, explain};
use bullpen_core::ids::{
    ClaimId, ClassName, Generation, InstanceId, JobId, PoolName, Repository, RunAttempt, RunnerName,
};
use bullpen_core::job::{
    Conclusion, Job, JobDetails, JobEvent, JobFact, JobMachine, JobStepAt, Lane, Provenance,
    ReportedStatus, Setback,
};
use bullpen_core::limits::Limits;
use bullpen_core::time::Timestamp;
use bullpen_github::stand_in::protocol::{self, JobView, NoticeView};

use super::super::script::{BURSTS, DemoJob};
use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_767_268_800_000 + millis)
}

fn held() -> JobMachine {
    let (instance, runner) = (InstanceId::new("i-1"), RunnerName::new("bullpen-1-0"));
    JobMachine { instance, generation: Generation(2), runner }
}

fn learn(job: &Job, said: ReportedStatus, when: i64) -> Job {
    let fact = JobFact { job: job.id.clone(), about: job.known.about.clone(), said };
    job.learn(&fact, at(when), &Limits::DEFAULT).expect("it is about this job")
}

fn queued(order: &DemoJob) -> Job {
    let about = JobDetails {
        repository: Repository::new("acme/app"),
        run: RunAttempt::new("1.1"),
        name: order.name.to_owned(),
        labels: vec![order.names.label(1)],
        commit: "0a1b".to_owned(),
        created_at: Some(at(0)),
        provenance: Provenance::default(),
    };
    let said = ReportedStatus::Queued { at: Some(at(0)) };
    Job::first(&JobFact { job: JobId::new("1"), about, said }, at(10), &Limits::DEFAULT)
}

fn after(job: &Job, events: &[JobEvent]) -> Job {
    events.iter().fold(job.clone(), |job, event| job.on(event).expect("it is allowed"))
}

/// The step of a worker that claims a standby machine.
fn claimed(tier: IdleTier) -> JobStepAt {
    JobStepAt { at: at(35), step: JobStep::Claimed { instance: held().instance, tier } }
}

/// The job with its expected end.
fn fulfilled(order: &DemoJob, how: MachineSource, notes: Vec<JobStepAt>) -> Job {
    let job = queued(order);
    let completed = |job: &Job, word: &str| {
        let conclusion = Conclusion::new(word);
        learn(job, ReportedStatus::Completed { conclusion, runner: None, at: Some(at(900)) }, 900)
    };
    let (worker, lane) = (ClaimId::new("w"), Lane::Class(ClassName::new("small")));
    let begun = JobEvent::Begun {
        worker: worker.clone(),
        at: at(30),
        lease: at(90_000),
        skew: Duration::ZERO,
    };
    let routed = [JobEvent::Routed { lane, at: at(20) }, begun.clone()];
    let assigned = JobEvent::Assigned { worker, held: held(), how, at: at(40), notes };
    let started = |job: &Job| {
        let runner = Some(held().runner);
        learn(job, ReportedStatus::Started { runner, at: Some(at(500)) }, 500)
    };
    match order.expected {
        ExpectedEnd::Cancelled => completed(&after(&job, &routed), "cancelled"),
        ExpectedEnd::Refused => {
            let (pool, suggestions) = (PoolName::new("cii"), vec!["ci".to_owned()]);
            let reason = Reason::UnknownPool { pool, suggestions };
            after(&job, &[JobEvent::Failed { reason, at: at(20), cancel_by: None }])
        }
        ExpectedEnd::Takes => completed(&started(&job), "success"),
        ExpectedEnd::Robbed => {
            let freed = JobEvent::Freed {
                held: held(),
                setback: Setback::RunnerTaken,
                at: at(45),
                not_before: at(30),
            };
            let job = after(&after(&job, &routed), &[assigned.clone(), freed, begun, assigned]);
            completed(&started(&job), "success")
        }
        ExpectedEnd::Runs => {
            completed(&started(&after(&after(&job, &routed), &[assigned])), "success")
        }
    }
}

fn row(burst: usize, order: &DemoJob) -> JobOutcome {
    let (how, notes) = match (BURSTS[burst].how, order.name) {
        (Some(how), _) => (how, Vec::new()),
        (None, "ci 1" | "ci 2") => (MachineSource::Picked, vec![claimed(IdleTier::Hot)]),
        (None, "nightly 1" | "nightly 2") => {
            (MachineSource::Picked, vec![claimed(IdleTier::Stopped)])
        }
        (None, "mixed 3") => (MachineSource::Picked, vec![claimed(IdleTier::Released)]),
        (None, _) => (MachineSource::Reused, Vec::new()),
    };
    let job = fulfilled(order, how, notes);
    let explanation = explain(&ExplainInput {
        job: &job,
        next_look: None,
        forget_at: at(0),
        record: None,
        report: None,
        unreadable: None,
        set_aside: None,
        now: at(1_000),
        limits: &Limits::DEFAULT,
    });
    let runs =
        matches!(order.expected, ExpectedEnd::Runs | ExpectedEnd::Takes | ExpectedEnd::Robbed);
    let conclusion =
        if runs { protocol::Conclusion::Success } else { protocol::Conclusion::Cancelled };
    let view = JobView {
        id: 1,
        name: order.name.to_owned(),
        repository: "acme/app".to_owned(),
        run_id: 1,
        run_attempt: 1,
        labels: job.known.about.labels.clone(),
        status: "completed".to_owned(),
        conclusion: Some(conclusion),
        runner: None,
        created_at: at(0),
        started_at: runs.then(|| at(500)),
        completed_at: Some(at(900)),
    };
    JobOutcome { burst, order: *order, view, job, explanation, worked: runs }
}

fn report() -> ServiceReport {
    let bursts = BURSTS.iter().enumerate();
    let rows =
        bursts.flat_map(|(burst, script)| script.orders.iter().map(move |order| row(burst, order)));
    let notice = NoticeView {
        id: 9,
        repository: "acme/app".to_owned(),
        commit: "0a1b".to_owned(),
        is_check: false,
        name: "bullpen".to_owned(),
        external_id: None,
        outcome: "error".to_owned(),
        title: String::new(),
        text: "there is no pool `cii`".to_owned(),
        at: at(30),
    };
    let outcome = ServiceOutcome {
        rows: rows.collect(),
        webhooks: vec![202, 204],
        notices: vec![notice],
        records: 5,
        violations: Vec::new(),
        filled: Duration::from_secs(7),
        refilled: Duration::from_secs(5),
        pools: Vec::new(),
    };
    ServiceReport::new(outcome, Duration::from_secs(2), Duration::from_secs(7))
}

#[test]
fn the_expected_outcome_of_twenty_jobs_has_no_errors() {
    let report = report();
    assert_eq!(report.outcome.rows.len(), 20);
    assert_eq!(report.wrong(), Vec::<String>::new());
    let text = report.text();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    for line in [["hot", "2"], ["started", "2"], ["reused", "10"], ["created", "3"], ["taken", "1"]]
    {
        assert!(lines.contains(&line.to_vec()), "{text}");
    }
    assert!(text.contains("did you mean ci?"), "{text}");
    assert!(text.contains("full after 7.0 s, and again 5.0 s after the last job"), "{text}");
    assert!(text.contains("20 jobs, 2 webhooks; ledger verify: 5 records, 0 violations"), "{text}");
    assert!(text.contains("The slowest, as `bullpen explain` tells it: job 1 ("), "{text}");
    assert_eq!(report.json()["jobs"].as_array().map(Vec::len), Some(20));
}

type Spoil = fn(&mut ServiceReport);

#[test]
fn every_other_outcome_is_an_error_with_a_name() {
    let broken: [(Spoil, &str); 9] = [
        (|report| report.outcome.rows[0].worked = false, "cold 1 did not end as expected"),
        (|report| report.outcome.rows[3].worked = true, "cancelled did not end as expected"),
        (
            |report| {
                report.outcome.rows[4].job =
                    fulfilled(&BURSTS[1].orders[0], MachineSource::Created, vec![]);
            },
            "warm 1 had a machine that was created",
        ),
        (
            |report| {
                report.outcome.rows[7].job =
                    fulfilled(&BURSTS[2].orders[0], MachineSource::Reused, vec![]);
            },
            "burst 3 got 1 hot machines of 2",
        ),
        (
            |report| {
                report.outcome.rows[14].explanation = report.outcome.rows[15].explanation.clone();
            },
            "no other job took the runner of robbed",
        ),
        (|report| report.outcome.notices.clear(), "refused did not end as expected"),
        (
            |report| report.outcome.rows[19].job = queued(&BURSTS[3].orders[6]),
            "refused did not end as expected",
        ),
        (|report| report.outcome.webhooks.push(502), "the service refused 1 webhooks"),
        (|report| report.outcome.violations.push("I1: two owners".to_owned()), "I1: two owners"),
    ];
    for (spoil, error) in broken {
        let mut report = report();
        spoil(&mut report);
        let wrong = report.wrong();
        assert!(wrong.len() == 1 && wrong[0].starts_with(error), "{error}: {wrong:?}");
        assert_eq!(report.json()["wrong"].as_array().map(Vec::len), Some(1));
    }
}
