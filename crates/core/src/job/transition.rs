//! The two functions that move a job: [`Job::learn`] takes a fact and refuses none about its job;
//! [`Job::on`] takes an event and either moves or says why not.
//!
//! Facts win over plans: a job that runs, or is over, wants no runner, whoever is working on it.
//! That the row is still what the writer read is the ledger's part: it compares revisions.
//!
//! Not here: deciding which event to write, except what follows a setback ([`Job::after_setback`]).

use std::time::Duration;

use super::event::{Event, Refusal};
use super::fact::{Completed, Fact, Known, Phase};
use super::{
    AfterJob, Debts, End, Held, Job, Life, Reason, Setback, SetbackAt, Step, StepAt, step,
};
use crate::ids::ClaimId;
use crate::instance::EndReason;
use crate::limits::Limits;
use crate::sabotage;
use crate::time::Timestamp;

/// How many setbacks a row remembers.
pub const SETBACKS_KEPT_MAX: usize = 8;

/// How many machines that a job let go of are remembered: more than it has attempts. Each is gone, or
/// idle, long before the next but seven.
const LET_GO_KEPT_MAX: usize = 8;

/// Code that ran outside the scope is nobody's that this stack trusts.
const UNTRUSTED: AfterJob = AfterJob::End(EndReason::Untrusted);

/// What follows a setback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another attempt, not before this.
    Again {
        /// When.
        not_before: Timestamp,
    },
    /// No other.
    GiveUp(Reason),
}

impl Job {
    /// A job of which this is the first fact.
    pub fn first(fact: &Fact, now: Timestamp, limits: &Limits) -> Self {
        let job = Self {
            id: fact.job.clone(),
            known: Known::of(fact),
            lane: None,
            overflowed: false,
            attempts: 0,
            names: 0,
            let_go: Vec::new(),
            setbacks: Vec::new(),
            steps: Vec::new(),
            life: Life::Dormant,
        };
        job.settled(now, limits)
    }

    /// The job after another fact about it, which may be old, or known already.
    pub fn learn(&self, fact: &Fact, now: Timestamp, limits: &Limits) -> Result<Self, Refusal> {
        if fact.job != self.id {
            return Err(Refusal::AnotherJob { job: fact.job.clone() });
        }
        let mut next = self.clone();
        next.known = next.known.join(Known::of(fact));
        Ok(next.settled(now, limits))
    }

    /// The life that the facts allow.
    fn settled(mut self, now: Timestamp, limits: &Limits) -> Self {
        self.life = match (self.known.phase(), self.life) {
            (Phase::Completed, Life::Ended { end, at, debts }) => {
                Life::Ended { end, at, debts: Debts { cancel_by: None, ..debts } }
            }
            (Phase::Completed, life) => {
                let release = match life {
                    Life::Assigned { held, .. } => Some(held),
                    _ => None,
                };
                ended(self.known.completed.as_ref(), release, now)
            }
            (Phase::Started, Life::Dormant | Life::Waiting { .. } | Life::Assigning { .. }) => {
                Life::Elsewhere
            }
            (Phase::Queued, Life::Dormant) => {
                Life::Waiting { deadline: now.after(limits.job_deadline), not_before: now }
            }
            (_, life) => life,
        };
        self
    }

    /// The job after `event`, or why there is none.
    pub fn on(&self, event: &Event) -> Result<Self, Refusal> {
        let mut next = self.clone();
        match event {
            Event::Routed { .. } | Event::Overflowed => next.lane_event(event)?,
            Event::Begun { .. }
            | Event::Renewed { .. }
            | Event::Assigned { .. }
            | Event::SetBack { .. } => next.worker_event(event)?,
            Event::Freed { .. } | Event::Swapped { .. } | Event::Adopted { .. } => {
                next.machine_event(event)?;
            }
            Event::Failed { .. }
            | Event::Dismissed { .. }
            | Event::Told { .. }
            | Event::RunCancelled { .. }
            | Event::Judged { .. }
            | Event::Released { .. } => next.ending_event(event)?,
        }
        Ok(next)
    }

    fn lane_event(&mut self, event: &Event) -> Result<(), Refusal> {
        match (&self.life, event) {
            (Life::Dormant | Life::Waiting { .. }, Event::Routed { lane, at }) => {
                if self.lane.as_ref() != Some(lane) {
                    self.overflowed = false;
                    self.note_heard();
                    self.note(*at, Step::Routed { lane: lane.clone() });
                }
                self.lane = Some(lane.clone());
            }
            (Life::Waiting { .. } | Life::Assigning { .. }, Event::Overflowed) => {
                self.overflowed = true;
            }
            (_, event) => return Err(self.illegal(event)),
        }
        Ok(())
    }

