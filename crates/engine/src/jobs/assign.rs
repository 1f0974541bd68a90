//! Assigning: a worker takes one waiting row to a runner that listens, or stores a setback in it.
//!
//! The worker takes the row under a lease. It continues with a machine that the job has already,
//! else claims an idle one, else launches one. The row names the machine only if the job is still
//! queued; only then the worker tells the agent. It mints the runner's credential before a claim,
//! or after a new machine is warm, so that an outage of GitHub costs no machine. The job uses the
//! runner's name again after a lost race. If a stopped machine does not start, the worker frees the
//! row and at once tries another machine of the pool, or a launch.
//!
//! Not here: the checks of a machine ([`crate::provision::worker`]), or a row whose worker died
//! after it had a machine ([`super::resume`]).

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::ids::{ClaimId, JobId, RunnerName};
use bullpen_core::instance::{EndReason, InstanceEvent, Owner, Record, State, Tier};
use bullpen_core::job::{
    AfterSetback, Job, JobEvent, JobMachine, JobRefusal, JobState, JobStep, JobStepAt, Lane,
    MachineSource, Setback, UsedMachines, runner_name,
};
use bullpen_core::labels::is_bound_to_run;
use bullpen_core::mailbox::Credential;
use bullpen_core::ports::{Clock, Fault, Forge, Ids, JobForge, Ledger, Ports, RunnerSpec};
use bullpen_core::request::stranger::OwnRun;
use bullpen_core::sabotage;
use bullpen_core::tenure::Won;
use bullpen_core::time::Timestamp;

use super::candidates::{self, NotTaken, PoolLines, Taken};
use super::launch::{self, NotWarm, outage};
use super::rows::{self, NotMoved, RowChange, SeenRow};
use super::settings::{WantDecision, WantedMachine};
use super::{Processed, Service, finish, origin, owner_of, queues, rerun, runners};
use crate::capacity;
use crate::progress::unobserved;
use crate::provision::tenure::mark_running;
use crate::provision::worker::{self, Terms, WantedRunner};
use crate::release;
use crate::retry::retry_until;
use crate::transition::{self, Moved};

/// How far a worker goes to get a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It claims idle machines only. If the pool has none, the job moves to the launch queue.
    Idle,
    /// It may launch a machine.
    Launch,
}

/// How many machines may be of no use to a job before a worker no longer tries those that stand by:
/// by then the cause is more than a single machine.
const USELESS_MAX: u32 = 3;

/// How often the spread of rows that GitHub's limits refuse doubles: from a quarter of a minute to
/// half an hour.
const RATE_LIMIT_DOUBLINGS_MAX: u32 = 7;

/// Reads one waiting row and takes it to a runner that listens, as far as possible now.
pub async fn assign<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    id: &JobId,
    reach: Reach,
) -> Result<Processed, Fault> {
    match rows::load(service.stack, id, service.patience()).await? {
        Some(seen) => assign_seen(service, &seen, reach, &PoolLines::default()).await,
        None => Ok(Processed::Done),
    }
}

/// Takes a waiting row as it was seen to a runner that listens. Several jobs may share one read of
/// their pool.
pub(super) async fn assign_seen<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: &SeenRow,
    reach: Reach,
    lines: &PoolLines,
) -> Result<Processed, Fault> {
    let (stack, id) = (service.stack, &seen.job.id);
    if let Some(dismissed) = finish::end_out_of_scope(service, seen).await? {
        return Ok(dismissed);
    }
    let (JobState::Waiting { deadline, .. } | JobState::Assigning { deadline, .. }) =
        seen.job.state
    else {
        return Ok(Processed::Done);
    };
    let now = stack.now();
    if let Some(reason) = finish::is_overdue(stack, &seen.job) {
        return finish::overdue(service, &seen.job, reason).await;
    }
    if let Some(reason) = seen.job.out_of_attempts(&stack.limits) {
        return finish::fail(service, id, reason).await;
    }
    let until = deadline.min(now.after(stack.limits.request_deadline));
    let wanting = match &seen.job.lane {
        Some(Lane::Request(request)) => {
            let (settings, patience) = (service.settings(), service.patience());
            rerun::want(stack, (&seen.job, &settings), request, until, patience).await?
        }
        _ => service.settings().want(&seen.job, stack, until),
    };
    let wanted = match wanting {
        WantDecision::Machine(wanted) => *wanted,
        WantDecision::Nothing(reason) => return finish::fail(service, id, reason).await,
        WantDecision::Unknown => return Ok(later(service)),
    };
    if seen.job.must_be_checked(now) && !finish::is_wanted(service, &seen.job).await? {
        return Ok(Processed::Done);
    }
    let worker = stack.ports.ids().claim();
    let event = begun(service, worker.clone());
    match rows::apply_to(stack, seen, &[event], service.patience()).await? {
        // Boxed, because this future is large and its callers' futures need not be.
        RowChange::To(seen) => Box::pin(serve(service, seen, worker, wanted, reach, lines)).await,
        RowChange::Not(NotMoved::Refused(job, JobRefusal::TooEarly { until })) => match job.state {
            JobState::Waiting { .. } => Ok(Processed::Again { at: until }),
            _ => Ok(Processed::Taken),
        },
        RowChange::Not(NotMoved::Refused(..) | NotMoved::Absent) => Ok(Processed::Taken),
    }
}

