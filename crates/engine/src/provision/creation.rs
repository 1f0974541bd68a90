//! Creation: intent → launch → record → validate.
//!
//! The intent is durable before the launch, and the launch is idempotent on it, so a lost answer is
//! asked for again and never launches twice. Ids are recorded the moment they are known. What never
//! came is given back; what came and could not be recorded is ended.
//!
//! Not here: finding what a crash left between launch and record ([`crate::reconcile`]).

use std::sync::atomic::{AtomicU32, Ordering};

use bullpen_core::claim::{CheckKind, StepOutcome};
use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::creation::{Ceiling, CeilingReached, Intent, LaunchRequest};
use bullpen_core::ids::{IntentId, RequestId, Revision};
use bullpen_core::instance::{InstanceFacts, Owner, Record};
use bullpen_core::ports::{Fault, Launched, Ledger, Machine, Ports, Recorded, Reserved, Written};
use bullpen_core::request::{Request, TypePattern};
use bullpen_core::sabotage;
use futures_util::future::join_all;

use super::worker::{self, AcquiredBy, AttemptOutcome, HeldMachine, Terms};
use crate::Stack;
use crate::progress::ProgressEvent;
use crate::retry::{Backoff, retry_until};

/// Why nothing more can be created now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreationError {
    /// A ceiling is reached.
    #[error(transparent)]
    Ceiling(#[from] CeilingReached),
    /// A port gave up.
    #[error("could not {what}")]
    Port {
        /// What was being done.
        what: &'static str,
        /// Why not.
        source: Fault,
    },
}

impl CreationError {
    /// Whether a port would answer the same, however often it is asked.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Port { source, .. } if !source.is_transient())
    }
}

/// What one launch came to.
#[derive(Debug)]
pub struct Created {
    /// The runners that listen.
    pub ready: Vec<HeldMachine>,
    /// Whether the cloud gave any machine at all.
    pub any_came: bool,
}

/// Launches up to `count` machines for the request and waits until they listen. `None`: this attempt
/// is spoilt by a reservation of another size, and was not made; the next one can be.
pub async fn create<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    usage: Usage,
    count: u32,
    attempt: u32,
) -> Result<Option<Created>, CreationError> {
    let intent = intend(stack, (terms.request, &terms.owner), usage, count, attempt);
    if sabotage!("launch-before-the-intent") {
        launch(stack, terms.request.into(), &intent).await.map_err(|refusal| refusal.error())?;
    }
    let reserved = reserve(stack, &intent).await?;
    if reserved.intent.count != count {
        // It landed after we had been told that there is no room, and other machines came since.
        return_rest(stack, &reserved.intent).await;
        return Ok(None);
    }
    (terms.tell)(ProgressEvent::Launching { machines: count });
    let records = launch_and_record(stack, terms.request.into(), &reserved).await?;
    let any_came = !records.is_empty();
    let validated = join_all(records.into_iter().map(|record| validate(stack, terms, record)));
    let ready = validated.await.into_iter().flatten().collect();
    Ok(Some(Created { ready, any_came }))
}

/// What machines are to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchShape<'a> {
    /// Their class.
    pub(crate) class: &'a RunnerClass,
    /// Which types will do.
    pub(crate) allowed_types: &'a [TypePattern],
}

impl<'a> From<&'a Request> for LaunchShape<'a> {
    fn from(request: &'a Request) -> Self {
        Self { class: &request.class, allowed_types: &request.allowed_types }
    }
}

/// An intent that is stored.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// The intent, as it is stored.
    pub(crate) intent: Intent,
    /// Whether we stored it just now, so that nobody can have launched it before us.
    pub(crate) is_new: bool,
}

impl Reservation {
    /// One that was found: whoever stored it may have launched it.
    pub(crate) fn found(intent: Intent) -> Self {
        Self { intent, is_new: false }
    }
}

/// Launches what an intent says and records what came. Doing so again does nothing anew.
///
/// Where the cloud refuses, and nothing of it can have been launched before, the reservation is kept from
/// nobody: it is given back, and the next launch is another one. Otherwise the intent stays, and
/// reconciliation accounts for what may have come of it.
pub(crate) async fn launch_and_record<P: Ports>(
    stack: &Stack<P>,
    shape: LaunchShape<'_>,
    Reservation { intent, is_new }: &Reservation,
) -> Result<Vec<Record>, CreationError> {
    let answer = launch(stack, shape, intent).await;
    if answer.is_ok() && sabotage!("rest-returned-before-recording") {
        return_rest(stack, intent).await;
    }
    let records = match &answer {
        Ok(launched) => record_all(stack, intent, launched).await,
        Err(refusal) if *is_new && refusal.is_certain => Vec::new(),
        Err(refusal) => return Err(refusal.error()),
    };
    return_rest(stack, intent).await;
    answer.map(|_| records).map_err(|refusal| refusal.error())
}

