//! The rules of a job's life, one by one, and the whole table of states and events.
//!
//! Not here: orders of facts (`orders`).

use super::*;

fn refused(job: &Job, event: &JobEvent) -> JobRefusal {
    job.on(event).expect_err("it is refused")
}

fn set_back(setback: Setback) -> JobEvent {
    JobEvent::SetBack { worker: worker(), setback, at: at(110), not_before: at(120), notes: vec![] }
}

#[test]
fn only_a_queued_job_waits_and_a_gate_is_waited_out() {
    assert_eq!(learned(&[held_back()]).state, JobState::Dormant);
    let job = learned(&[held_back(), queued()]);
    let deadline = at(100).after(LIMITS.job_deadline);
    assert_eq!(job.state, JobState::Waiting { deadline, not_before: at(100) });
    assert_eq!(job.known.about.labels, about().labels);
    assert_eq!(learned(&[started()]).state, JobState::Elsewhere);
}

#[test]
fn a_job_is_assigned_only_while_it_is_queued() {
    let taken = assigning().learn(&started(), at(101), &LIMITS).unwrap();
    assert_eq!(taken.state, JobState::Elsewhere);
    let event = JobEvent::Assigned {
        worker: worker(),
        held: held(),
        how: MachineSource::Created,
        at: at(100),
        notes: vec![],
    };
    let illegal = JobRefusal::Illegal { state: JobStateName::Elsewhere, event: "assigned" };
    assert_eq!(refused(&taken, &event), illegal);
    assert_eq!(assigned().held(), Some(&held()));
}

#[test]
fn a_fact_about_another_job_is_refused() {
    let another = JobFact { job: JobId::new("1"), ..queued() };
    let refusal = waiting().learn(&another, at(1), &LIMITS).unwrap_err();
    assert_eq!(refusal, JobRefusal::AnotherJob { job: JobId::new("1") });
}

#[test]
fn a_row_has_one_worker_until_its_lease_and_the_skew_are_over() {
    let other = |seconds| match begun(seconds) {
        JobEvent::Begun { at, lease, skew, .. } => {
            JobEvent::Begun { worker: ClaimId::new("worker-2"), at, lease, skew }
        }
        event => event,
    };
    let job = assigning();
    assert_eq!(refused(&job, &other(189)), JobRefusal::TooEarly { until: at(190) });
    let renewed = after(&job, &[JobEvent::Renewed { worker: worker(), lease: at(200) }]);
    assert_eq!(refused(&renewed, &other(229)), JobRefusal::TooEarly { until: at(230) });
    let taken = after(&job, &[other(190)]);
    assert_eq!(refused(&taken, &set_back(Setback::NoCapacity)), JobRefusal::AnotherWorker);
    let late = JobEvent::Assigned {
        worker: worker(),
        held: held(),
        how: MachineSource::Created,
        at: at(100),
        notes: vec![],
    };
    assert_eq!(refused(&taken, &late), JobRefusal::AnotherWorker);
    assert_eq!((taken.attempts, taken.setbacks.len()), (0, 1), "a crash costs no attempt");
}

#[test]
fn no_worker_begins_without_a_lane_too_early_or_too_late() {
    let job = learned(&[queued()]);
    assert_eq!(refused(&job, &begun(100)), JobRefusal::Unrouted);
    assert_eq!(refused(&waiting(), &begun(99)), JobRefusal::TooEarly { until: at(100) });
    let deadline = at(100).after(LIMITS.job_deadline);
    assert_eq!(refused(&waiting(), &begun(100 + 3600)), JobRefusal::Overdue { deadline });
}

