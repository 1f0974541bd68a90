//! Creation: intent → launch → record → validate.
//!
//! The intent is durable before the launch, and the launch is idempotent on it, so a lost answer is
//! asked for again and never launches twice. Ids are recorded the moment they are known. What never
//! came is given back; what came and could not be recorded is ended.
//!
//! Not here: finding what a crash left between launch and record ([`crate::reconcile`]).

use bullpen_core::claim::{Outcome, Watched};
use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::creation::{Ceiling, CeilingReached, Intent, LaunchRequest};
use bullpen_core::ids::{IntentId, RequestId, Revision};
use bullpen_core::instance::{Facts, Owner, Record};
use bullpen_core::ports::{Fault, Launched, Ledger, Machine, Ports, Recorded, Reserved, Written};
use bullpen_core::request::{Request, TypePattern};
use bullpen_core::sabotage;
use futures_util::future::join_all;

use super::worker::{self, Attempt, Held, How, Terms};
use crate::Stack;
use crate::patience::{Waits, patiently};
use crate::tell::Told;

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

/// What one launch came to.
#[derive(Debug)]
pub struct Created {
    /// The runners that listen.
    pub ready: Vec<Held>,
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
        launch(stack, terms.request.into(), &intent).await?;
    }
    let intent = reserve(stack, &intent).await?;
    if intent.count != count {
        // It landed after we had been told that there is no room, and other machines came since.
        return_rest(stack, &intent).await;
        return Ok(None);
    }
    (terms.tell)(Told::Launching { machines: count });
    let records = match carry_out(stack, terms.request.into(), &intent).await {
        Ok(records) => records,
        Err(error) => {
            give_back_refused(stack, &intent, &error).await;
            return Err(error);
        }
    };
    let any_came = !records.is_empty();
    let validated = join_all(records.into_iter().map(|record| validate(stack, terms, record)));
    let ready = validated.await.into_iter().flatten().collect();
    Ok(Some(Created { ready, any_came }))
}

/// What machines are to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    /// Their class.
    pub(crate) class: &'a RunnerClass,
    /// Which types will do.
    pub(crate) allowed_types: &'a [TypePattern],
}

impl<'a> From<&'a Request> for Shape<'a> {
    fn from(request: &'a Request) -> Self {
        Self { class: &request.class, allowed_types: &request.allowed_types }
    }
}

/// Launches what an intent says and records what came. Doing so again does nothing anew.
pub(crate) async fn carry_out<P: Ports>(
    stack: &Stack<P>,
    shape: Shape<'_>,
    intent: &Intent,
) -> Result<Vec<Record>, CreationError> {
    let launched = launch(stack, shape, intent).await?;
    if sabotage!("rest-returned-before-recording") {
        return_rest(stack, intent).await;
    }
    let records = record_all(stack, intent, &launched).await;
    return_rest(stack, intent).await;
    Ok(records)
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
) -> Result<Intent, CreationError> {
    reserve_under(stack, intent, &stack.ceilings).await
}

/// Stores the intent under these ceilings.
pub(crate) async fn reserve_under<P: Ports>(
    stack: &Stack<P>,
    intent: &Intent,
    ceilings: &[Ceiling],
) -> Result<Intent, CreationError> {
    let port = |source| CreationError::Port { what: "reserve machines", source };
    let mut waits = Waits::default();
    loop {
        match stack.ports.ledger().reserve(intent, ceilings).await {
            Ok(Written::Won(Reserved::Granted)) => return Ok(intent.clone()),
            // Ours already: an answer that was lost, or an earlier run of the same request.
            Ok(Written::Won(Reserved::Known(known))) => return Ok(known),
            Ok(Written::Won(Reserved::Short(_))) if sabotage!("ceiling-is-only-advice") => {
                return Ok(intent.clone());
            }
            Ok(Written::Won(Reserved::Short(ceiling))) => return Err(ceiling.into()),
            // Asking again is safe: it is idempotent on the intent.
            Ok(Written::Lost | Written::Unknown) => {}
            Err(fault) if fault.is_transient() => {}
            Err(fault) => return Err(port(fault)),
        }
        waits.again(stack, intent.deadline).await.map_err(port)?;
    }
}

async fn launch<P: Ports>(
    stack: &Stack<P>,
    shape: Shape<'_>,
    intent: &Intent,
) -> Result<Launched, CreationError> {
    let now = stack.now();
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
        let anew = sabotage!("new-token-for-each-try").then(|| LaunchRequest {
            intent: IntentId::new(format!("{}-{}", request.intent, stack.now())),
            ..request.clone()
        });
        match stack.fleet().launch(anew.as_ref().unwrap_or(&request)).await {
            Err(Fault::NoCapacity) => Ok(Launched::default()),
            answer => answer,
        }
    };
    // It may have launched. The intent stays, and reconciliation accounts for it.
    let launched = patiently(stack, intent.deadline, launch)
        .await
        .map_err(|source| CreationError::Port { what: "launch machines", source })?;
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
        Facts::of(machine, intent),
        intent.owner.clone(),
        intent.trust.clone(),
        machine.launched_at.after(stack.limits.warm_up),
    );
    let mut waits = Waits::default();
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
        waits.wait(stack).await;
    }
    None
}

/// The cloud says no, whatever is asked again: what was reserved is kept from nobody, and the next
/// launch is another one. Returns whether that is so.
pub(crate) async fn give_back_refused<P: Ports>(
    stack: &Stack<P>,
    intent: &Intent,
    error: &CreationError,
) -> bool {
    let CreationError::Port { source, .. } = error else { return false };
    if source.is_transient() {
        return false;
    }
    return_rest(stack, intent).await;
    true
}

/// The launch has answered for good, so what is still outstanding will never come. If this does
/// not land, reconciliation gives it back after the intent's deadline.
pub(crate) async fn return_rest<P: Ports>(stack: &Stack<P>, intent: &Intent) {
    let ledger = stack.ports.ledger();
    let Ok(Some(intent)) = patiently(stack, intent.deadline, || ledger.intent(&intent.id)).await
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
) -> Option<Held> {
    let register_by = worker::register_by(stack, stack.now(), Watched::Created);
    let mut held = Held::new(record, None, How::Created);
    let mut outcome = worker::assign(stack, terms, &held.record, register_by).await;
    if outcome == Outcome::Done {
        held.assigned = terms.elapsed(stack);
        outcome = terms.lookout.watch(stack, &held.record, Watched::Created).await;
    }
    match outcome {
        Outcome::Done => Some(worker::ready(stack, terms, held)),
        Outcome::Failed(failure) => {
            match worker::remove(stack, terms, held, register_by, failure).await {
                Attempt::Ready(held) => Some(held),
                Attempt::TryAnother | Attempt::Closed(_) => None,
            }
        }
        // Left as it is: the request's failure, or the reaper, takes it back.
        Outcome::Lost | Outcome::StartRefused | Outcome::StartFailed | Outcome::Systemic(_) => None,
    }
}
