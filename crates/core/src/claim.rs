//! The claim protocol as data: its steps, what follows what, and the checks after an assignment.
//!
//! A claim is *claim → assign → (start) → check*. [`next`] says what follows an outcome, [`check`]
//! judges an agent's report against the deadlines, and [`after_removal`] decides what a failed
//! check costs: a machine that misbehaved ends, a machine that runs a job is counted, and a cause
//! that lies elsewhere never ends a machine. A machine that jobs ran on is not believed that it lies
//! elsewhere.
//!
//! Not here: making the calls (`bullpen-engine`), or choosing a candidate (`pickup`).

use std::time::Duration;

use crate::ids::Generation;
use crate::instance::Tier;
use crate::limits::{Limits, TOLD_CHARS_MAX};
use crate::mailbox::{Beat, Report, SYSTEMIC, SignalKind, shown};
use crate::sabotage;
use crate::time::Timestamp;

/// One step of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimStep {
    /// The conditional write idle → claimed.
    Claim,
    /// The assignment into the mailbox.
    Assign,
    /// Starting a stopped machine.
    Start,
    /// Waiting for the agent.
    Check,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// As wanted.
    Done,
    /// Somebody else won, or has fenced us since.
    Lost,
    /// The cloud has no room to start the machine.
    StartRefused,
    /// The machine cannot be started.
    StartFailed,
    /// The agent did not do its part.
    Failed(CheckFailure),
    /// What failed is not this machine: GitHub, a credential, a rate limit. The text is for people.
    Systemic(String),
    /// The same, and only a machine says so that jobs ran on.
    Excused(String),
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterStep {
    /// The next step.
    Go(ClaimStep),
    /// The instance is ready.
    Ready,
    /// Ask for another candidate; this one is not ours.
    TryAnother,
    /// Give this one back unharmed, remember the shortage, and ask for another.
    GiveBack,
    /// Withdraw, ask GitHub to delete the runner, and let [`after_removal`] decide.
    Remove(CheckFailure),
    /// Give this one back unharmed and end the attempt, for this cause: the next would fail the
    /// same way.
    CloseAttempt(String),
    /// End the attempt for this cause all the same, and the machine as if it had failed by itself: a
    /// job may have left something on it that names such a cause at every assignment.
    RemoveAndClose(String),
}

/// What follows `outcome` of `step` on a machine of this tier.
pub fn next(step: ClaimStep, tier: Tier, outcome: StepOutcome) -> AfterStep {
    match (step, outcome) {
        (ClaimStep::Claim, StepOutcome::Done) => AfterStep::Go(ClaimStep::Assign),
        (ClaimStep::Assign, StepOutcome::Done) => match tier {
            Tier::Stopped => AfterStep::Go(ClaimStep::Start),
            Tier::Hot | Tier::Released => AfterStep::Go(ClaimStep::Check),
        },
        (ClaimStep::Start, StepOutcome::Done) => AfterStep::Go(ClaimStep::Check),
        (ClaimStep::Check, StepOutcome::Done) => AfterStep::Ready,
        (_, StepOutcome::Lost) => AfterStep::TryAnother,
        (_, StepOutcome::StartRefused) => AfterStep::GiveBack,
        (_, StepOutcome::StartFailed) => AfterStep::Remove(CheckFailure::NotStarted),
        (_, StepOutcome::Failed(failure)) => AfterStep::Remove(failure),
        (_, StepOutcome::Systemic(why)) => AfterStep::CloseAttempt(why),
        (_, StepOutcome::Excused(why)) => AfterStep::RemoveAndClose(why),
    }
}

/// What an agent failed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckFailure {
    /// It could not be started.
    NotStarted,
    /// It reported that its warm-up failed.
    WarmUpFailed,
    /// It never said that its warm-up is complete.
    NotWarm,
    /// It did not acknowledge the assignment.
    NotAcknowledged,
    /// Its listener did not register in time.
    NotRegistered,
    /// It reported that registration failed.
    RegistrationFailed,
    /// It stopped beating.
    Silent,
    /// It reported that registration failed for a cause elsewhere, and jobs ran on it before.
    Excused,
}

impl CheckFailure {
    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotStarted => "it could not be started",
            Self::WarmUpFailed => "its warm-up failed",
            Self::NotWarm => "its warm-up was not completed in time",
            Self::NotAcknowledged => "its agent did not acknowledge the assignment in time",
            Self::NotRegistered => "its listener did not register in time",
            Self::RegistrationFailed => "its listener could not register",
            Self::Silent => "its agent stopped beating",
            Self::Excused => "its listener could not register, wherever the cause lies",
        }
    }

    /// For people, with what the machine itself said about it, in one line.
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
        // What went wrong comes first; the last words of an output are nearest to why.
        let said = [Some(self.as_str()), lines.next(), lines.next_back()];
        let said: Vec<&str> = said.into_iter().flatten().collect();
        shown(&said.join(": "), TOLD_CHARS_MAX)
    }

    /// Whether a runner may still be registered after this. An agent whose warm-up failed ends its
    /// machine and reads no orders; one whose machine was not started has read none, and what it
    /// reads first is the withdrawal.
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

