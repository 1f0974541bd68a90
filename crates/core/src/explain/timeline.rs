//! What happened to a job, in order: GitHub's words, our steps and setbacks, its agent's signals.
//!
//! GitHub's times are whole seconds by another clock. Where that would put a cause after its effect,
//! the effect's time is taken for both.
//!
//! Not here: how long each took (`parts`).

use serde::Serialize;

use super::ExplainInput;
use super::text::lane_words;
use crate::instance::Tier;
use crate::job::{End, JobState, JobStep, MachineSource, Reason, SetbackAt};
use crate::mailbox::SignalKind;
use crate::time::Timestamp;

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// GitHub.
    Github,
    /// We.
    Bullpen,
    /// The machine's agent.
    Agent,
}

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    /// When.
    pub at: Timestamp,
    /// How long after the entry before it.
    pub took_ms: u64,
    /// Who.
    pub by: By,
    /// What, in a word that stays the same.
    pub code: &'static str,
    /// What, for people.
    pub what: String,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TimelineKind {
    /// GitHub made the job and held it back.
    Created,
    /// GitHub queued it.
    Queued,
    /// We did something.
    Step(JobStep),
    /// An attempt came to nothing: for the first of so many times, or the last.
    Setback(SetbackAt),
    /// The agent read its assignment.
    Acknowledged,
    /// A runner began it.
    Began(Option<String>),
    /// GitHub says it is over.
    Completed(String),
    /// We gave it up.
    Failed(Reason),
}

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimelineEvent {
    pub(super) at: Timestamp,
    pub(super) what: TimelineKind,
}

#[cfg(test)]
/// The codes of what GitHub and agents do; steps, setbacks and reasons have their own.
pub(super) const OTHER_CODES: [&str; 5] =
    ["created", "queued", "acknowledged", "began", "completed"];

/// Everything that happened, oldest first.
pub(super) fn story(subject: &ExplainInput<'_>) -> Vec<TimelineEvent> {
    let job = subject.job;
    let mut events = ours(subject);
    let first = events.first().map(|event| event.at);
    if let Some(queued) = &job.known.queued {
        let said = queued.at.or(job.known.about.created_at);
        // It was queued before we heard of it, whatever the clocks say.
        let queued = said.map(|at| first.map_or(at, |first| at.min(first))).or(first);
        let queued = queued.map(|at| TimelineEvent { at, what: TimelineKind::Queued });
        let held_back = held_back(subject, queued.as_ref());
        events.splice(..0, held_back.into_iter().chain(queued));
    }
    if let Some(started) = &job.known.started {
        let runner = started.runner.as_ref().map(ToString::to_string);
        let at = started.at.map(|at| not_before_its_runner(subject, &events, at));
        insert(&mut events, at, TimelineKind::Began(runner));
    }
    if let Some(completed) = &job.known.completed {
        let at = completed.at.or(match &job.state {
            JobState::Ended { at, .. } => Some(*at),
            _ => None,
        });
        insert(&mut events, at, TimelineKind::Completed(completed.conclusion.as_str().to_owned()));
    }
    events
}

/// Puts something after everything that happened before it, or at the same time.
fn insert(events: &mut Vec<TimelineEvent>, at: Option<Timestamp>, what: TimelineKind) {
    if let Some(at) = at {
        let index = events.partition_point(|event| event.at <= at);
        events.insert(index, TimelineEvent { at, what });
    }
}

/// GitHub made it some time before it wanted a runner: a gate, or a concurrency group.
fn held_back(subject: &ExplainInput<'_>, queued: Option<&TimelineEvent>) -> Option<TimelineEvent> {
    let created = subject.job.known.about.created_at?;
    (created < queued?.at).then_some(TimelineEvent { at: created, what: TimelineKind::Created })
}

/// A job cannot begin before its own runner listens; the tolerated skew says otherwise.
fn not_before_its_runner(
    subject: &ExplainInput<'_>,
    events: &[TimelineEvent],
    at: Timestamp,
) -> Timestamp {
    let is_ready = |event: &&TimelineEvent| {
        matches!(&event.what, TimelineKind::Step(JobStep::Assigned { .. } | JobStep::Listens))
    };
    // One that exchanged machines began on a runner that was not its own yet.
    let exchanged = |event: &TimelineEvent| {
        matches!(
            &event.what,
            TimelineKind::Step(JobStep::Exchanged { .. } | JobStep::Adopted { .. })
        )
    };
    if events.iter().any(exchanged) {
        return at;
    }
    let ready = events.iter().filter(is_ready).map(|event| event.at).max();
    match ready {
        Some(ready) if at < ready && ready.since(at) <= subject.limits.clock_skew => ready,
        _ => at,
    }
}

