//! Explanations of jobs that succeeded, failed, or are not over; every wait adds up.
//!
//! Not here: the page with every code (`page`).

mod page;
mod sums;

use super::*;
use crate::ids::{ClassName, InstanceId, JobId, PoolName, Repository, RunAttempt, RunnerName};
use crate::instance::Tier;
use crate::job::{
    Conclusion, JobDetails, JobEvent, JobFact, JobMachine, JobStep, JobStepAt, Lane, MachineSource,
    Provenance, Reason, ReportedStatus, Setback,
};
use crate::samples::{self, GENERATION, LIMITS};
use std::time::Duration;

/// The time this many milliseconds after noon.
fn ms(millis: u64) -> Timestamp {
    samples::at(0).after(Duration::from_millis(millis))
}

fn fact(said: ReportedStatus) -> JobFact {
    let about = JobDetails {
        repository: Repository::new("acme/app"),
        run: RunAttempt::new("77.1"),
        name: "build".to_owned(),
        labels: vec!["runs-on=77/runner=large".to_owned()],
        commit: "0a1b".to_owned(),
        created_at: Some(ms(0)),
        provenance: Provenance::default(),
    };
    JobFact { job: JobId::new("4242"), about, said }
}

fn held() -> JobMachine {
    let (instance, runner) = (InstanceId::new("i-1"), RunnerName::new("bp-4242-0"));
    JobMachine { instance, generation: GENERATION, runner }
}

fn class() -> Lane {
    Lane::Class(ClassName::new("large"))
}

fn worker() -> crate::ids::ClaimId {
    crate::ids::ClaimId::new("worker-1")
}

/// A job, built event by event.
struct TestJob(Job);

impl TestJob {
    /// Queued at noon; Bullpen hears of it at `heard`.
    fn queued(heard: u64) -> Self {
        Self(Job::first(&fact(ReportedStatus::Queued { at: Some(ms(0)) }), ms(heard), &LIMITS))
    }

    fn learns(self, at: u64, said: ReportedStatus) -> Self {
        Self(self.0.learn(&fact(said), ms(at), &LIMITS).expect("it is about this job"))
    }

    fn on(self, event: &JobEvent) -> Self {
        Self(self.0.on(event).expect("it is allowed"))
    }

    fn routed(self, at: u64, lane: Lane) -> Self {
        self.on(&JobEvent::Routed { lane, at: ms(at) })
    }

    fn begun(self, at: u64) -> Self {
        let skew = Duration::from_secs(30);
        let (at, lease) = (ms(at), ms(at + 60_000));
        self.on(&JobEvent::Begun { worker: worker(), at, lease, skew })
    }

    fn assigned(self, at: u64, how: MachineSource, notes: &[(u64, JobStep)]) -> Self {
        let (held, at, notes) = (held(), ms(at), noted(notes));
        self.on(&JobEvent::Assigned { worker: worker(), held, how, at, notes })
    }

    fn set_back(self, at: u64, setback: Setback, not_before: u64) -> Self {
        let (at, not_before, notes) = (ms(at), ms(not_before), vec![]);
        self.on(&JobEvent::SetBack { worker: worker(), setback, at, not_before, notes })
    }

    fn began(self, at: u64, runner: &str) -> Self {
        let runner = Some(RunnerName::new(runner));
        self.learns(at, ReportedStatus::Started { runner, at: Some(ms(at)) })
    }

    fn completed(self, at: u64, word: &str) -> Self {
        let conclusion = Conclusion::new(word);
        self.learns(at, ReportedStatus::Completed { conclusion, runner: None, at: Some(ms(at)) })
    }

    fn released(self, at: u64, listened: u64) -> Self {
        let notes = noted(&[(listened, JobStep::Listens)]);
        self.on(&JobEvent::Released { held: held(), at: ms(at), notes })
    }

    fn explained(&self, now: u64) -> Explanation {
        self.explained_with(now, None)
    }

    fn explained_with(&self, now: u64, record: Option<&Record>) -> Explanation {
        let explanation = explain(&ExplainInput {
            job: &self.0,
            next_look: self.0.next_look(ms(now), &LIMITS),
            forget_at: ms(now).after(LIMITS.job_row_ttl),
            record,
            report: None,
            unreadable: None,
            set_aside: None,
            now: ms(now),
            limits: &LIMITS,
        });
        sums::add_up(&explanation);
        explanation
    }
}

fn noted(notes: &[(u64, JobStep)]) -> Vec<JobStepAt> {
    notes.iter().map(|(at, step)| JobStepAt { at: ms(*at), step: step.clone() }).collect()
}

