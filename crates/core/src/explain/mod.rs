//! Why a job waited: a timeline, a verdict that names what it waited for, and what comes next.
//!
//! [`explain`] looks at what is stored and decides nothing: facts from GitHub, the row's steps and
//! setbacks, the record of its machine and what its agent said. Every part of the wait has a code
//! that stays the same, and the parts add up to the wait to the millisecond; what is left when our
//! own parts are accounted for is called `github`.
//!
//! Not here: reading any of it (the `bullpen` command), or recording it (`job::transition`).

use serde::Serialize;

use crate::instance::{Record, State};
use crate::job::Job;
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

/// The shape of the JSON; raised when a field changes its meaning.
const VERSION: u32 = 1;

/// What is stored of a job when somebody asks.
#[derive(Clone, Copy, Debug)]
pub struct ExplainInput<'a> {
    /// Its row.
    pub job: &'a Job,
    /// When the row is looked at again, whatever else wakes somebody.
    pub next_look: Option<Timestamp>,
    /// When the row is forgotten.
    pub forget_at: Timestamp,
    /// The record of the machine that it has, if there is one.
    pub record: Option<&'a Record>,
    /// What that machine's agent said last.
    pub report: Option<&'a Report>,
    /// Why what it said is no report.
    pub unreadable: Option<&'a UnreadableReport>,
    /// Now.
    pub now: Timestamp,
    /// The stack's numbers.
    pub limits: &'a Limits,
}

/// Why a job waited, where it is, and what comes next. As JSON this is the documented shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Which shape this is.
    pub v: u32,
    /// The job's id.
    pub job: String,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub repository: String,
    /// Of which attempt of which run.
    pub run: String,
    /// What it asks of a runner.
    pub labels: Vec<String>,
    /// What we do about it, in a word.
    pub state: &'static str,
    /// The answer in one line.
    pub verdict: String,
    /// How long it waited, or has waited so far; none if it never wanted a runner.
    pub waited_ms: Option<u64>,
    /// Whether it still waits.
    pub waits: bool,
    /// The code of what it waited for longest.
    pub blocker: Option<&'static str>,
    /// What it waited for, longest first; together they are the wait.
    pub parts: Vec<WaitPart>,
    /// What happened, oldest first.
    pub timeline: Vec<TimelineEntry>,
    /// Where it is now.
    pub now: String,
    /// What happens next.
    pub next: NextStep,
    /// What would have made it faster, if anything would.
    pub helped: Option<String>,
    /// The machine that it has, or that is being taken back from it.
    pub machine: Option<ExplainedMachine>,
}

/// What happens next, and when at the latest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// What.
    pub what: String,
    /// When at the latest, if that is known.
    pub at: Option<Timestamp>,
}

/// A machine, in a few words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedMachine {
    /// Which one.
    pub id: String,
    /// What its record says of it.
    pub state: &'static str,
    /// Of which class.
    pub class: String,
    /// Of which type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// How many owners it has served.
    pub uses: u32,
    /// Why what it reported is no report, if it is none: then nothing of it is told here.
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
    let story = timeline::story(subject);
    let wait = parts::wait(subject, &story);
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
        timeline: timeline::entries(&story),
        now: outlook::now(subject),
        next: outlook::next(subject),
        machine: subject.record.map(|record| ExplainedMachine::of(record, subject.unreadable)),
    }
}

impl ExplainInput<'_> {
    /// The machine's record, as far as it is still this job's.
    fn own_record(&self) -> Option<&Record> {
        let held = self.job.keeps()?;
        let same =
            |record: &&Record| record.id == held.instance && record.generation == held.generation;
        self.record.filter(same)
    }

    /// Since when its runner listens, by its record.
    fn listens_since(&self) -> Option<Timestamp> {
        match self.own_record()?.state {
            State::Running { since, .. } => Some(since),
            _ => None,
        }
    }
}
