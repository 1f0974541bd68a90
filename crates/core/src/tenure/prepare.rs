//! The beginning of a tenure: from a won instance to a runner that listens, or to the instance's end or
//! return.
//!
//! [`Prepare::on`] takes the answer to the last [`PrepareEffect`] and returns the next one. An instance
//! is assigned, started if it was stopped, and watched until its report decides. If it fails, the
//! assignment is withdrawn, GitHub is asked to delete the runner, and [`after_removal`] decides whether
//! the instance ends, counts as running, or goes back. If the cause is elsewhere, the instance goes back
//! unharmed, unless only its own agent reports that cause and jobs ran on it. An agent that does not
//! answer is at fault only if it beats no more and others do, and no agent for an order that it got too
//! late. The way to a runner that listens calls
//! neither GitHub nor, for an instance that runs, the cloud.
//!
//! Not here: what a report shows (`claim::check`), or the end of a tenure ([`super::Release`]).

use std::time::Duration;

use super::Won;
use super::won::{condemned, given_back};
use crate::claim::{
    AfterRemoval, Check, CheckFailure, CheckKind, Deletion, ReportWatch, Silence, after_removal,
};
use crate::ids::Generation;
use crate::instance::{EndReason, InstanceEvent, Owner, Record, State};
use crate::limits::Limits;
use crate::ports::{Fault, StartOutcome};
use crate::sabotage;
use crate::time::Timestamp;

/// The next thing to do for a won instance. The last three end the attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PrepareEffect {
    /// Store the assignment in the mailbox.
    Assign {
        /// When the agent must give up a listener that is not registered.
        register_by: Timestamp,
    },
    /// Ask the cloud to start the machine.
    Start,
    /// Watch the agent's report until `claim::check` decides.
    Watch(ReportWatch),
    /// This instance's agent does not answer: compare its report with those of others.
    CompareSilence,
    /// Read the record, unless another process of the owner has superseded this one.
    ReadRecord,
    /// Tell people of the failure, and store the withdrawal of this generation as `drain`.
    Withdraw(CheckFailure),
    /// Ask GitHub to delete the runner.
    DeleteRunner,
    /// Wait until this time.
    WaitUntil(Timestamp),
    /// Write this event on the record, if it is still of this tenure ([`is_same_tenure`]).
    Write(InstanceEvent),
    /// Make one pass of the release over the record that was just written. Nothing ran on the machine,
    /// so the pass makes it idle again; a process that makes a later pass does not know that, and ends
    /// the machine.
    Return,
    /// The runner listens: mark the instance as running ([`registered`]).
    Ready,
    /// This instance did not become a runner; another may.
    TryAnother,
    /// Any other instance would fail too, for this cause.
    Close(String),
}

/// The answer to an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrepareInput {
    /// The attempt begins.
    Begun,
    /// The assignment is stored.
    Assigned,
    /// A newer order is stored: another process has fenced this one. Or its owner waits no longer.
    Fenced,
    /// The mailbox did not answer in time.
    Unanswered(String),
    /// The cloud's answer to the start call.
    Started(Result<StartOutcome, Fault>),
    /// What the report shows.
    Checked(Check),
    /// What the agent's silence proves.
    Compared(Silence),
    /// The record as it is stored now; `None` if it cannot be read or another process is in charge.
    Found(Option<Record>),
    /// The withdrawal is stored.
    Withdrawn,
    /// GitHub's answer.
    Deleted(Deletion),
    /// The time has come.
    Waited,
    /// Whether the event is written.
    Written(bool),
    /// The pass of the release is made.
    Returned,
}

/// One attempt to make a runner of a won instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prepare {
    owner: Owner,
    generation: Generation,
    kind: CheckKind,
    uses: u32,
    register_by: Timestamp,
    failure: Option<CheckFailure>,
    /// Why any other instance would fail too.
    cause: Option<String>,
    /// Whether it goes back because the cloud did not start it.
    is_unstarted: bool,
    is_withdrawn: bool,
    /// Whether the assignment was stored so late that the agent had no time to register a runner.
    is_late: bool,
    /// What its agent's silence proves, as last compared.
    silence: Silence,
}

/// When an agent must give up a listener that is not registered; its check is over by then.
pub fn register_by(kind: CheckKind, now: Timestamp, limits: &Limits) -> Timestamp {
    now.after(match kind {
        CheckKind::Warm => limits.assignment_acknowledged + limits.registration,
        CheckKind::Started => limits.first_beat_stopped + limits.registration_stopped,
        CheckKind::Created => limits.fleet_validation,
    })
}

