//! The events of a job, in order: GitHub's facts, our steps and setbacks, its agent's signals.
//!
//! GitHub's times are whole seconds by its own clock. Where that would put a cause after its
//! effect, both get the effect's time.
//!
//! Not here: the parts of the wait (`parts`).

use serde::Serialize;

use super::ExplainInput;
use super::text::lane_words;
use crate::instance::Tier;
use crate::job::{End, JobState, JobStep, MachineSource, Reason, SetbackAt};
use crate::mailbox::SignalKind;
use crate::time::Timestamp;

/// The actor of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// GitHub.
    Github,
    /// Bullpen.
    Bullpen,
    /// The machine's agent.
    Agent,
}

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    /// When it happened.
    pub at: Timestamp,
    /// How long after the entry before it, in milliseconds.
    pub took_ms: u64,
    /// Which actor did it.
    pub by: By,
    /// The event's stable code.
    pub code: &'static str,
    /// The event in words, for people.
    pub what: String,
}

/// An event of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TimelineKind {
    /// GitHub made the job and held it back.
    Created,
    /// GitHub queued it.
    Queued,
    /// A step of Bullpen.
    Step(JobStep),
    /// An attempt failed: the first or the last time of a repeated setback.
    Setback(SetbackAt),
    /// The agent read its assignment.
    Acknowledged,
    /// A runner began it.
    Began(Option<String>),
    /// GitHub reports the job as completed.
    Completed(String),
    /// Bullpen gave the job up.
    Failed(Reason),
}

/// An event with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimelineEvent {
    pub(super) at: Timestamp,
    pub(super) what: TimelineKind,
}

#[cfg(test)]
/// The codes of GitHub's and the agent's events; steps, setbacks and reasons have their own.
pub(super) const OTHER_CODES: [&str; 5] =
    ["created", "queued", "acknowledged", "began", "completed"];

/// All events, oldest first.
pub(super) fn history(subject: &ExplainInput<'_>) -> Vec<TimelineEvent> {
    let job = subject.job;
    let mut events = ours(subject);
    let first = events.first().map(|event| event.at);
    if let Some(queued) = &job.known.queued {
        let reported = queued.at.or(job.known.about.created_at);
        // The job was queued before Bullpen heard of it, even if the clocks differ.
        let queued = reported.map(|at| first.map_or(at, |first| at.min(first))).or(first);
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

/// Inserts an event after all events with an earlier or equal time.
fn insert(events: &mut Vec<TimelineEvent>, at: Option<Timestamp>, what: TimelineKind) {
    if let Some(at) = at {
        let index = events.partition_point(|event| event.at <= at);
        events.insert(index, TimelineEvent { at, what });
    }
}

/// The creation, if GitHub held the job back before it wanted a runner: a gate or a concurrency
/// group.
fn held_back(subject: &ExplainInput<'_>, queued: Option<&TimelineEvent>) -> Option<TimelineEvent> {
    let created = subject.job.known.about.created_at?;
    (created < queued?.at).then_some(TimelineEvent { at: created, what: TimelineKind::Created })
}

/// Corrects a beginning before the job's own runner listened, if the tolerated clock skew explains
/// it.
fn not_before_its_runner(
    subject: &ExplainInput<'_>,
    events: &[TimelineEvent],
    at: Timestamp,
) -> Timestamp {
    let is_ready = |event: &&TimelineEvent| {
        matches!(&event.what, TimelineKind::Step(JobStep::Assigned { .. } | JobStep::Listens))
    };
    // A job that runs on another job's machine began on a runner that was not its own.
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

/// The events of Bullpen and of the agent.
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
    // A later write may add an earlier step.
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

/// Merges the setbacks into the steps. A setback ends its attempt: of the steps at the same time
/// only the beginning of the next attempt follows it.
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

/// The agent's signals about this job, while the machine is still the job's.
fn signals(subject: &ExplainInput<'_>) -> Vec<TimelineEvent> {
    let mut events = Vec::new();
    let Some(record) = subject.own_record() else { return events };
    let signal_of = |kind| {
        let signal = subject.report?.signal(kind, record.generation);
        signal.filter(|signal| is_plausible(subject, signal.at))
    };
    if let Some(signal) = signal_of(SignalKind::Acknowledged) {
        events.push(TimelineEvent { at: signal.at, what: TimelineKind::Acknowledged });
    }
    let known = subject.job.steps.iter().any(|step| step.step == JobStep::Listens);
    let registered = signal_of(SignalKind::Registered).map(|signal| signal.at);
    if let Some(at) = registered.or(subject.listens_since()).filter(|_| !known) {
        events.push(TimelineEvent { at, what: TimelineKind::Step(JobStep::Listens) });
    }
    events
}

/// Whether the agent can have acted for the job at this time, by clocks within the tolerated skew:
/// a forged time must not show a wait of years.
fn is_plausible(subject: &ExplainInput<'_>, at: Timestamp) -> bool {
    let skew = subject.limits.clock_skew;
    let begun = subject.job.steps.iter().map(|step| step.at).min();
    at <= subject.now.after(skew) && begun.is_none_or(|begun| at >= begun.before(skew))
}

/// The events as lines of the timeline.
pub(super) fn entries(history: &[TimelineEvent]) -> Vec<TimelineEntry> {
    let mut before: Option<Timestamp> = None;
    let mut entries = Vec::new();
    for (index, event) in history.iter().enumerate() {
        // A repeated setback is one line, at its last time; its first time only counts in the sums.
        if is_shown_later(history, index) {
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

fn is_shown_later(history: &[TimelineEvent], index: usize) -> bool {
    let event = &history[index];
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
            format!("GitHub gave it to the runner of another job: it runs on machine {instance}")
        }
        JobStep::Adopted { instance } => {
            format!("machine {instance} was kept for the job whose runner it had")
        }
        JobStep::Told => "its author was told at the commit".to_owned(),
        JobStep::RunCancelled => "its run was cancelled".to_owned(),
        JobStep::Released => "its machine was taken back".to_owned(),
        JobStep::Unknown => "a newer version of Bullpen did something".to_owned(),
    }
}

/// Why an idle machine was not for a job: the codes of `pickup`, with words.
pub(super) const UNFIT: [(&str, &str); 11] = [
    ("built-otherwise", "built from another image, script or runner"),
    ("expired", "about to end"),
    ("labels-not-bound", "used before, and its labels do not name its run"),
    ("memory-below-class", "with less memory than its class has now"),
    ("origin-unknown", "used before, and GitHub did not say whose code it runs"),
    ("trust-differs", "of another trust group"),
    ("type-not-allowed", "of a type that it may not have"),
    ("untrusted-code", "used before, and its code is not trusted"),
    ("usage-differs", "spot where on-demand is wanted, or the reverse"),
    ("vcpu-outside-class", "with more or fewer vCPUs than its class has now"),
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
        MachineSource::Continued => "kept from an earlier attempt",
        MachineSource::Picked => "from its pool",
        MachineSource::Reused => "used before",
        MachineSource::Created => "made for it",
    }
}
