//! Claim workers: each turns one idle machine into one of the request's runners, at most once.
//!
//! A worker often loses the race for a machine and tries another. It withdraws a machine that fails
//! its check, asks GitHub to delete the runner, and only then ends the machine. If the cause is
//! elsewhere, the worker gives the machine back unharmed, unless only the machine's agent reports
//! that cause and jobs ran on it. The success path calls neither the cloud nor GitHub.
//!
//! Not here: choosing candidates ([`super::pickup`]), the protocol's rules (`core::claim`).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::claim::{
    AfterRemoval, AfterStep, CheckFailure, CheckKind, ClaimStep, StepOutcome, after_removal, next,
};
use bullpen_core::ids::{ClaimId, Generation, InstanceId, RunnerGroup, RunnerName};
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, Owner, Record, State, Tier};
use bullpen_core::mailbox::{Assignment, Credential, Order, Withdrawal, WithdrawalMode};
use bullpen_core::message::Advert;
use bullpen_core::pickup::{AdvertVerdict, judge};
use bullpen_core::ports::{ClaimWrite, Clock, Fault, Forge, Ids, Ports, StartOutcome, Written};
use bullpen_core::request::Request;
use bullpen_core::request::stranger::OwnRun;
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use super::entry::{self, Begun};
use super::pickup::PickupManager;
use super::report_watcher::ReportWatcher;
use crate::Stack;
use crate::mail::{self, PostOutcome};
use crate::order_batcher::OrderBatcher;
use crate::progress::{ProgressEvent, ProgressObserver};
use crate::release;
use crate::reports;
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

/// A machine that the request holds, with its runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldMachine {
    /// Its record when this process last read or wrote it.
    pub record: Record,
    /// The claim by which the request took it; none for a created machine.
    pub claim: Option<ClaimId>,
    /// How the request got it.
    pub how: AcquiredBy,
    /// When the worker stored its assignment, since the request began.
    pub assigned: Duration,
    /// When the worker saw that it listens, since the request began.
    pub ready: Duration,
}

impl HeldMachine {
    /// A machine before its assignment.
    pub(crate) const fn new(record: Record, claim: Option<ClaimId>, how: AcquiredBy) -> Self {
        Self { record, claim, how, assigned: Duration::ZERO, ready: Duration::ZERO }
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

/// What a worker must know of its request or its job.
pub struct Terms<'s> {
    /// The request.
    pub request: &'s Request,
    /// The owner of its machines.
    pub owner: Owner,
    /// The label its jobs ask for.
    pub label: String,
    /// The only run whose jobs may run on its machines.
    pub own_run: Option<OwnRun>,
    /// The group that its runners join at GitHub, if they register by token.
    pub group: Option<RunnerGroup>,
    /// The request as this process began it; none for a job, whose row has the same facts.
    pub(crate) begun: Option<&'s Begun>,
    /// The name of a job's one runner; a request's runners are named after their machines.
    pub runner: Option<RunnerName>,
    /// The credential its runners register with; minted before anything is claimed.
    pub credential: Credential,
    /// Posts its orders.
    pub order_batcher: &'s OrderBatcher,
    /// Watches its machines' reports.
    pub report_watcher: &'s ReportWatcher,
    /// Receives the progress.
    pub tell: ProgressObserver<'s>,
    /// When it began, on this process's monotonic clock.
    pub began: Duration,
    /// Why the last machine that failed was not used.
    pub(crate) failure: Mutex<Option<String>>,
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
        let of_machine = || stack.runner_name(&record.id, record.generation);
        self.runner.clone().unwrap_or_else(of_machine)
    }

    /// The time since it began.
    pub fn elapsed<P: Ports>(&self, stack: &Stack<P>) -> Duration {
        stack.ports.clock().monotonic().saturating_sub(self.began)
    }
}

/// Tries candidates until one is ready, none is left, or every other would fail too.
pub async fn work<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    manager: &PickupManager<'_, P>,
) -> Result<Option<HeldMachine>, Fault> {
    while stack.now() < terms.request.deadline {
        let Some(advert) = manager.candidate().await? else { return Ok(None) };
        match attempt(stack, terms, &advert).await {
            AttemptOutcome::Ready(held) => return Ok(Some(held)),
            AttemptOutcome::TryAnother => manager.came_to_nothing(),
            AttemptOutcome::Closed(fault) => return Err(fault),
        }
    }
    Ok(None)
}