/// The event of a worker that takes a row now.
fn begun<P: Ports, J>(service: &Service<'_, P, J>, worker: ClaimId) -> JobEvent {
    let (at, limits) = (service.stack.now(), &service.stack.limits);
    JobEvent::Begun { worker, at, lease: at.after(limits.row_lease), skew: limits.clock_skew }
}

/// Looks again after a pause, where only time can help.
fn later<P: Ports, J>(service: &Service<'_, P, J>) -> Processed {
    Processed::Again { at: service.stack.now().after(service.stack.limits.row_look_again) }
}

async fn serve<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    seen: SeenRow,
    worker: ClaimId,
    wanted: WantedMachine,
    reach: Reach,
    lines: &PoolLines,
) -> Result<Processed, Fault> {
    let mut attempt = Attempt {
        service,
        owner: owner_of(&seen.job.id),
        seen,
        worker,
        wanted,
        reach,
        lines,
        notes: Mutex::default(),
    };
    loop {
        match attempt.outcome().await {
            Outcome::Unused { held, setback: Setback::NotStarted, .. } => {
                match attempt.begin_again(held).await? {
                    Some(seen) => attempt = Attempt { seen, ..attempt },
                    None => return Ok(Processed::Done),
                }
            }
            outcome => return attempt.conclude(outcome).await,
        }
    }
}

/// One worker's attempt at one job.
struct Attempt<'s, 'a, P, J> {
    service: &'s Service<'a, P, J>,
    /// Its job's row as it last took it.
    seen: SeenRow,
    owner: Owner,
    worker: ClaimId,
    wanted: WantedMachine,
    reach: Reach,
    lines: &'s PoolLines,
    /// Its steps since it last wrote the row.
    notes: Mutex<Vec<JobStepAt>>,
}

/// How an attempt ended.
#[derive(Debug)]
enum Outcome {
    /// The job's runner listens.
    Listens,
    /// The worker got no machine.
    Nothing(Setback),
    /// The machine that the row names was of no use.
    Unused { held: JobMachine, how: MachineSource, setback: Setback },
    /// The pool has no machine, and the job may launch one.
    Overflows,
    /// Another worker has the row, or the job wants no machine any more.
    Lost,
}

impl<P: Ports, J: JobForge> Attempt<'_, '_, P, J> {
    /// Runs the attempt, and meanwhile renews the row's lease and watches the machine.
    async fn outcome(&self) -> Outcome {
        let outcome = tokio::select! {
            biased;
            outcome = self.run() => outcome,
            () = self.service.hands_back() => Ok(Outcome::Nothing(Setback::WorkerLost)),
            () = self.renew_lease() => Ok(Outcome::Lost),
        };
        outcome.unwrap_or_else(|fault| Outcome::Nothing(outage(&fault)))
    }

