//! The parts of a wait: every moment between queueing and beginning has one code.
//!
//! A moment belongs to the step that ends it: until a machine is warm, the wait is for its warm-up.
//! A failed attempt is one part with its setback's code, from its beginning to the beginning of the
//! next attempt.
//!
//! Not here: words for people (`text`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::ExplainInput;
use super::timeline::{TimelineEvent, TimelineKind};
use crate::instance::Tier;
use crate::job::{Job, JobPhase, JobState, JobStep, Setback};
use crate::time::Timestamp;

/// One part of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitPart {
    /// The reason to wait.
    pub code: PartCode,
    /// The length in milliseconds.
    pub ms: u64,
}

/// The reason to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`phrase` explains each")]
pub enum PartCode {
    Webhook,
    Configuration,
    Worker,
    Credential,
    Search,
    Launch,
    WarmUp,
    HandOver,
    Start,
    Listen,
    Attempt,
    Github,
    /// A failed attempt, with the setback's own code and phrase.
    Setback(&'static str, &'static str),
}

impl PartCode {
    /// All codes but those of setbacks.
    pub const OWN: [Self; 12] = [
        Self::Webhook,
        Self::Configuration,
        Self::Worker,
        Self::Credential,
        Self::Search,
        Self::Launch,
        Self::WarmUp,
        Self::HandOver,
        Self::Start,
        Self::Listen,
        Self::Attempt,
        Self::Github,
    ];

    /// The code in JSON and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Configuration => "configuration",
            Self::Worker => "worker",
            Self::Credential => "credential",
            Self::Search => "search",
            Self::Launch => "launch",
            Self::WarmUp => "warm-up",
            Self::HandOver => "hand-over",
            Self::Start => "start",
            Self::Listen => "listen",
            Self::Attempt => "attempt",
            Self::Github => "github",
            Self::Setback(code, _) => code,
        }
    }

    /// The reason in words, to follow "3 s".
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Webhook => "for GitHub's webhook",
            Self::Configuration => "for a configuration",
            Self::Worker => "for a worker's turn",
            Self::Credential => "for its runner's credential from GitHub",
            Self::Search => "to look through idle machines",
            Self::Launch => "to launch a machine",
            Self::WarmUp => "for the machine to start and warm up",
            Self::HandOver => "to hand the machine over",
            Self::Start => "for its stopped machine to start",
            Self::Listen => "for its runner to listen",
            Self::Attempt => "in an unfinished attempt",
            Self::Github => "for GitHub to give it to a runner",
            Self::Setback(_, phrase) => phrase,
        }
    }

    const fn of(setback: &Setback) -> Self {
        Self::Setback(
            setback.code(),
            match setback {
                Setback::RaceLost => "because another job was faster",
                Setback::PoolEmpty => "because its pool had nothing",
                Setback::RunnerTaken => "because GitHub gave its runner to another job",
                Setback::WorkerLost => "because the worker that had it went away",
                Setback::NoCapacity => "for capacity in the cloud",
                Setback::Ceiling => "for a ceiling of this stack",
                Setback::LaunchFailed { .. } => "because a machine could not be launched",
                Setback::NotStarted => "because a stopped machine did not start",
                Setback::MachineLost => "because its machine ended",
                Setback::NeverRegistered => "because its runner never registered",
                Setback::ListenerEnded => "because its runner stopped listening",
                Setback::NeverGiven => "because GitHub did not give it to its runner",
                Setback::Outage { .. } => "for GitHub or a store that did not answer",
                Setback::RateLimited => "for GitHub's point budget",
                Setback::Forge { .. } => "because GitHub refused a runner",
            },
        )
    }
}

impl Serialize for PartCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A job's wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    from: Timestamp,
    until: Timestamp,
    /// Whether the job still waits.
    pub(super) goes_on: bool,
    spent: BTreeMap<PartCode, Duration>,
}

