//! Claim workers: each turns one idle machine into one of the request's runners, at most once.
//!
//! A worker often loses the race for a machine and tries another. With a machine that it has won, it
//! performs the effects that [`Prepare`] asks for and feeds the answers back.
//!
//! Not here: choosing candidates ([`super::pickup`]), any decision about a machine (`core::tenure`).

use std::borrow::Borrow;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::claim::{CheckFailure, CheckKind};
use bullpen_core::ids::{Generation, InstanceId, RunnerGroup, RunnerName};
use bullpen_core::instance::{InstanceEvent, Owner, Record};
use bullpen_core::mailbox::{Assignment, Credential, Order, Withdrawal, WithdrawalMode};
use bullpen_core::message::Advert;
use bullpen_core::pickup::{AdvertVerdict, judge};
use bullpen_core::ports::{ClaimWrite, Clock, Fault, Forge, Ids, Ports, StartOutcome, Written};
use bullpen_core::request::Request;
use bullpen_core::request::stranger::OwnRun;
use bullpen_core::tenure::{Prepare, PrepareEffect, PrepareInput, Won};
use bullpen_core::time::Timestamp;

use super::entry::{self, Begun};
use super::pickup::PickupManager;
use crate::Stack;
use crate::mail::{self, PostOutcome};
use crate::progress::{ProgressEvent, ProgressObserver};
use crate::release;
use crate::reports;
use crate::silence;
use crate::transition::{self, Moved};

/// How a request got a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AcquiredBy {
    /// It was running and idle.
    Reused,
    /// It was stopped.
    Started,
    /// It was launched for this request.
    Created,
}

impl AcquiredBy {
    const fn of(kind: CheckKind) -> Self {
        match kind {
            CheckKind::Warm => Self::Reused,
            CheckKind::Started => Self::Started,
            CheckKind::Created => Self::Created,
        }
    }
}

/// A machine that the request holds, with its runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldMachine {
    /// Its record when this process last read or wrote it.
    pub record: Record,
    /// How the request got it.
    pub how: AcquiredBy,
    /// When the worker stored its assignment, since the request began.
    pub assigned: Duration,
    /// When the worker saw that it listens, since the request began.
    pub ready: Duration,
}

impl HeldMachine {
    /// A machine before its assignment.
    pub(crate) const fn new(record: Record, how: AcquiredBy) -> Self {
        Self { record, how, assigned: Duration::ZERO, ready: Duration::ZERO }
    }
}

/// The outcome of one attempt at one machine.
#[derive(Debug)]
pub enum AttemptOutcome {
    /// Its runner listens.
    Ready(HeldMachine),
    /// This machine did not become a runner; another may.
    TryAnother,
    /// Any other machine would fail too, for this reason.
    Closed(Fault),
}

impl AttemptOutcome {
    /// The machine, if its runner listens.
    pub(super) fn ready(self) -> Option<HeldMachine> {
        match self {
            Self::Ready(held) => Some(held),
            Self::TryAnother | Self::Closed(_) => None,
        }
    }
}

/// What a worker must know of its request or its job.
pub struct Terms<'s> {
    /// The request.
    pub(crate) request: &'s Request,
    /// The owner of its machines.
    pub(crate) owner: Owner,
    /// What its owner wants of each runner.
    pub(crate) wanted: WantedRunner<'s>,
    /// The credential its runners register with; minted before anything is claimed.
    pub(crate) credential: Credential,
    /// Receives the progress.
    pub(crate) tell: ProgressObserver<'s>,
    /// When it began, on this process's monotonic clock.
    pub(crate) began: Duration,
    /// Why the last machine that failed was not used.
    pub(crate) failure: Mutex<Option<String>>,
}