#[test]
fn setbacks_are_counted_remembered_and_end() {
    let mut job = waiting();
    for attempt in 1..LIMITS.launch_attempts_max {
        let next =
            job.after_setback((&Setback::NeverRegistered, None), at(100), &LIMITS, Duration::ZERO);
        let wait = Duration::from_secs(5 * (1 << (attempt - 1))) / 2;
        assert_eq!(next, AfterSetback::Again { not_before: at(100).after(wait) });
        let back = JobEvent::SetBack {
            worker: worker(),
            setback: Setback::NeverRegistered,
            at: at(100),
            not_before: at(100),
            notes: vec![],
        };
        job = after(&job, &[begun(100), back]);
        assert_eq!(job.attempts, attempt);
    }
    let race = job.after_setback((&Setback::RaceLost, None), at(100), &LIMITS, Duration::ZERO);
    assert_eq!(race, AfterSetback::Again { not_before: at(100) }, "a race costs nothing");
    let short = job.after_setback((&Setback::NoCapacity, None), at(100), &LIMITS, Duration::ZERO);
    assert_eq!(short, AfterSetback::Again { not_before: at(100) }, "a shortage costs nothing");
    let stood_by = (&Setback::NeverRegistered, Some(MachineSource::Picked));
    let standby = job.after_setback(stood_by, at(100), &LIMITS, Duration::ZERO);
    assert_eq!(
        standby,
        AfterSetback::Again { not_before: at(100) },
        "a warm machine costs nothing"
    );
    let AfterSetback::GiveUp(reason) =
        job.after_setback((&Setback::NeverRegistered, None), at(100), &LIMITS, Duration::ZERO)
    else {
        panic!("five attempts are enough");
    };
    assert_eq!(
        reason.to_string(),
        "no runner after 5 attempts: its runner never registered at GitHub"
    );
    for number in 0..20 {
        let setback = if number % 2 == 0 { Setback::RaceLost } else { Setback::Ceiling };
        let (at, not_before) = (at(100), at(100));
        let back = JobEvent::SetBack { worker: worker(), setback, at, not_before, notes: vec![] };
        job = after(&job, &[begun(100), back]);
    }
    assert_eq!((job.attempts, job.setbacks.len()), (4, SETBACKS_KEPT_MAX));
}

/// A ceiling may be in the way for an hour: the row keeps since when and how often, and not every
/// single time.
#[test]
fn what_passes_by_itself_is_remembered_once() {
    let mut job = waiting();
    for second in 0..100 {
        let (at, not_before) = (at(200 + second), at(200 + second));
        let (worker, setback) = (worker(), Setback::Ceiling);
        let notes = vec![JobStepAt { at, step: JobStep::NothingIdle { unfit: [].into() } }];
        let back = JobEvent::SetBack { worker, setback, at, not_before, notes };
        job = after(&job, &[begun(200 + second), back]);
    }
    let [ceiling] = job.setbacks.as_slice() else { panic!("{:?}", job.setbacks) };
    assert_eq!((ceiling.times, ceiling.began(), ceiling.at), (100, at(200), at(299)));
    let steps: Vec<_> = job.steps.iter().map(|step| step.step.code()).collect();
    assert_eq!(steps, ["heard", "routed", "begun", "nothing-idle"], "the first attempt stands");
}

/// After any number of attempts the row still shows where the job was sent.
#[test]
fn steps_are_bounded_and_the_first_ones_stay() {
    let mut job = assigning();
    for second in 0..100 {
        let freed = JobEvent::Freed {
            held: held(),
            setback: if second % 2 == 0 { Setback::RunnerTaken } else { Setback::WorkerLost },
            at: at(200 + second),
            not_before: at(200 + second),
        };
        let took = JobEvent::Assigned {
            worker: worker(),
            held: held(),
            how: MachineSource::Reused,
            at: at(200 + second),
            notes: vec![],
        };
        job = after(&job, &[took, freed, begun(200 + second)]);
    }
    assert_eq!(job.steps.len(), STEPS_KEPT_MAX);
    let first: Vec<_> = job.steps[..3].iter().map(|step| step.step.code()).collect();
    assert_eq!(first, ["heard", "routed", "begun"]);
    assert_eq!(job.steps.last().map(|step| step.at), Some(at(299)));
}

#[test]
fn a_machine_that_is_lost_before_the_job_ran_sends_it_back_in_its_own_time() {
    let freed = |held| JobEvent::Freed {
        held,
        setback: Setback::MachineLost,
        at: at(130),
        not_before: at(135),
    };
    let job = after(&assigned(), &[freed(held())]);
    let deadline = at(100).after(LIMITS.job_deadline);
    assert_eq!(job.state, JobState::Waiting { deadline, not_before: at(135) });
    assert_eq!(refused(&assigned(), &freed(other())), JobRefusal::AnotherMachine);
    let running = assigned().learn(&started(), at(120), &LIMITS).unwrap();
    assert_eq!(refused(&running, &freed(held())), JobRefusal::Started);
    assert_eq!(refused(&running, &failed()), JobRefusal::Started);
}