async fn attempt<P: Ports>(stack: &Stack<P>, terms: &Terms<'_>, advert: &Advert) -> AttemptOutcome {
    let claim = stack.ports.ids().claim();
    let record = match take(stack, terms, advert, &claim).await {
        Ok(Some(record)) => record,
        Ok(None) => return AttemptOutcome::TryAnother,
        Err(fault) => return AttemptOutcome::Closed(fault),
    };
    let how = if advert.tier == Tier::Stopped { AcquiredBy::Started } else { AcquiredBy::Reused };
    prepare(stack, terms, HeldMachine::new(record, Some(claim), how), advert.tier).await
}

/// Claims a candidate. A message of the first version names no generation, so the worker reads the
/// record for it.
pub(crate) async fn take<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    advert: &Advert,
    claim: &ClaimId,
) -> Result<Option<Record>, Fault> {
    let until = terms.request.deadline;
    let seen = match advert.generation {
        Some(generation) => generation,
        None => match transition::read(stack, &advert.id, until).await? {
            Some(record) if is_wanted(stack, terms, &record) => record.generation,
            _ => return Ok(None),
        },
    };
    claim_seen(stack, terms, (&advert.id, seen), claim).await
}

/// Claims a machine at the generation that the worker saw.
pub(crate) async fn claim_seen<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    (id, seen): (&InstanceId, Generation),
    claim: &ClaimId,
) -> Result<Option<Record>, Fault> {
    let now = stack.now();
    let write = ClaimWrite {
        id: id.clone(),
        seen,
        owner: terms.owner.clone(),
        claim: claim.clone(),
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

/// Takes a claimed machine through the steps of the claim protocol.
pub(crate) async fn prepare<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    mut held: HeldMachine,
    tier: Tier,
) -> AttemptOutcome {
    let register_by = register_by(stack, stack.now(), watched(held.how));
    let mut step = ClaimStep::Assign;
    loop {
        let outcome = match step {
            ClaimStep::Claim => StepOutcome::Done,
            ClaimStep::Assign => assign(stack, terms, &held.record, register_by).await,
            ClaimStep::Start => start(stack, &held.record).await,
            ClaimStep::Check => {
                held.assigned = terms.elapsed(stack);
                terms.report_watcher.watch(stack, &held.record, watched(held.how)).await
            }
        };
        match next(step, tier, outcome) {
            AfterStep::Go(following) => step = following,
            AfterStep::Ready => return AttemptOutcome::Ready(ready(stack, terms, held)),
            AfterStep::TryAnother => return AttemptOutcome::TryAnother,
            AfterStep::GiveBack => {
                give_back_unstarted(stack, &terms.owner, &held.record).await;
                return AttemptOutcome::TryAnother;
            }
            AfterStep::CloseAttempt(why) => {
                if sabotage!("outage-ends-machines") {
                    condemn(stack, &terms.owner, &held.record, EndReason::FailedChecks).await;
                }
                give_back(stack, &terms.owner, &held.record).await;
                return AttemptOutcome::Closed(Fault::Unavailable(why));
            }
            AfterStep::Remove(failure) => {
                return remove(stack, terms, held, register_by, failure).await;
            }
            AfterStep::RemoveAndClose(why) => {
                return match remove(stack, terms, held, register_by, CheckFailure::Excused).await {
                    AttemptOutcome::TryAnother => AttemptOutcome::Closed(Fault::Unavailable(why)),
                    other => other,
                };
            }
        }
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

const fn watched(how: AcquiredBy) -> CheckKind {
    match how {
        AcquiredBy::Reused => CheckKind::Warm,
        AcquiredBy::Started => CheckKind::Started,
        AcquiredBy::Created => CheckKind::Created,
    }
}

/// When an agent must give up an unregistered listener; the check is over by then.
pub fn register_by<P: Ports>(stack: &Stack<P>, now: Timestamp, kind: CheckKind) -> Timestamp {
    let limits = &stack.limits;
    now.after(match kind {
        CheckKind::Warm => limits.assignment_acknowledged + limits.registration,
        CheckKind::Started => limits.first_beat_stopped + limits.registration_stopped,
        CheckKind::Created => limits.fleet_validation,
    })
}

/// Stores the assignment in the mailbox. `Lost`: another process has fenced this one since.
pub async fn assign<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    record: &Record,
    register_by: Timestamp,
) -> StepOutcome {
    let order = Order::Assigned(Assignment {
        generation: record.generation,
        owner: terms.owner.clone(),
        runner: terms.runner_on(stack, record),
        label: terms.label.clone(),
        credential: Some(terms.credential.clone()),
        register_by: Some(register_by),
        hard_cap: stack.now().after(stack.limits.hard_cap),
        issued_at: Some(stack.now()),
        own_run: terms.own_run.clone(),
        group: terms.group.clone(),
        ephemeral: terms.request.ephemeral,
    });
    let key = &record.facts.mailbox;
    if let Ok(Written::Won(_)) = terms.order_batcher.post(key, &order).await {
        return StepOutcome::Done;
    }
    match mail::post(stack, key, &order, register_by).await {
        Ok(PostOutcome::Stored(_)) => StepOutcome::Done,
        Ok(PostOutcome::Overtaken(_)) => StepOutcome::Lost,
        Err(fault) => StepOutcome::Systemic(format!("the mailbox is {fault}")),
    }
}

async fn start<P: Ports>(stack: &Stack<P>, record: &Record) -> StepOutcome {
    match stack.fleet().start_one(&record.id).await {
        // Without an answer the start may have landed. The check decides: it fails a machine that
        // never beats.
        Ok(StartOutcome::Starting) | Err(Fault::Unavailable(_)) => StepOutcome::Done,
        Ok(StartOutcome::NoCapacity) => {
            let offering = record.facts.offering();
            tracing::info!(%offering, "cloud has no capacity for offering");
            stack.shortages().remember(offering, &stack.limits, stack.now());
            StepOutcome::StartRefused
        }
        Ok(StartOutcome::Failed(_)) => StepOutcome::StartFailed,
        Err(_) => StepOutcome::StartRefused,
    }
}

/// Withdraws the assignment, asks GitHub to delete the runner, and does what follows from the
/// answer.
pub async fn remove<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    held: HeldMachine,
    register_by: Timestamp,
    failure: CheckFailure,
) -> AttemptOutcome {
    let record = &held.record;
    match still_ours(stack, terms, record).await {
        Some(fresh) if matches!(fresh.state, State::Running { .. }) => {
            let held = HeldMachine { record: fresh, ..held };
            return AttemptOutcome::Ready(ready(stack, terms, held));
        }
        Some(_) => {}
        None => return AttemptOutcome::TryAnother,
    }
    tracing::info!(instance_id = %record.id, ?failure, "a machine failed its checks");
    let why = failure_text(stack, record, failure).await;
    terms.note_failure(format!("{} was not used: {why}", record.id));
    (terms.tell)(ProgressEvent::Failed { instance: record.id.clone(), why });
    let register_by = failure.may_register().then_some(register_by);
    let now = stack.now();
    let drain = Order::Withdrawn(Withdrawal {
        generation: record.generation,
        mode: WithdrawalMode::Drain,
        at: now,
        idle_deadline: now.after(stack.limits.idle_released),
        removal_token: stack.removal_token.clone(),
    });
    let until = now.after(stack.limits.claim_lease);
    match mail::post(stack, &record.facts.mailbox, &drain, until).await {
        Ok(PostOutcome::Stored(_)) => {}
        // Fenced, or the store is away: the process that fenced us, or the reaper, continues.
        Ok(PostOutcome::Overtaken(_)) | Err(_) => return AttemptOutcome::TryAnother,
    }
    let runner = terms.runner_on(stack, record);
    loop {
        let deletion = stack.ports.forge().delete(&runner).await;
        match after_removal(deletion, register_by, &stack.limits, stack.now()) {
            // A job can take another machine. The release handshake asks GitHub again and ends this
            // one.
            AfterRemoval::AskAgain { .. }
                if terms.begun.is_none() && held.how == AcquiredBy::Started =>
            {
                give_back(stack, &terms.owner, record).await;
                return AttemptOutcome::TryAnother;
            }
            AfterRemoval::AskAgain { at } => {
                let wait = at.since(stack.now()).max(Duration::from_millis(1));
                stack.ports.clock().sleep(wait).await;
            }
            AfterRemoval::End => {
                let why = match failure {
                    CheckFailure::Excused => EndReason::Untrusted,
                    _ => EndReason::FailedChecks,
                };
                condemn(stack, &terms.owner, record, why).await;
                return AttemptOutcome::TryAnother;
            }
            AfterRemoval::Running => return AttemptOutcome::Ready(ready(stack, terms, held)),
            AfterRemoval::GiveBack => {
                give_back(stack, &terms.owner, record).await;
                let why = "GitHub did not say whether a runner is deleted";
                return AttemptOutcome::Closed(Fault::unavailable(why));
            }
        }
    }
}

/// The failure for people, with what the agent reported about it.
async fn failure_text<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    failure: CheckFailure,
) -> String {
    // One read is enough, because the failure is known without the report.
    let report = reports::of(stack, record, stack.now()).await.unwrap_or_default();
    failure.told(report.as_ref())
}