impl Prepare {
    /// Begins with an instance that is won. The proof is used up.
    pub fn new(won: Won, now: Timestamp, limits: &Limits) -> Self {
        let Won { record, owner, kind } = won;
        Self {
            owner,
            generation: record.generation,
            kind,
            uses: record.uses,
            register_by: register_by(kind, now, limits),
            failure: None,
            cause: None,
            is_unstarted: false,
            is_withdrawn: false,
            is_late: false,
            silence: Silence::Own,
        }
    }

    /// Takes the answer to the last effect and returns the next one.
    pub fn on(&mut self, input: PrepareInput, now: Timestamp, limits: &Limits) -> PrepareEffect {
        match input {
            PrepareInput::Begun => PrepareEffect::Assign { register_by: self.register_by },
            PrepareInput::Assigned => match self.kind {
                CheckKind::Started => PrepareEffect::Start,
                CheckKind::Created => self.watch(now),
                CheckKind::Warm => {
                    self.is_late = now.after(limits.registration) > self.register_by
                        && !sabotage!("late-orders-are-the-machines");
                    self.watch(now)
                }
            },
            PrepareInput::Unanswered(why) => self.unanswered(why, now, limits),
            PrepareInput::Started(answer) => self.started(&answer, now, limits),
            PrepareInput::Checked(check) => self.checked(check, now, limits),
            PrepareInput::Found(record) => self.found(record.as_ref()),
            PrepareInput::Compared(silence) => {
                self.silence = silence;
                if self.is_withdrawn {
                    self.removed(now, limits)
                } else {
                    PrepareEffect::ReadRecord
                }
            }
            PrepareInput::Withdrawn => {
                self.is_withdrawn = true;
                if self.silence == Silence::Shared {
                    return self.removed(now, limits);
                }
                PrepareEffect::DeleteRunner
            }
            PrepareInput::Waited => PrepareEffect::DeleteRunner,
            PrepareInput::Deleted(deletion) => self.deleted(deletion, now, limits),
            PrepareInput::Written(is_written) => {
                if is_written && std::mem::take(&mut self.is_unstarted) {
                    return PrepareEffect::Return;
                }
                self.end()
            }
            PrepareInput::Fenced | PrepareInput::Returned => self.end(),
        }
    }

    const fn watch(&self, since: Timestamp) -> PrepareEffect {
        let (generation, kind) = (self.generation, self.kind);
        PrepareEffect::Watch(ReportWatch { generation, since, kind, beat_seen: None })
    }

    fn started(
        &mut self,
        answer: &Result<StartOutcome, Fault>,
        now: Timestamp,
        limits: &Limits,
    ) -> PrepareEffect {
        match answer {
            // Without an answer the start may have landed. The check decides: it fails a machine that
            // never beats.
            Ok(StartOutcome::Starting) | Err(Fault::Unavailable(_)) => self.watch(now),
            Ok(StartOutcome::Failed(_)) => self.remove(CheckFailure::NotStarted),
            Ok(StartOutcome::NoCapacity) | Err(_) => {
                self.is_unstarted = true;
                self.give_back(now, limits)
            }
        }
    }

    fn checked(&mut self, check: Check, now: Timestamp, limits: &Limits) -> PrepareEffect {
        match check {
            Check::Passed => PrepareEffect::Ready,
            Check::Failed(failure) => self.remove(failure),
            // Believed until a job has run on the machine, so that an outage of GitHub ends no new
            // machine. Later a job may have left something that reports such a cause each time.
            Check::Systemic(why) if self.uses == 0 || sabotage!("used-machines-are-excused") => {
                self.close(why, now, limits)
            }
            Check::Systemic(why) => {
                self.cause = Some(why);
                self.remove(CheckFailure::Excused)
            }
        }
    }

    fn unanswered(&mut self, why: String, now: Timestamp, limits: &Limits) -> PrepareEffect {
        if self.failure.is_some() {
            // Not withdrawn. The process that has fenced this one, or the reaper, continues.
            return self.end();
        }
        let may_be_cold = self.kind == CheckKind::Created && !matches!(self.owner, Owner::Job(_));
        if may_be_cold {
            // A request's new machine is assigned while it warms up. Whether its warm-up is complete
            // is not known, so the request, or the reaper, takes it back.
            return PrepareEffect::Close(why);
        }
        self.close(why, now, limits)
    }

    /// Gives the instance back unharmed, and ends the attempt with this cause.
    fn close(&mut self, why: String, now: Timestamp, limits: &Limits) -> PrepareEffect {
        self.cause = Some(why);
        if sabotage!("outage-ends-machines") {
            return self.condemn(EndReason::FailedChecks, now);
        }
        self.give_back(now, limits)
    }

    fn remove(&mut self, failure: CheckFailure) -> PrepareEffect {
        self.failure = Some(failure);
        // The agent of a new machine has never answered, so there is no silence to compare.
        if failure.is_silence() && self.kind != CheckKind::Created {
            return PrepareEffect::CompareSilence;
        }
        PrepareEffect::ReadRecord
    }