fn runs_on(runner: &RunnerName) -> JobFact {
    fact(ReportedStatus::Started { runner: Some(runner.clone()), at: None })
}

fn taken() -> JobEvent {
    JobEvent::Taken { runner: held().runner, by: JobId::new("71") }
}

#[test]
fn a_job_on_another_jobs_runner_is_seen() {
    let own = assigned().learn(&runs_on(&held().runner), at(120), &LIMITS).unwrap();
    assert_eq!((own.took("bp"), own.is_elsewhere(&held())), (None, false));
    let theirs = RunnerName::new("bp-71-0");
    for job in [assigned(), waiting()] {
        let job = job.learn(&runs_on(&theirs), at(120), &LIMITS).unwrap();
        assert_eq!(job.took("bp"), Some((JobId::new("71"), &theirs)));
        assert_eq!(job.took("another-stack"), None);
        assert!(job.is_elsewhere(&held()));
        let runs = |second| JobEvent::RunsOn { instance: other().instance, at: at(second) };
        let job = after(&job, &[runs(130), runs(140)]);
        assert_eq!(job.runs_on(), Some(&other().instance));
        assert_eq!(job.steps.last().map(|step| step.at), Some(at(130)), "it is noted once");
    }
}

#[test]
fn a_row_notes_the_job_that_took_its_runner_until_it_has_another() {
    let job = after(&assigned(), &[taken(), taken()]);
    assert_eq!((job.held(), job.taken_by.clone()), (Some(&held()), Some(JobId::new("71"))));
    let another = JobEvent::Taken { runner: held().runner, by: JobId::new("72") };
    assert_eq!(refused(&job, &another), JobRefusal::AnotherMachine, "a runner runs one job");
    let stale = JobEvent::Taken { runner: other().runner, by: JobId::new("71") };
    assert_eq!(refused(&assigned(), &stale), JobRefusal::AnotherMachine);
    let freed = JobEvent::Freed {
        held: held(),
        setback: Setback::RunnerTaken,
        at: at(130),
        not_before: at(130),
    };
    assert_eq!(after(&job, &[freed]).taken_by, None);
    let over = after(&after(&assigned(), &[failed()]), &[taken()]);
    let released = JobEvent::Released { held: held(), at: at(230), notes: vec![] };
    let over = after(&over, &[released]);
    assert_eq!(over.taken_by, Some(JobId::new("71")), "a chain of names leads on");
    assert!(matches!(refused(&over, &taken()), JobRefusal::Illegal { .. }));
}

#[test]
fn a_job_that_runs_elsewhere_gives_its_machine_back_before_its_end() {
    let judged = JobEvent::Judged { held: held(), taken_by: None, after: AfterJob::Pool };
    let released = JobEvent::Released { held: held(), at: at(230), notes: vec![] };
    for early in [&judged, &released] {
        assert!(matches!(refused(&assigned(), early), JobRefusal::Illegal { .. }), "it waits");
    }
    let runs = assigned().learn(&runs_on(&other().runner), at(120), &LIMITS).unwrap();
    let runs = after(&runs, &[judged]);
    let over = runs.learn(&completed("success"), at(300), &LIMITS).unwrap();
    assert_eq!(over.says_of(&held().instance, false), Some(AfterJob::Pool), "it stays decided");
    assert_eq!(after(&runs, &[released]).state, JobState::Elsewhere);
}