    fn worker_event(&mut self, event: &Event) -> Result<(), Refusal> {
        match (&mut self.life, event) {
            (Life::Waiting { deadline, not_before }, Event::Begun { worker, at, lease, .. }) => {
                if self.lane.is_none() {
                    return Err(Refusal::Unrouted);
                }
                if at < not_before {
                    return Err(Refusal::TooEarly { until: *not_before });
                }
                let deadline = in_time(*deadline, *at)?;
                self.life = Life::Assigning { worker: worker.clone(), lease: *lease, deadline };
                self.note(*at, Step::Begun);
            }
            (
                Life::Assigning { worker, lease, deadline },
                Event::Begun { worker: by, at, lease: until, skew },
            ) => {
                if worker == by {
                    // It landed before, and its answer was lost.
                    *lease = (*lease).max(*until);
                    return Ok(());
                }
                let lapses = lease.after(*skew);
                if *at < lapses {
                    return Err(Refusal::TooEarly { until: lapses });
                }
                in_time(*deadline, *at)?;
                (*worker, *lease) = (by.clone(), *until);
                self.remember(*at, Setback::WorkerLost);
                self.note(*at, Step::Begun);
            }
            (
                Life::Assigning { worker, lease, .. },
                Event::Renewed { worker: by, lease: until },
            ) => {
                same_worker(worker, by)?;
                *lease = (*lease).max(*until);
            }
            (
                Life::Assigning { worker, deadline, .. },
                Event::Assigned { worker: by, held, how, at, notes },
            ) => {
                same_worker(worker, by)?;
                self.life = Life::Assigned { held: held.clone(), deadline: *deadline };
                self.note_all(notes);
                let instance = Some(held.instance.clone());
                self.note(*at, Step::Assigned { how: *how, instance });
            }
            // It landed before, and its answer was lost.
            (Life::Assigned { held: has, .. }, Event::Assigned { held, .. }) if has == held => {}
            (
                Life::Assigning { worker, deadline, .. },
                Event::SetBack { worker: by, setback, at, not_before, notes },
            ) => {
                same_worker(worker, by)?;
                self.life = Life::Waiting { deadline: *deadline, not_before: *not_before };
                self.note_all(notes);
                self.remember(*at, setback.clone());
            }
            (_, event) => return Err(self.illegal(event)),
        }
        Ok(())
    }

    fn machine_event(&mut self, event: &Event) -> Result<(), Refusal> {
        match (&mut self.life, event) {
            (
                Life::Assigned { held, deadline },
                Event::Freed { held: seen, setback, at, not_before },
            ) => {
                same_machine(held, seen)?;
                if self.known.started.is_some() {
                    return Err(Refusal::Started);
                }
                self.let_go.push(held.clone());
                let surplus = self.let_go.len().saturating_sub(LET_GO_KEPT_MAX);
                self.let_go.drain(..surplus);
                self.life = Life::Waiting { deadline: *deadline, not_before: *not_before };
                self.names = self.names.saturating_add(1);
                self.remember(*at, setback.clone());
            }
            (Life::Assigned { held, .. }, Event::Swapped { from, to, at }) => {
                same_machine(held, from)?;
                *held = to.clone();
                self.note(*at, Step::Exchanged { instance: to.instance.clone() });
            }
            (Life::Ended { debts, .. }, Event::Swapped { from, to, at }) => {
                let Some(owed) = &mut debts.release else { return Err(self.illegal(event)) };
                same_machine(owed, from)?;
                *owed = to.clone();
                // What was decided was decided about the other one.
                debts.after = None;
                self.note(*at, Step::Exchanged { instance: to.instance.clone() });
            }
            (Life::Elsewhere, Event::Adopted { held, deadline, at }) => {
                self.life = Life::Assigned { held: held.clone(), deadline: *deadline };
                self.note(*at, Step::Adopted { instance: held.instance.clone() });
            }
            (_, event) => return Err(self.illegal(event)),
        }
        Ok(())
    }