    async fn run(&self) -> Result<Outcome, Fault> {
        if let Some(outcome) = self.resume().await? {
            return Ok(outcome);
        }
        let looks = self.seen.job.useless_machines() < USELESS_MAX;
        if looks && (self.wanted.pool.is_some() || self.wanted.reuse) {
            let (looker, terms) = ((&self.seen.job.id, self.lines), async || self.terms().await);
            let used = async || origin::may_have_used(self.service, &self.seen.job).await;
            match candidates::take(self.service.stack, looker, &self.wanted, terms, used).await {
                Ok((terms, taken)) => {
                    let record = taken.won.record();
                    let instance = record.id.clone();
                    self.note(JobStep::Claimed { instance, tier: taken.tier });
                    if let Some(pool) = &record.facts.pool {
                        // It has one machine less.
                        self.service.pools.look_at(pool);
                    }
                    return self.hand_over(&terms, taken).await;
                }
                Err(NotTaken::Nothing(unfit)) => self.note(JobStep::NothingIdle { unfit }),
                Err(NotTaken::SetBack(setback)) => return Ok(Outcome::Nothing(setback)),
                Err(NotTaken::Fault(fault)) => return Err(fault),
            }
        }
        if self.reach == Reach::Idle {
            return Ok(Outcome::Overflows);
        }
        match launch::launch(self.service.stack, &self.wanted.request, &self.owner).await {
            Ok(record) => {
                self.note(JobStep::Launched { instance: record.id.clone() });
                self.created(record, MachineSource::Created).await
            }
            Err(setback) => Ok(Outcome::Nothing(setback)),
        }
    }

    /// Continues with a machine that an earlier worker left. Before the first attempt no worker could
    /// leave one.
    async fn resume(&self) -> Result<Option<Outcome>, Fault> {
        if self.seen.job.is_on_first_attempt() {
            return Ok(None);
        }
        let stack = self.service.stack;
        let until = self.service.patience();
        let owned =
            retry_until(stack, until, || stack.ports.ledger().owned_by(&self.owner)).await?;
        let owned = owned.complete()?;
        for record in owned.into_iter().filter(|record| record.state.owner() == Some(&self.owner)) {
            match record.state {
                State::Created { .. } => {
                    return Ok(Some(self.created(record, MachineSource::Continued).await?));
                }
                State::Claimed { tier, .. } if tier.is_used() && !self.may_have_used().await => {
                    drop(release::withdraw(stack, &self.owner, record, until).await?);
                }
                State::Claimed { tier, .. } => {
                    if let Some(outcome) = self.take_over(&record, tier).await? {
                        return Ok(Some(outcome));
                    }
                }
                // The row does not know this machine's runner any more, so it does not listen for
                // this attempt.
                _ => drop(release::withdraw(stack, &self.owner, record, until).await?),
            }
        }
        Ok(None)
    }

    /// Whether the job may have a used machine that an earlier worker claimed. That worker may have
    /// known less, or its version may not have asked.
    async fn may_have_used(&self) -> bool {
        origin::may_have_used(self.service, &self.seen.job).await == UsedMachines::Offered
    }

    async fn take_over(&self, record: &Record, tier: Tier) -> Result<Option<Outcome>, Fault> {
        let stack = self.service.stack;
        let terms = match self.terms().await {
            Ok(terms) => terms,
            Err(setback) => return Ok(Some(Outcome::Nothing(setback))),
        };
        let event = InstanceEvent::TakenOver {
            owner: self.owner.clone(),
            generation: record.generation,
            claim: stack.ports.ids().claim(),
            lease: stack.now().after(stack.limits.claim_lease),
        };
        let moved = transition::apply(stack, record, &event, self.service.patience()).await?;
        let Moved::To(record) = moved else { return Ok(None) };
        let Some(won) = Won::held(record, &self.owner) else { return Ok(None) };
        let taken = Taken { won, tier, how: MachineSource::Continued };
        Ok(Some(self.hand_over(&terms, taken).await?))
    }

    /// Hands over a machine that was launched for the job; mints the credential once it is warm.
    async fn created(&self, record: Record, how: MachineSource) -> Result<Outcome, Fault> {
        let stack = self.service.stack;
        let Some(won) = Won::held(record, &self.owner) else { return Ok(Outcome::Lost) };
        match launch::warm_up(stack, won.record()).await {
            Ok(()) => self.note(JobStep::Warm),
            Err(NotWarm::Unknown(fault)) => return Err(fault),
            Err(NotWarm::Failed(said)) => {
                let event = won.condemned(EndReason::FailedWarmUp, stack.now());
                worker::write(stack, won.record(), &event).await;
                return Ok(Outcome::Nothing(Setback::LaunchFailed { said }));
            }
        }
        let terms = match self.terms().await {
            Ok(terms) => terms,
            // The job keeps the machine, and the next attempt continues with it.
            Err(setback) => return Ok(Outcome::Nothing(setback)),
        };
        self.hand_over(&terms, Taken { won, tier: Tier::Hot, how }).await
    }