/// What is waited for, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportWatch {
    /// At which generation.
    pub generation: Generation,
    /// Since the assignment was stored, or the machine was launched.
    pub since: Timestamp,
    /// What kind of machine it is.
    pub kind: CheckKind,
    /// The beat that was there when the watch began.
    pub beat_seen: Option<Beat>,
}

/// What kind of machine a watch is on; each has its own deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// It was running when it was claimed.
    Warm,
    /// It was stopped when it was claimed.
    Started,
    /// It was created for this owner.
    Created,
}

/// What the report shows so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing decisive yet.
    Pending,
    /// The listener listens and the machine is alive.
    Passed,
    /// Registration failed for a cause that is not this machine's, in the runner program's words.
    Systemic(String),
    /// It will not come any more.
    Failed(CheckFailure),
}

/// Judges a report against the deadlines of its watch.
pub fn check(
    watch: &ReportWatch,
    report: Option<&Report>,
    limits: &Limits,
    now: Timestamp,
) -> Check {
    let waited = now.since(watch.since);
    let Some(report) = report else { return overdue(watch, None, waited, limits) };
    if let Some(signal) = report.signal(SignalKind::RegistrationFailed, watch.generation) {
        return match signal.detail.strip_prefix(SYSTEMIC) {
            Some(_) if sabotage!("systemic-is-the-machines") => {
                Check::Failed(CheckFailure::RegistrationFailed)
            }
            Some(why) => Check::Systemic(shown(why.trim(), TOLD_CHARS_MAX)),
            None => Check::Failed(CheckFailure::RegistrationFailed),
        };
    }
    if has_failed_warm_up(watch, report, limits) {
        return Check::Failed(CheckFailure::WarmUpFailed);
    }
    let is_registered = report.signal(SignalKind::Registered, watch.generation).is_some()
        || sabotage!("acknowledged-is-registered")
            && report.signal(SignalKind::Acknowledged, watch.generation).is_some();
    if is_registered {
        if report.is_fresh(now, limits.heartbeat_stale, watch.beat_seen.as_ref()) {
            return Check::Passed;
        }
        return match overdue(watch, Some(report), waited, limits) {
            Check::Failed(_) => Check::Failed(CheckFailure::Silent),
            pending => pending,
        };
    }
    overdue(watch, Some(report), waited, limits)
}

/// A started machine runs its `prerun` anew; only what it said since it was started counts.
fn has_failed_warm_up(watch: &ReportWatch, report: &Report, limits: &Limits) -> bool {
    let failed = report.signals.get(&SignalKind::WarmUpFailed);
    failed.is_some_and(|signal| match watch.kind {
        CheckKind::Created => true,
        CheckKind::Started => signal.at >= watch.since.before(limits.clock_skew),
        CheckKind::Warm => false,
    })
}

/// Which deadline has passed, if any.
fn overdue(
    watch: &ReportWatch,
    report: Option<&Report>,
    waited: Duration,
    limits: &Limits,
) -> Check {
    if sabotage!("checks-have-no-end") {
        return Check::Pending;
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
        return Check::Failed(match watch.kind {
            CheckKind::Created if !warm => CheckFailure::NotWarm,
            CheckKind::Created | CheckKind::Warm | CheckKind::Started => {
                CheckFailure::NotAcknowledged
            }
        });
    }
    if waited >= register {
        return Check::Failed(CheckFailure::NotRegistered);
    }
    Check::Pending
}

/// What GitHub said when it was asked to delete a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// 204: it is gone.
    Deleted,
    /// 404: there was none.
    NotFound,
    /// 422: it runs a job.
    Busy,
    /// GitHub did not answer, or refused us.
    Unavailable,
}

/// What a withdrawn machine that failed its checks becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRemoval {
    /// No job can start on it any more: it ends.
    End,
    /// It already runs a job: it counts as running.
    Running,
    /// The cause lies elsewhere: it goes back unharmed, and the attempt is over.
    GiveBack,
    /// A late registration could still succeed; ask again after this time.
    AskAgain {
        /// When.
        at: Timestamp,
    },
}

/// Decides by GitHub's answer. With a registration token a 404 says nothing until `register_by`
/// has passed on every clock, because the agent may be registering this very moment.
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
            Some(at) if now < at && !sabotage!("register-by-not-judged") => {
                AfterRemoval::AskAgain { at }
            }
            _ => AfterRemoval::End,
        },
        Deletion::Busy => AfterRemoval::Running,
        Deletion::Unavailable => AfterRemoval::GiveBack,
    }
}

/// What it comes to that a machine names a cause elsewhere. Until a job ran on it, it is believed: what
/// GitHub fails to do ends no new machine.
pub fn excuse(why: String, uses: u32) -> StepOutcome {
    if uses == 0 || sabotage!("used-machines-are-excused") {
        StepOutcome::Systemic(why)
    } else {
        StepOutcome::Excused(why)
    }
}

#[cfg(test)]
mod tests;