fn launched() -> Vec<(u64, JobStep)> {
    vec![
        (600, JobStep::NothingIdle { unfit: [("trust-differs".to_owned(), 2)].into() }),
        (1_200, JobStep::Launched { instance: InstanceId::new("i-1") }),
        (14_200, JobStep::Warm),
        (14_200, JobStep::Asked),
        (14_900, JobStep::Minted),
    ]
}

fn cold() -> TestJob {
    let job = TestJob::queued(400).routed(410, class()).begun(500);
    job.assigned(15_000, MachineSource::Created, &launched())
}

#[test]
fn a_cold_start_is_told_as_it_was() {
    let job =
        cold().began(16_000, "bp-4242-0").completed(60_000, "success").released(61_000, 15_900);
    let answer = job.explained(90_000);
    assert_eq!(
        answer.text(),
        "job 4242  build  acme/app, run 77.1\n\
         labels: runs-on=77/runner=large\n\
         \n\
         waited 16 s: 13 s for the machine to start and warm up, 900 ms for its runner to listen\n\
         \n\
         \x20 2026-01-01 12:00:00.000                queued           GitHub queued it\n\
         \x20 2026-01-01 12:00:00.400       +400 ms  heard            Bullpen heard of it\n\
         \x20 2026-01-01 12:00:00.410        +10 ms  routed           routed to machines of class large\n\
         \x20 2026-01-01 12:00:00.500        +90 ms  begun            a worker took it on\n\
         \x20 2026-01-01 12:00:00.600       +100 ms  nothing-idle     no machine was idle that it may have: \
         2 of another trust group\n\
         \x20 2026-01-01 12:00:01.200       +600 ms  launched         launched machine i-1\n\
         \x20 2026-01-01 12:00:14.200         +13 s  warm             the machine was up and warm\n\
         \x20 2026-01-01 12:00:14.200                asked            asked GitHub for a credential for its runner\n\
         \x20 2026-01-01 12:00:14.900       +700 ms  minted           GitHub gave a credential for its runner\n\
         \x20 2026-01-01 12:00:15.000       +100 ms  assigned         has machine i-1, made for it\n\
         \x20 2026-01-01 12:00:15.900       +900 ms  listens          its runner listened for jobs\n\
         \x20 2026-01-01 12:00:16.000       +100 ms  began            runner bp-4242-0 began it\n\
         \x20 2026-01-01 12:01:00.000         +44 s  completed        over at GitHub: success\n\
         \x20 2026-01-01 12:01:01.000        +1.0 s  released         its machine was taken back\n\
         \n\
         now:    it is over: success\n\
         next:   nothing: all is done, and its row is forgotten, by 2026-01-15T12:01:30Z\n\
         faster: an idle machine of its own trust group (`x-bullpen.runners.large.trust` says which \
         jobs share machines): about 13 s less"
    );
    assert_eq!(
        (answer.waited_ms, answer.blocker, answer.waits),
        (Some(16_000), Some("warm-up"), false)
    );
}

#[test]
fn the_verdict_names_what_was_in_the_way() {
    let limited = TestJob::queued(0)
        .routed(0, class())
        .begun(0)
        .set_back(16_000, Setback::RateLimited, 31_000)
        .begun(31_000)
        .set_back(37_000, Setback::RateLimited, 38_000)
        .begun(38_000)
        .assigned(40_500, MachineSource::Reused, &[(38_100, JobStep::Minted), (40_400, claimed())])
        .began(41_000, "bp-4242-0");
    let answer = limited.explained(50_000);
    assert_eq!(
        answer.verdict,
        "waited 41 s: 38 s for GitHub's point budget, 2.3 s to look through idle machines"
    );
    assert_eq!(answer.blocker, Some("rate-limited"));
    let line = answer.timeline.iter().find(|entry| entry.code == "rate-limited").expect("a line");
    assert_eq!(line.what, "GitHub's rate limit allowed no runner for it (2 times)");
    assert_eq!(answer.helped.as_deref(), Some("a second GitHub App: each has a budget of its own"));
    assert_eq!(answer.now, "it runs on machine i-1 as runner bp-4242-0");
    assert_eq!(
        answer.next,
        NextStep { what: "its machine is taken back when it is over".into(), at: None }
    );
}

fn claimed() -> JobStep {
    JobStep::Claimed { instance: InstanceId::new("i-1"), tier: Tier::Released }
}