    fn ending_event(&mut self, event: &Event) -> Result<(), Refusal> {
        match (&mut self.life, event) {
            (
                Life::Dormant
                | Life::Waiting { .. }
                | Life::Assigning { .. }
                | Life::Assigned { .. },
                Event::Failed { reason, at, cancel_by },
            ) => {
                if self.known.started.is_some() {
                    return Err(Refusal::Started);
                }
                self.note_heard();
                let release = self.held().cloned();
                let tell = !sabotage!("failures-are-not-told");
                let debts = Debts { tell, cancel_by: *cancel_by, release, after: None };
                self.life = Life::Ended { end: End::Failed(reason.clone()), at: *at, debts };
            }
            (Life::Ended { debts, .. }, Event::Dismissed { .. }) => {
                (debts.tell, debts.cancel_by) = (false, None);
                debts.after = debts.release.as_ref().map(|_| UNTRUSTED);
            }
            (_, Event::Dismissed { reason, at }) => {
                self.note_heard();
                let release = self.held().cloned();
                let after = release.as_ref().map(|_| UNTRUSTED);
                let debts = Debts { release, after, ..Debts::default() };
                self.life = Life::Ended { end: End::Failed(reason.clone()), at: *at, debts };
            }
            (Life::Ended { debts, .. }, Event::Told { at }) => {
                if std::mem::take(&mut debts.tell) {
                    self.note(*at, Step::Told);
                }
            }
            (Life::Ended { debts, .. }, Event::RunCancelled { at }) => {
                if debts.cancel_by.take().is_some() {
                    self.note(*at, Step::RunCancelled);
                }
            }
            (Life::Ended { debts, .. }, Event::Judged { held, after }) => {
                if let Some(owed) = &debts.release {
                    same_machine(owed, held)?;
                    // Whoever decided first may have acted on it.
                    debts.after = debts.after.or(Some(*after));
                }
            }
            (Life::Ended { debts, .. }, Event::Released { held, at, notes }) => {
                // Released twice is released.
                if let Some(owed) = &debts.release {
                    same_machine(owed, held)?;
                    debts.release = None;
                    self.note_all(notes);
                    self.note(*at, Step::Released);
                }
            }
            (_, event) => return Err(self.illegal(event)),
        }
        Ok(())
    }

    fn remember(&mut self, at: Timestamp, setback: Setback) {
        if setback.counts() {
            self.attempts = self.attempts.saturating_add(1);
        }
        match self.setbacks.last_mut() {
            // What passes by itself may come a hundred times: it is one entry, and what was tried
            // in between says nothing new.
            Some(last) if !setback.counts() && last.setback == setback => {
                step::forget_attempt(&mut self.steps, last.at);
                last.again(at);
            }
            _ => self.setbacks.push(SetbackAt::once(at, setback)),
        }
        let surplus = self.setbacks.len().saturating_sub(SETBACKS_KEPT_MAX);
        self.setbacks.drain(..surplus);
    }

    fn note(&mut self, at: Timestamp, step: Step) {
        step::remember(&mut self.steps, StepAt { at, step });
    }

    fn note_all(&mut self, notes: &[StepAt]) {
        for note in notes {
            self.note(note.at, note.step.clone());
        }
    }

    /// A job that nothing was done about yet waits since we learned that it wants a runner.
    fn note_heard(&mut self) {
        if let Life::Waiting { not_before, .. } = self.life
            && self.steps.is_empty()
        {
            self.note(not_before, Step::Heard);
        }
    }

    /// What follows this setback: another attempt, later each time that it counts, or the end.
    /// `jitter` is below [`Job::backoff`] in milliseconds.
    pub fn after_setback(
        &self,
        setback: &Setback,
        now: Timestamp,
        limits: &Limits,
        jitter: Duration,
    ) -> Next {
        let attempts = self.attempts.saturating_add(u32::from(setback.counts()));
        if attempts >= limits.launch_attempts_max {
            return Next::GiveUp(Reason::OutOfAttempts { attempts, last: setback.clone() });
        }
        if !setback.counts() {
            return Next::Again { not_before: now };
        }
        // Half of it is certain, so that a storm spreads and still abates.
        let wait = self.backoff(limits) / 2 + jitter.min(self.backoff(limits)) / 2;
        Next::Again { not_before: now.after(wait) }
    }

    /// How long to wait after the next setback that counts, at most.
    pub fn backoff(&self, limits: &Limits) -> Duration {
        // More doublings than this outlast every deadline.
        limits.launch_backoff.saturating_mul(1 << self.attempts.min(16))
    }
}

fn ended(completed: Option<&Completed>, release: Option<Held>, now: Timestamp) -> Life {
    let end = match completed.map(|completed| &completed.conclusion) {
        Some(conclusion) if !conclusion.is_cancelled() => End::Completed(conclusion.clone()),
        _ => End::Cancelled,
    };
    let release = release.filter(|_| !sabotage!("ends-release-nothing"));
    Life::Ended { end, at: now, debts: Debts { release, ..Debts::default() } }
}

fn in_time(deadline: Timestamp, at: Timestamp) -> Result<Timestamp, Refusal> {
    if at < deadline { Ok(deadline) } else { Err(Refusal::Overdue { deadline }) }
}

fn same_worker(has: &ClaimId, by: &ClaimId) -> Result<(), Refusal> {
    if has == by { Ok(()) } else { Err(Refusal::AnotherWorker) }
}

fn same_machine(has: &Held, seen: &Held) -> Result<(), Refusal> {
    if has == seen { Ok(()) } else { Err(Refusal::AnotherMachine) }
}