#[test]
fn a_job_that_runs_or_ran_elsewhere_gets_a_machine_for_the_job_that_waits() {
    let adopted = JobEvent::Adopted { held: held(), deadline: at(500), at: at(130) };
    let early = waiting().learn(&runs_on(&other().runner), at(120), &LIMITS).unwrap();
    assert_eq!(after(&early, std::slice::from_ref(&adopted)).held(), Some(&held()));
    let over = early.learn(&completed("success"), at(125), &LIMITS).unwrap();
    assert_eq!(after(&over, std::slice::from_ref(&adopted)).keeps(), Some(&held()));
    let conclusion = Conclusion::new("cancelled");
    let cancelled = fact(ReportedStatus::Completed { conclusion, runner: None, at: None });
    let cancelled = waiting().learn(&cancelled, at(125), &LIMITS).unwrap();
    assert!(matches!(refused(&cancelled, &adopted), JobRefusal::Illegal { .. }), "it never ran");
}

/// The job that runs there tells of its end, so the sweep is only a backup.
#[test]
fn a_job_that_is_over_waits_for_the_job_on_its_machine() {
    let look = |job: &Job| job.next_look(at(400), &LIMITS);
    let over = assigned().learn(&completed("success"), at(300), &LIMITS).unwrap();
    let over_and_taken = after(&over, &[taken()]);
    assert_eq!(look(&over), Some(at(400).after(ENDED_LOOK_AGAIN)));
    assert_eq!(look(&over_and_taken), Some(at(400).after(RUNNING_LOOK_AGAIN)));
    let taken_by = over_and_taken.taken_by.clone();
    let judged = JobEvent::Judged { held: held(), taken_by, after: AfterJob::Pool };
    let judged = after(&over_and_taken, &[judged]);
    assert_eq!(look(&judged), Some(at(400).after(ENDED_LOOK_AGAIN)), "its release is under way");
    let released = JobEvent::Released { held: held(), at: at(401), notes: vec![] };
    assert_eq!(look(&after(&over_and_taken, &[released])), None);
}

#[test]
fn a_job_without_a_machine_is_overdue_at_its_deadline() {
    let deadline = at(100).after(LIMITS.job_deadline);
    assert_eq!(waiting().overdue(deadline.before(Duration::from_millis(1))), None);
    assert_eq!(waiting().overdue(deadline), Some(Reason::DeadlinePassed { last: None }));
    let tried = after(&assigning(), &[set_back(Setback::Ceiling)]);
    let reason = tried.overdue(deadline).unwrap();
    assert_eq!(
        reason.to_string(),
        "no runner before the job's deadline: as many machines run as are allowed"
    );
    let failed = JobEvent::Failed { reason, at: deadline, cancel_by: None };
    assert!(after(&tried, &[failed]).is_over());
    assert!(assigning().overdue(deadline).is_some());
    for job in [assigned(), learned(&[started()]), learned(&[held_back()])] {
        assert_eq!(job.overdue(deadline), None);
    }
}

#[test]
fn a_job_that_is_over_keeps_its_debts_until_they_are_paid() {
    let job = after(&assigned(), &[failed()]);
    let row = job.row(None, at(200), &LIMITS);
    assert_eq!((row.waiting, row.next_look), (None, Some(at(215))));
    let paid = after(
        &job,
        &[
            JobEvent::Told { at: at(210) },
            JobEvent::Released { held: held(), at: at(230), notes: vec![] },
            JobEvent::RunCancelled { at: at(220) },
            JobEvent::Told { at: at(210) },
        ],
    );
    assert_eq!(paid.row(None, at(300), &LIMITS).next_look, None);
    let wrong = JobEvent::Released { held: other(), at: at(230), notes: vec![] };
    assert_eq!(refused(&job, &wrong), JobRefusal::AnotherMachine);
    let cancelled = job.learn(&completed("cancelled"), at(300), &LIMITS).unwrap();
    let JobState::Ended { end: End::Failed(_), debts, .. } = &cancelled.state else {
        panic!("the row must keep why the job failed: {cancelled:?}");
    };
    assert_eq!((debts.tell, debts.cancel_by), (true, None), "there is nothing left to cancel");
    let ended = assigned().learn(&completed("cancelled"), at(300), &LIMITS).unwrap();
    assert!(matches!(ended.state, JobState::Ended { end: End::Cancelled, .. }), "{ended:?}");
}

