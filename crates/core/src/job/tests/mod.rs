//! Fixtures of the job tests: one job, the facts about it, and a worker.
//!
//! Not here: the tests.

mod ingest;
mod invariants;
mod orders;
mod origin;
mod placing;
mod returning;
mod rules;
mod stored;
mod waiting_lanes;

use std::time::Duration;

use super::*;
use crate::ids::RunAttempt;
use crate::samples::{LIMITS, at};

pub(super) fn about() -> JobDetails {
    JobDetails {
        repository: Repository::new("acme/app"),
        run: RunAttempt::new("77.1"),
        name: "build".to_owned(),
        labels: vec!["runs-on=77/pool=ci".to_owned()],
        commit: "0a1b".to_owned(),
        created_at: Some(at(0)),
        provenance: Provenance::default(),
    }
}

pub(super) fn fact(said: ReportedStatus) -> JobFact {
    JobFact { job: JobId::new("4242"), about: about(), said }
}

pub(super) fn held_back() -> JobFact {
    // GitHub leaves the labels out of some reports.
    let mut fact = fact(ReportedStatus::Held);
    fact.about.labels.clear();
    fact
}

pub(super) fn queued() -> JobFact {
    fact(ReportedStatus::Queued { at: Some(at(1)) })
}

pub(super) fn started() -> JobFact {
    fact(ReportedStatus::Started { runner: Some(held().runner), at: Some(at(9)) })
}

pub(super) fn completed(word: &str) -> JobFact {
    let mut fact = fact(ReportedStatus::Completed {
        conclusion: Conclusion::new(word),
        runner: Some(held().runner),
        at: Some(at(60)),
    });
    fact.about.created_at = None;
    fact
}

pub(super) fn held() -> JobMachine {
    JobMachine {
        instance: InstanceId::new("i-1"),
        generation: Generation(6),
        runner: runner_name("bp", &JobId::new("4242"), 0),
    }
}

pub(super) fn other() -> JobMachine {
    JobMachine { instance: InstanceId::new("i-2"), runner: RunnerName::new("bp-4343-0"), ..held() }
}

pub(super) fn worker() -> ClaimId {
    ClaimId::new("worker-1")
}

pub(super) fn learned(facts: &[JobFact]) -> Job {
    let (first, rest) = facts.split_first().expect("a job has a first fact");
    let now = at(100);
    rest.iter().fold(Job::first(first, now, &LIMITS), |job, fact| {
        job.learn(fact, now, &LIMITS).expect("it is about this job")
    })
}

pub(super) fn lane() -> Lane {
    Lane::Pool(PoolName::new("ci"))
}

pub(super) fn begun(seconds: u64) -> JobEvent {
    let (at, lease) = (at(seconds), at(seconds + 60));
    JobEvent::Begun { worker: worker(), at, lease, skew: Duration::from_secs(30) }
}

pub(super) fn after(job: &Job, events: &[JobEvent]) -> Job {
    events.iter().fold(job.clone(), |job, event| job.on(event).expect("it is allowed"))
}

pub(super) fn waiting() -> Job {
    after(&learned(&[queued()]), &[JobEvent::Routed { lane: lane(), at: at(100) }])
}

pub(super) fn assigning() -> Job {
    after(&waiting(), &[begun(100)])
}

pub(super) fn assigned() -> Job {
    after(
        &assigning(),
        &[JobEvent::Assigned {
            worker: worker(),
            held: held(),
            how: MachineSource::Created,
            at: at(100),
            notes: vec![],
        }],
    )
}

pub(super) fn dismissed() -> JobEvent {
    JobEvent::Dismissed { reason: Reason::Operator, at: at(200) }
}

pub(super) fn failed() -> JobEvent {
    JobEvent::Failed { reason: Reason::Operator, at: at(200), cancel_by: Some(at(3700)) }
}
