//! One pass of a release: the handshake that makes a releasing instance idle again, or ends it.
//!
//! A pass collects facts and decides when it has enough of them. [`Release::on`] takes the answer to
//! the last [`ReleaseEffect`] and returns the next one, in this order: the withdrawal is stored as
//! `drain`, the report is read, GitHub is asked to delete the runner, the same generation becomes
//! `stop`, and once the agent has acknowledged it the instance is idle. A job is never interrupted:
//! GitHub's 422 means wait. A pass that waits is over; the next pass begins anew with [`Release::new`].
//!
//! Not here: proving that no listener is left (`mailbox::prove_unexposed`).

use std::time::Duration;

use crate::claim::{Deletion, Silence};
use crate::ids::{Generation, InstanceId, JobId, RequestId, RunnerName, SpecHash};
use crate::instance::{Authority, EndReason, InstanceEvent, Owner, Record, State, Tier};
use crate::job::{AfterJob, Job};
use crate::limits::Limits;
use crate::mailbox::{
    AgentPhase, Inbox, Order, RemovalProof, Report, SignalKind, Unexposed, Withdrawal,
    WithdrawalMode, prove_unexposed,
};
use crate::ports::Fault;
use crate::request::entry::RequestEntry;
use crate::request::stranger::{OwnRun, Stranger};
use crate::sabotage;
use crate::spec_hash::is_outdated;
use crate::time::Timestamp;

/// What a release must know of its stack.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseSettings<'a> {
    /// The stack's name, which begins the name of every runner.
    pub stack: &'a str,
    /// The stack's numbers.
    pub limits: &'a Limits,
    /// What an instance launched now would be built from.
    pub spec_hash: &'a SpecHash,
    /// Whether the idle instance will serve every request of its class.
    pub is_shared: bool,
}

/// The next thing to do for a release. The last five end the pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseEffect {
    /// Store the withdrawal of the record's generation in the mailbox.
    Post(WithdrawalMode),
    /// Read the agent's report.
    ReadReport,
    /// Read the entry of the request that owned the instance.
    ReadRequest(RequestId),
    /// Record with the request that a job of another run ran on its instance.
    NoteStranger(RequestId, Stranger),
    /// Ask the cloud whether the instance is stopped.
    Describe,
    /// Read the row of the job that owned the instance.
    ReadJob(JobId),
    /// The agent did not acknowledge the stop: compare its report with those of others.
    CompareSilence,
    /// Ask GitHub to delete these runners.
    DeleteRunners(Vec<RunnerName>),
    /// Write this event on the record.
    Write(InstanceEvent),
    /// Wait for the agent, a job, or another process; then make another pass.
    Wait,
    /// Another process has carried the instance further.
    Overtaken,
    /// The pass cannot go on; a later one may.
    Fail(Fault),
}

/// The answer to an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseInput {
    /// The pass begins.
    Begun,
    /// The mailbox after the post: the withdrawal, or the newer order that refused it.
    Posted(Inbox),
    /// The report, empty if the agent never wrote one.
    Report(Report),
    /// The request's entry, or `None` if it is forgotten or unreadable.
    Request(Option<RequestEntry>),
    /// The stranger is recorded, or never can be.
    StrangerNoted,
    /// Whether the cloud says that the instance is stopped.
    Described {
        /// It is.
        stopped: bool,
    },
    /// The job, or `None` if its row is forgotten.
    Job(Result<Option<Job>, Fault>),
    /// What the agent's silence proves.
    Compared(Silence),
    /// GitHub's answer for each runner.
    Deleted(Vec<Deletion>),
}

/// One pass of a release over one releasing record, with the facts it has collected so far.
#[derive(Clone, Debug)]
pub struct Release {
    record: Record,
    known_after: Option<AfterJob>,
    inbox: Option<Inbox>,
    report: Option<Report>,
    request: RequestRead,
    is_stranger_noted: bool,
    is_stopped: Option<bool>,
    job: Option<Result<Option<Job>, Fault>>,
    silence: Option<Silence>,
    deletion: Option<Deletion>,
}

/// What a pass has read of the request that owned the instance.
#[derive(Clone, Debug)]
enum RequestRead {
    NotYet,
    /// The request is forgotten, or its entry is unreadable.
    Forgotten,
    Entry(RequestEntry),
}

/// The name of the runner that an instance of a request registers at this generation.
pub fn runner_name(stack: &str, instance: &InstanceId, generation: Generation) -> RunnerName {
    RunnerName::new(format!("{stack}-{instance}-{generation}"))
}