    /// An instance whose agent is silent ends if that is its own fault. If not, its release makes it idle
    /// once its agent answers, and ends it if its agent never does.
    fn removed(&mut self, now: Timestamp, limits: &Limits) -> PrepareEffect {
        match self.silence {
            Silence::Own => return self.condemn(self.end_reason(), now),
            // A request tries other machines and then launches; a job can wait.
            Silence::Shared if matches!(self.owner, Owner::Job(_)) => {
                self.cause = Some("several machines' agents do not answer".to_owned());
            }
            Silence::Shared | Silence::Unproven => {}
        }
        self.give_back(now, limits)
    }

    /// The record as it is now. Another process of the same owner may have seen the listener, and may
    /// have marked the instance as running.
    fn found(&mut self, record: Option<&Record>) -> PrepareEffect {
        let ours = record.filter(|record| {
            record.generation == self.generation && record.state.owner() == Some(&self.owner)
        });
        match (ours, self.failure) {
            (Some(Record { state: State::Running { .. }, .. }), _) => PrepareEffect::Ready,
            (Some(_), Some(failure)) => PrepareEffect::Withdraw(failure),
            (_, None) | (None, Some(_)) => self.end(),
        }
    }

    fn deleted(&mut self, deletion: Deletion, now: Timestamp, limits: &Limits) -> PrepareEffect {
        let may_register = self.failure.is_none_or(CheckFailure::may_register);
        let register_by = may_register.then_some(self.register_by);
        match after_removal(deletion, register_by, limits, now) {
            AfterRemoval::End
                if self.kind != CheckKind::Created
                    && self.failure.is_some_and(CheckFailure::is_silence) =>
            {
                PrepareEffect::CompareSilence
            }
            AfterRemoval::End if self.is_late => self.give_back(now, limits),
            AfterRemoval::End => self.condemn(self.end_reason(), now),
            AfterRemoval::Running => PrepareEffect::Ready,
            AfterRemoval::GiveBack => {
                let why = "GitHub did not say whether a runner is deleted";
                self.cause = Some(why.to_owned());
                self.give_back(now, limits)
            }
            // A job can take another machine. The release asks GitHub again and ends this one.
            AfterRemoval::AskAgain { .. }
                if self.kind == CheckKind::Started && matches!(self.owner, Owner::Job(_)) =>
            {
                self.give_back(now, limits)
            }
            AfterRemoval::AskAgain { at } => PrepareEffect::WaitUntil(at),
        }
    }

    const fn end_reason(&self) -> EndReason {
        match self.failure {
            Some(CheckFailure::Excused) => EndReason::Untrusted,
            _ => EndReason::FailedChecks,
        }
    }

    fn condemn(&self, why: EndReason, at: Timestamp) -> PrepareEffect {
        PrepareEffect::Write(condemned(&self.owner, self.generation, why, at))
    }

    fn give_back(&self, at: Timestamp, limits: &Limits) -> PrepareEffect {
        PrepareEffect::Write(given_back(&self.owner, self.generation, at, limits))
    }

    fn end(&mut self) -> PrepareEffect {
        self.cause.take().map_or(PrepareEffect::TryAnother, PrepareEffect::Close)
    }
}

/// The event that marks an instance as running once its runner listens; `None` unless it is created or
/// claimed.
pub fn registered(
    record: &Record,
    max_runtime: Duration,
    now: Timestamp,
    limits: &Limits,
) -> Option<InstanceEvent> {
    let (owner, claim) = match &record.state {
        State::Created { owner, .. } => (owner, None),
        State::Claimed { owner, claim, .. } => (owner, Some(claim.clone())),
        _ => return None,
    };
    Some(InstanceEvent::Registered {
        owner: owner.clone(),
        generation: record.generation,
        claim,
        at: now,
        deadline: now.after(max_runtime),
        cap: now.after(limits.hard_cap),
    })
}

/// Whether a record as it is stored now is still of the tenure of `known`, and does not run yet. A
/// renewal in between is no obstacle to an owner's event; its generation and nonce keep a fenced owner
/// out.
pub fn is_same_tenure(stored: &Record, known: &Record) -> bool {
    stored.generation == known.generation
        && matches!(stored.state, State::Created { .. } | State::Claimed { .. })
}

/// Whether the runner of `known` is marked as running in the record as it is stored now. Another process
/// of the same owner may have marked it, which counts too.
pub fn is_marked(stored: &Record, known: &Record) -> bool {
    matches!(stored.state, State::Running { .. })
        && stored.state.owner() == known.state.owner()
        && stored.generation == known.generation
}

#[cfg(test)]
mod tests;