/// Our own part, and the agent's.
fn ours(subject: &ExplainInput<'_>) -> Vec<TimelineEvent> {
    let job = subject.job;
    let mut steps: Vec<TimelineEvent> = job
        .steps
        .iter()
        .map(|step| TimelineEvent { at: step.at, what: TimelineKind::Step(step.step.clone()) })
        .collect();
    if let JobState::Waiting { not_before, .. } = job.state
        && steps.is_empty()
    {
        steps.push(TimelineEvent { at: not_before, what: TimelineKind::Step(JobStep::Heard) });
    }
    // Some come with a later write than others that happened after them.
    steps.sort_by_key(|step| step.at);
    let mut events = with_setbacks(steps, &job.setbacks);
    for signal in signals(subject) {
        insert(&mut events, Some(signal.at), signal.what);
    }
    if let JobState::Ended { end: End::Failed(reason), at, .. } = &job.state {
        insert(&mut events, Some(*at), TimelineKind::Failed(reason.clone()));
    }
    events
}

/// A setback ends the attempt that was under way; of what has the same time only the next attempt
/// comes after it.
fn with_setbacks(steps: Vec<TimelineEvent>, setbacks: &[SetbackAt]) -> Vec<TimelineEvent> {
    let times = setbacks.iter().flat_map(|setback| {
        let event = |at| TimelineEvent { at, what: TimelineKind::Setback(setback.clone()) };
        setback.since.into_iter().chain([setback.at]).map(event)
    });
    let mut times: Vec<TimelineEvent> = times.collect();
    times.sort_by_key(|setback| setback.at);
    let mut setbacks = times.into_iter().peekable();
    let mut events = Vec::new();
    for step in steps {
        let begins = step.what == TimelineKind::Step(JobStep::Begun);
        let is_before =
            |setback: &TimelineEvent| setback.at < step.at || (begins && setback.at == step.at);
        while let Some(setback) = setbacks.next_if(is_before) {
            events.push(setback);
        }
        events.push(step);
    }
    events.extend(setbacks);
    events
}

/// What the agent said about this job, while its machine is still the job's.
fn signals(subject: &ExplainInput<'_>) -> Vec<TimelineEvent> {
    let mut events = Vec::new();
    let Some(record) = subject.own_record() else { return events };
    let said = |kind| {
        let signal = subject.report?.signal(kind, record.generation);
        signal.filter(|signal| is_plausible(subject, signal.at))
    };
    if let Some(signal) = said(SignalKind::Acknowledged) {
        events.push(TimelineEvent { at: signal.at, what: TimelineKind::Acknowledged });
    }
    let known = subject.job.steps.iter().any(|step| step.step == JobStep::Listens);
    let registered = said(SignalKind::Registered).map(|signal| signal.at);
    if let Some(at) = registered.or(subject.listens_since()).filter(|_| !known) {
        events.push(TimelineEvent { at, what: TimelineKind::Step(JobStep::Listens) });
    }
    events
}

/// Whether this can be when a machine's agent did something for the job, by clocks within the tolerated
/// skew: a machine's own word is no reason to say that a job waited for years.
fn is_plausible(subject: &ExplainInput<'_>, at: Timestamp) -> bool {
    let skew = subject.limits.clock_skew;
    let begun = subject.job.steps.iter().map(|step| step.at).min();
    at <= subject.now.after(skew) && begun.is_none_or(|begun| at >= begun.before(skew))
}

/// The story as lines.
pub(super) fn entries(story: &[TimelineEvent]) -> Vec<TimelineEntry> {
    let mut before: Option<Timestamp> = None;
    let mut entries = Vec::new();
    for (index, event) in story.iter().enumerate() {
        // One that repeats is one line, at its end; the first time is only for the sums.
        if is_told_later(story, index) {
            continue;
        }
        let took = before.map_or(0, |before| millis(event.at, before));
        before = Some(event.at);
        entries.push(TimelineEntry {
            at: event.at,
            took_ms: took,
            by: by(&event.what),
            code: code(&event.what),
            what: words(&event.what),
        });
    }
    entries
}

fn is_told_later(story: &[TimelineEvent], index: usize) -> bool {
    let event = &story[index];
    matches!(&event.what, TimelineKind::Setback(setback) if event.at < setback.at)
}

fn millis(later: Timestamp, earlier: Timestamp) -> u64 {
    u64::try_from(later.since(earlier).as_millis()).unwrap_or(u64::MAX)
}

const fn by(what: &TimelineKind) -> By {
    match what {
        TimelineKind::Created
        | TimelineKind::Queued
        | TimelineKind::Step(JobStep::Minted)
        | TimelineKind::Began(_)
        | TimelineKind::Completed(_) => By::Github,
        TimelineKind::Acknowledged | TimelineKind::Step(JobStep::Listens | JobStep::Warm) => {
            By::Agent
        }
        TimelineKind::Step(_) | TimelineKind::Setback(_) | TimelineKind::Failed(_) => By::Bullpen,
    }
}