impl Wait {
    pub(super) fn lasted(&self) -> Duration {
        self.until.since(self.from)
    }

    pub(super) fn millis(&self) -> u64 {
        in_millis(self.lasted())
    }

    /// Its parts, longest first; equal parts in the order of their codes.
    pub(super) fn parts(&self) -> Vec<WaitPart> {
        let lasting = self.spent.iter().filter(|(_, spent)| !spent.is_zero());
        let mut parts: Vec<WaitPart> =
            lasting.map(|(code, spent)| WaitPart { code: *code, ms: in_millis(*spent) }).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.ms));
        parts
    }
}

fn in_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The wait of a job with its parts; none if the job never wanted a runner.
pub(super) fn wait(subject: &ExplainInput<'_>, history: &[TimelineEvent]) -> Option<Wait> {
    subject.job.known.queued.as_ref()?;
    let from = history.iter().find(|event| event.what == TimelineKind::Queued)?.at;
    let (until, goes_on) = until(subject, history);
    let until = until.max(from);
    let marks: Vec<&TimelineEvent> = history.iter().filter(|event| is_mark(&event.what)).collect();
    let mut spent: BTreeMap<PartCode, Duration> = BTreeMap::new();
    let mut before = from;
    for (index, mark) in marks.iter().enumerate() {
        let at = mark.at.clamp(before, until);
        *spent.entry(code_of(&marks, index)).or_default() += at.since(before);
        before = at;
    }
    *spent.entry(last_code(subject, &marks)).or_default() += until.since(before);
    Some(Wait { from, until, goes_on, spent })
}

/// The end of the wait, and whether it goes on: the job began, or ended otherwise, or still waits.
fn until(subject: &ExplainInput<'_>, history: &[TimelineEvent]) -> (Timestamp, bool) {
    let at = |is: fn(&TimelineKind) -> bool| {
        history.iter().find(|event| is(&event.what)).map(|event| event.at)
    };
    let began = at(|what| matches!(what, TimelineKind::Began(_)));
    let over = at(|what| matches!(what, TimelineKind::Failed(_) | TimelineKind::Completed(_)));
    let over = over.or(match &subject.job.state {
        JobState::Ended { at, .. } => Some(*at),
        _ => None,
    });
    let waits = subject.job.known.phase() < JobPhase::Started && !subject.job.is_over();
    // If the job began at an unknown time, the wait ends when its runner listened.
    let is_ready = |event: &&TimelineEvent| {
        matches!(event.what, TimelineKind::Step(JobStep::Assigned { .. } | JobStep::Listens))
    };
    let ready = history.iter().rfind(is_ready).map(|event| event.at);
    let ready = ready.filter(|_| subject.job.known.started.is_some());
    match began.or(ready).or(over) {
        Some(at) if !waits => (at, false),
        // No time is known.
        None if !waits => (history.last().map_or(subject.now, |event| event.at), false),
        _ => (subject.now, true),
    }
}

/// Whether it is a step on the way to a runner.
const fn is_mark(what: &TimelineKind) -> bool {
    match what {
        TimelineKind::Setback(_) => true,
        TimelineKind::Step(step) => match step {
            JobStep::Heard
            | JobStep::Routed { .. }
            | JobStep::Begun
            | JobStep::Minted
            | JobStep::Asked
            | JobStep::NothingIdle { .. }
            | JobStep::Claimed { .. }
            | JobStep::Launched { .. }
            | JobStep::Warm
            | JobStep::Assigned { .. }
            | JobStep::Listens => true,
            JobStep::Exchanged { .. }
            | JobStep::Adopted { .. }
            | JobStep::Told
            | JobStep::RunCancelled
            | JobStep::Released
            | JobStep::Unknown => false,
        },
        TimelineKind::Created
        | TimelineKind::Queued
        | TimelineKind::Acknowledged
        | TimelineKind::Began(_)
        | TimelineKind::Completed(_)
        | TimelineKind::Failed(_) => false,
    }
}