impl Release {
    /// A pass over a record as it was read. `known_after` is what becomes of the instance after its
    /// job, if the caller has decided that; otherwise the job's row says it.
    pub fn new(record: Record, known_after: Option<AfterJob>) -> Self {
        Self {
            record,
            known_after,
            inbox: None,
            report: None,
            request: RequestRead::NotYet,
            is_stranger_noted: false,
            is_stopped: None,
            job: None,
            silence: None,
            deletion: None,
        }
    }

    /// Takes the answer to the last effect and returns the next one.
    pub fn on(
        &mut self,
        input: ReleaseInput,
        now: Timestamp,
        settings: &ReleaseSettings<'_>,
    ) -> ReleaseEffect {
        match input {
            ReleaseInput::Begun => {}
            ReleaseInput::Posted(inbox) => self.inbox = Some(inbox),
            ReleaseInput::Report(report) => self.report = Some(report),
            ReleaseInput::Request(Some(entry)) => self.request = RequestRead::Entry(entry),
            ReleaseInput::Request(None) => self.request = RequestRead::Forgotten,
            ReleaseInput::StrangerNoted => self.is_stranger_noted = true,
            ReleaseInput::Described { stopped } => self.is_stopped = Some(stopped),
            ReleaseInput::Job(job) => self.job = Some(job),
            ReleaseInput::Compared(silence) => self.silence = Some(silence),
            ReleaseInput::Deleted(answers) => self.deletion = Some(most_careful(&answers)),
        }
        self.next(now, settings)
    }

    /// The first effect whose answer is missing, or the decision.
    fn next(&self, now: Timestamp, settings: &ReleaseSettings<'_>) -> ReleaseEffect {
        let State::Releasing { tier, cap, .. } = self.record.state else {
            return ReleaseEffect::Overtaken;
        };
        // Judged before anything that the machine says and before anything that may fail.
        if now >= cap && !sabotage!("machines-are-asked-before-their-cap") {
            return self.end(EndReason::DeadlinePassed, now);
        }
        let Some(inbox) = &self.inbox else { return ReleaseEffect::Post(WithdrawalMode::Drain) };
        let Some(report) = &self.report else { return ReleaseEffect::ReadReport };
        if let Some(effect) = self.strangers(inbox, report, now) {
            return effect;
        }
        if tier == Tier::Stopped && self.is_stopped.is_none() {
            return ReleaseEffect::Describe;
        }
        let is_stopped = self.is_stopped == Some(true);
        match prove_unexposed(Some(inbox), Some(report), self.record.generation, is_stopped) {
            Ok(proof) => self.unexposed(proof, inbox, report, now, settings),
            Err(_) => self.exposed(inbox, report, now, settings),
        }
    }

    /// Ends a request's instance that ran a job of another run. It ends at once: GitHub may take the
    /// stranger's job for running long after the agent has killed it. The stranger is recorded first, so
    /// that the run is told whichever process carries the release on.
    fn strangers(&self, inbox: &Inbox, report: &Report, now: Timestamp) -> Option<ReleaseEffect> {
        let id = self.request_id()?;
        let ran = report.ran(inbox.assigned)?;
        let own = match &self.request {
            RequestRead::NotYet => return Some(ReleaseEffect::ReadRequest(id.clone())),
            RequestRead::Entry(entry) => entry.own_run(),
            // Without the entry, the request's id is all there is to compare with.
            RequestRead::Forgotten => OwnRun::of_request(id, None),
        };
        if !own.is_some_and(|own| own.is_stranger(ran)) {
            return None;
        }
        if self.is_stranger_noted {
            return Some(self.end(EndReason::Untrusted, now));
        }
        let stranger = Stranger { instance: self.record.id.clone(), ran: ran.clone() };
        Some(ReleaseEffect::NoteStranger(id.clone(), stranger))
    }

    /// No listener is left: the instance is idle again, or ends if it may not serve another owner.
    fn unexposed(
        &self,
        proof: Unexposed,
        inbox: &Inbox,
        report: &Report,
        now: Timestamp,
        settings: &ReleaseSettings<'_>,
    ) -> ReleaseEffect {
        if let Some(id) = self.request_id()
            && proof.removal() != RemovalProof::NeverAssigned
        {
            match &self.request {
                RequestRead::NotYet => return ReleaseEffect::ReadRequest(id.clone()),
                RequestRead::Entry(entry) if !entry.is_trusted() => {
                    return self.end(EndReason::Untrusted, now);
                }
                RequestRead::Entry(_) | RequestRead::Forgotten => {}
            }
        }
        let after = match self.known_after {
            _ if !self.has_served(proof) => AfterJob::Pool,
            Some(after) => after,
            None => match self.after_job(inbox, report, now, settings.limits) {
                Ok(after) => after,
                Err(effect) => return effect,
            },
        };
        let ends = match after {
            AfterJob::End(why) => Some(why),
            // A stopped instance that was never started is not used up by its pool's waiting.
            AfterJob::Pool if proof.removal() == RemovalProof::MachineStopped => None,
            AfterJob::Pool => self.unfit(now, settings),
        };
        match ends {
            Some(why) => self.end(why, now),
            None => self.give_back(proof, now, settings),
        }
    }