/// What an owner wants of a runner.
pub(crate) enum WantedRunner<'s> {
    /// A request's runners are named after their machines, and register by token.
    OfRequest {
        /// The request as this process began it: its label, and the only run that it serves.
        begun: &'s Begun,
        /// The group that they join at GitHub; GitHub's default group if absent.
        group: Option<&'s RunnerGroup>,
    },
    /// A job's one runner. Its credential names its group.
    OfJob {
        /// Its name, after the job and the attempt.
        name: RunnerName,
        /// The labels that the job asks for.
        label: String,
        /// The run whose jobs alone it serves, if not every job of its labels may have it.
        own_run: Option<OwnRun>,
    },
}

impl Terms<'_> {
    fn note_failure(&self, why: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Why the last machine that failed was not used.
    pub(super) fn last_failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The name of the runner on this machine.
    fn runner_on<P: Ports>(&self, stack: &Stack<P>, record: &Record) -> RunnerName {
        match &self.wanted {
            WantedRunner::OfRequest { .. } => stack.runner_name(&record.id, record.generation),
            WantedRunner::OfJob { name, .. } => name.clone(),
        }
    }

    /// The assignment of a machine, to be registered by then.
    fn assignment<P: Ports>(
        &self,
        stack: &Stack<P>,
        record: &Record,
        register_by: Timestamp,
    ) -> Assignment {
        let (label, own_run, group) = match &self.wanted {
            WantedRunner::OfRequest { begun, group } => {
                (&begun.label, &begun.own_run, group.cloned())
            }
            WantedRunner::OfJob { label, own_run, .. } => (label, own_run, None),
        };
        Assignment {
            generation: record.generation,
            owner: self.owner.clone(),
            runner: self.runner_on(stack, record),
            label: label.clone(),
            credential: Some(self.credential.clone()),
            register_by: Some(register_by),
            hard_cap: stack.now().after(stack.limits.hard_cap),
            issued_at: Some(stack.now()),
            own_run: own_run.clone(),
            group,
            ephemeral: self.request.ephemeral,
        }
    }

    /// The time since it began.
    pub(crate) fn elapsed<P: Ports>(&self, stack: &Stack<P>) -> Duration {
        stack.ports.clock().monotonic().saturating_sub(self.began)
    }
}

/// Tries candidates until one is ready, none is left, or every other would fail too. A fault of a port
/// costs this worker's runner alone: the request launches one in its place.
pub async fn work<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    manager: &PickupManager<'_, P>,
) -> Result<Option<HeldMachine>, Fault> {
    loop {
        let won = match win(stack, manager, async || Ok::<_, Fault>(terms)).await {
            Ok(Some((_, _, won))) => won,
            Ok(None) => return Ok(None),
            Err(fault) => {
                tracing::warn!(request = %terms.request.id, %fault, "a worker claimed no machine");
                return Ok(None);
            }
        };
        match prepare(stack, terms, won).await {
            AttemptOutcome::Ready(held) => return Ok(Some(held)),
            AttemptOutcome::TryAnother => manager.came_to_nothing(),
            AttemptOutcome::Closed(fault) => return Err(fault),
        }
    }
}

/// Claims candidates, one after the other, until it wins one. `None`: no candidate is left. Asks for
/// `terms` for each candidate, because they may cost a call to GitHub.
pub(crate) async fn win<'t, P: Ports, T: Borrow<Terms<'t>>, E: From<Fault>>(
    stack: &Stack<P>,
    manager: &PickupManager<'_, P>,
    terms: impl AsyncFn() -> Result<T, E>,
) -> Result<Option<(T, Advert, Won)>, E> {
    while stack.now() < manager.deadline() {
        let Some(advert) = manager.candidate().await? else { break };
        let terms = match terms().await {
            Ok(terms) => terms,
            Err(error) => {
                // The machine stays idle, and its advert goes back to the queue.
                manager.not_wanted(advert).await;
                return Err(error);
            }
        };
        if let Some(won) = take(stack, terms.borrow(), &advert).await? {
            return Ok(Some((terms, advert, won)));
        }
        manager.came_to_nothing();
    }
    Ok(None)
}

