//! The two functions that move a job: [`Job::learn`] takes a fact and refuses none about its job;
//! [`Job::on`] takes an event and either moves the job or says why not.
//!
//! Facts win over plans: a job that runs or is over wants no runner, even while a worker looks for
//! one. The ledger compares revisions, so that a writer changes only the row that it read.
//!
//! Not here: deciding which event to write, except what follows a setback ([`Job::after_setback`]).

use std::time::Duration;

use super::event::{JobEvent, JobRefusal};
use super::fact::{Completed, JobFact, JobKnowledge, JobPhase};
use super::{
    AfterJob, End, EndTasks, Job, JobMachine, JobState, JobStep, JobStepAt, MachineSource, Reason,
    Setback, SetbackAt, step,
};
use crate::ids::ClaimId;
use crate::instance::EndReason;
use crate::limits::Limits;
use crate::sabotage;
use crate::time::Timestamp;

/// How many setbacks a row keeps.
pub const SETBACKS_KEPT_MAX: usize = 8;

/// How many machines that a job gave up its row keeps: more than it has attempts. A machine is gone
/// or idle long before the job has given up eight more.
const LET_GO_KEPT_MAX: usize = 8;

/// How often GitHub may leave a job's runner without the job before the job fails: the first time GitHub
/// may have been slow.
const NEVER_GIVEN_MAX: u32 = 2;

/// The stack does not trust code from a repository outside its scope.
const UNTRUSTED: AfterJob = AfterJob::End(EndReason::Untrusted);

/// What follows a setback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterSetback {
    /// Another attempt, not before this.
    Again {
        /// The time.
        not_before: Timestamp,
    },
    /// No further attempt.
    GiveUp(Reason),
}

impl Job {
    /// A new job, from its first fact.
    pub fn first(fact: &JobFact, now: Timestamp, limits: &Limits) -> Self {
        let job = Self {
            id: fact.job.clone(),
            known: JobKnowledge::of(fact),
            lane: None,
            overflowed: false,
            attempts: 0,
            names: 0,
            let_go: Vec::new(),
            taken_by: None,
            setbacks: Vec::new(),
            steps: Vec::new(),
            state: JobState::Dormant,
        };
        job.settled(now, limits)
    }

