//! Refresh: brings a stack to its desired state, step by step.
//!
//! The steps are independent: refresh reports a failed step and goes on with the next. Running
//! refresh twice, or twice at once, is harmless. A dry run is the same code over ports that write
//! nothing ([`dry_run`]).
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

use crate::Stack;
use crate::advertise::{AdvertMemory, readvertise};
use crate::reap::reap;
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

/// Brings the stack to its desired state, as far as it can; returns one report per step, in order.
pub async fn refresh<P: Ports>(
    stack: &Stack<P>,
    desired: &DesiredStack,
    memory: &mut AdvertMemory,
) -> Vec<StepReport> {
    let mut reports = Vec::new();
    let mut report = |(step, outcome): (&'static str, Result<Vec<String>, Fault>)| {
        let outcome = outcome.map_err(|fault| fault.to_string());
        if let Err(why) = &outcome {
            tracing::warn!(step, why, "a step of refresh failed");
        }
        reports.push(StepReport { step, outcome });
    };
    report(step(stack, "ground", learn_site(stack)).await);
    report(step(stack, "parameters", parameters(stack, desired)).await);
    report(step(stack, "queues", queues(stack, desired)).await);
    let templates = stack.ports.site().prepare(&desired.classes, true);
    report(step(stack, "templates", templates).await);
    if let Some(every) = desired.tokens_every {
        report(step(stack, "tokens", tokens(stack, every)).await);
    }
    if desired.reads_runs {
        report(step(stack, "ended runs", runs::release_ended(stack)).await);
    }
    let clock_error = stack.clock_error();
    if clock_error.is_none() {
        report(step(stack, "reaping", reaping(stack)).await);
        report(step(stack, "reconciling", reconciling(stack)).await);
    }
    let readvertised = advertising(stack, desired, memory);
    report(step(stack, "advertising", readvertised).await);
    if desired.manages_runners && clock_error.is_none() {
        report(step(stack, "ghosts", ghosts::remove(stack)).await);
    }
    // Logged already, and not at each call.
    reports.extend(clock_error.map(|error| StepReport {
        step: "clock",
        outcome: Err(format!("{error}: nothing was reaped or reconciled")),
    }));
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
    let mut done = Vec::new();
    for class in &wanted {
        let spec = queue_spec(stack, class);
        retry_until(stack, until, || stack.ports.queues().ensure(&spec)).await?;
        if !known.contains(class) {
            done.push(format!("made the queue of class {class}"));
        }
    }
    for class in known.difference(&wanted) {
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
    Ok(done)
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
    let reaped = reap(stack).await?;
    Ok(counted(&[
        (reaped.condemned, "past their time, ending"),
        (reaped.withdrawn, "taken back from an owner whose time was up"),
        (reaped.buried, "confirmed gone"),
    ]))
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
    memory: &mut AdvertMemory,
) -> Result<Vec<String>, Fault> {
    let mut done = Vec::new();
    for class in &desired.classes {
        let sent = readvertise(stack, &class.name, memory).await?;
        if sent > 0 {
            done.push(format!("advertised {sent} idle of class {} again", class.name));
        }
    }
    Ok(done)
}
