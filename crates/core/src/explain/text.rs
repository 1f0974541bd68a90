//! Words for people: the verdict in one line, and the whole answer as a page.
//!
//! Not here: deciding the content (`parts`, `outlook`).

use std::fmt::Write as _;
use std::time::Duration;

use super::parts::{Wait, WaitPart};
use super::{ExplainInput, Explanation};
use crate::job::{End, JobPhase, JobState, Lane};
use crate::printable::one_line;

/// How many parts the verdict names.
const NAMED_MAX: usize = 3;
/// The verdict leaves out parts smaller than one in this many of the wait.
const NAMED_SHARE: u64 = 20;

/// A duration for people.
pub fn span(time: Duration) -> String {
    let (seconds, millis) = (time.as_secs(), time.as_millis());
    match seconds {
        0 => format!("{millis} ms"),
        1..10 => format!("{:.1} s", time.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

pub(super) fn lane_words(lane: &Lane) -> String {
    match lane {
        Lane::Pool(name) => format!("pool {name}"),
        Lane::Class(name) => format!("machines of class {name}"),
        Lane::Request(request) => format!("a machine as request {request} asked for"),
        Lane::Anonymous => "a new machine of its own kind".to_owned(),
    }
}

/// The answer in one line.
pub(super) fn verdict(
    subject: &ExplainInput<'_>,
    wait: Option<&Wait>,
    parts: &[WaitPart],
) -> String {
    let job = subject.job;
    let Some(wait) = wait else {
        if let Some(runner) = job.known.runner() {
            return format!("ran on {runner}; GitHub has not said when it was queued");
        }
        return match &job.state {
            JobState::Ended { end: End::Failed(reason), .. } => format!("no runner: {reason}"),
            JobState::Ended { .. } => "never wanted a runner of this stack".to_owned(),
            JobState::Dormant => "wants no runner yet: GitHub holds it back".to_owned(),
            _ => "GitHub did not say when it was queued".to_owned(),
        };
    };
    let lasted = span(wait.lasted());
    let why = why(parts);
    match &job.state {
        JobState::Ended { end: End::Failed(reason), .. } => {
            format!("no runner after {lasted}: {reason}")
        }
        JobState::Ended { end: End::Cancelled, .. } if job.known.phase_begun() => {
            format!("waited {lasted}{why}; then it was cancelled")
        }
        JobState::Ended { end: End::Cancelled, .. } => {
            format!("cancelled after {lasted} without a runner{why}")
        }
        JobState::Elsewhere => {
            format!("waited {lasted}{why}; it runs on a runner that is not ours")
        }
        _ if wait.goes_on => format!("has waited {lasted} so far{why}"),
        _ => format!("waited {lasted}{why}"),
    }
}

/// ": 38 s for one thing, 3.0 s for another".
fn why(parts: &[WaitPart]) -> String {
    let all: u64 = parts.iter().map(|part| part.ms).sum();
    let large = |part: &&WaitPart| part.ms.saturating_mul(NAMED_SHARE) >= all;
    let named: Vec<String> = parts
        .iter()
        .filter(large)
        .take(NAMED_MAX)
        .map(|part| format!("{} {}", span(Duration::from_millis(part.ms)), part.code.phrase()))
        .collect();
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
}

impl crate::job::JobKnowledge {
    /// Whether a runner ever began the job.
    fn phase_begun(&self) -> bool {
        self.phase() >= JobPhase::Started && self.started.is_some()
    }
}

impl Explanation {
    /// The answer in one line, with the job's name.
    pub fn line(&self) -> String {
        format!("job {} ({}): {}", self.job, one_line(&self.name), one_line(&self.verdict))
    }

    /// The whole answer, for people.
    pub fn text(&self) -> String {
        let mut page = format!(
            "job {}  {}  {}, run {}\nlabels: {}\n\n{}\n\n",
            self.job,
            one_line(&self.name),
            one_line(&self.repository),
            one_line(&self.run),
            one_line(&self.labels.join(", ")),
            one_line(&self.verdict)
        );
        for entry in &self.timeline {
            let took = match entry.took_ms {
                0 => String::new(),
                ms => format!("+{}", span(Duration::from_millis(ms))),
            };
            // Writing to a string cannot fail.
            let (at, what) = (clock(entry), one_line(&entry.what));
            let _ = writeln!(page, "  {at}  {took:>12}  {:<16} {what}", entry.code);
        }
        let (now, next) = (one_line(&self.now), one_line(&self.next.what));
        let _ = write!(page, "\nnow:    {now}\nnext:   {next}");
        if let Some(at) = self.next.at {
            let _ = write!(page, ", by {at}");
        }
        if let Some(machine) = &self.machine
            && let Some(why) = &machine.unreadable_report
        {
            let (id, why) = (one_line(&machine.id), one_line(why));
            let _ = write!(
                page,
                "\nreport: the report of {id} is unreadable, and counts as none: {why}"
            );
        }
        if let Some(helped) = &self.helped {
            let _ = write!(page, "\nfaster: {}", one_line(helped));
        }
        page
    }
}

/// The date and time to the millisecond, always of the same width.
fn clock(entry: &super::TimelineEntry) -> String {
    let text = entry.at.to_string();
    let text = text.trim_end_matches('Z');
    let (second, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{}.{fraction:0<3}", second.replace('T', " "))
}
