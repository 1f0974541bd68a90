//! Where a job is, what happens next, and what would have made it faster.
//!
//! Not here: how long it waited (`parts`).

use std::time::Duration;

use super::parts::{PartCode, WaitPart};
use super::text::{lane_words, span};
use super::{ExplainInput, NextStep};
use crate::instance::State;
use crate::job::{End, EndTasks, Job, JobPhase, JobState, JobStep, Lane, OnlyUnused};
use crate::time::Timestamp;

/// A shorter wait needs no advice.
const WORTH_ADVICE: Duration = Duration::from_secs(1);

/// Where the job is now.
pub(super) fn now(subject: &ExplainInput<'_>) -> String {
    let job = subject.job;
    match &job.state {
        JobState::Waiting { .. } | JobState::Assigning { .. }
            if let Some(aside) = subject.set_aside =>
        {
            let (times, what) = (aside.times, &aside.what);
            format!(
                "it is set aside, and a process tries it again at intervals until its deadline: the \
                 process failed at it {times} times, {what}"
            )
        }
        JobState::Dormant => {
            "it wants no runner: a gate or a concurrency group holds it back".into()
        }
        JobState::Waiting { not_before, .. } if subject.now < *not_before => {
            let tried = if job.attempts == 0 { String::new() } else { attempts(job.attempts) };
            format!("it waits until its next attempt{tried}")
        }
        JobState::Waiting { .. } => match &job.lane {
            None => "it waits: no configuration was read yet".to_owned(),
            Some(lane) => format!("it waits for {}", lane_words(lane)),
        },
        JobState::Assigning { .. } => "a worker is getting a machine for it".to_owned(),
        JobState::Assigned { .. } | JobState::Elsewhere
            if let (Some(machine), Some(runner)) = (job.runs_on(), job.known.runner()) =>
        {
            format!("it runs on machine {machine} as runner {runner}")
        }
        JobState::Assigned { .. }
            if let (Some(taker), JobPhase::Queued) = (&job.taken_by, job.known.phase()) =>
        {
            format!(
                "GitHub gave its runner to job {taker}: it waits for that job's runner, or for \
                 another"
            )
        }
        JobState::Assigned { held, .. } => {
            let (machine, runner) = (&held.instance, &held.runner);
            let what = if job.known.phase() >= JobPhase::Started {
                "it runs"
            } else if subject.listens_since().is_some() {
                "its runner listens, and GitHub has yet to give it the job,"
            } else {
                "its machine is being prepared:"
            };
            format!("{what} on machine {machine} as runner {runner}")
        }
        JobState::Elsewhere => match job.known.runner() {
            Some(runner) => format!("it runs on {runner}, which is not this job's runner"),
            None => "it runs somewhere else".to_owned(),
        },
        JobState::Ended { end, .. } => format!("it is over: {}", end_words(end)),
    }
}

fn attempts(count: u32) -> String {
    if count == 1 { " (one failed)".to_owned() } else { format!(" ({count} failed)") }
}

fn end_words(end: &End) -> String {
    match end {
        End::Completed(conclusion) => conclusion.as_str().to_owned(),
        End::Cancelled => "cancelled".to_owned(),
        End::Failed(reason) => format!("given up ({}); {}", reason.code(), reason.advice()),
    }
}

/// What happens next.
pub(super) fn next(subject: &ExplainInput<'_>) -> NextStep {
    let job = subject.job;
    let then = |what: &str, at: Option<Timestamp>| NextStep { what: what.to_owned(), at };
    match &job.state {
        JobState::Dormant => then("GitHub is asked about it again", subject.next_look),
        JobState::Waiting { not_before, .. } if subject.now < *not_before => {
            then("it is tried again", Some(*not_before))
        }
        JobState::Waiting { .. } if job.lane.is_none() => {
            then("it is routed as soon as there is a configuration", subject.next_look)
        }
        JobState::Waiting { deadline, .. } => {
            then("the next free worker takes it on, or it is given up", Some(*deadline))
        }
        JobState::Assigning { lease, .. } => {
            then("it has a machine, or another worker takes over", Some(*lease))
        }
        JobState::Assigned { .. } if job.known.phase() >= JobPhase::Started => {
            then("its machine is taken back when it is over", None)
        }
        JobState::Assigned { .. } if job.taken_by.is_some() => then(
            "GitHub gives it to a runner that is left, or it is served again",
            subject.next_look,
        ),
        JobState::Assigned { .. } if is_listening(subject) => {
            then("GitHub gives the job to its runner, or is asked why not", subject.next_look)
        }
        JobState::Assigned { .. } => {
            then("its runner listens, or another machine is tried", subject.next_look)
        }
        JobState::Elsewhere => then("GitHub is asked whether it is over", subject.next_look),
        JobState::Ended { debts, .. } if debts.is_settled() => {
            then("nothing: all is done, and its row is forgotten", Some(subject.forget_at))
        }
        JobState::Ended { debts, .. } => NextStep { what: owed(debts), at: subject.next_look },
    }
}