/// The record as it is now, if this process may still decide about it. Another process of the same
/// request may have seen the listener, and may have marked the machine as running.
async fn still_ours<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    record: &Record,
) -> Option<Record> {
    if let Some(begun) = terms.begun
        && entry::is_superseded(stack, begun).await
    {
        return None;
    }
    let until = stack.now().after(stack.limits.release_retry);
    let fresh = transition::read(stack, &record.id, until).await.ok()??;
    let ours = fresh.generation == record.generation && fresh.state.owner() == Some(&terms.owner);
    ours.then_some(fresh)
}

/// Condemns a machine in its owner's name. If this fails, the reaper takes it after its deadline.
pub(crate) async fn condemn<P: Ports>(
    stack: &Stack<P>,
    owner: &Owner,
    record: &Record,
    why: EndReason,
) {
    let authority = Authority::Owner { owner: owner.clone(), generation: record.generation };
    let event = InstanceEvent::Condemned { authority, why, at: stack.now() };
    let until = stack.now().after(stack.limits.claim_lease);
    if let Err(fault) = latest(stack, record, &event, until).await {
        tracing::info!(instance_id = %record.id, %fault, "left for the reaper to end");
    }
}

/// Takes a machine back in its owner's name; the release handshake continues from there.
pub(crate) async fn give_back<P: Ports>(stack: &Stack<P>, owner: &Owner, record: &Record) {
    withdraw(stack, owner, record).await;
}