/// The id of a request's n-th launch: whoever makes it, and however often, it is the same launch.
pub(crate) fn intent_id(request: &Request, attempt: u32) -> IntentId {
    launch_id(&request.id, request.incarnation, attempt)
}

/// The id of the n-th launch of one incarnation of a request.
pub(crate) fn launch_id(request: &RequestId, incarnation: u32, attempt: u32) -> IntentId {
    if sabotage!("token-without-incarnation") {
        return IntentId::new(format!("{request}.1.{attempt}"));
    }
    IntentId::new(format!("{request}.{incarnation}.{attempt}"))
}

/// Whether a machine was launched by this incarnation of a request.
pub(crate) fn is_of(request: &Request, intent: &IntentId) -> bool {
    let stem = format!("{}.{}.", request.id, request.incarnation);
    intent.as_str().strip_prefix(&stem).is_some_and(|attempt| attempt.parse::<u32>().is_ok())
}

/// A request's or a job's n-th launch, with nothing of it recorded yet.
pub(crate) fn intend<P: Ports>(
    stack: &Stack<P>,
    (request, owner): (&Request, &Owner),
    usage: Usage,
    count: u32,
    attempt: u32,
) -> Intent {
    Intent {
        id: intent_id(request, attempt),
        owner: owner.clone(),
        trust: Some(request.trust.clone()),
        class: request.class.name.clone(),
        pool: None,
        usage,
        spec_hash: stack.built(&request.class),
        count,
        avoid: stack.shortages().at(stack.now()),
        outstanding: count,
        deadline: request.deadline,
        revision: Revision(1),
    }
}

/// Stores the intent under the stack's ceilings.
pub(crate) async fn reserve<P: Ports>(
    stack: &Stack<P>,
    intent: &Intent,
) -> Result<Reservation, CreationError> {
    reserve_under(stack, intent, &stack.ceilings).await
}

/// Stores the intent under these ceilings.
pub(crate) async fn reserve_under<P: Ports>(
    stack: &Stack<P>,
    intent: &Intent,
    ceilings: &[Ceiling],
) -> Result<Reservation, CreationError> {
    let port = |source| CreationError::Port { what: "reserve machines", source };
    let new = || Reservation { intent: intent.clone(), is_new: true };
    let mut backoff = Backoff::default();
    loop {
        match stack.ports.ledger().reserve(intent, ceilings).await {
            Ok(Written::Won(Reserved::Granted)) => return Ok(new()),
            // Ours already: an answer that was lost, or an earlier run of the same request.
            Ok(Written::Won(Reserved::Known(known))) => return Ok(Reservation::found(known)),
            Ok(Written::Won(Reserved::Short(_))) if sabotage!("ceiling-is-only-advice") => {
                return Ok(new());
            }
            Ok(Written::Won(Reserved::Short(ceiling))) => return Err(ceiling.into()),
            // Asking again is safe: it is idempotent on the intent.
            Ok(Written::Lost | Written::Unknown) => {}
            Err(fault) if fault.is_transient() => {}
            Err(fault) => return Err(port(fault)),
        }
        backoff.wait_until(stack, intent.deadline).await.map_err(port)?;
    }
}

/// A launch that was not answered with machines.
#[derive(Debug)]
struct Refusal {
    fault: Fault,
    /// Whether this was its first answer, and a final one: nothing was launched by it.
    is_certain: bool,
}

impl Refusal {
    fn error(&self) -> CreationError {
        CreationError::Port { what: "launch machines", source: self.fault.clone() }
    }
}