/// Claims a candidate. A message of the first version names no generation, so the worker reads the
/// record for it.
async fn take<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    advert: &Advert,
) -> Result<Option<Won>, Fault> {
    let until = terms.request.deadline;
    let seen = match advert.generation {
        Some(generation) => generation,
        None => match transition::read(stack, &advert.id, until).await {
            Ok(Some(record)) if is_wanted(stack, terms, &record) => record.generation,
            Ok(_) | Err(Fault::Unreadable(_)) => return Ok(None),
            Err(fault) => return Err(fault),
        },
    };
    claim_seen(stack, terms, (&advert.id, seen)).await
}

/// Claims a machine at the generation that the worker saw.
pub(crate) async fn claim_seen<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    (id, seen): (&InstanceId, Generation),
) -> Result<Option<Won>, Fault> {
    let now = stack.now();
    let write = ClaimWrite {
        id: id.clone(),
        seen,
        owner: terms.owner.clone(),
        claim: stack.ports.ids().claim(),
        trust: terms.request.trust.clone(),
        at: now,
        margin: stack.limits.not_claimable_before_deadline,
        lease: now.after(stack.limits.claim_lease),
    };
    transition::claim(stack, &write, terms.request.deadline).await
}

/// Judges the record in place of a message of the first version, which says too little.
fn is_wanted<P: Ports>(stack: &Stack<P>, terms: &Terms<'_>, record: &Record) -> bool {
    record.advert().is_some_and(|advert| {
        judge(&advert, terms.request, &stack.limits, stack.now()) == AdvertVerdict::PassOn
    })
}

/// Makes a runner of a machine that is won: performs one effect of [`Prepare`] after the other.
pub(crate) async fn prepare<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    won: Won,
) -> AttemptOutcome {
    let mut held = HeldMachine::new(won.record().clone(), AcquiredBy::of(won.kind()));
    let mut prepare = Prepare::new(won, stack.now(), &stack.limits);
    let mut input = PrepareInput::Begun;
    loop {
        input = match prepare.on(input, stack.now(), &stack.limits) {
            PrepareEffect::Assign { register_by } => {
                assign(stack, terms, &held.record, register_by).await
            }
            PrepareEffect::Start => PrepareInput::Started(start(stack, &held.record).await),
            PrepareEffect::Watch(watch) => {
                held.assigned = terms.elapsed(stack);
                stack.report_watcher().watch(stack, &held.record, watch).await
            }
            PrepareEffect::CompareSilence => {
                PrepareInput::Compared(silence::judge(stack, &held.record).await)
            }
            PrepareEffect::ReadRecord => {
                let found = found(stack, terms, &held.record).await;
                if let Some(fresh) = &found {
                    held.record = fresh.clone();
                }
                PrepareInput::Found(found)
            }
            PrepareEffect::Withdraw(failure) => {
                tell_of(stack, terms, &held.record, failure).await;
                drain(stack, &held.record).await
            }
            PrepareEffect::DeleteRunner => {
                let runner = terms.runner_on(stack, &held.record);
                PrepareInput::Deleted(stack.ports.forge().delete(&runner).await)
            }
            PrepareEffect::WaitUntil(at) => {
                let wait = at.since(stack.now()).max(Duration::from_millis(1));
                stack.ports.clock().sleep(wait).await;
                PrepareInput::Waited
            }
            PrepareEffect::Write(event) => {
                let written = write(stack, &held.record, &event).await;
                let is_written = written.is_some();
                held.record = written.unwrap_or(held.record);
                PrepareInput::Written(is_written)
            }
            PrepareEffect::Return => {
                if let Err(fault) = release::finish_unstarted(stack, &held.record).await {
                    tracing::info!(instance_id = %held.record.id, %fault, "left for the reaper");
                }
                PrepareInput::Returned
            }
            PrepareEffect::Ready => return AttemptOutcome::Ready(ready(stack, terms, held)),
            PrepareEffect::TryAnother => return AttemptOutcome::TryAnother,
            PrepareEffect::Close(why) => return AttemptOutcome::Closed(Fault::Unavailable(why)),
        };
    }
}