    /// A listener may be left: stop it as soon as GitHub can give it no job any more.
    fn exposed(
        &self,
        inbox: &Inbox,
        report: &Report,
        now: Timestamp,
        settings: &ReleaseSettings<'_>,
    ) -> ReleaseEffect {
        let Order::Withdrawn(withdrawal) = &inbox.order else { return ReleaseEffect::Overtaken };
        if withdrawal.generation != self.record.generation {
            return ReleaseEffect::Overtaken;
        }
        let limits = settings.limits;
        if withdrawal.mode == WithdrawalMode::Stop && is_patient(withdrawal, now, limits) {
            return ReleaseEffect::Wait;
        }
        if withdrawal.mode == WithdrawalMode::Stop
            && now.since(withdrawal.at) < limits.shared_silence
            && !sabotage!("releases-compare-no-silence")
        {
            match self.silence {
                None => return ReleaseEffect::CompareSilence,
                Some(Silence::Shared) => return ReleaseEffect::Wait,
                Some(Silence::Own | Silence::Unproven) => {}
            }
        }
        let deletion = match self.deletion(inbox, settings) {
            Ok(deletion) => deletion,
            Err(effect) => return effect,
        };
        match withdrawal.mode {
            WithdrawalMode::Drain if self.may_stop(deletion, inbox, report, now, limits) => {
                ReleaseEffect::Post(WithdrawalMode::Stop)
            }
            WithdrawalMode::Drain => ReleaseEffect::Wait,
            // The agent did not acknowledge the stop in time, and GitHub says that no job runs there.
            WithdrawalMode::Stop => match deletion {
                Deletion::Busy if sabotage!("busy-is-gone") => {
                    self.end(EndReason::NotAcknowledged, now)
                }
                Deletion::Deleted | Deletion::NotFound => self.end(EndReason::NotAcknowledged, now),
                Deletion::Busy | Deletion::Unavailable => ReleaseEffect::Wait,
            },
        }
    }

    /// GitHub's answer to the deletion of the instance's runner, or the effect that asks for it. A job's
    /// runner is named after its job and attempt, and the job's row says which.
    fn deletion(
        &self,
        inbox: &Inbox,
        settings: &ReleaseSettings<'_>,
    ) -> Result<Deletion, ReleaseEffect> {
        if let Some(deletion) = self.deletion {
            return Ok(deletion);
        }
        let instance = &self.record.id;
        let Some(Owner::Job(id)) = self.record.state.listed_under() else {
            let name = runner_name(settings.stack, instance, inbox.assigned);
            return Err(ReleaseEffect::DeleteRunners(vec![name]));
        };
        let names: Vec<RunnerName> = match &self.job {
            None => return Err(ReleaseEffect::ReadJob(id.clone())),
            Some(Ok(None)) => Vec::new(),
            Some(Ok(Some(job))) => {
                let names = job.runners_on(settings.stack, instance);
                names.into_iter().filter(|name| !job.is_done_on(name)).collect()
            }
            Some(Err(_)) => return Ok(Deletion::Unavailable),
        };
        if names.is_empty() {
            return Ok(Deletion::NotFound);
        }
        Err(ReleaseEffect::DeleteRunners(names))
    }

    /// Whether the agent may stop the listener: GitHub can give it no job any more.
    fn may_stop(
        &self,
        deletion: Deletion,
        inbox: &Inbox,
        report: &Report,
        now: Timestamp,
        limits: &Limits,
    ) -> bool {
        let State::Releasing { since, .. } = self.record.state else { return false };
        let is_registered = report.signal(SignalKind::Registered, inbox.assigned).is_some();
        match deletion {
            Deletion::Deleted => true,
            // A runner that was never seen at GitHub may be registering at this moment.
            Deletion::NotFound => is_registered || now >= last_registration(since, limits),
            Deletion::Busy => sabotage!("busy-is-gone"),
            Deletion::Unavailable => {
                report.is_fresh(now, limits.heartbeat_stale, None)
                    && report.beat.as_ref().is_some_and(|beat| beat.phase != AgentPhase::Busy)
                    && is_registered
            }
        }
    }

