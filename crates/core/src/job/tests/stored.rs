//! A stored job, to the byte, and what its row is listed by.
//!
//! Not here: the ledger.

use super::*;
use crate::ports::WaitingAt;

/// Never edit them: rows of this version are out there. Add a version and a file.
const V1: &str = include_str!("../../../fixtures/job/v1.json");
/// The same version, since rows remember their steps.
const V1_STEPS: &str = include_str!("../../../fixtures/job/v1-steps.json");

fn full() -> Job {
    let setback = Setback::LaunchFailed { said: "not today".to_owned() };
    let back = Event::SetBack { worker: worker(), setback, at: at(110), not_before: at(120) };
    let job = after(&assigning(), &[Event::Overflowed, back, begun(120)]);
    let held = held();
    let took = Event::Assigned { worker: worker(), held, how: How::Created, at: at(125) };
    let job = after(&job, &[took]);
    let reason =
        Reason::UnknownPool { pool: PoolName::new("c1"), suggestions: vec!["ci".to_owned()] };
    after(&job, &[Event::Failed { reason, at: at(200), cancel_by: Some(at(300)) }])
}

#[test]
fn what_is_written_today_is_the_present_version() {
    assert_eq!(full().encode(), V1_STEPS.trim_end());
    assert_eq!(Job::decode(V1_STEPS).unwrap(), full());
    assert_eq!(Job::decode(V1).unwrap(), Job { steps: Vec::new(), ..full() });
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
    let over = after(&over, &[Event::Released { held: held() }]);
    let row = over.row(None, at(9_000), &LIMITS);
    assert_eq!(row.next_look, None);
    assert_eq!(row.forget_at, at(150).after(LIMITS.job_row_ttl));
}

#[test]
fn an_old_queued_fact_is_checked_before_anything_is_launched() {
    let hour = QUEUED_BELIEVED_FOR.as_secs();
    assert!(!waiting().must_be_checked(at(1 + hour)));
    assert!(waiting().must_be_checked(at(2 + hour)));
    let unsaid = fact(Said::Queued { at: None });
    assert!(learned(&[unsaid]).must_be_checked(at(1 + hour)), "then since it was created");
}

#[test]
fn a_runners_name_fits_github() {
    let name = runner_name(&"s".repeat(24), &JobId::new(u64::MAX.to_string()), u32::MAX);
    assert!(name.as_str().len() <= 64, "{name}");
}
