//! The stored form of a job, to the byte, and the values that list its row.
//!
//! Not here: the ledger.

use super::*;
use crate::ports::WaitingAt;

/// Never edit these files: stored rows have this version. Add a version and a file.
const V1: &str = include_str!("../../../fixtures/job/v1.json");
/// The same version, since rows have steps.
const V1_STEPS: &str = include_str!("../../../fixtures/job/v1-steps.json");
/// The same version, since every decision is a step.
const V1_NOTES: &str = include_str!("../../../fixtures/job/v1-notes.json");

fn set_back(seconds: u64, setback: Setback, notes: Vec<JobStepAt>) -> JobEvent {
    let (at, not_before) = (at(seconds), at(120));
    JobEvent::SetBack { worker: worker(), setback, at, not_before, notes }
}

fn noted(seconds: u64, step: JobStep) -> JobStepAt {
    JobStepAt { at: at(seconds), step }
}

fn took(notes: Vec<JobStepAt>) -> JobEvent {
    JobEvent::Assigned {
        worker: worker(),
        held: held(),
        how: MachineSource::Created,
        at: at(125),
        notes,
    }
}

fn refused() -> JobEvent {
    let reason =
        Reason::UnknownPool { pool: PoolName::new("c1"), suggestions: vec!["ci".to_owned()] };
    JobEvent::Failed { reason, at: at(200), cancel_by: Some(at(300)) }
}

/// The job as the first programs of this version wrote it.
fn early() -> Job {
    let failed = Setback::LaunchFailed { said: "not today".to_owned() };
    let overflowed = JobEvent::Overflowed;
    let events = [overflowed, set_back(110, failed, vec![]), begun(120), took(vec![]), refused()];
    after(&assigning(), &events)
}

/// A job with everything that a row can hold.
fn full() -> Job {
    let instance = held().instance;
    let unfit = [("trust-differs".to_owned(), 2)].into();
    let nothing = vec![
        noted(101, JobStep::Asked),
        noted(101, JobStep::Minted),
        noted(102, JobStep::NothingIdle { unfit }),
    ];
    let launched = vec![
        noted(
            121,
            JobStep::Claimed { instance: instance.clone(), tier: crate::instance::Tier::Hot },
        ),
        noted(122, JobStep::Launched { instance }),
        noted(124, JobStep::Warm),
    ];
    let events = [
        JobEvent::Overflowed,
        set_back(105, Setback::PoolEmpty, nothing),
        begun(120),
        set_back(121, Setback::Ceiling, vec![]),
        begun(122),
        set_back(123, Setback::Ceiling, vec![]),
        begun(124),
        took(launched),
        JobEvent::RunsOn { instance: other().instance, at: at(130) },
        refused(),
        JobEvent::Told { at: at(210) },
        JobEvent::RunCancelled { at: at(220) },
        JobEvent::Released { held: held(), at: at(230), notes: vec![noted(126, JobStep::Listens)] },
    ];
    after(&assigning(), &events)
}

#[test]
fn what_is_written_today_is_the_present_version() {
    assert_eq!(full().encode(), V1_NOTES.trim_end());
    assert_eq!(Job::decode(V1_NOTES).unwrap(), full());
}

