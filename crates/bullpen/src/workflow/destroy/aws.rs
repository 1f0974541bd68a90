//! Destroying a stack at AWS: machines, launch templates, queues, tables; and nothing that is another's.
//!
//! Machines and templates are known by the stack's tag, tables by their whole names, queues by what the
//! ledger remembers: `prod` and `prod-2` begin the same, so nothing is found by how its name begins.
//!
//! Not here: ending machines (`bullpen_engine::destroy`).

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::ids::QueueName;
use bullpen_core::parameters::QueuedClasses;
use bullpen_core::ports::{Fault, Ports, Queues as _};
use bullpen_engine::destroy::{Destroyed, destroy as end_everything, destroy_unrecorded};
use bullpen_engine::jobs::{dead_letter_queue, launch_queue, pool_queue};
use bullpen_engine::stored_parameters;

use super::{Failure, PROCESSES, Patience, cannot_end, remove_state};
use crate::inputs::StackInputs;
use crate::runtime::{self, Command, GithubAccess, IfMissing, Runtime, RuntimePlan};

/// How long machines in a cloud may take to be gone: they need a minute or two.
const INSTANCES: Patience =
    Patience { within: Duration::from_secs(10 * 60), every: Duration::from_secs(3) };

/// What it does, after "it".
pub(super) fn would(inputs: &StackInputs, name: &str) -> String {
    let machines = if inputs.is_on_this_machine() {
        format!("every machine of {}", inputs.state.display())
    } else {
        format!("every instance and removes every launch template tagged bullpen:stack={name}")
    };
    format!(
        "ends {machines}, removes the queues of stack {name}, and the tables {name}-state and \
         {name}-mailbox"
    )
}

/// A stack at AWS: its machines first, its tables last, so that whoever is interrupted can begin again.
/// What is gone already is no error.
pub(super) async fn destroy(plan: &RuntimePlan<'_>) -> Result<Destroyed, Failure> {
    let stack = &plan.common.stack;
    if !stack.is_on_this_machine() {
        runtime::ec2::configured(plan.file, stack)?;
    }
    let site = runtime::aws::AwsSite::find(plan).await?;
    let has_ledger = site.has_ledger().await?;
    let mut destroyed = runtime::run(plan, TearingDown { stack, has_ledger }).await??;
    destroyed.dismantled.extend(site.remove_tables().await?);
    if stack.is_on_this_machine() {
        remove_state(&stack.state)?;
    }
    Ok(destroyed)
}

/// A stack that is about to go.
struct TearingDown<'a> {
    stack: &'a StackInputs,
    has_ledger: bool,
}

impl Command for TearingDown<'_> {
    type Outcome = Result<Destroyed, Failure>;

    fn if_missing(&self) -> IfMissing {
        if self.has_ledger { IfMissing::Refuse } else { IfMissing::GoWithout }
    }

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let patience = if self.stack.is_on_this_machine() { PROCESSES } else { INSTANCES };
        let (stack, until) = (&runtime.stack, runtime.stack.now().after(patience.within));
        let destroyed = if self.has_ledger {
            end_everything(stack, until, patience.every).await
        } else {
            destroy_unrecorded(stack, until, patience.every).await
        };
        let mut destroyed = destroyed.map_err(|fault| cannot_end(&fault))?;
        let removed = remove_queues(&runtime, self.has_ledger).await;
        let removed = removed.map_err(|fault| Failure::of("could not remove queues", &fault))?;
        destroyed.dismantled.extend(removed);
        Ok(destroyed)
    }
}

/// Removes the queues that the ledger remembers, those of the configured classes, and the service's own.
async fn remove_queues<P: Ports>(
    runtime: &Runtime<P>,
    has_ledger: bool,
) -> Result<Vec<String>, Fault> {
    let stack = &runtime.stack;
    let remembered: Option<QueuedClasses> =
        if has_ledger { stored_parameters::load(stack, stack.now()).await? } else { None };
    let mut classes = remembered.unwrap_or_default().classes;
    classes.extend(runtime.classes.iter().map(|class| class.name.clone()));
    let mut queues: BTreeSet<QueueName> =
        classes.iter().map(|class| stack.queue_of(class)).collect();
    queues.extend([pool_queue(stack), launch_queue(stack), dead_letter_queue(stack)]);
    let mut done = Vec::new();
    for queue in queues {
        match stack.ports.queues().depth(&queue).await {
            Err(Fault::NotFound) => continue,
            Err(fault) => return Err(fault),
            Ok(_) => {}
        }
        match stack.ports.queues().remove(&queue).await {
            Ok(()) | Err(Fault::NotFound) => done.push(format!("removed queue {queue}")),
            Err(fault) => return Err(fault),
        }
    }
    Ok(done)
}