    /// Remembers a step until the worker writes the row.
    fn note(&self, step: JobStep) {
        let at = self.service.stack.now();
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(JobStepAt { at, step });
    }

    fn take_notes(&self) -> Vec<JobStepAt> {
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn runner(&self) -> RunnerName {
        runner_name(&self.service.stack.name, &self.seen.job.id, self.seen.job.names)
    }

    /// Makes terms with a credential that no agent has used.
    async fn terms(&self) -> Result<Terms<'_>, Setback> {
        let stack = self.service.stack;
        let labels = self.seen.job.known.about.labels.clone();
        let group = self.wanted.group.clone();
        let spec = RunnerSpec { name: self.runner(), labels, group, ephemeral: true };
        let credential = self.credential(&spec).await?;
        Ok(Terms {
            request: &self.wanted.request,
            owner: self.owner.clone(),
            wanted: WantedRunner::OfJob {
                name: spec.name,
                label: spec.labels.join(","),
                own_run: self.own_run(),
            },
            credential,
            tell: &unobserved,
            began: stack.ports.clock().monotonic(),
            failure: Mutex::default(),
        })
    }

    /// The run whose jobs alone may run on the machine. A job with a request's label, or with
    /// labels that name its run, has a runner for that run only: the agent refuses a job of another
    /// run, even if its author wrote the same labels. GitHub may give any other job's runner to a
    /// job of the same labels.
    fn own_run(&self) -> Option<OwnRun> {
        let about = &self.seen.job.known.about;
        let is_of_a_request = matches!(self.seen.job.lane, Some(Lane::Request(_)));
        let is_bound = is_of_a_request || is_bound_to_run(&about.labels, &about.run);
        if !is_bound || sabotage!("bound-labels-bind-no-runner") && !is_of_a_request {
            return None;
        }
        let run = about.run.at_github().map(|(run, _)| run);
        Some(OwnRun { repository: Some(about.repository.clone()), run })
    }

    /// Returns the credential that this process minted for the runner before, or mints one. Minting
    /// under the same name replaces the earlier credential.
    async fn credential(&self, spec: &RunnerSpec) -> Result<Credential, Setback> {
        let stack = self.service.stack;
        let known = self.service.github_cache().credential(&spec.name, stack.now());
        if let Some(known) = known {
            return Ok(known);
        }
        // A worker that waited for GitHub's limits would keep other jobs from its place.
        if stack.ports.forge().credential_wait() > stack.limits.forge_patience {
            return Err(Setback::RateLimited);
        }
        self.note(JobStep::Asked);
        let until = stack.now().after(stack.limits.forge_patience);
        let minted = retry_until(stack, until, || stack.ports.forge().credential(spec)).await;
        let refused = |fault: Fault| match fault {
            Fault::Throttled => Setback::RateLimited,
            fault if fault.is_transient() => outage(&fault),
            fault => Setback::Forge { said: fault.to_string() },
        };
        let credential: Credential = minted.map_err(refused)?;
        self.note(JobStep::Minted);
        let (name, minted) = (spec.name.clone(), credential.clone());
        self.service.github_cache().minted(name, minted, stack.now());
        Ok(credential)
    }

    /// Names the machine in the row if the job is still queued; then tells and watches the agent.
    async fn hand_over(&self, terms: &Terms<'_>, taken: Taken) -> Result<Outcome, Fault> {
        let stack = self.service.stack;
        let Taken { won, tier, how } = taken;
        let record = won.record();
        let named = JobMachine {
            instance: record.id.clone(),
            generation: record.generation,
            runner: self.runner(),
        };
        let worker = self.worker.clone();
        let (at, notes) = (stack.now(), self.take_notes());
        let event = JobEvent::Assigned { worker, held: named.clone(), how, at, notes };
        let assigned = rows::apply_to(stack, &self.seen, &[event], self.service.patience()).await?;
        if let RowChange::Not(why) = assigned
            && !self.is_adopted(&why, &named).await?
        {
            let event = won.given_back(stack.now(), &stack.limits);
            worker::write(stack, record, &event).await;
            return Ok(Outcome::Lost);
        }
        // From here on the agent may have the credential.
        self.service.github_cache().used(&named.runner);
        let setback = match worker::prepare(stack, terms, won).await {
            worker::AttemptOutcome::Ready(held) => {
                if mark_running(stack, vec![held]).await.is_empty() {
                    Setback::MachineLost
                } else {
                    self.service.note_listens(&self.seen.job, how);
                    return Ok(Outcome::Listens);
                }
            }
            worker::AttemptOutcome::TryAnother if tier == Tier::Stopped => Setback::NotStarted,
            worker::AttemptOutcome::TryAnother => Setback::NeverRegistered,
            worker::AttemptOutcome::Closed(fault) => outage(&fault),
        };
        Ok(Outcome::Unused { held: named, how, setback })
    }

