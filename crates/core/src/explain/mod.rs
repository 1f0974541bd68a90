//! Why a job waited: a timeline, a verdict that names what it waited for, and what comes next.
//!
//! [`explain`] reads stored data and decides nothing: GitHub's facts, the row's steps and setbacks,
//! the record of the job's machine and its agent's report. Every part of the wait has a stable
//! code, and the parts add up to the wait to the millisecond; time that no part of ours accounts
//! for is called `github`.
//!
//! Not here: reading any of it (the `bullpen` command), or recording it (`job::transition`).

use serde::Serialize;

use crate::instance::{Record, State};
use crate::job::Job;
use crate::job::aside::SetAside;
use crate::limits::Limits;
use crate::mailbox::{Report, UnreadableReport};
use crate::time::Timestamp;

mod outlook;
mod parts;
#[cfg(test)]
mod tests;
mod text;
mod timeline;

pub use parts::{PartCode, WaitPart};
pub use text::span;
pub use timeline::{By, TimelineEntry};

/// The version of the JSON; raised when a field changes its meaning.
const VERSION: u32 = 1;

/// The stored data about one job, and the time of the question.
#[derive(Clone, Copy, Debug)]
pub struct ExplainInput<'a> {
    /// The job's row.
    pub job: &'a Job,
    /// When the sweep looks at the row again, if nothing wakes a worker earlier.
    pub next_look: Option<Timestamp>,
    /// When the row is deleted.
    pub forget_at: Timestamp,
    /// The record of the job's machine, if it has one.
    pub record: Option<&'a Record>,
    /// The last report of that machine's agent.
    pub report: Option<&'a Report>,
    /// Why that agent's report cannot be read.
    pub unreadable: Option<&'a UnreadableReport>,
    /// The note that a process has set the row aside.
    pub set_aside: Option<&'a SetAside>,
    /// The present time.
    pub now: Timestamp,
    /// The stack's numbers.
    pub limits: &'a Limits,
}

/// Why a job waited, where it is, and what comes next. As JSON this is the documented shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The version of the JSON.
    pub v: u32,
    /// The job's id.
    pub job: String,
    /// The job's name.
    pub name: String,
    /// The repository of its workflow.
    pub repository: String,
    /// Its run and attempt.
    pub run: String,
    /// The labels it asks for.
    pub labels: Vec<String>,
    /// The state of its row, in a word.
    pub state: &'static str,
    /// The answer in one line.
    pub verdict: String,
    /// How long it waited, or has waited so far; none if it never wanted a runner.
    pub waited_ms: Option<u64>,
    /// Whether it still waits.
    pub waits: bool,
    /// The code of what it waited for longest.
    pub blocker: Option<&'static str>,
    /// The parts of the wait, longest first; they add up to the wait.
    pub parts: Vec<WaitPart>,
    /// What happened, oldest first.
    pub timeline: Vec<TimelineEntry>,
    /// Where it is now.
    pub now: String,
    /// What happens next.
    pub next: NextStep,
    /// What would have made it faster, if anything would.
    pub helped: Option<String>,
    /// Its machine, until the release is complete.
    pub machine: Option<ExplainedMachine>,
}

/// What happens next, and when at the latest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// The next step, for people.
    pub what: String,
    /// When at the latest, if that is known.
    pub at: Option<Timestamp>,
}

/// The job's machine, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedMachine {
    /// The machine's id.
    pub id: String,
    /// The state in its record.
    pub state: &'static str,
    /// The machine's class.
    pub class: String,
    /// The machine's type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// How many owners it has served.
    pub uses: u32,
    /// Why its report cannot be read, if it cannot; then the explanation uses nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable_report: Option<String>,
}

impl ExplainedMachine {
    fn of(record: &Record, unreadable: Option<&UnreadableReport>) -> Self {
        Self {
            id: record.id.to_string(),
            state: record.state.name().as_str(),
            class: record.facts.class.to_string(),
            instance_type: record.facts.instance_type.to_string(),
            uses: record.uses,
            unreadable_report: unreadable.map(UnreadableReport::to_string),
        }
    }
}

/// Explains one job.
pub fn explain(subject: &ExplainInput<'_>) -> Explanation {
    let job = subject.job;
    let about = &job.known.about;
    let history = timeline::history(subject);
    let wait = parts::wait(subject, &history);
    let parts = wait.as_ref().map(parts::Wait::parts).unwrap_or_default();
    let blocker = parts.first().map(|part| part.code.as_str());
    Explanation {
        v: VERSION,
        job: job.id.to_string(),
        name: about.name.clone(),
        repository: about.repository.to_string(),
        run: about.run.to_string(),
        labels: about.labels.clone(),
        state: job.state.name().as_str(),
        verdict: text::verdict(subject, wait.as_ref(), &parts),
        waited_ms: wait.as_ref().map(parts::Wait::millis),
        waits: wait.as_ref().is_some_and(|wait| wait.goes_on),
        blocker,
        helped: parts.first().and_then(|part| outlook::helped(job, part, &parts)),
        parts,
        timeline: timeline::entries(&history),
        now: outlook::now(subject),
        next: outlook::next(subject),
        machine: subject.record.map(|record| ExplainedMachine::of(record, subject.unreadable)),
    }
}

impl ExplainInput<'_> {
    /// The machine's record, if the machine is still this job's.
    fn own_record(&self) -> Option<&Record> {
        let held = self.job.keeps()?;
        let same =
            |record: &&Record| record.id == held.instance && record.generation == held.generation;
        self.record.filter(same)
    }

    /// When its runner began to listen, by its record.
    fn listens_since(&self) -> Option<Timestamp> {
        match self.own_record()?.state {
            State::Running { since, .. } => Some(since),
            _ => None,
        }
    }
}
