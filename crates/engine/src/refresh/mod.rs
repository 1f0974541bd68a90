//! Refresh: brings a stack to its desired state, step by step.
//!
//! Steps that need each other follow one another in a *lane*, and lanes run side by side: a lane that
//! hangs, because GitHub or a store is slow, stops no other. Refresh reports a failed step and goes on
//! with the next. Running refresh twice, or twice at once, is harmless. A dry run is the same code
//! over ports that write nothing ([`dry_run`]).
//!
//! Not here: reaping, reconciling and advertising; each has its own module.

use std::time::Duration;

use bullpen_core::class::RunnerClass;
use bullpen_core::ids::{ClassName, QueueName};
use bullpen_core::parameters::{KeptTokens, Parameters, QueuedClasses};
use bullpen_core::ports::{
    Fault, Forge, LearnedSite, Ledger, Ports, QueueKind, QueueSpec, Queues, Site,
};
use bullpen_core::site::SiteDocument;
use bullpen_core::time::Timestamp;
use futures_util::future::join_all;

use crate::Stack;
use crate::advertise::{AdvertMemory, readvertise};
use crate::branch::branch;
use crate::ending::end_noted;
use crate::reap::{end_due, take_back_due};
use crate::reconcile::reconcile;
use crate::retry::retry_until;
use crate::stored_parameters;

pub mod dry_run;
mod ghosts;
mod runs;

/// How long a received message of a class's queue stays hidden.
const VISIBILITY: Duration = Duration::from_secs(30);

/// The desired state of a stack.
#[derive(Clone, Debug)]
pub struct DesiredStack {
    /// The classes that have a queue.
    pub classes: Vec<RunnerClass>,
    /// Whether these are all classes. A process that could not read its configuration yet removes no
    /// queue.
    pub are_classes_known: bool,
    /// The parameters that this command sets.
    pub parameters: Parameters,
    /// How old kept tokens may become; `None` to keep no tokens.
    pub tokens_every: Option<Duration>,
    /// Whether the command may ask GitHub about runs.
    pub reads_runs: bool,
    /// Whether the command may ask GitHub about runners.
    pub manages_runners: bool,
}

/// The outcome of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// The step's name.
    pub step: &'static str,
    /// The changes made, in order, none if the state was as desired; or why the step failed.
    pub outcome: Result<Vec<String>, String>,
}

/// Steps that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// What launches need in the cloud.
    Site,
    /// The stack's parameters.
    Parameters,
    /// The classes' queues, and the adverts in them.
    Queues,
    /// The tokens kept for workflow steps.
    Tokens,
    /// Runs that ended without a release.
    Runs,
    /// The machines: what is to end, and what the ledger does not know.
    Machines,
    /// Machines that go back from their owners.
    Releases,
    /// GitHub's runners without a machine.
    Ghosts,
}

impl Lane {
    /// All of them, in the order in which a refresh reports.
    pub const ALL: [Self; 8] = [
        Self::Site,
        Self::Parameters,
        Self::Queues,
        Self::Tokens,
        Self::Runs,
        Self::Machines,
        Self::Releases,
        Self::Ghosts,
    ];
}

/// Brings the stack to its desired state, as far as it can; returns one report per step, in order.
pub async fn refresh<P: Ports>(
    stack: &Stack<P>,
    desired: &DesiredStack,
    memory: &AdvertMemory,
) -> Vec<StepReport> {
    let lanes = Lane::ALL.map(|lane| branch(run_lane(stack, lane, desired, memory)));
    join_all(lanes).await.into_iter().flatten().collect()
}