/// A row of an earlier version has neither field, and an earlier version reads past both.
#[test]
fn a_taken_runner_is_stored() {
    let runs = fact(ReportedStatus::Started { runner: Some(other().runner), at: None });
    let job = assigned().learn(&runs, at(120), &LIMITS).unwrap();
    let by = JobId::new("71");
    let taken = JobEvent::Taken { runner: held().runner, by: by.clone() };
    let judged = JobEvent::Judged {
        held: held(),
        taken_by: Some(by),
        after: AfterJob::End(crate::instance::EndReason::WornOut),
    };
    assert!(!job.encode().contains("taken-by") && !job.encode().contains("after"));
    let job = after(&job, &[taken, judged]);
    let text = job.encode();
    assert!(text.contains(r#""taken-by":"71""#), "{text}");
    assert!(text.contains(r#""after":{"end":"worn-out"}"#), "{text}");
    assert_eq!(Job::decode(&text).unwrap(), job);
}

#[test]
fn what_was_written_before_is_read() {
    let assigned = |step: &JobStepAt| match &step.step {
        JobStep::Assigned { how, .. } => JobStep::Assigned { how: *how, instance: None },
        step => step.clone(),
    };
    let of_old = |step: &&JobStepAt| matches!(step.step, JobStep::Begun | JobStep::Assigned { .. });
    let early = early();
    let steps = early.steps.iter().filter(of_old);
    let steps = steps.map(|step| JobStepAt { at: step.at, step: assigned(step) }).collect();
    assert_eq!(Job::decode(V1_STEPS).unwrap(), Job { steps, ..early.clone() });
    assert_eq!(Job::decode(V1).unwrap(), Job { steps: Vec::new(), ..early });
}

/// Two versions of the program share one table while one replaces the other.
#[test]
fn a_step_of_a_newer_version_is_read_as_unknown() {
    let text = V1_STEPS.replacen("{\"step\":\"begun\"}", "{\"step\":\"sung\",\"to\":[1]}", 1);
    assert_eq!(Job::decode(&text).unwrap().steps[0].step, JobStep::Unknown);
}

#[test]
fn every_state_is_read_back() {
    let others = [learned(&[held_back()]), waiting(), assigning(), assigned()];
    let ended = learned(&[completed("skipped")]);
    for job in others.into_iter().chain([learned(&[started()]), ended]) {
        assert_eq!(Job::decode(&job.encode()).unwrap(), job);
    }
}

#[test]
fn a_newer_version_is_not_taken_for_ours() {
    assert!(Job::decode(&V1.replace("\"v\":\"1\"", "\"v\":\"2\"")).is_err());
}

#[test]
fn a_row_is_listed_where_it_waits_and_when_it_is_due() {
    let repository = Repository::new("acme/app");
    let place = |lane: &str| Some(WaitingAt { lane: lane.into(), repository: repository.clone() });
    let unrouted = learned(&[queued()]).row(None, at(100), &LIMITS);
    assert_eq!((unrouted.waiting, unrouted.next_look), (place(UNROUTED), Some(at(115))));
    let row = waiting().row(Some(crate::ids::Revision(7)), at(100), &LIMITS);
    assert_eq!((row.waiting, row.revision.0), (place("pool/ci"), 7));
    let row = assigning().row(None, at(100), &LIMITS);
    assert_eq!((row.waiting, row.next_look), (None, Some(at(190))), "its lease and the skew");
    let running = assigned().learn(&started(), at(120), &LIMITS).unwrap();
    let look = running.row(None, at(120), &LIMITS).next_look;
    assert_eq!(look, Some(at(120).after(RUNNING_LOOK_AGAIN)));
    let over = running.learn(&completed("success"), at(150), &LIMITS).unwrap();
    let over = after(&over, &[JobEvent::Released { held: held(), at: at(230), notes: vec![] }]);
    let row = over.row(None, at(9_000), &LIMITS);
    assert_eq!(row.next_look, None);
    assert_eq!(row.forget_at, at(150).after(LIMITS.job_row_ttl));
}

#[test]
fn an_old_queued_fact_is_checked_before_anything_is_launched() {
    let hour = QUEUED_BELIEVED_FOR.as_secs();
    assert!(!waiting().must_be_checked(at(1 + hour)));
    assert!(waiting().must_be_checked(at(2 + hour)));
    let unsaid = fact(ReportedStatus::Queued { at: None });
    assert!(learned(&[unsaid]).must_be_checked(at(1 + hour)), "its creation counts then");
}

#[test]
fn a_runners_name_fits_github() {
    let name = runner_name(&"s".repeat(24), &JobId::new(u64::MAX.to_string()), u32::MAX);
    assert!(name.as_str().len() <= 64, "{name}");
}
