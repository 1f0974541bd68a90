//! Destroys a stack at AWS: its machines, launch templates, queues and tables, and no other
//! stack's.
//!
//! It finds machines and templates by the stack's tag, tables by their whole names, and queues by
//! the ledger's list. It never searches by a prefix, because `prod` is a prefix of `prod-2`.
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

use super::{Failure, PROCESSES, Wait, cannot_end, remove_state};
use crate::inputs::StackInputs;
use crate::runtime::{self, Command, GithubAccess, IfMissing, Runtime, RuntimePlan};

/// The wait for machines in EC2, which need a minute or two.
const INSTANCES: Wait =
    Wait { within: Duration::from_secs(10 * 60), every: Duration::from_secs(3) };

/// The text of what `destroy` does, after "it".
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

/// Destroys a stack at AWS: its machines first and its tables last, so that an interrupted command
/// can run again. A missing part is no error.
pub(super) async fn destroy(plan: &RuntimePlan<'_>) -> Result<Destroyed, Failure> {
    let stack = &plan.common.stack;
    if !stack.is_on_this_machine() {
        runtime::ec2::configured(plan.file, stack)?;
    }
    let site = runtime::aws::AwsSite::find(plan).await?;
    let has_ledger = site.has_ledger().await?;
    let mut destroyed = runtime::run(plan, DestroyCommand { stack, has_ledger }).await??;
    destroyed.dismantled.extend(site.remove_tables().await?);
    if stack.is_on_this_machine() {
        remove_state(&stack.state)?;
    }
    Ok(destroyed)
}

/// `bullpen destroy` for a stack at AWS, once its arguments are read.
struct DestroyCommand<'a> {
    stack: &'a StackInputs,
    has_ledger: bool,
}

impl Command for DestroyCommand<'_> {
    type Outcome = Result<Destroyed, Failure>;

    fn if_missing(&self) -> IfMissing {
        if self.has_ledger { IfMissing::Refuse } else { IfMissing::GoWithout }
    }

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let wait = if self.stack.is_on_this_machine() { PROCESSES } else { INSTANCES };
        let (stack, until) = (&runtime.stack, runtime.stack.now().after(wait.within));
        let destroyed = if self.has_ledger {
            end_everything(stack, until, wait.every).await
        } else {
            destroy_unrecorded(stack, until, wait.every).await
        };
        let mut destroyed = destroyed.map_err(|fault| cannot_end(&fault))?;
        let removed = remove_queues(&runtime, self.has_ledger).await;
        let removed = removed.map_err(|fault| Failure::of("could not remove queues", &fault))?;
        destroyed.dismantled.extend(removed);
        Ok(destroyed)
    }
}

/// Removes the queues of the classes in the ledger and in the configuration, and the service's own
/// queues.
async fn remove_queues<P: Ports>(
    runtime: &Runtime<P>,
    has_ledger: bool,
) -> Result<Vec<String>, Fault> {
    let stack = &runtime.stack;
    let stored: Option<QueuedClasses> =
        if has_ledger { stored_parameters::load(stack, stack.now()).await? } else { None };
    let mut classes = stored.unwrap_or_default().classes;
    classes.extend(runtime.classes.iter().map(|class| class.name.clone()));
    let mut queues: BTreeSet<QueueName> =
        classes.iter().map(|class| stack.queue_of(class)).collect();
    queues.extend([pool_queue(stack), launch_queue(stack), dead_letter_queue(stack)]);
    let mut removed = Vec::new();
    for queue in queues {
        match stack.ports.queues().depth(&queue).await {
            Err(Fault::NotFound) => continue,
            Err(fault) => return Err(fault),
            Ok(_) => {}
        }
        match stack.ports.queues().remove(&queue).await {
            Ok(()) | Err(Fault::NotFound) => removed.push(format!("removed queue {queue}")),
            Err(fault) => return Err(fault),
        }
    }
    Ok(removed)
}