/// Runs the steps of one lane.
pub async fn run_lane<P: Ports>(
    stack: &Stack<P>,
    lane: Lane,
    desired: &DesiredStack,
    memory: &AdvertMemory,
) -> Vec<StepReport> {
    let mut reports = Vec::new();
    let mut report = |(step, outcome): (&'static str, Result<Vec<String>, Fault>)| {
        let outcome = outcome.map_err(|fault| fault.to_string());
        if let Err(why) = &outcome {
            tracing::warn!(step, why, "a step of refresh failed");
        }
        reports.push(StepReport { step, outcome });
    };
    let clock_error = stack.clock_error();
    match lane {
        Lane::Site => {
            report(step(stack, "ground", learn_site(stack)).await);
            let templates = stack.ports.site().prepare(&desired.classes, true);
            report(step(stack, "templates", templates).await);
        }
        Lane::Parameters => report(step(stack, "parameters", parameters(stack, desired)).await),
        Lane::Queues => {
            report(step(stack, "queues", queues(stack, desired)).await);
            let readvertised = advertising(stack, desired, memory);
            report(step(stack, "advertising", readvertised).await);
        }
        Lane::Tokens => {
            if let Some(every) = desired.tokens_every {
                report(step(stack, "tokens", tokens(stack, every)).await);
            }
        }
        Lane::Runs if desired.reads_runs => {
            report(step(stack, "ended runs", runs::release_ended(stack)).await);
        }
        Lane::Machines => match &clock_error {
            None => {
                report(step(stack, "reaping", reaping(stack)).await);
                report(step(stack, "reconciling", reconciling(stack)).await);
            }
            // Logged already, and not at each call.
            Some(error) => reports.push(StepReport {
                step: "clock",
                outcome: Err(format!("{error}: nothing was reaped or reconciled")),
            }),
        },
        Lane::Releases if clock_error.is_none() => {
            report(step(stack, "releasing", releasing(stack)).await);
        }
        Lane::Ghosts if desired.manages_runners && clock_error.is_none() => {
            report(step(stack, "ghosts", ghosts::remove(stack)).await);
        }
        Lane::Runs | Lane::Releases | Lane::Ghosts => {}
    }
    reports
}

/// Runs one step; a panic is its failure.
fn step<P: Ports>(
    stack: &Stack<P>,
    name: &'static str,
    work: impl Future<Output = Result<Vec<String>, Fault>>,
) -> impl Future<Output = (&'static str, Result<Vec<String>, Fault>)> {
    let work = stack.caught("step", name, work);
    async move { (name, work.await.unwrap_or_else(|defect| Err(defect.into()))) }
}

/// Until when a step retries one call.
fn retry_deadline<P: Ports>(stack: &Stack<P>) -> Timestamp {
    stack.now().after(stack.limits.release_retry)
}

/// Asks the cloud for what launches need, because an operator may have changed it. The time of the
/// stack's creation is stored once: two processes that create the stack at the same time must agree
/// on it, because launches are recognised by it.
pub async fn learn_site<P: Ports>(stack: &Stack<P>) -> Result<Vec<String>, Fault> {
    let until = retry_deadline(stack);
    let known = stored_parameters::load::<P, SiteDocument>(stack, until).await?;
    let born = known.as_ref().map_or_else(|| stack.now().to_string(), |known| known.born.clone());
    let learned = stack.ports.site().learn(&born, known.as_ref()).await?;
    let Some(LearnedSite { document, what }) = learned else { return Ok(Vec::new()) };
    let keep = |before: Option<SiteDocument>| document.clone().over(before.as_ref());
    let changed = stored_parameters::update(stack, until, keep).await?;
    if known.is_none()
        && let Some(kept) = stored_parameters::load::<P, SiteDocument>(stack, until).await?
        && kept.born != document.born
    {
        stack.ports.site().learn(&kept.born, Some(&kept)).await?;
    }
    Ok(if changed { vec![format!("learned {what}")] } else { Vec::new() })
}

async fn parameters<P: Ports>(
    stack: &Stack<P>,
    desired: &DesiredStack,
) -> Result<Vec<String>, Fault> {
    let merge =
        |before: Option<Parameters>| desired.parameters.clone().over(before.unwrap_or_default());
    let changed = stored_parameters::update(stack, retry_deadline(stack), merge).await?;
    Ok(if changed { vec!["stored the parameters".to_owned()] } else { Vec::new() })
}

