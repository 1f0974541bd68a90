//! The checks of a claimed machine: by its agent's report, and by GitHub's answer about its runner.
//!
//! [`check`] compares a report with the deadlines, and [`after_removal`] decides whether a machine
//! whose check failed ends, counts as running, or is given back.
//!
//! Not here: the steps of a claim (`tenure::Prepare`), or choosing a candidate (`pickup`).

use std::time::Duration;

use crate::ids::Generation;
use crate::limits::{Limits, TOLD_CHARS_MAX};
use crate::mailbox::{Beat, Report, SYSTEMIC, SignalKind, shown};
use crate::sabotage;
use crate::time::Timestamp;

mod silence;

pub use silence::{Silence, Watch};

/// How a machine failed its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckFailure {
    /// The cloud could not start it.
    NotStarted,
    /// Its agent reported that the warm-up failed.
    WarmUpFailed,
    /// Its agent never reported a complete warm-up.
    NotWarm,
    /// Its agent did not acknowledge the assignment.
    NotAcknowledged,
    /// Its listener did not register in time.
    NotRegistered,
    /// Its agent reported that registration failed.
    RegistrationFailed,
    /// Its agent stopped beating.
    Silent,
    /// Its agent reported that registration failed for a cause elsewhere, and jobs ran on it before.
    Excused,
}

impl CheckFailure {
    /// The failure as a sentence for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotStarted => "it could not be started",
            Self::WarmUpFailed => "its warm-up failed",
            Self::NotWarm => "its warm-up was not completed in time",
            Self::NotAcknowledged => "its agent did not acknowledge the assignment in time",
            Self::NotRegistered => "its listener did not register in time",
            Self::RegistrationFailed => "its listener could not register",
            Self::Silent => "its agent stopped beating",
            Self::Excused => "its listener could not register, and jobs had run on it before",
        }
    }

    /// The failure for people in one line, with what the agent reported about it.
    pub fn told(self, report: Option<&Report>) -> String {
        let kind = match self {
            Self::WarmUpFailed => SignalKind::WarmUpFailed,
            Self::RegistrationFailed | Self::Excused => SignalKind::RegistrationFailed,
            Self::NotStarted
            | Self::NotWarm
            | Self::NotAcknowledged
            | Self::NotRegistered
            | Self::Silent => return self.as_str().to_owned(),
        };
        let signal = report.and_then(|report| report.signals.get(&kind));
        let detail = signal.map(|signal| signal.detail.as_str()).unwrap_or_default();
        let mut lines = detail.lines().map(str::trim).filter(|line| !line.is_empty());
        // The first line names the failure; the last line of an output is nearest to its cause.
        let parts = [Some(self.as_str()), lines.next(), lines.next_back()];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        shown(&parts.join(": "), TOLD_CHARS_MAX)
    }

    /// Whether its agent did not answer, which may be the fault of the way to its mailbox.
    pub const fn is_silence(self) -> bool {
        matches!(self, Self::NotAcknowledged | Self::Silent)
    }

    /// Whether a runner may still register after this failure. An agent whose warm-up failed ends
    /// its machine and reads no orders. The agent of a machine that was not started has read no
    /// order, and the first that it reads is the withdrawal.
    pub const fn may_register(self) -> bool {
        match self {
            Self::WarmUpFailed | Self::NotStarted => false,
            Self::NotWarm
            | Self::NotAcknowledged
            | Self::NotRegistered
            | Self::RegistrationFailed
            | Self::Silent
            | Self::Excused => true,
        }
    }
}

/// What a check waits for, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReportWatch {
    /// The generation of the assignment.
    pub generation: Generation,
    /// When the assignment was stored, or the machine launched.
    pub since: Timestamp,
    /// What kind of machine it is.
    pub kind: CheckKind,
    /// The last beat at the time the watch began.
    pub beat_seen: Option<Beat>,
}

/// What kind of machine a watch is on; each has its own deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// It was running when it was claimed.
    Warm,
    /// It was stopped when it was claimed.
    Started,
    /// It was created for this owner.
    Created,
}

/// What a report shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The listener listens and the machine is alive.
    Passed,
    /// Registration failed for a cause outside this machine, in the runner program's words.
    Systemic(String),
    /// The machine failed the check.
    Failed(CheckFailure),
}