    /// What becomes of an instance that a job had for itself, by the job's row. While the worker that
    /// finishes the job has not decided, the release waits, but no longer than for an agent.
    fn after_job(
        &self,
        inbox: &Inbox,
        report: &Report,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<AfterJob, ReleaseEffect> {
        let ended = AfterJob::End(EndReason::WornOut);
        let State::Releasing { owner: Owner::Job(id), since, .. } = &self.record.state else {
            return Ok(ended);
        };
        let job = match &self.job {
            None => return Err(ReleaseEffect::ReadJob(id.clone())),
            Some(Ok(Some(job))) => job,
            Some(Ok(None) | Err(Fault::Unreadable(_))) => return Ok(ended),
            Some(Err(fault)) => return Err(ReleaseEffect::Fail(fault.clone())),
        };
        let ran = report.signal(SignalKind::JobStarted, inbox.assigned).is_some();
        let patience = limits.release_acknowledgement + limits.clock_skew;
        match job.says_of(&self.record.id, ran) {
            Some(after) => Ok(after),
            None if now.since(*since) < patience => Err(ReleaseEffect::Wait),
            None => Ok(ended),
        }
    }

    /// Whether a job had this instance for itself: it was assigned to the job, or launched for it.
    fn has_served(&self, proof: Unexposed) -> bool {
        let State::Releasing { owner: Owner::Job(_), tier, .. } = &self.record.state else {
            return false;
        };
        let was_launched_for_it = *tier == Tier::Released && self.record.uses == 0;
        proof.removal() != RemovalProof::NeverAssigned || was_launched_for_it
    }

    /// Why the instance may serve no other owner, if it may not.
    fn unfit(&self, now: Timestamp, settings: &ReleaseSettings<'_>) -> Option<EndReason> {
        let (record, limits) = (&self.record, settings.limits);
        let age = now.since(record.facts.launched_at);
        // How long an outdated instance of a pool stands by is its rollout's decision.
        let is_unpooled = record.facts.pool.is_none();
        if record.tainted {
            Some(EndReason::Untrusted)
        } else if sabotage!("uses-never-counted") {
            None
        } else if record.uses >= limits.uses_max || age >= limits.age_max {
            Some(EndReason::WornOut)
        } else if is_unpooled && is_outdated(&record.facts.spec_hash, settings.spec_hash) {
            Some(EndReason::Outdated)
        } else {
            None
        }
    }

    fn give_back(
        &self,
        proof: Unexposed,
        now: Timestamp,
        settings: &ReleaseSettings<'_>,
    ) -> ReleaseEffect {
        let State::Releasing { tier, .. } = self.record.state else {
            return ReleaseEffect::Overtaken;
        };
        let lifetime = match tier {
            Tier::Stopped => settings.limits.idle_stopped,
            Tier::Hot => settings.limits.hot_lifetime,
            Tier::Released if sabotage!("idle-machines-wait-long") => {
                settings.limits.idle_released * 4
            }
            Tier::Released => settings.limits.idle_released,
        };
        let (deadline, shared) = (now.after(lifetime), settings.is_shared);
        ReleaseEffect::Write(InstanceEvent::Returned { proof, at: now, deadline, shared })
    }

    fn end(&self, why: EndReason, now: Timestamp) -> ReleaseEffect {
        let authority = Authority::Release { generation: self.record.generation };
        ReleaseEffect::Write(InstanceEvent::Condemned { authority, why, at: now })
    }

    /// The request that owned the instance, if a request did.
    fn request_id(&self) -> Option<&RequestId> {
        match &self.record.state {
            State::Releasing { owner: Owner::Request(id), .. } => Some(id),
            _ => None,
        }
    }
}

/// The answer that asks for most care.
fn most_careful(answers: &[Deletion]) -> Deletion {
    let order = [Deletion::Busy, Deletion::Unavailable, Deletion::Deleted];
    let first = order.into_iter().find(|answer| answers.contains(answer));
    first.unwrap_or(Deletion::NotFound)
}

/// Whether the agent may still acknowledge the stop.
fn is_patient(stop: &Withdrawal, now: Timestamp, limits: &Limits) -> bool {
    let patience = if sabotage!("impatient-for-the-acknowledgement") {
        Duration::ZERO
    } else {
        limits.release_acknowledgement + limits.clock_skew
    };
    now.since(stop.at) < patience
}

/// When an assignment made before the withdrawal can no longer be registered, on any clock.
fn last_registration(since: Timestamp, limits: &Limits) -> Timestamp {
    let longest = limits
        .fleet_validation
        .max(limits.first_beat_stopped + limits.registration_stopped)
        .max(limits.assignment_acknowledged + limits.registration);
    since.after(longest + limits.clock_skew)
}