/// Reports at once that the runner listens.
pub(super) fn ready<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    held: HeldMachine,
) -> HeldMachine {
    let ready = terms.elapsed(stack);
    (terms.tell)(ProgressEvent::Ready { instance: held.record.id.clone(), after: ready });
    HeldMachine { ready, ..held }
}

/// Stores the assignment in the mailbox.
async fn assign<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    record: &Record,
    register_by: Timestamp,
) -> PrepareInput {
    let order = Order::Assigned(terms.assignment(stack, record, register_by));
    let key = &record.facts.mailbox;
    if let Ok(Written::Won(_)) = stack.order_batcher().post(stack, key, &order).await {
        return PrepareInput::Assigned;
    }
    posted(mail::post(stack, key, &order, register_by).await, PrepareInput::Assigned)
}

/// Stores the withdrawal of the record's generation in the mailbox.
async fn drain<P: Ports>(stack: &Stack<P>, record: &Record) -> PrepareInput {
    let now = stack.now();
    let order = Order::Withdrawn(Withdrawal {
        generation: record.generation,
        mode: WithdrawalMode::Drain,
        at: now,
        idle_deadline: now.after(stack.limits.idle_released),
        removal_token: stack.removal_token.clone(),
    });
    let until = now.after(stack.limits.claim_lease);
    posted(mail::post(stack, &record.facts.mailbox, &order, until).await, PrepareInput::Withdrawn)
}

/// The answer of the mailbox, `stored` if it stored the order.
fn posted(answer: Result<PostOutcome, Fault>, stored: PrepareInput) -> PrepareInput {
    match answer {
        Ok(PostOutcome::Stored(_)) => stored,
        Ok(PostOutcome::Overtaken(_)) => PrepareInput::Fenced,
        Err(fault) => PrepareInput::Unanswered(format!("the mailbox is {fault}")),
    }
}

async fn start<P: Ports>(stack: &Stack<P>, record: &Record) -> Result<StartOutcome, Fault> {
    let answer = stack.fleet().start_one(&record.id).await;
    if answer == Ok(StartOutcome::NoCapacity) {
        let offering = record.facts.offering();
        tracing::info!(%offering, "cloud has no capacity for offering");
        stack.shortages().remember(offering, &stack.limits, stack.now());
    }
    answer
}

/// Tells people why a machine is not used, with what its agent reported about it.
async fn tell_of<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    record: &Record,
    failure: CheckFailure,
) {
    tracing::info!(instance_id = %record.id, ?failure, "a machine failed its checks");
    // One read is enough, because the failure is known without the report.
    let report = reports::of(stack, record, stack.now()).await.unwrap_or_default();
    let why = failure.told(report.as_ref());
    terms.note_failure(format!("{} was not used: {why}", record.id));
    (terms.tell)(ProgressEvent::Failed { instance: record.id.clone(), why });
}

/// The record as it is now. `None`: it cannot be read, or another process works on the request.
async fn found<P: Ports>(stack: &Stack<P>, terms: &Terms<'_>, record: &Record) -> Option<Record> {
    if let WantedRunner::OfRequest { begun, .. } = &terms.wanted
        && entry::is_superseded(stack, begun).await
    {
        return None;
    }
    let until = stack.now().after(stack.limits.release_retry);
    transition::read(stack, &record.id, until).await.ok()?
}

/// Writes an owner's event on a machine that does not run for the owner yet; returns the stored record.
/// If this fails, the reaper continues after the machine's deadline.
pub(crate) async fn write<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    event: &InstanceEvent,
) -> Option<Record> {
    let until = stack.now().after(stack.limits.claim_lease);
    match transition::latest(stack, record, event, until).await {
        Ok(Moved::To(record)) => Some(record),
        Ok(Moved::Overtaken | Moved::Refused(_)) => None,
        Err(fault) => {
            tracing::info!(instance_id = %record.id, %fault, event = event.name(), "left for the reaper");
            None
        }
    }
}