fn is_listening(subject: &ExplainInput<'_>) -> bool {
    matches!(subject.own_record().map(|record| &record.state), Some(State::Running { .. }))
}

fn owed(debts: &EndTasks) -> String {
    let mut owed = Vec::new();
    if let Some(held) = &debts.release {
        owed.push(format!("machine {} is taken back", held.instance));
    }
    if debts.tell {
        owed.push("its author is told".to_owned());
    }
    if let Some(by) = debts.cancel_by {
        owed.push(format!("its run is cancelled when its other jobs are over, or at {by}"));
    }
    owed.join("; ")
}

/// The advice that would have shortened the longest part of the wait.
pub(super) fn helped(job: &Job, longest: &WaitPart, parts: &[WaitPart]) -> Option<String> {
    if Duration::from_millis(longest.ms) < WORTH_ADVICE {
        return None;
    }
    let text = match longest.code {
        PartCode::Webhook => {
            "GitHub's webhook came late: its page of deliveries says why".to_owned()
        }
        PartCode::Configuration => "a valid runs-on.yml before the job came".to_owned(),
        PartCode::Worker => {
            "another replica of `bullpen serve`, or a larger share for its repository".to_owned()
        }
        PartCode::Credential => "a second GitHub App: each has a budget of its own".to_owned(),
        PartCode::Launch | PartCode::WarmUp | PartCode::Start => warm_machine(job, parts),
        PartCode::Setback(code, _) => set_back(code)?.to_owned(),
        PartCode::Search
        | PartCode::HandOver
        | PartCode::Listen
        | PartCode::Attempt
        | PartCode::Github => return None,
    };
    Some(text)
}

/// The advice if a machine had to be launched or started: a running machine would have saved that
/// time.
fn warm_machine(job: &Job, parts: &[WaitPart]) -> String {
    let is_saved = |code| matches!(code, PartCode::Launch | PartCode::WarmUp | PartCode::Start);
    let made = parts.iter().filter(|part| is_saved(part.code));
    let saved = span(Duration::from_millis(made.map(|part| part.ms).sum()));
    let searched = job.steps.iter().rev().find_map(|step| match &step.step {
        JobStep::NothingIdle { unfit } => Some(unfit),
        _ => None,
    });
    let is_among = |code: &str| searched.is_some_and(|unfit| unfit.contains_key(code));
    let distrusted = is_among("trust-differs");
    let what = match &job.lane {
        Some(Lane::Pool(_) | Lane::Class(_)) if is_among(OnlyUnused::LabelsNotBound.as_str()) => {
            bound_label()
        }
        Some(Lane::Pool(pool)) => format!("a machine standing by in pool {pool} (`hot`)"),
        Some(Lane::Class(class)) if distrusted => {
            format!(
                "an idle machine of its own trust group (`x-bullpen.runners.{class}.trust` says \
                 which jobs share machines)"
            )
        }
        Some(Lane::Class(class)) if searched.is_some() => {
            format!("one more idle machine of class {class}, as a standby pool keeps them")
        }
        Some(Lane::Class(class)) => {
            format!(
                "reuse for class {class} (`x-bullpen.runners.{class}.reuse`), or a standby pool"
            )
        }
        Some(Lane::Request(_)) => {
            "a label of the service instead of a request's: such a job is served first by what its \
             request left"
                .to_owned()
        }
        Some(Lane::Anonymous) | None => {
            "a named runner: machines without a name are neither reused nor kept".to_owned()
        }
    };
    format!("{what}: about {saved} less")
}

/// The label with which a job may have machines that other jobs used.
fn bound_label() -> String {
    "one label that names its run, such as `runs-on=${{ github.run_id }}/runner=NAME`: then it may \
     have a machine that another job used"
        .to_owned()
}

fn set_back(code: &str) -> Option<&'static str> {
    Some(match code {
        "pool-empty" => "a machine standing by in its pool (`hot`)",
        "rate-limited" => "a second GitHub App: each has a budget of its own",
        "ceiling" => "a higher ceiling in bullpen.toml, or machines that are given back sooner",
        "no-capacity" => "more instance types or zones for its class, or on-demand for spot",
        "runner-taken" => "a label that no other job has, such as the run's id, in `runs-on`",
        "launch-failed" | "never-registered" => {
            "a machine that comes up: see its class's image and scripts"
        }
        "machine-lost" => "on-demand machines, if these were spot ones",
        "forge" => "the permissions that GitHub asks for",
        _ => return None,
    })
}