async fn launch<P: Ports>(
    stack: &Stack<P>,
    shape: LaunchShape<'_>,
    intent: &Intent,
) -> Result<Launched, Refusal> {
    let (now, tries) = (stack.now(), AtomicU32::new(0));
    let request = LaunchRequest {
        intent: intent.id.clone(),
        class: shape.class.clone(),
        pool: intent.pool.clone(),
        usage: intent.usage,
        allowed_types: shape.allowed_types.to_vec(),
        avoid: intent.avoid.clone(),
        spec_hash: intent.spec_hash.clone(),
        count: intent.count,
    };
    // That there is none is an answer: the same launch would be answered the same, and the ladder
    // has other rungs.
    let launch = async || {
        tries.fetch_add(1, Ordering::Relaxed);
        let anew = sabotage!("new-token-for-each-try").then(|| LaunchRequest {
            intent: IntentId::new(format!("{}-{}", request.intent, stack.now())),
            ..request.clone()
        });
        match stack.fleet().launch(anew.as_ref().unwrap_or(&request)).await {
            Err(Fault::NoCapacity) => Ok(Launched::default()),
            answer => answer,
        }
    };
    let launched = retry_until(stack, intent.deadline, launch).await.map_err(|fault| {
        let is_certain = !fault.is_transient() && tries.load(Ordering::Relaxed) == 1;
        Refusal { fault, is_certain }
    })?;
    if let Some(said) = &launched.said {
        stack.shortages().remember_words(said.clone(), &stack.limits, now);
    }
    for offering in &launched.shortages {
        tracing::info!(%offering, "shortage");
        stack.shortages().remember(offering.clone(), &stack.limits, now);
    }
    Ok(launched)
}

async fn record_all<P: Ports>(
    stack: &Stack<P>,
    intent: &Intent,
    launched: &Launched,
) -> Vec<Record> {
    let recorded = launched.machines.iter().map(|machine| record(stack, intent, machine));
    join_all(recorded).await.into_iter().flatten().collect()
}

/// Stores one machine's first record. `None`: it is nobody's, and is being ended.
pub(crate) async fn record<P: Ports>(
    stack: &Stack<P>,
    intent: &Intent,
    machine: &Machine,
) -> Option<Record> {
    let born = Record::born(
        machine.id.clone(),
        InstanceFacts::of(machine, intent),
        intent.owner.clone(),
        intent.trust.clone(),
        machine.launched_at.after(stack.limits.warm_up),
    );
    let mut backoff = Backoff::default();
    while stack.now() < intent.deadline.after(stack.limits.reconcile_grace) {
        match stack.ports.ledger().record(&born).await {
            Ok(Written::Won(Recorded::Stored(record) | Recorded::Known(record))) => {
                return Some(record);
            }
            Ok(Written::Won(Recorded::Refused)) => {
                let _ = stack.fleet().terminate_one(&machine.id).await;
                return None;
            }
            // Idempotent on the instance id.
            Ok(Written::Lost | Written::Unknown) => {}
            Err(fault) if fault.is_transient() => {}
            Err(_) => return None,
        }
        backoff.wait(stack).await;
    }
    None
}

/// The launch has answered for good, so what is still outstanding will never come. If this does
/// not land, reconciliation gives it back after the intent's deadline.
pub(crate) async fn return_rest<P: Ports>(stack: &Stack<P>, intent: &Intent) {
    let ledger = stack.ports.ledger();
    let Ok(Some(intent)) = retry_until(stack, intent.deadline, || ledger.intent(&intent.id)).await
    else {
        return;
    };
    if intent.outstanding > 0
        && let Err(fault) = ledger.give_back(&intent).await
    {
        tracing::info!(%fault, "left for reconciliation to give back");
    }
}

/// Assigns a created machine to its request and waits until it listens.
pub(super) async fn validate<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    record: Record,
) -> Option<HeldMachine> {
    let register_by = worker::register_by(stack, stack.now(), CheckKind::Created);
    let mut held = HeldMachine::new(record, None, AcquiredBy::Created);
    let mut outcome = worker::assign(stack, terms, &held.record, register_by).await;
    if outcome == StepOutcome::Done {
        held.assigned = terms.elapsed(stack);
        outcome = terms.report_watcher.watch(stack, &held.record, CheckKind::Created).await;
    }
    match outcome {
        StepOutcome::Done => Some(worker::ready(stack, terms, held)),
        StepOutcome::Failed(failure) => {
            match worker::remove(stack, terms, held, register_by, failure).await {
                AttemptOutcome::Ready(held) => Some(held),
                AttemptOutcome::TryAnother | AttemptOutcome::Closed(_) => None,
            }
        }
        // Left as it is: the request's failure, or the reaper, takes it back.
        StepOutcome::Lost
        | StepOutcome::StartRefused
        | StepOutcome::StartFailed
        | StepOutcome::Systemic(_)
        | StepOutcome::Excused(_) => None,
    }
}