/// Makes one queue per class. A class that was removed keeps its queue until none of its machines
/// is idle.
async fn queues<P: Ports>(stack: &Stack<P>, desired: &DesiredStack) -> Result<Vec<String>, Fault> {
    let until = retry_deadline(stack);
    let wanted: std::collections::BTreeSet<ClassName> =
        desired.classes.iter().map(|class| class.name.clone()).collect();
    let known = stored_parameters::load::<P, QueuedClasses>(stack, until)
        .await?
        .unwrap_or_default()
        .classes;
    // Stored before the queues are made: refresh would never remove a queue that is not stored.
    let all = QueuedClasses { classes: known.union(&wanted).cloned().collect() };
    stored_parameters::update(stack, until, |_| all.clone()).await?;
    let (mut done, mut failed) = (Vec::new(), None);
    for class in &wanted {
        let spec = queue_spec(stack, class);
        match retry_until(stack, until, || stack.ports.queues().ensure(&spec)).await {
            Ok(()) if known.contains(class) => {}
            Ok(()) => done.push(format!("made the queue of class {class}")),
            Err(fault) => failed = Some(fault),
        }
    }
    let removed = known.difference(&wanted).filter(|_| desired.are_classes_known);
    for class in removed {
        let idle = retry_until(stack, until, || stack.ports.ledger().idle_in(class)).await?;
        let idle = stack.readable(idle);
        if !idle.is_empty() {
            done.push(format!("class {class} is drained: {} machines are left", idle.len()));
            continue;
        }
        match stack.ports.queues().remove(&stack.queue_of(class)).await {
            Ok(()) | Err(Fault::NotFound) => {}
            Err(fault) => return Err(fault),
        }
        let forgotten = |kept: Option<QueuedClasses>| {
            let mut kept = kept.unwrap_or_default();
            kept.classes.remove(class);
            kept
        };
        stored_parameters::update(stack, until, forgotten).await?;
        done.push(format!("removed the queue of class {class}"));
    }
    failed.map_or(Ok(done), Err)
}

/// The specification of a class's queue.
pub fn queue_spec<P: Ports>(stack: &Stack<P>, class: &ClassName) -> QueueSpec {
    let name: QueueName = stack.queue_of(class);
    QueueSpec {
        name,
        kind: QueueKind::Standard,
        visibility: VISIBILITY,
        retention: stack.limits.pool_queue_retention,
        dead_letters: None,
    }
}

/// Replaces the kept tokens before they are too old. The ledger is the only place that has them.
async fn tokens<P: Ports>(stack: &Stack<P>, every: Duration) -> Result<Vec<String>, Fault> {
    let until = retry_deadline(stack);
    let kept = match stored_parameters::load::<P, KeptTokens>(stack, until).await {
        // A workflow step with a credential of its own needs no tokens, and keeps none for others.
        Err(Fault::Denied(why)) => {
            tracing::info!(why, "keeps no tokens; role may not use them");
            return Ok(Vec::new());
        }
        other => other?,
    };
    let now = stack.now();
    if kept.is_some_and(|kept| now.since(kept.minted_at) < every && now < kept.expires_at) {
        // Repeated here: the process that stored the tokens may have died before this.
        stored_parameters::spend_older_tokens(stack, until).await?;
        return Ok(Vec::new());
    }
    let minted = retry_until(stack, until, || stack.ports.forge().tokens()).await?;
    let next = KeptTokens {
        registration: minted.registration,
        removal: minted.removal,
        minted_at: now,
        expires_at: minted.expires_at,
    };
    stored_parameters::update(stack, until, |_| next.clone()).await?;
    stored_parameters::spend_older_tokens(stack, until).await?;
    Ok(vec![format!("kept new tokens until {}", next.expires_at)])
}

async fn reaping<P: Ports>(stack: &Stack<P>) -> Result<Vec<String>, Fault> {
    let reaped = end_due(stack).await?;
    Ok(counted(&[(reaped.condemned, "past their time, ending"), (reaped.buried, "confirmed gone")]))
}

async fn releasing<P: Ports>(stack: &Stack<P>) -> Result<Vec<String>, Fault> {
    let taken = take_back_due(stack).await;
    // What was condemned on the way ends at once.
    let ended = end_noted(stack).await;
    let counts = counted(&[(taken?, "taken back from an owner whose time was up")]);
    ended.map(|_| counts)
}

async fn reconciling<P: Ports>(stack: &Stack<P>) -> Result<Vec<String>, Fault> {
    let found = reconcile(stack).await?;
    Ok(counted(&[
        (found.orphans_ended, "without a record, ended"),
        (found.records_condemned, "recorded and gone"),
        (found.intents_given_back, "launches given up"),
    ]))
}

fn counted(counts: &[(usize, &str)]) -> Vec<String> {
    let some = counts.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("{count} {what}")).collect()
}

async fn advertising<P: Ports>(
    stack: &Stack<P>,
    desired: &DesiredStack,
    memory: &AdvertMemory,
) -> Result<Vec<String>, Fault> {
    let (mut done, mut failed) = (Vec::new(), None);
    for class in &desired.classes {
        match readvertise(stack, &class.name, memory).await {
            Ok(0) => {}
            Ok(sent) => done.push(format!("advertised {sent} idle of class {} again", class.name)),
            // The queue of another class may be there.
            Err(fault) => failed = Some(fault),
        }
    }
    failed.map_or(Ok(done), Err)
}