#[test]
fn a_stopped_machine_is_waited_for_until_it_has_started_and_a_hot_one_is_not() {
    let picked = |tier| {
        let job = TestJob::queued(100).routed(100, Lane::Pool(PoolName::new("ci"))).begun(200);
        let claimed = JobStep::Claimed { instance: InstanceId::new("i-1"), tier };
        job.assigned(400, MachineSource::Picked, &[(400, claimed)])
    };
    let hot = picked(Tier::Hot).explained(5_400);
    assert_eq!(hot.parts[0].code, PartCode::Listen);
    let stopped = picked(Tier::Stopped).explained(5_400);
    assert_eq!(stopped.blocker, Some("start"));
    let answer = picked(Tier::Stopped).began(20_500, "bp-4242-0").completed(21_000, "success");
    let answer = answer.released(22_000, 20_400).explained(30_000);
    assert_eq!(answer.verdict, "waited 20 s: 20 s for its stopped machine to start");
    let helped = "a machine standing by in pool ci (`hot`): about 20 s less";
    assert_eq!(answer.helped.as_deref(), Some(helped));
    let again = JobEvent::Freed {
        held: held(),
        setback: Setback::NotStarted,
        at: ms(9_000),
        not_before: ms(9_000),
    };
    let answer = picked(Tier::Stopped).on(&again).begun(9_000);
    let answer = answer.assigned(9_100, MachineSource::Created, &[]).explained(12_000);
    assert!(answer.parts.iter().any(|part| part.code == PartCode::Listen), "{:?}", answer.parts);
}

#[test]
fn an_attempt_that_came_to_nothing_is_one_part_from_its_beginning_to_the_next() {
    let freed = JobEvent::Freed {
        held: held(),
        setback: Setback::NeverRegistered,
        at: ms(45_000),
        not_before: ms(48_000),
    };
    let job = cold().on(&freed).begun(49_000);
    let answer = job.assigned(50_000, MachineSource::Reused, &[(49_500, JobStep::Minted)]);
    let answer = answer.began(51_000, "bp-4242-1").explained(60_000);
    assert_eq!(answer.verdict, "waited 51 s: 48 s because its runner never registered");
}

#[test]
fn a_waiting_job_says_for_what_and_until_when() {
    let job = TestJob::queued(100).routed(100, class()).begun(200);
    let job = job.set_back(300, Setback::Ceiling, 15_300).begun(15_300);
    let answer = job.set_back(15_400, Setback::Ceiling, 30_400).explained(20_100);
    assert_eq!(answer.verdict, "has waited 20 s so far: 19 s for a ceiling of this stack");
    assert_eq!(answer.now, "it waits until its next attempt");
    assert_eq!(answer.next, NextStep { what: "it is tried again".into(), at: Some(ms(30_400)) });
    assert!(answer.waits);
    let early = TestJob::queued(100).explained(5_100);
    assert_eq!(early.verdict, "has waited 5.1 s so far: 5.0 s for a configuration");
    assert_eq!(early.now, "it waits: no configuration was read yet");
    let ready = TestJob::queued(100).routed(200, Lane::Pool(PoolName::new("ci"))).explained(2_200);
    assert_eq!(ready.verdict, "has waited 2.2 s so far: 2.0 s for a worker's turn");
    assert_eq!(ready.now, "it waits for pool ci");
    assert_eq!(ready.next.at, Some(ms(100).after(LIMITS.job_deadline)));
}

#[test]
fn what_its_machine_says_is_used_while_the_job_has_it() {
    let prepared = cold().explained(17_000);
    assert_eq!(prepared.now, "its machine is being prepared: on machine i-1 as runner bp-4242-0");
    assert_eq!(prepared.parts[1].code, PartCode::Listen);
    let mut record = samples::record(State::Running {
        owner: samples::job_owner(),
        since: ms(15_500),
        deadline: ms(90_000),
        cap: ms(90_000),
    });
    let listens = cold().explained_with(17_000, Some(&record));
    assert_eq!(listens.parts[1].code, PartCode::Github);
    assert!(listens.now.starts_with("its runner listens"), "{}", listens.now);
    assert_eq!(listens.machine.map(|machine| machine.state), Some("running"));
    record.generation = GENERATION.next();
    let another = cold().explained_with(17_000, Some(&record));
    assert_eq!(another.now, prepared.now, "it has another owner by now");
}