    /// Names the machine in the row of a job that runs on another job's machine, if a job waits
    /// because of that: GitHub gives that job to this machine's runner, which saves a launch.
    /// Returns whether it did.
    async fn is_adopted(&self, why: &NotMoved, named: &JobMachine) -> Result<bool, Fault> {
        let NotMoved::Refused(job, _) = why else { return Ok(false) };
        let (stack, until) = (self.service.stack, self.service.patience());
        if runners::displaced(stack, job, until).await?.is_none() {
            return Ok(false);
        }
        let deadline = self.wanted.request.deadline;
        let event = JobEvent::Adopted { held: named.clone(), deadline, at: stack.now() };
        let adopted = rows::apply(stack, &self.seen.job.id, &event, until).await?;
        Ok(matches!(adopted, RowChange::To(_)))
    }

    /// Renews the row's lease until it is lost. A row that has its machine needs no lease, and
    /// neither does a row whose machine another job waits for.
    async fn renew_lease(&self) {
        let stack = self.service.stack;
        loop {
            stack.ports.clock().sleep(stack.limits.row_lease_renew).await;
            let lease = stack.now().after(stack.limits.row_lease);
            let event = JobEvent::Renewed { worker: self.worker.clone(), lease };
            let until = stack.now().after(stack.limits.row_lease_renew);
            match rows::apply(stack, &self.seen.job.id, &event, until).await {
                Ok(RowChange::To(_)) | Err(_) => {}
                Ok(RowChange::Not(NotMoved::Refused(job, _))) if self.is_awaited(&job).await => {
                    match std::future::pending::<Infallible>().await {}
                }
                Ok(RowChange::Not(_)) => return,
            }
        }
    }

    /// Whether a job needs the machine that this worker prepares: its own job has it, or runs on the
    /// machine of a job that waits. True if the ledger does not answer.
    async fn is_awaited(&self, job: &Job) -> bool {
        if job.held().is_some() {
            return true;
        }
        let (stack, until) = (self.service.stack, self.service.patience());
        runners::displaced(stack, job, until).await.map_or(true, |waiting| waiting.is_some())
    }

    /// Frees the row of a stopped machine that did not start, and takes the row again. None if the
    /// job wants no machine any more, or another worker was faster. A crash in between leaves a
    /// waiting row, which the sweep finds.
    async fn begin_again(&self, held: JobMachine) -> Result<Option<SeenRow>, Fault> {
        let (stack, at, setback) =
            (self.service.stack, self.service.stack.now(), Setback::NotStarted);
        self.service.note_set_back(&self.seen.job.id, &setback);
        let freed = JobEvent::Freed { held, setback, at, not_before: at };
        let again = begun(self.service, self.worker.clone());
        let mut taken = None;
        for event in [freed, again] {
            match rows::apply(stack, &self.seen.job.id, &event, self.service.patience()).await? {
                RowChange::To(seen) => taken = Some(seen),
                RowChange::Not(_) => {
                    finish::give_back_unwanted(self.service, &self.seen.job.id).await?;
                    return Ok(None);
                }
            }
        }
        Ok(taken)
    }

    async fn conclude(&self, outcome: Outcome) -> Result<Processed, Fault> {
        let (worker, at) = (self.worker.clone(), self.service.stack.now());
        match outcome {
            Outcome::Listens => Ok(Processed::Done),
            Outcome::Lost => {
                finish::give_back_unwanted(self.service, &self.seen.job.id).await?;
                Ok(Processed::Done)
            }
            Outcome::Nothing(setback @ (Setback::Ceiling | Setback::NoCapacity)) => {
                self.wait_for_capacity(setback).await
            }
            Outcome::Nothing(setback) => {
                self.service.note_set_back(&self.seen.job.id, &setback);
                let (next, not_before) = self.after(&setback, None);
                let notes = self.take_notes();
                let event = JobEvent::SetBack { worker, setback, at, not_before, notes };
                self.set_back(&[event], next).await
            }
            Outcome::Unused { held, how, setback } => {
                self.service.note_set_back(&self.seen.job.id, &setback);
                let (next, not_before) = self.after(&setback, Some(how));
                let event = JobEvent::Freed { held, setback, at, not_before };
                self.set_back(&[event], next).await
            }
            Outcome::Overflows => {
                let (setback, notes) = (Setback::PoolEmpty, self.take_notes());
                let back = JobEvent::SetBack { worker, setback, at, not_before: at, notes };
                let events = [JobEvent::Overflowed, back];
                self.set_back(&events, AfterSetback::Again { not_before: at }).await
            }
        }
    }

