//! Claim workers: turning one idle machine into one of the request's runners, at most once.
//!
//! Losing the race for a machine is ordinary. A machine that does not do its part is withdrawn,
//! its runner deleted, and only then ended; one whose failure has a cause elsewhere goes back
//! unharmed, unless it alone says so and jobs ran on it. The success path calls neither the cloud nor
//! GitHub.
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

/// How a runner was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AcquiredBy {
    /// It was running and idle.
    Reused,
    /// It was stopped.
    Started,
    /// It was launched for this request.
    Created,
}

/// A runner that listens for this request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldMachine {
    /// Its record when it was last seen.
    pub record: Record,
    /// The claim it was taken by; a created one was not claimed.
    pub claim: Option<ClaimId>,
    /// How it was come by.
    pub how: AcquiredBy,
    /// When its assignment was stored, since the request began.
    pub assigned: Duration,
    /// When it was seen to listen, since the request began.
    pub ready: Duration,
}

impl HeldMachine {
    /// One that nothing was done with yet.
    pub(crate) const fn new(record: Record, claim: Option<ClaimId>, how: AcquiredBy) -> Self {
        Self { record, claim, how, assigned: Duration::ZERO, ready: Duration::ZERO }
    }
}

/// What one attempt at one machine came to.
#[derive(Debug)]
pub enum AttemptOutcome {
    /// It listens.
    Ready(HeldMachine),
    /// Not this one.
    TryAnother,
    /// No other would do either; this is why.
    Closed(Fault),
}

/// What a worker needs to know of its request, or of its job.
pub struct Terms<'s> {
    /// The request.
    pub request: &'s Request,
    /// Its owner name.
    pub owner: Owner,
    /// The label its jobs ask for.
    pub label: String,
    /// The run whose jobs alone may run on its machines.
    pub own_run: Option<OwnRun>,
    /// The group that its runners join at GitHub, if they register by token.
    pub group: Option<RunnerGroup>,
    /// As this process works on it; a job's row says that of a job.
    pub(crate) begun: Option<&'s Begun>,
    /// What its one runner is called; those of a request are called after their machines.
    pub runner: Option<RunnerName>,
    /// What its runners register with; minted before anything is claimed.
    pub credential: Credential,
    /// Who carries its orders.
    pub order_batcher: &'s OrderBatcher,
    /// Who watches its machines.
    pub report_watcher: &'s ReportWatcher,
    /// Who is told.
    pub tell: ProgressObserver<'s>,
    /// When it began, on this process's monotonic clock.
    pub began: Duration,
    /// Why the last machine that did not do its part was not used.
    pub(crate) failure: Mutex<Option<String>>,
}

impl Terms<'_> {
    fn note_failure(&self, why: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Why the last machine that did not do its part was not used.
    pub(super) fn last_failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the runner on this machine is called.
    fn runner_on<P: Ports>(&self, stack: &Stack<P>, record: &Record) -> RunnerName {
        let of_machine = || stack.runner_name(&record.id, record.generation);
        self.runner.clone().unwrap_or_else(of_machine)
    }

    /// How long ago it began.
    pub fn elapsed<P: Ports>(&self, stack: &Stack<P>) -> Duration {
        stack.ports.clock().monotonic().saturating_sub(self.began)
    }
}

/// Takes candidates until one is ready, none is left, or the attempt is closed.
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

/// The conditional write. A message of the first generation names none, so the record is read.
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

/// Claims a machine as it was seen.
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

/// A message of the first generation says too little; the record is judged in its place.
fn is_wanted<P: Ports>(stack: &Stack<P>, terms: &Terms<'_>, record: &Record) -> bool {
    record.advert().is_some_and(|advert| {
        judge(&advert, terms.request, &stack.limits, stack.now()) == AdvertVerdict::PassOn
    })
}

/// Walks the claimed machine through the protocol's steps.
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

/// It listens: so much is told at once.
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

/// When an unregistered listener must be given up: the checks are over by then.
pub fn register_by<P: Ports>(stack: &Stack<P>, now: Timestamp, kind: CheckKind) -> Timestamp {
    let limits = &stack.limits;
    now.after(match kind {
        CheckKind::Warm => limits.assignment_acknowledged + limits.registration,
        CheckKind::Started => limits.first_beat_stopped + limits.registration_stopped,
        CheckKind::Created => limits.fleet_validation,
    })
}

/// Stores the assignment; `Lost` means that somebody has fenced us since.
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
        // Without an answer it may have landed. The checks will tell; a machine that never beats
        // fails them.
        Ok(StartOutcome::Starting) | Err(Fault::Unavailable(_)) => StepOutcome::Done,
        Ok(StartOutcome::NoCapacity) => {
            let offering = record.facts.offering();
            tracing::info!(%offering, "shortage");
            stack.shortages().remember(offering, &stack.limits, stack.now());
            StepOutcome::StartRefused
        }
        Ok(StartOutcome::Failed(_)) => StepOutcome::StartFailed,
        Err(_) => StepOutcome::StartRefused,
    }
}

/// Withdraws the assignment, has the runner deleted, and lets GitHub's answer decide.
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
    let why = told(stack, record, failure).await;
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
        // Fenced, or the store is away: whoever fenced us, or the reaper, carries on.
        Ok(PostOutcome::Overtaken(_)) | Err(_) => return AttemptOutcome::TryAnother,
    }
    let runner = terms.runner_on(stack, record);
    loop {
        let deletion = stack.ports.forge().delete(&runner).await;
        match after_removal(deletion, register_by, &stack.limits, stack.now()) {
            // A job has others to turn to. The release handshake asks on, and ends the machine.
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

/// What failed, in the machine's own words where it has left any.
async fn told<P: Ports>(stack: &Stack<P>, record: &Record, failure: CheckFailure) -> String {
    // Asked once: what failed is known without it.
    let report = reports::of(stack, record, stack.now()).await.unwrap_or_default();
    failure.told(report.as_ref())
}

/// The record as it is now, if it is still this process's to decide about. Another process of the
/// same request may see what this one does not, and may have marked it running.
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

/// Ends a machine in its owner's name. If this does not land, the claim's lease ends it.
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

/// Takes a machine back in its owner's name; the release handshake goes on from there.
pub(crate) async fn give_back<P: Ports>(stack: &Stack<P>, owner: &Owner, record: &Record) {
    withdraw(stack, owner, record).await;
}

/// Takes a machine back that is stopped and was not started: it is as it was, and idle again with one
/// pass of the handshake. Whoever makes a later pass does not know that, and ends it.
async fn give_back_unstarted<P: Ports>(stack: &Stack<P>, owner: &Owner, record: &Record) {
    if let Some(record) = withdraw(stack, owner, record).await
        && let Err(fault) = release::finish_unstarted(stack, &record).await
    {
        tracing::info!(instance_id = %record.id, %fault, "left for the reaper to release");
    }
}

/// Fences an owner out of a machine that does not run for it yet; returns it as it is then.
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

/// Applies an owner's event to the record as it is now, unless it runs by now: a renewal in between
/// is no obstacle, and the event's own generation and nonce keep a fenced owner out.
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