#[test]
fn a_failure_says_what_its_author_was_told() {
    let (pool, suggestions) = (PoolName::new("c1"), vec!["ci".to_owned()]);
    let reason = Reason::UnknownPool { pool, suggestions };
    let failed = JobEvent::Failed { reason, at: ms(300), cancel_by: Some(ms(3_600_300)) };
    let job = TestJob::queued(300).on(&failed);
    let answer = job.explained(400);
    assert_eq!(answer.verdict, "no runner after 300 ms: there is no pool `c1`; did you mean ci?");
    assert_eq!(
        answer.next.what,
        "its author is told; its run is cancelled when its other jobs are over, or at \
         2026-01-01T13:00:00.3Z"
    );
    assert!(
        answer.now.starts_with("it is over: given up (unknown-pool); name a pool"),
        "{}",
        answer.now
    );
    let answer = job.on(&JobEvent::Told { at: ms(900) }).explained(1_000);
    let codes: Vec<_> = answer.timeline.iter().map(|entry| entry.code).collect();
    assert_eq!(codes, ["queued", "heard", "unknown-pool", "told"]);
}

#[test]
fn cancelled_stolen_foreign_and_held_back_jobs_are_told_apart() {
    let waiting = || TestJob::queued(100).routed(100, class());
    let cancelled = waiting().begun(200).completed(4_200, "cancelled").explained(9_000);
    assert_eq!(
        cancelled.verdict,
        "cancelled after 4.2 s without a runner: 4.0 s in an unfinished attempt"
    );
    let noted = JobEvent::RunsOn { instance: InstanceId::new("i-2"), at: ms(18_000) };
    let stolen = cold().began(16_000, "bp-4343-0").on(&noted).explained(20_000);
    assert_eq!(stolen.waited_ms, Some(16_000));
    let last = stolen.timeline.last().expect("a line");
    assert_eq!((last.code, last.by), ("exchanged", By::Bullpen));
    assert_eq!(stolen.now, "it runs on machine i-2 as runner bp-4343-0");
    let by = JobId::new("4343");
    let taken = JobEvent::Taken { runner: held().runner, by };
    let displaced = cold().on(&taken).explained(20_000);
    assert_eq!(
        displaced.now,
        "GitHub gave its runner to job 4343: it waits for that job's runner, or for another"
    );
    assert_eq!(
        displaced.next.what,
        "GitHub gives it to a runner that is left, or it is served again"
    );
    let foreign = waiting().began(3_000, "another").explained(9_000);
    assert!(foreign.verdict.ends_with("; it runs on a runner that is not ours"));
    let runner = Some(RunnerName::new("bp-4343-0"));
    let unannounced = ReportedStatus::Started { runner, at: Some(ms(900)) };
    let unannounced = TestJob(Job::first(&fact(unannounced), ms(950), &LIMITS)).explained(9_000);
    assert_eq!(unannounced.verdict, "ran on bp-4343-0; GitHub has not said when it was queued");
    let gated = TestJob(Job::first(&fact(ReportedStatus::Held), ms(5), &LIMITS)).explained(9_000);
    assert_eq!(gated.verdict, "wants no runner yet: GitHub holds it back");
    assert_eq!(gated.waited_ms, None);
}

/// GitHub reports whole seconds, by its own clock.
#[test]
fn a_cause_is_never_told_after_its_effect() {
    let listening = [(200, JobStep::Minted), (300, claimed())];
    let job = TestJob::queued(100).routed(100, class()).begun(150);
    let job = job.assigned(400, MachineSource::Reused, &listening).began(0, "bp-4242-0");
    let answer = job.completed(5_000, "success").released(6_000, 700).explained(9_000);
    assert_eq!(answer.waited_ms, Some(700));
    let codes: Vec<_> = answer.timeline.iter().map(|entry| entry.code).collect();
    let began = codes.iter().position(|code| *code == "began");
    assert!(began > codes.iter().position(|code| *code == "listens"), "{codes:?}");
}

/// The webhook of the beginning may be lost; the last webhook names the runner, but not when the
/// job began.
#[test]
fn a_job_that_began_unheard_waited_until_its_runner_listened() {
    let (conclusion, runner) = (Conclusion::new("success"), Some(held().runner));
    let over = ReportedStatus::Completed { conclusion, runner, at: Some(ms(60_000)) };
    let answer = cold().learns(60_000, over).released(61_000, 15_900).explained(90_000);
    assert_eq!((answer.waited_ms, answer.waits), (Some(15_900), false));
}

#[test]
fn times_are_said_as_people_say_them() {
    for (millis, said) in [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (9_949, "9.9 s"),
        (41_200, "41 s"),
        (119_999, "119 s"),
        (125_000, "2 min 5 s"),
        (7_500_000, "2 h 5 min"),
    ] {
        assert_eq!(span(Duration::from_millis(millis)), said);
    }
}
