//! Creation: intent → launch → record.
//!
//! A process stores the intent before it launches, and the launch is idempotent on the intent:
//! after a lost answer the process launches again, and the cloud starts no second set of machines.
//! It records each id as soon as it knows it, gives back the reservation of machines that never
//! came, and terminates a machine whose record the ledger refuses.
//!
//! Not here: finding machines that a crash left without a record ([`crate::reconcile`]).

use std::sync::atomic::{AtomicU32, Ordering};

use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::creation::{Ceiling, CeilingReached, Intent, LaunchKind, LaunchRequest};
use bullpen_core::ids::{IntentId, RequestId, Revision};
use bullpen_core::instance::{InstanceFacts, Owner, Record};
use bullpen_core::ports::{Fault, Launched, Ledger, Machine, Ports, Recorded, Reserved, Written};
use bullpen_core::request::{Request, TypePattern};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;
use futures_util::future::join_all;

use super::resume::resume_machine;
use super::worker::{HeldMachine, Terms};
use crate::Stack;
use crate::progress::ProgressEvent;
use crate::retry::{Backoff, retry_until};

/// Why creation stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreationError {
    /// A ceiling is reached.
    #[error(transparent)]
    Ceiling(#[from] CeilingReached),
    /// A port failed, for good or for too long.
    #[error("could not {what}")]
    Port {
        /// The action that failed.
        what: &'static str,
        /// The cause.
        source: Fault,
    },
}

impl CreationError {
    /// Whether the port would give the same answer again.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Port { source, .. } if !source.is_transient())
    }
}

/// The outcome of one launch.
#[derive(Debug)]
pub struct Created {
    /// The runners that listen.
    pub ready: Vec<HeldMachine>,
    /// Whether the cloud launched any machine.
    pub any_came: bool,
}

/// Launches up to `count` machines for the request and waits until they listen. `None`: the ledger
/// holds a reservation of another size for this attempt, so it launched nothing; the next attempt
/// can.
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
        // An earlier write of this reservation landed after the ledger had answered that the
        // ceiling is short, and other machines came since.
        return_rest(stack, &reserved.intent).await;
        return Ok(None);
    }
    (terms.tell)(ProgressEvent::Launching { machines: count });
    let records = launch_and_record(stack, terms.request.into(), &reserved).await?;
    let any_came = !records.is_empty();
    // Another process of the request may have recorded a machine first, and be further with it.
    let prepared = records.into_iter().map(|record| resume_machine(stack, terms, record));
    let ready = join_all(prepared).await.into_iter().flatten().collect();
    Ok(Some(Created { ready, any_came }))
}

/// The kind of machines to launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchShape<'a> {
    /// Their class.
    pub(crate) class: &'a RunnerClass,
    /// The instance types that will do.
    pub(crate) allowed_types: &'a [TypePattern],
}

impl<'a> From<&'a Request> for LaunchShape<'a> {
    fn from(request: &'a Request) -> Self {
        Self { class: &request.class, allowed_types: &request.allowed_types }
    }
}

/// An intent that the ledger has stored.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// The stored intent.
    pub(crate) intent: Intent,
    /// Whether this process has just stored it, so that no other process can have launched it.
    pub(crate) is_new: bool,
}

impl Reservation {
    /// An intent found in the ledger: the process that stored it may have launched it.
    pub(crate) fn found(intent: Intent) -> Self {
        Self { intent, is_new: false }
    }
}

/// Launches the machines of an intent and records them. A repetition launches nothing new.
///
/// If the cloud refuses and cannot have launched anything for this intent before, this function
/// gives the reservation back at once, and the next launch uses another intent. Otherwise the
/// intent stays, and the reconciler accounts for machines that may have come of it.
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

/// The id of the n-th launch of one incarnation of a request. Every process that repeats the launch
/// uses the same id.
fn launch_id(request: &RequestId, incarnation: u32, attempt: u32) -> IntentId {
    if sabotage!("token-without-incarnation") {
        return IntentId::new(format!("{request}.1.{attempt}"));
    }
    IntentId::new(format!("{request}.{incarnation}.{attempt}"))
}