/// The code of the time before this mark.
fn code_of(marks: &[&TimelineEvent], index: usize) -> PartCode {
    if matches!(marks[index].what, TimelineKind::Step(JobStep::Begun)) {
        return set_back_before(&marks[..index]).unwrap_or(PartCode::Worker);
    }
    if let Some(code) = set_back_after(&marks[index..]) {
        return code;
    }
    match &marks[index].what {
        TimelineKind::Step(JobStep::Listens) => listen_code(&marks[..index]),
        TimelineKind::Step(step) => step_code(step),
        TimelineKind::Setback(setback) => PartCode::of(&setback.setback),
        _ => PartCode::Github,
    }
}

/// The setback that ends the attempt of the first mark, if the attempt fails.
fn set_back_after(marks: &[&TimelineEvent]) -> Option<PartCode> {
    marks.iter().find_map(|mark| match &mark.what {
        TimelineKind::Step(JobStep::Begun) => Some(None),
        TimelineKind::Setback(setback) => Some(Some(PartCode::of(&setback.setback))),
        _ => None,
    })?
}

/// The setback that ended the attempt of the last mark, if the attempt failed.
fn set_back_before(marks: &[&TimelineEvent]) -> Option<PartCode> {
    marks.iter().rev().find_map(|mark| match &mark.what {
        TimelineKind::Step(JobStep::Begun) => Some(None),
        TimelineKind::Setback(setback) => Some(Some(PartCode::of(&setback.setback))),
        _ => None,
    })?
}

/// The code of the time until a runner listens. If these marks took a stopped machine, it has to
/// start first, and the start takes nearly all of that time.
fn listen_code(marks: &[&TimelineEvent]) -> PartCode {
    let took = marks.iter().rev().find_map(|mark| match &mark.what {
        TimelineKind::Step(JobStep::Begun) => Some(None),
        TimelineKind::Step(JobStep::Claimed { tier, .. }) => Some(Some(*tier)),
        _ => None,
    });
    if took.flatten() == Some(Tier::Stopped) { PartCode::Start } else { PartCode::Listen }
}

const fn step_code(step: &JobStep) -> PartCode {
    match step {
        JobStep::Heard => PartCode::Webhook,
        JobStep::Routed { .. } => PartCode::Configuration,
        JobStep::Begun => PartCode::Worker,
        JobStep::Minted => PartCode::Credential,
        JobStep::Asked | JobStep::NothingIdle { .. } | JobStep::Claimed { .. } => PartCode::Search,
        JobStep::Launched { .. } => PartCode::Launch,
        JobStep::Warm => PartCode::WarmUp,
        JobStep::Assigned { .. } => PartCode::HandOver,
        JobStep::Listens => PartCode::Listen,
        JobStep::Exchanged { .. }
        | JobStep::Adopted { .. }
        | JobStep::Told
        | JobStep::RunCancelled
        | JobStep::Released
        | JobStep::Unknown => PartCode::Github,
    }
}

/// The code of the time after the last mark.
fn last_code(subject: &ExplainInput<'_>, marks: &[&TimelineEvent]) -> PartCode {
    let job: &Job = subject.job;
    if job.known.phase() >= JobPhase::Started && job.known.started.is_some() {
        return PartCode::Github;
    }
    match marks.last().map(|mark| &mark.what) {
        Some(TimelineKind::Setback(setback)) => PartCode::of(&setback.setback),
        Some(TimelineKind::Step(JobStep::Listens)) => PartCode::Github,
        Some(TimelineKind::Step(JobStep::Assigned { .. })) => listen_code(marks),
        Some(TimelineKind::Step(JobStep::Routed { .. })) => PartCode::Worker,
        Some(TimelineKind::Step(JobStep::Heard)) => PartCode::Configuration,
        Some(_) => PartCode::Attempt,
        None => PartCode::Webhook,
    }
}