const fn code(what: &TimelineKind) -> &'static str {
    match what {
        TimelineKind::Created => "created",
        TimelineKind::Queued => "queued",
        TimelineKind::Step(step) => step.code(),
        TimelineKind::Setback(setback) => setback.setback.code(),
        TimelineKind::Acknowledged => "acknowledged",
        TimelineKind::Began(_) => "began",
        TimelineKind::Completed(_) => "completed",
        TimelineKind::Failed(reason) => reason.code(),
    }
}

fn words(what: &TimelineKind) -> String {
    match what {
        TimelineKind::Created => "GitHub made the job, and held it back".to_owned(),
        TimelineKind::Queued => "GitHub queued it".to_owned(),
        TimelineKind::Step(step) => step_words(step),
        TimelineKind::Setback(setback) if setback.times > 1 => {
            format!("{} ({} times)", setback.setback, setback.times)
        }
        TimelineKind::Setback(setback) => setback.setback.to_string(),
        TimelineKind::Acknowledged => "the machine's agent read that it has the job".to_owned(),
        TimelineKind::Began(Some(runner)) => format!("runner {runner} began it"),
        TimelineKind::Began(None) => "a runner began it".to_owned(),
        TimelineKind::Completed(word) => format!("over at GitHub: {word}"),
        TimelineKind::Failed(reason) => format!("given up: {reason}"),
    }
}

fn step_words(step: &JobStep) -> String {
    match step {
        JobStep::Heard => "Bullpen heard of it".to_owned(),
        JobStep::Routed { lane } => format!("routed to {}", lane_words(lane)),
        JobStep::Begun => "a worker took it on".to_owned(),
        JobStep::Asked => "asked GitHub for a credential for its runner".to_owned(),
        JobStep::Minted => "GitHub gave a credential for its runner".to_owned(),
        JobStep::NothingIdle { unfit } if unfit.is_empty() => "no machine was idle".to_owned(),
        JobStep::NothingIdle { unfit } => {
            let of = |(code, count): (&String, &u32)| format!("{count} {}", unfit_words(code));
            let unfit: Vec<String> = unfit.iter().map(of).collect();
            format!("no machine was idle that it may have: {}", unfit.join(", "))
        }
        JobStep::Claimed { instance, tier } => {
            format!("took {} machine {instance}", tier_words(*tier))
        }
        JobStep::Launched { instance } => format!("launched machine {instance}"),
        JobStep::Warm => "the machine was up and warm".to_owned(),
        JobStep::Assigned { how, instance: Some(instance) } => {
            format!("has machine {instance}, {}", how_words(*how))
        }
        JobStep::Assigned { how, instance: None } => format!("has a machine, {}", how_words(*how)),
        JobStep::Listens => "its runner listened for jobs".to_owned(),
        JobStep::Exchanged { instance } => {
            format!("GitHub mixed two runners up: exchanged machines, has {instance}")
        }
        JobStep::Adopted { instance } => format!("was found on machine {instance}, and given it"),
        JobStep::Told => "its author was told at the commit".to_owned(),
        JobStep::RunCancelled => "its run was cancelled".to_owned(),
        JobStep::Released => "its machine was taken back".to_owned(),
        JobStep::Unknown => "a newer version of Bullpen did something".to_owned(),
    }
}

/// Why an idle machine was not for a job: codes of `pickup`, and words.
pub(super) const UNFIT: [(&str, &str); 11] = [
    ("built-otherwise", "built otherwise than it would be now"),
    ("expired", "about to end"),
    ("labels-not-bound", "used before, and its labels do not name its run"),
    ("memory-below-class", "with less memory than its class has now"),
    ("origin-unknown", "used before, and GitHub did not say whose code it runs"),
    ("trust-differs", "of another trust group"),
    ("type-not-allowed", "of a type that it may not have"),
    ("untrusted-code", "used before, and its code is not trusted"),
    ("usage-differs", "paid for otherwise"),
    ("vcpu-outside-class", "with other vCPUs than its class has now"),
    ("wrong-class", "of another class"),
];

fn unfit_words(code: &str) -> &str {
    UNFIT.iter().find(|(known, _)| *known == code).map_or(code, |(_, words)| words)
}

const fn tier_words(tier: Tier) -> &'static str {
    match tier {
        Tier::Released => "idle",
        Tier::Hot => "hot",
        Tier::Stopped => "stopped",
    }
}

const fn how_words(how: MachineSource) -> &'static str {
    match how {
        MachineSource::Continued => "which an earlier attempt had got",
        MachineSource::Picked => "from its pool",
        MachineSource::Reused => "used before",
        MachineSource::Created => "made for it",
    }
}