/// Compares a report with the deadlines of its watch. `None`: nothing decisive yet.
pub fn check(
    watch: &ReportWatch,
    report: Option<&Report>,
    limits: &Limits,
    now: Timestamp,
) -> Option<Check> {
    let waited = now.since(watch.since);
    let Some(report) = report else { return overdue(watch, None, waited, limits) };
    if let Some(signal) = report.signal(SignalKind::RegistrationFailed, watch.generation) {
        return Some(match signal.detail.strip_prefix(SYSTEMIC) {
            Some(_) if sabotage!("systemic-is-the-machines") => {
                Check::Failed(CheckFailure::RegistrationFailed)
            }
            Some(why) => Check::Systemic(shown(why.trim(), TOLD_CHARS_MAX)),
            None => Check::Failed(CheckFailure::RegistrationFailed),
        });
    }
    if has_failed_warm_up(watch, report, limits) {
        return Some(Check::Failed(CheckFailure::WarmUpFailed));
    }
    let is_registered = report.signal(SignalKind::Registered, watch.generation).is_some()
        || sabotage!("acknowledged-is-registered")
            && report.signal(SignalKind::Acknowledged, watch.generation).is_some();
    if is_registered {
        if report.is_fresh(now, limits.heartbeat_stale, watch.beat_seen.as_ref()) {
            return Some(Check::Passed);
        }
        let is_late = overdue(watch, Some(report), waited, limits).is_some();
        return is_late.then_some(Check::Failed(CheckFailure::Silent));
    }
    overdue(watch, Some(report), waited, limits)
}

/// A started machine runs its `prerun` again, so only a signal sent since its start counts.
fn has_failed_warm_up(watch: &ReportWatch, report: &Report, limits: &Limits) -> bool {
    let failed = report.signals.get(&SignalKind::WarmUpFailed);
    failed.is_some_and(|signal| match watch.kind {
        CheckKind::Created => true,
        CheckKind::Started => signal.at >= watch.since.before(limits.clock_skew),
        CheckKind::Warm => false,
    })
}

/// The result without a decisive signal: a failure if a deadline has passed.
fn overdue(
    watch: &ReportWatch,
    report: Option<&Report>,
    waited: Duration,
    limits: &Limits,
) -> Option<Check> {
    if sabotage!("checks-have-no-end") {
        return None;
    }
    let has = |kind| report.is_some_and(|report| report.signal(kind, watch.generation).is_some());
    let acknowledged = has(SignalKind::Acknowledged);
    let acknowledge = match watch.kind {
        CheckKind::Warm => limits.assignment_acknowledged,
        CheckKind::Started => limits.first_beat_stopped,
        CheckKind::Created => limits.fleet_validation,
    };
    let register = match watch.kind {
        CheckKind::Warm => acknowledge + limits.registration,
        CheckKind::Started => acknowledge + limits.registration_stopped,
        CheckKind::Created => limits.fleet_validation,
    };
    if !acknowledged && waited >= acknowledge {
        let warm = report.is_some_and(|r| r.signals.contains_key(&SignalKind::WarmUpOk));
        return Some(Check::Failed(match watch.kind {
            CheckKind::Created if !warm => CheckFailure::NotWarm,
            CheckKind::Created | CheckKind::Warm | CheckKind::Started => {
                CheckFailure::NotAcknowledged
            }
        }));
    }
    (waited >= register).then_some(Check::Failed(CheckFailure::NotRegistered))
}

/// GitHub's answer to the deletion of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// 204: the runner is gone.
    Deleted,
    /// 404: there was no such runner.
    NotFound,
    /// 422: the runner runs a job.
    Busy,
    /// GitHub did not answer, or refused the call.
    Unavailable,
}

/// What happens to a withdrawn machine that failed its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRemoval {
    /// No job can start on it any more: it ends.
    End,
    /// It already runs a job: it counts as running.
    Running,
    /// The cause is not the machine: it goes back unharmed, and the attempt is over.
    GiveBack,
    /// A late registration could still succeed: ask GitHub again.
    AskAgain {
        /// The earliest time to ask.
        at: Timestamp,
    },
}

/// Decides by GitHub's answer. With a registration token a 404 proves nothing until `register_by`
/// has passed on every clock, because the agent may be registering at that moment.
pub fn after_removal(
    deletion: Deletion,
    register_by: Option<Timestamp>,
    limits: &Limits,
    now: Timestamp,
) -> AfterRemoval {
    match deletion {
        Deletion::Deleted => AfterRemoval::End,
        Deletion::NotFound if crate::sabotage!("not-found-is-believed") => AfterRemoval::End,
        Deletion::NotFound => match register_by.map(|by| by.after(limits.clock_skew)) {
            Some(at) if now < at => AfterRemoval::AskAgain { at },
            _ => AfterRemoval::End,
        },
        Deletion::Busy => AfterRemoval::Running,
        Deletion::Unavailable => AfterRemoval::GiveBack,
    }
}

#[cfg(test)]
mod tests;