/// The launches that one incarnation of a request has reserved, in their order, as far as `is_last`
/// says.
pub(crate) async fn launches<P: Ports>(
    stack: &Stack<P>,
    (request, incarnation): (&RequestId, u32),
    until: Timestamp,
    is_last: impl Fn(&Intent) -> bool,
) -> Result<Vec<Intent>, Fault> {
    let ledger = stack.ports.ledger();
    let mut launches: Vec<Intent> = Vec::new();
    loop {
        let id = launch_id(request, incarnation, number_after(&launches));
        let found = retry_until(stack, until, || ledger.intent(&id)).await?;
        let Some(intent) = found else { return Ok(launches) };
        let is_over = is_last(&intent);
        launches.push(intent);
        if is_over {
            return Ok(launches);
        }
    }
}

/// The number of the launch after these.
pub(crate) fn number_after(launches: &[Intent]) -> u32 {
    u32::try_from(launches.len()).unwrap_or(u32::MAX).saturating_add(1)
}

/// Whether an intent belongs to this incarnation of a request.
pub(crate) fn is_of(request: &Request, intent: &IntentId) -> bool {
    let stem = format!("{}.{}.", request.id, request.incarnation);
    intent.as_str().strip_prefix(&stem).is_some_and(|attempt| attempt.parse::<u32>().is_ok())
}

/// The intent of a request's or a job's n-th launch, before any machine of it is recorded.
pub(crate) fn intend<P: Ports>(
    stack: &Stack<P>,
    (request, owner): (&Request, &Owner),
    usage: Usage,
    count: u32,
    attempt: u32,
) -> Intent {
    Intent {
        id: launch_id(&request.id, request.incarnation, attempt),
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
            // Stored before: by this loop if an answer was lost, or by an earlier process.
            Ok(Written::Won(Reserved::Known(known))) => return Ok(Reservation::found(known)),
            Ok(Written::Won(Reserved::Short(_))) if sabotage!("ceiling-is-only-advice") => {
                return Ok(new());
            }
            Ok(Written::Won(Reserved::Short(ceiling))) => return Err(ceiling.into()),
            // Reserving again is safe: it is idempotent on the intent.
            Ok(Written::Lost | Written::Unknown) => {}
            Err(fault) if fault.is_transient() => {}
            Err(fault) => return Err(port(fault)),
        }
        backoff.wait_until(stack, intent.deadline).await.map_err(port)?;
    }
}

/// A launch that failed.
#[derive(Debug)]
struct Refusal {
    fault: Fault,
    /// Whether its first try got a final answer, which proves that nothing was launched.
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
    // No capacity is an answer and not a fault: the same launch would get it again, and the ladder
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
    if launched.machines.is_empty() {
        let kind = LaunchKind {
            class: shape.class.name.clone(),
            allowed_types: request.allowed_types,
            usage: request.usage,
        };
        let (avoided, named) = (&intent.avoid, &launched.shortages);
        stack.shortages().note_nothing_came(kind, avoided, named, (&stack.limits, now));
    }
    if let Some(explanation) = &launched.explanation {
        stack.shortages().remember_words(explanation.clone(), &stack.limits, now);
    }
    for offering in &launched.shortages {
        tracing::info!(%offering, "cloud has no capacity for offering");
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

/// Stores a machine's first record. `None`: the ledger refused it and the machine ends, or the
/// ledger failed and the reconciler ends the machine.
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
            // Recording again is safe: it is idempotent on the instance id.
            Ok(Written::Lost | Written::Unknown) => {}
            Err(fault) if fault.is_transient() => {}
            Err(_) => return None,
        }
        backoff.wait(stack).await;
    }
    None
}

/// Gives back the reservation of machines that never came, once the launch has a final answer. If
/// this fails, the reconciler does it after the intent's deadline.
pub(crate) async fn return_rest<P: Ports>(stack: &Stack<P>, intent: &Intent) {
    let ledger = stack.ports.ledger();
    let Ok(Some(intent)) = retry_until(stack, intent.deadline, || ledger.intent(&intent.id)).await
    else {
        return;
    };
    if intent.outstanding > 0
        && let Err(fault) = ledger.give_back(&intent).await
    {
        tracing::info!(%fault, "reservation left for the reconciler to return");
    }
}
