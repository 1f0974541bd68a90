//! For any life of a job and any clocks, the parts of a wait add up to the wait.
//!
//! Not here: which parts a wait has.

use proptest::prelude::*;

use super::*;

/// The parts add up to the wait, longest first, and every line of the timeline comes after the line
/// before.
pub(super) fn add_up(answer: &Explanation) {
    let sum: u64 = answer.parts.iter().map(|part| part.ms).sum();
    assert_eq!(sum, answer.waited_ms.unwrap_or(0), "{answer:?}");
    assert!(answer.parts.is_sorted_by_key(|part| std::cmp::Reverse(part.ms)), "{answer:?}");
    assert!(answer.timeline.is_sorted_by_key(|entry| entry.at), "{answer:?}");
    assert_eq!(answer.blocker, answer.parts.first().map(|part| part.code.as_str()));
    assert!(serde_json::to_value(answer).is_ok());
}

/// Something that may happen to a job, at any time.
fn anything() -> impl Strategy<Value = (u8, u64)> {
    (0_u8..14, 0_u64..100_000)
}

fn happens(job: &Job, (what, at): (u8, u64)) -> Job {
    let (now, held) = (ms(at), held());
    let (worker, notes) = (worker(), noted(&[(at / 2, JobStep::Minted), (at, JobStep::Warm)]));
    let event = match what {
        0 => JobEvent::Routed { lane: class(), at: now },
        1 => JobEvent::Overflowed,
        2 | 3 => JobEvent::Begun { worker, at: now, lease: now, skew: Duration::ZERO },
        4 => JobEvent::Assigned { worker, held, how: MachineSource::Reused, at: now, notes },
        5 => {
            JobEvent::SetBack { worker, setback: Setback::Ceiling, at: now, not_before: now, notes }
        }
        6 => JobEvent::Freed { held, setback: Setback::MachineLost, at: now, not_before: now },
        7 => JobEvent::Failed { reason: Reason::Operator, at: now, cancel_by: None },
        8 => JobEvent::Released { held, at: now, notes: noted(&[(at, JobStep::Listens)]) },
        9 => JobEvent::Told { at: now },
        10 => JobEvent::SetBack {
            worker,
            setback: Setback::PoolEmpty,
            at: now,
            not_before: now,
            notes,
        },
        11 => return learn(job, ReportedStatus::Started { runner: None, at: Some(now) }, at),
        12 => {
            let conclusion = Conclusion::new("cancelled");
            return learn(
                job,
                ReportedStatus::Completed { conclusion, runner: None, at: None },
                at,
            );
        }
        _ => return learn(job, ReportedStatus::Queued { at: Some(now) }, at),
    };
    job.on(&event).unwrap_or_else(|_| job.clone())
}

fn learn(job: &Job, said: ReportedStatus, at: u64) -> Job {
    job.learn(&fact(said), ms(at), &LIMITS).expect("it is about this job")
}

proptest! {
    #[test]
    fn every_wait_adds_up(lives in prop::collection::vec(anything(), 0..24), now in 0_u64..200_000) {
        let first = Job::first(&fact(ReportedStatus::Held), ms(0), &LIMITS);
        let job = lives.into_iter().fold(first, |job, thing| happens(&job, thing));
        // `explained` asserts it.
        let answer = TestJob(job).explained(now);
        prop_assert!(answer.text().ends_with(|last: char| last != '\n'));
    }
}