/// A worker repeats a write whose answer was lost, and the row must accept it as the same write.
#[test]
fn what_landed_before_is_taken_again_from_the_same_worker_alone() {
    let again = assigning().on(&begun(101)).expect("it is the same worker's");
    assert_eq!(again.setbacks, []);
    let took = |held| JobEvent::Assigned {
        worker: worker(),
        held,
        how: MachineSource::Created,
        at: at(100),
        notes: vec![],
    };
    assert_eq!(assigned().on(&took(held())), Ok(assigned()));
    assert!(matches!(refused(&assigned(), &took(other())), JobRefusal::Illegal { .. }));
}

/// GitHub may still give a job to a runner that was given up, so its name is never used again.
#[test]
fn a_machine_that_was_let_go_of_takes_its_runners_name_along() {
    let freed = JobEvent::Freed {
        held: held(),
        setback: Setback::RunnerTaken,
        at: at(1),
        not_before: at(2),
    };
    let job = after(&assigned(), &[freed]);
    assert_eq!((job.names, job.attempts), (1, 0));
    assert_eq!(job.runners_on("bp", &held().instance), vec![held().runner], "not the next one's");
    assert_eq!(assigned().runners_on("bp", &held().instance), vec![held().runner]);
    assert_eq!(assigned().runners_on("bp", &other().instance), []);
    let over = after(&job, &[failed()]);
    assert_eq!(over.runners_on("bp", &held().instance), vec![held().runner]);
    assert_eq!(over.runners_on("bp", &other().instance).len(), 2, "any of them, when it is over");
}

#[test]
fn a_runner_names_the_job_it_was_minted_for() {
    let named = |name: &str| minted_for("my-stack", &RunnerName::new(name));
    assert_eq!(
        named(runner_name("my-stack", &JobId::new("4242"), 3).as_str()),
        Some("4242".into())
    );
    assert_eq!(named("my-stack-4242-x"), None);
    assert_eq!(named("another-4242-0"), None);
    assert_eq!(named("my-stack-4242"), None);
}

/// Which events each state takes; all others are illegal there.
#[test]
fn the_table() {
    let states = [
        learned(&[held_back()]),
        waiting(),
        assigning(),
        assigned(),
        learned(&[started()]),
        after(&waiting(), &[failed()]),
    ];
    let events = [
        JobEvent::Routed { lane: lane(), at: at(100) },
        JobEvent::Overflowed,
        begun(300),
        JobEvent::Renewed { worker: worker(), lease: at(500) },
        JobEvent::Assigned {
            worker: worker(),
            held: held(),
            how: MachineSource::Created,
            at: at(100),
            notes: vec![],
        },
        set_back(Setback::RaceLost),
        JobEvent::Freed {
            held: held(),
            setback: Setback::RunnerTaken,
            at: at(1),
            not_before: at(2),
        },
        taken(),
        JobEvent::RunsOn { instance: other().instance, at: at(130) },
        JobEvent::Adopted { held: held(), deadline: at(500), at: at(130) },
        failed(),
        dismissed(),
        JobEvent::Told { at: at(210) },
        JobEvent::RunCancelled { at: at(220) },
        JobEvent::Judged { held: held(), taken_by: None, after: AfterJob::Pool },
        JobEvent::Released { held: held(), at: at(230), notes: vec![] },
    ];
    let mut table = String::new();
    for state in &states {
        table += state.state.name().as_str();
        for event in &events {
            match state.on(event) {
                Ok(next) => {
                    table.extend([" ", event.name(), ":", next.state.name().as_str()]);
                }
                Err(JobRefusal::Illegal { .. }) => {}
                Err(refusal) => panic!("{}: {refusal}", event.name()),
            }
        }
        table += "\n";
    }
    assert_eq!(
        table,
        "dormant routed:dormant failed:ended dismissed:ended\n\
         waiting routed:waiting overflowed:waiting begun:assigning failed:ended dismissed:ended\n\
         assigning overflowed:assigning begun:assigning renewed:assigning assigned:assigned \
         set-back:waiting failed:ended dismissed:ended\n\
         assigned assigned:assigned freed:waiting taken:assigned runs-on:assigned failed:ended \
         dismissed:ended\n\
         elsewhere runs-on:elsewhere adopted:assigned dismissed:ended\n\
         ended runs-on:ended dismissed:ended told:ended run-cancelled:ended judged:ended released:ended\n"
    );
}