/// Takes back a stopped machine that was not started. Nothing ran on it, so one pass of the
/// handshake makes it idle again. A process that makes a later pass does not know that, and ends
/// the machine.
async fn give_back_unstarted<P: Ports>(stack: &Stack<P>, owner: &Owner, record: &Record) {
    if let Some(record) = withdraw(stack, owner, record).await
        && let Err(fault) = release::finish_unstarted(stack, &record).await
    {
        tracing::info!(instance_id = %record.id, %fault, "left for the reaper to release");
    }
}

/// Fences an owner out of a machine that does not run for it yet; returns the stored record.
async fn withdraw<P: Ports>(stack: &Stack<P>, owner: &Owner, record: &Record) -> Option<Record> {
    let now = stack.now();
    let event = InstanceEvent::Withdrawn {
        authority: Authority::Owner { owner: owner.clone(), generation: record.generation },
        warm: true,
        at: now,
        cap: now.after(stack.limits.hard_cap),
    };
    let until = now.after(stack.limits.claim_lease);
    match latest(stack, record, &event, until).await {
        Ok(Moved::To(record)) => Some(record),
        Ok(Moved::Overtaken | Moved::Refused(_)) => None,
        Err(fault) => {
            tracing::info!(instance_id = %record.id, %fault, "left for the reaper to release");
            None
        }
    }
}

/// Applies an owner's event to the record as it is now, unless the machine runs by now. A renewal
/// in between is no obstacle; the event's own generation and nonce keep a fenced owner out.
pub async fn latest<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    event: &InstanceEvent,
    until: Timestamp,
) -> Result<Moved, Fault> {
    let mut seen = record.clone();
    loop {
        match transition::apply(stack, &seen, event, until).await? {
            Moved::Overtaken if stack.now() < until => {
                match transition::read(stack, &record.id, until).await? {
                    Some(fresh) if is_same_tenure(&fresh, record) => seen = fresh,
                    _ => return Ok(Moved::Overtaken),
                }
            }
            moved => return Ok(moved),
        }
    }
}

fn is_same_tenure(fresh: &Record, known: &Record) -> bool {
    fresh.generation == known.generation
        && matches!(fresh.state, State::Created { .. } | State::Claimed { .. })
}