    /// The job after another fact about it. The fact may be old, or known already.
    pub fn learn(
        &self,
        fact: &JobFact,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<Self, JobRefusal> {
        if fact.job != self.id {
            return Err(JobRefusal::AnotherJob { job: fact.job.clone() });
        }
        let mut next = self.clone();
        next.known = next.known.join(JobKnowledge::of(fact));
        Ok(next.settled(now, limits))
    }

    /// The job with the state that its facts allow.
    fn settled(mut self, now: Timestamp, limits: &Limits) -> Self {
        self.state = match (self.known.phase(), self.state) {
            (JobPhase::Completed, JobState::Ended { end, at, debts }) => {
                JobState::Ended { end, at, debts: EndTasks { cancel_by: None, ..debts } }
            }
            (JobPhase::Completed, state) => {
                let (release, after) = match state {
                    JobState::Assigned { held, after, .. } => (Some(held), after),
                    _ => (None, None),
                };
                ended(self.known.completed.as_ref(), (release, after), now)
            }
            (
                JobPhase::Started,
                JobState::Dormant | JobState::Waiting { .. } | JobState::Assigning { .. },
            ) => JobState::Elsewhere,
            (JobPhase::Queued, JobState::Dormant) => {
                JobState::Waiting { deadline: now.after(limits.job_deadline), not_before: now }
            }
            (_, state) => state,
        };
        self
    }

    /// The job after `event`, or why it refuses the event.
    pub fn on(&self, event: &JobEvent) -> Result<Self, JobRefusal> {
        let mut next = self.clone();
        match event {
            JobEvent::Routed { .. } | JobEvent::Overflowed => next.lane_event(event)?,
            JobEvent::Begun { .. }
            | JobEvent::Renewed { .. }
            | JobEvent::Assigned { .. }
            | JobEvent::SetBack { .. } => next.worker_event(event)?,
            JobEvent::Freed { .. }
            | JobEvent::Taken { .. }
            | JobEvent::RunsOn { .. }
            | JobEvent::Adopted { .. } => next.machine_event(event)?,
            JobEvent::Failed { .. }
            | JobEvent::Dismissed { .. }
            | JobEvent::Told { .. }
            | JobEvent::RunCancelled { .. } => next.ending_event(event)?,
            JobEvent::Judged { .. } | JobEvent::Released { .. } => next.release_event(event)?,
        }
        Ok(next)
    }

    fn lane_event(&mut self, event: &JobEvent) -> Result<(), JobRefusal> {
        match (&self.state, event) {
            (JobState::Dormant | JobState::Waiting { .. }, JobEvent::Routed { lane, at }) => {
                if self.lane.as_ref() != Some(lane) {
                    self.overflowed = false;
                    self.note_heard();
                    self.note(*at, JobStep::Routed { lane: lane.clone() });
                }
                self.lane = Some(lane.clone());
            }
            (JobState::Waiting { .. } | JobState::Assigning { .. }, JobEvent::Overflowed) => {
                self.overflowed = true;
            }
            (_, event) => return Err(self.illegal(event)),
        }
        Ok(())
    }

    fn worker_event(&mut self, event: &JobEvent) -> Result<(), JobRefusal> {
        match (&mut self.state, event) {
            (
                JobState::Waiting { deadline, not_before },
                JobEvent::Begun { worker, at, lease, .. },
            ) => {
                if self.lane.is_none() {
                    return Err(JobRefusal::Unrouted);
                }
                if at < not_before {
                    return Err(JobRefusal::TooEarly { until: *not_before });
                }
                let deadline = in_time(*deadline, *at)?;
                self.state =
                    JobState::Assigning { worker: worker.clone(), lease: *lease, deadline };
                self.note(*at, JobStep::Begun);
            }
            (
                JobState::Assigning { worker, lease, deadline },
                JobEvent::Begun { worker: by, at, lease: until, skew },
            ) => {
                if worker == by {
                    // The same write landed before, and its answer was lost.
                    *lease = (*lease).max(*until);
                    return Ok(());
                }
                let lapses = lease.after(*skew);
                if *at < lapses {
                    return Err(JobRefusal::TooEarly { until: lapses });
                }
                in_time(*deadline, *at)?;
                (*worker, *lease) = (by.clone(), *until);
                self.remember(*at, Setback::WorkerLost, None);
                self.note(*at, JobStep::Begun);
            }
            (
                JobState::Assigning { worker, lease, .. },
                JobEvent::Renewed { worker: by, lease: until },
            ) => {
                same_worker(worker, by)?;
                *lease = (*lease).max(*until);
            }
            (
                JobState::Assigning { worker, deadline, .. },
                JobEvent::Assigned { worker: by, held, how, at, notes },
            ) => {
                same_worker(worker, by)?;
                self.state =
                    JobState::Assigned { held: held.clone(), deadline: *deadline, after: None };
                self.note_all(notes);
                let instance = Some(held.instance.clone());
                self.note(*at, JobStep::Assigned { how: *how, instance });
            }
            // The same write landed before, and its answer was lost.
            (JobState::Assigned { held: has, .. }, JobEvent::Assigned { held, .. })
                if has == held => {}
            (
                JobState::Assigning { worker, deadline, .. },
                JobEvent::SetBack { worker: by, setback, at, not_before, notes },
            ) => {
                same_worker(worker, by)?;
                self.state = JobState::Waiting { deadline: *deadline, not_before: *not_before };
                self.note_all(notes);
                self.remember(*at, setback.clone(), None);
            }
            (_, event) => return Err(self.illegal(event)),
        }
        Ok(())
    }

    fn machine_event(&mut self, event: &JobEvent) -> Result<(), JobRefusal> {
        match (&mut self.state, event) {
            (
                JobState::Assigned { held, deadline, .. },
                JobEvent::Freed { held: seen, setback, at, not_before },
            ) => {
                same_machine(held, seen)?;
                if self.known.started.is_some() {
                    return Err(JobRefusal::Started);
                }
                self.let_go.push(held.clone());
                let surplus = self.let_go.len().saturating_sub(LET_GO_KEPT_MAX);
                self.let_go.drain(..surplus);
                self.state = JobState::Waiting { deadline: *deadline, not_before: *not_before };
                self.names = self.names.saturating_add(1);
                self.taken_by = None;
                let source = self.source();
                self.remember(*at, setback.clone(), source);
            }
            (
                JobState::Assigned { held, after, .. }
                | JobState::Ended { debts: EndTasks { release: Some(held), after, .. }, .. },
                JobEvent::Taken { runner, by },
            ) => {
                if held.runner != *runner || self.taken_by.as_ref().is_some_and(|has| has != by) {
                    return Err(JobRefusal::AnotherMachine);
                }
                if self.taken_by.replace(by.clone()).is_none() {
                    // The decision was about another job's code.
                    *after = None;
                }
            }
            (
                JobState::Assigned { .. } | JobState::Elsewhere | JobState::Ended { .. },
                JobEvent::RunsOn { instance, at },
            ) => {
                if self.runs_on() != Some(instance) {
                    self.note(*at, JobStep::Exchanged { instance: instance.clone() });
                }
            }
            (JobState::Elsewhere, JobEvent::Adopted { held, deadline, at }) => {
                let (held, deadline) = (held.clone(), *deadline);
                self.note(*at, JobStep::Adopted { instance: held.instance.clone() });
                self.state = JobState::Assigned { held, deadline, after: None };
            }
            (JobState::Ended { debts, .. }, JobEvent::Adopted { held, at, .. })
                if debts.release.is_none() && self.known.started.is_some() =>
            {
                debts.release = Some(held.clone());
                self.note(*at, JobStep::Adopted { instance: held.instance.clone() });
            }
            (_, event) => return Err(self.illegal(event)),
        }
        Ok(())
    }

    fn ending_event(&mut self, event: &JobEvent) -> Result<(), JobRefusal> {
        match (&mut self.state, event) {
            (
                JobState::Dormant
                | JobState::Waiting { .. }
                | JobState::Assigning { .. }
                | JobState::Assigned { .. },
                JobEvent::Failed { reason, at, cancel_by },
            ) => {
                if self.known.started.is_some() {
                    return Err(JobRefusal::Started);
                }
                self.note_heard();
                let release = self.held().cloned();
                let tell = !sabotage!("failures-are-not-told");
                let debts = EndTasks { tell, cancel_by: *cancel_by, release, after: None };
                self.state = JobState::Ended { end: End::Failed(reason.clone()), at: *at, debts };
            }
            (JobState::Ended { debts, .. }, JobEvent::Dismissed { .. }) => {
                (debts.tell, debts.cancel_by) = (false, None);
                debts.after = debts.release.as_ref().map(|_| UNTRUSTED);
            }
            (_, JobEvent::Dismissed { reason, at }) => {
                self.note_heard();
                let release = self.held().cloned();
                let after = release.as_ref().map(|_| UNTRUSTED);
                let debts = EndTasks { release, after, ..EndTasks::default() };
                self.state = JobState::Ended { end: End::Failed(reason.clone()), at: *at, debts };
            }
            (JobState::Ended { debts, .. }, JobEvent::Told { at }) => {
                if std::mem::take(&mut debts.tell) {
                    self.note(*at, JobStep::Told);
                }
            }
            (JobState::Ended { debts, .. }, JobEvent::RunCancelled { at }) => {
                if debts.cancel_by.take().is_some() {
                    self.note(*at, JobStep::RunCancelled);
                }
            }
            (_, event) => return Err(self.illegal(event)),
        }
        Ok(())
    }

    fn release_event(&mut self, event: &JobEvent) -> Result<(), JobRefusal> {
        match (&mut self.state, event) {
            (JobState::Assigned { .. }, JobEvent::Judged { .. })
                if self.known.started.is_none() =>
            {
                return Err(self.illegal(event));
            }
            (
                JobState::Assigned { held: owed, after: decided, .. }
                | JobState::Ended {
                    debts: EndTasks { release: Some(owed), after: decided, .. }, ..
                },
                JobEvent::Judged { held, taken_by, after },
            ) => {
                same_machine(owed, held)?;
                if self.taken_by != *taken_by {
                    return Err(JobRefusal::AnotherMachine);
                }
                // The first decision stands: its writer may have acted on it.
                *decided = decided.or(Some(*after));
            }
            (JobState::Ended { .. }, JobEvent::Judged { .. }) => {}
            (JobState::Assigned { held: has, .. }, JobEvent::Released { held, at, notes })
                if self.known.started.is_some() =>
            {
                same_machine(has, held)?;
                self.state = JobState::Elsewhere;
                self.note_all(notes);
                self.note(*at, JobStep::Released);
            }
            (JobState::Ended { debts, .. }, JobEvent::Released { held, at, notes }) => {
                // A second release changes nothing.
                if let Some(owed) = &debts.release {
                    same_machine(owed, held)?;
                    debts.release = None;
                    self.note_all(notes);
                    self.note(*at, JobStep::Released);
                }
            }
            (_, event) => return Err(self.illegal(event)),
        }
        Ok(())
    }

    fn remember(&mut self, at: Timestamp, setback: Setback, source: Option<MachineSource>) {
        let counts = setback.counts(source);
        if counts {
            self.attempts = self.attempts.saturating_add(1);
        }
        match self.setbacks.last_mut() {
            // A setback that passes by itself may repeat a hundred times: it stays one entry, and
            // the repeated attempts leave no steps.
            Some(last) if !counts && last.setback == setback => {
                step::forget_attempt(&mut self.steps, last.at);
                last.again(at);
            }
            _ => self.setbacks.push(SetbackAt::once(at, setback)),
        }
        let surplus = self.setbacks.len().saturating_sub(SETBACKS_KEPT_MAX);
        self.setbacks.drain(..surplus);
    }

    fn note(&mut self, at: Timestamp, step: JobStep) {
        step::remember(&mut self.steps, JobStepAt { at, step });
    }

    fn note_all(&mut self, notes: &[JobStepAt]) {
        for note in notes {
            self.note(note.at, note.step.clone());
        }
    }

    /// Until the first step, `not_before` is when the service learned that it wants a runner.
    fn note_heard(&mut self) {
        if let JobState::Waiting { not_before, .. } = self.state
            && self.steps.is_empty()
        {
            self.note(not_before, JobStep::Heard);
        }
    }

    /// How it got the machine that it has, or had last; none if its steps do not say.
    pub fn source(&self) -> Option<MachineSource> {
        self.steps.iter().rev().find_map(|step| match step.step {
            JobStep::Assigned { how, .. } => Some(how),
            _ => None,
        })
    }

    /// How many machines were of no use to it, of those that it remembers.
    pub fn useless_machines(&self) -> u32 {
        let of_machines = self.setbacks.iter().filter(|at| at.setback.is_of_the_machine());
        of_machines.map(|at| at.times).fold(0, u32::saturating_add)
    }

    /// What follows this setback: another attempt, after a longer wait if it counts, or the end.
    /// `source` is how it got the machine that failed; `jitter` is below [`Job::backoff`] in
    /// milliseconds.
    pub fn after_setback(
        &self,
        (setback, source): (&Setback, Option<MachineSource>),
        now: Timestamp,
        limits: &Limits,
        jitter: Duration,
    ) -> AfterSetback {
        let attempts = self.attempts.saturating_add(u32::from(setback.counts(source)));
        let is_never_given = *setback == Setback::NeverGiven && self.is_never_given(1);
        if attempts >= limits.launch_attempts_max || is_never_given {
            return AfterSetback::GiveUp(Reason::OutOfAttempts { attempts, last: setback.clone() });
        }
        if !setback.counts(source) {
            return AfterSetback::Again { not_before: now };
        }
        // Half of the wait is random, so that attempts spread; half is fixed, so that they get
        // rarer.
        let wait = self.backoff(limits) / 2 + jitter.min(self.backoff(limits)) / 2;
        AfterSetback::Again { not_before: now.after(wait) }
    }

    /// The reason to fail a job without attempts left, if its last worker died before it did so.
    pub fn out_of_attempts(&self, limits: &Limits) -> Option<Reason> {
        let (attempts, last) = (self.attempts, self.setbacks.last()?.setback.clone());
        let is_out = attempts >= limits.launch_attempts_max || self.is_never_given(0);
        is_out.then_some(Reason::OutOfAttempts { attempts, last })
    }

    /// Whether GitHub gave it to none of its runners too often, `more` times included.
    fn is_never_given(&self, more: u32) -> bool {
        let known = self.setbacks.iter().filter(|at| at.setback == Setback::NeverGiven);
        known.map(|at| at.times).fold(more, u32::saturating_add) >= NEVER_GIVEN_MAX
    }

    /// The longest wait after the next setback that counts.
    pub fn backoff(&self, limits: &Limits) -> Duration {
        // More doublings than this outlast every deadline.
        limits.launch_backoff.saturating_mul(1 << self.attempts.min(16))
    }
}

fn ended(
    completed: Option<&Completed>,
    (release, after): (Option<JobMachine>, Option<AfterJob>),
    now: Timestamp,
) -> JobState {
    let end = match completed.map(|completed| &completed.conclusion) {
        Some(conclusion) if !conclusion.is_cancelled() => End::Completed(conclusion.clone()),
        _ => End::Cancelled,
    };
    let release = release.filter(|_| !sabotage!("ends-release-nothing"));
    JobState::Ended { end, at: now, debts: EndTasks { release, after, ..EndTasks::default() } }
}

fn in_time(deadline: Timestamp, at: Timestamp) -> Result<Timestamp, JobRefusal> {
    if at < deadline { Ok(deadline) } else { Err(JobRefusal::Overdue { deadline }) }
}

fn same_worker(has: &ClaimId, by: &ClaimId) -> Result<(), JobRefusal> {
    if has == by { Ok(()) } else { Err(JobRefusal::AnotherWorker) }
}

fn same_machine(has: &JobMachine, seen: &JobMachine) -> Result<(), JobRefusal> {
    if has == seen { Ok(()) } else { Err(JobRefusal::AnotherMachine) }
}
