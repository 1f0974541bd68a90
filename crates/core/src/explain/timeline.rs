//! What happened to a job, in order: GitHub's words, our steps and setbacks, its agent's signals.
//!
//! GitHub's times are whole seconds by another clock. Where that would put a cause after its effect,
//! the effect's time is taken for both.
//!
//! Not here: how long each took (`parts`).

use serde::Serialize;

use super::Subject;
use super::text::lane_words;
use crate::instance::Tier;
use crate::job::{End, How, Life, Reason, SetbackAt, Step};
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
pub struct Entry {
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
pub(super) enum Happened {
    /// GitHub made the job and held it back.
    Created,
    /// GitHub queued it.
    Queued,
    /// We did something.
    Step(Step),
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
pub(super) struct Event {
    pub(super) at: Timestamp,
    pub(super) what: Happened,
}

#[cfg(test)]
/// The codes of what GitHub and agents do; steps, setbacks and reasons have their own.
pub(super) const OTHER_CODES: [&str; 5] =
    ["created", "queued", "acknowledged", "began", "completed"];

/// Everything that happened, oldest first.
pub(super) fn story(subject: &Subject<'_>) -> Vec<Event> {
    let job = subject.job;
    let mut events = ours(subject);
    let first = events.first().map(|event| event.at);
    if let Some(queued) = &job.known.queued {
        let said = queued.at.or(job.known.about.created_at);
        // It was queued before we heard of it, whatever the clocks say.
        let queued = said.map(|at| first.map_or(at, |first| at.min(first))).or(first);
        let queued = queued.map(|at| Event { at, what: Happened::Queued });
        let held_back = held_back(subject, queued.as_ref());
        events.splice(..0, held_back.into_iter().chain(queued));
    }
    if let Some(started) = &job.known.started {
        let runner = started.runner.as_ref().map(ToString::to_string);
        let at = started.at.map(|at| not_before_its_runner(subject, &events, at));
        insert(&mut events, at, Happened::Began(runner));
    }
    if let Some(completed) = &job.known.completed {
        let at = completed.at.or(match &job.life {
            Life::Ended { at, .. } => Some(*at),
            _ => None,
        });
        insert(&mut events, at, Happened::Completed(completed.conclusion.as_str().to_owned()));
    }
    events
}

/// Puts something after everything that happened before it, or at the same time.
fn insert(events: &mut Vec<Event>, at: Option<Timestamp>, what: Happened) {
    if let Some(at) = at {
        let index = events.partition_point(|event| event.at <= at);
        events.insert(index, Event { at, what });
    }
}

/// GitHub made it some time before it wanted a runner: a gate, or a concurrency group.
fn held_back(subject: &Subject<'_>, queued: Option<&Event>) -> Option<Event> {
    let created = subject.job.known.about.created_at?;
    (created < queued?.at).then_some(Event { at: created, what: Happened::Created })
}

/// A job cannot begin before its own runner listens; the tolerated skew says otherwise.
fn not_before_its_runner(subject: &Subject<'_>, events: &[Event], at: Timestamp) -> Timestamp {
    let is_ready = |event: &&Event| {
        matches!(&event.what, Happened::Step(Step::Assigned { .. } | Step::Listens))
    };
    // One that exchanged machines began on a runner that was not its own yet.
    let exchanged = |event: &Event| {
        matches!(&event.what, Happened::Step(Step::Exchanged { .. } | Step::Adopted { .. }))
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
fn ours(subject: &Subject<'_>) -> Vec<Event> {
    let job = subject.job;
    let mut steps: Vec<Event> = job
        .steps
        .iter()
        .map(|step| Event { at: step.at, what: Happened::Step(step.step.clone()) })
        .collect();
    if let Life::Waiting { not_before, .. } = job.life
        && steps.is_empty()
    {
        steps.push(Event { at: not_before, what: Happened::Step(Step::Heard) });
    }
    // Some come with a later write than others that happened after them.
    steps.sort_by_key(|step| step.at);
    let mut events = with_setbacks(steps, &job.setbacks);
    for signal in signals(subject) {
        insert(&mut events, Some(signal.at), signal.what);
    }
    if let Life::Ended { end: End::Failed(reason), at, .. } = &job.life {
        insert(&mut events, Some(*at), Happened::Failed(reason.clone()));
    }
    events
}

/// A setback ends the attempt that was under way; of what has the same time only the next attempt
/// comes after it.
fn with_setbacks(steps: Vec<Event>, setbacks: &[SetbackAt]) -> Vec<Event> {
    let times = setbacks.iter().flat_map(|setback| {
        let event = |at| Event { at, what: Happened::Setback(setback.clone()) };
        setback.since.into_iter().chain([setback.at]).map(event)
    });
    let mut times: Vec<Event> = times.collect();
    times.sort_by_key(|setback| setback.at);
    let mut setbacks = times.into_iter().peekable();
    let mut events = Vec::new();
    for step in steps {
        let begins = step.what == Happened::Step(Step::Begun);
        let is_before = |setback: &Event| setback.at < step.at || (begins && setback.at == step.at);
        while let Some(setback) = setbacks.next_if(is_before) {
            events.push(setback);
        }
        events.push(step);
    }
    events.extend(setbacks);
    events
}

/// What the agent said about this job, while its machine is still the job's.
fn signals(subject: &Subject<'_>) -> Vec<Event> {
    let mut events = Vec::new();
    let Some(record) = subject.own_record() else { return events };
    let said = |kind| {
        let signal = subject.report?.signal(kind, record.generation);
        signal.filter(|signal| is_plausible(subject, signal.at))
    };
    if let Some(signal) = said(SignalKind::Acknowledged) {
        events.push(Event { at: signal.at, what: Happened::Acknowledged });
    }
    let known = subject.job.steps.iter().any(|step| step.step == Step::Listens);
    let registered = said(SignalKind::Registered).map(|signal| signal.at);
    if let Some(at) = registered.or(subject.listens_since()).filter(|_| !known) {
        events.push(Event { at, what: Happened::Step(Step::Listens) });
    }
    events
}

/// Whether this can be when a machine's agent did something for the job, by clocks within the tolerated
/// skew: a machine's own word is no reason to say that a job waited for years.
fn is_plausible(subject: &Subject<'_>, at: Timestamp) -> bool {
    let skew = subject.limits.clock_skew;
    let begun = subject.job.steps.iter().map(|step| step.at).min();
    at <= subject.now.after(skew) && begun.is_none_or(|begun| at >= begun.before(skew))
}

/// The story as lines.
pub(super) fn entries(story: &[Event]) -> Vec<Entry> {
    let mut before: Option<Timestamp> = None;
    let mut entries = Vec::new();
    for (index, event) in story.iter().enumerate() {
        // One that repeats is one line, at its end; the first time is only for the sums.
        if is_told_later(story, index) {
            continue;
        }
        let took = before.map_or(0, |before| millis(event.at, before));
        before = Some(event.at);
        entries.push(Entry {
            at: event.at,
            took_ms: took,
            by: by(&event.what),
            code: code(&event.what),
            what: words(&event.what),
        });
    }
    entries
}

fn is_told_later(story: &[Event], index: usize) -> bool {
    let event = &story[index];
    matches!(&event.what, Happened::Setback(setback) if event.at < setback.at)
}

fn millis(later: Timestamp, earlier: Timestamp) -> u64 {
    u64::try_from(later.since(earlier).as_millis()).unwrap_or(u64::MAX)
}

const fn by(what: &Happened) -> By {
    match what {
        Happened::Created
        | Happened::Queued
        | Happened::Step(Step::Minted)
        | Happened::Began(_)
        | Happened::Completed(_) => By::Github,
        Happened::Acknowledged | Happened::Step(Step::Listens | Step::Warm) => By::Agent,
        Happened::Step(_) | Happened::Setback(_) | Happened::Failed(_) => By::Bullpen,
    }
}

const fn code(what: &Happened) -> &'static str {
    match what {
        Happened::Created => "created",
        Happened::Queued => "queued",
        Happened::Step(step) => step.code(),
        Happened::Setback(setback) => setback.setback.code(),
        Happened::Acknowledged => "acknowledged",
        Happened::Began(_) => "began",
        Happened::Completed(_) => "completed",
        Happened::Failed(reason) => reason.code(),
    }
}

fn words(what: &Happened) -> String {
    match what {
        Happened::Created => "GitHub made the job, and held it back".to_owned(),
        Happened::Queued => "GitHub queued it".to_owned(),
        Happened::Step(step) => step_words(step),
        Happened::Setback(setback) if setback.times > 1 => {
            format!("{} ({} times)", setback.setback, setback.times)
        }
        Happened::Setback(setback) => setback.setback.to_string(),
        Happened::Acknowledged => "the machine's agent read that it has the job".to_owned(),
        Happened::Began(Some(runner)) => format!("runner {runner} began it"),
        Happened::Began(None) => "a runner began it".to_owned(),
        Happened::Completed(word) => format!("over at GitHub: {word}"),
        Happened::Failed(reason) => format!("given up: {reason}"),
    }
}

fn step_words(step: &Step) -> String {
    match step {
        Step::Heard => "Bullpen heard of it".to_owned(),
        Step::Routed { lane } => format!("routed to {}", lane_words(lane)),
        Step::Begun => "a worker took it on".to_owned(),
        Step::Asked => "asked GitHub for a credential for its runner".to_owned(),
        Step::Minted => "GitHub gave a credential for its runner".to_owned(),
        Step::NothingIdle { unfit } if unfit.is_empty() => "no machine was idle".to_owned(),
        Step::NothingIdle { unfit } => {
            let of = |(code, count): (&String, &u32)| format!("{count} {}", unfit_words(code));
            let unfit: Vec<String> = unfit.iter().map(of).collect();
            format!("no machine was idle that it may have: {}", unfit.join(", "))
        }
        Step::Claimed { instance, tier } => {
            format!("took {} machine {instance}", tier_words(*tier))
        }
        Step::Launched { instance } => format!("launched machine {instance}"),
        Step::Warm => "the machine was up and warm".to_owned(),
        Step::Assigned { how, instance: Some(instance) } => {
            format!("has machine {instance}, {}", how_words(*how))
        }
        Step::Assigned { how, instance: None } => format!("has a machine, {}", how_words(*how)),
        Step::Listens => "its runner listened for jobs".to_owned(),
        Step::Exchanged { instance } => {
            format!("GitHub mixed two runners up: exchanged machines, has {instance}")
        }
        Step::Adopted { instance } => format!("was found on machine {instance}, and given it"),
        Step::Told => "its author was told at the commit".to_owned(),
        Step::RunCancelled => "its run was cancelled".to_owned(),
        Step::Released => "its machine was taken back".to_owned(),
        Step::Unknown => "a newer version of Bullpen did something".to_owned(),
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

const fn how_words(how: How) -> &'static str {
    match how {
        How::Continued => "which an earlier attempt had got",
        How::Picked => "from its pool",
        How::Reused => "used before",
        How::Created => "made for it",
    }
}