    /// A part of this time that differs from row to row.
    fn jitter(&self, spread: Duration) -> Duration {
        let millis = u64::try_from(spread.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.service.stack.ports.ids().jitter(millis.max(1)))
    }

    /// How long the row waits before GitHub is asked again. Rows that GitHub's limits refuse again and
    /// again spread out, so that few try in vain.
    fn pause_after(&self, setback: &Setback) -> Duration {
        let (stack, job) = (self.service.stack, &self.seen.job);
        let look = stack.limits.row_look_again;
        match setback {
            Setback::Outage { .. } => look,
            Setback::RateLimited => {
                let wait = stack.ports.forge().credential_wait().max(look);
                let spread = look * 2_u32.pow(job.refusals().min(RATE_LIMIT_DOUBLINGS_MAX));
                // What the spread adds must not be what the job fails for.
                let left = finish::deadline(job).map(|by| by.since(stack.now().after(wait + look)));
                wait + self.jitter(spread).min(left.unwrap_or_default())
            }
            _ => Duration::ZERO,
        }
    }

    /// Decides what follows a setback. After an outage or a rate limit the row waits longer.
    fn after(&self, setback: &Setback, source: Option<MachineSource>) -> (AfterSetback, Timestamp) {
        let stack = self.service.stack;
        let now = stack.now();
        let jitter = self.jitter(self.seen.job.backoff(&stack.limits));
        let next = self.seen.job.after_setback((setback, source), now, &stack.limits, jitter);
        let pause = self.pause_after(setback);
        match next {
            AfterSetback::Again { not_before } => {
                let not_before = not_before.max(now.after(pause));
                (AfterSetback::Again { not_before }, not_before)
            }
            AfterSetback::GiveUp(reason) => (AfterSetback::GiveUp(reason), now),
        }
    }

    /// Sets the row back because a ceiling or the cloud leaves no capacity. The row keeps its place
    /// in the line, and the service wakes no worker for it before there is capacity.
    async fn wait_for_capacity(&self, setback: Setback) -> Result<Processed, Fault> {
        let stack = self.service.stack;
        self.service.note_set_back(&self.seen.job.id, &setback);
        let (worker, at) = (self.worker.clone(), stack.now());
        let notes = self.take_notes();
        let event = JobEvent::SetBack { worker, setback, at, not_before: at, notes };
        match rows::apply_to(stack, &self.seen, &[event], self.service.patience()).await? {
            RowChange::To(seen) => {
                capacity::note_waiting(self.service, &seen.job).await;
                Ok(Processed::NoCapacity)
            }
            RowChange::Not(_) => {
                finish::give_back_unwanted(self.service, &self.seen.job.id).await?;
                Ok(Processed::Done)
            }
        }
    }

    /// Stores a setback, and then wakes a worker for the next attempt or fails the job.
    async fn set_back(&self, events: &[JobEvent], next: AfterSetback) -> Result<Processed, Fault> {
        let stack = self.service.stack;
        match rows::apply_to(stack, &self.seen, events, self.service.patience()).await? {
            RowChange::Not(_) => {
                finish::give_back_unwanted(self.service, &self.seen.job.id).await?;
                Ok(Processed::Done)
            }
            RowChange::To(seen) => match next {
                AfterSetback::GiveUp(reason) => {
                    finish::fail(self.service, &self.seen.job.id, reason).await
                }
                AfterSetback::Again { not_before } => {
                    let is_passed_on = events.contains(&JobEvent::Overflowed);
                    if !(is_passed_on && sabotage!("overflow-wakes-no-worker")) {
                        queues::wake(stack, &seen).await;
                    }
                    Ok(Processed::Again { at: not_before })
                }
            },
        }
    }
}
