//! Ghosts: runners at GitHub that belong to no machine any more. Refresh removes them.
//!
//! A runner without a record may be registering at this moment, or its machine may be restarting
//! its listener. So refresh removes a runner only if it was offline in two sweeps, a grace apart,
//! and a job's runner only if the job does not wait for it.
//!
//! Not here: runners of other stacks; the forge lists only runners with the stack's prefix.

use std::collections::BTreeSet;

use bullpen_core::claim::Deletion;
use bullpen_core::ids::{Generation, InstanceId, RunnerName};
use bullpen_core::instance::{Record, State};
use bullpen_core::parameters::OfflineRunners;
use bullpen_core::ports::{Fault, Forge, Ports};
use bullpen_core::sabotage;

use super::retry_deadline;
use crate::Stack;
use crate::jobs::runners;
use crate::reconcile::live_records;
use crate::retry::retry_until;
use crate::stored_parameters;

/// Makes one sweep.
pub(super) async fn remove<P: Ports>(stack: &Stack<P>) -> Result<Vec<String>, Fault> {
    let until = retry_deadline(stack);
    // Listed first, so that the list has no runner of a record that is written meanwhile.
    let listed = retry_until(stack, until, || stack.ports.forge().runners()).await?;
    let records = live_records(stack).await?;
    let known: BTreeSet<RunnerName> =
        records.iter().flat_map(|record| runners_of(stack, record)).collect();
    let offline: BTreeSet<RunnerName> = listed
        .into_iter()
        .filter(|runner| !runner.online || sabotage!("ghosts-need-not-be-offline"))
        .filter(|runner| !runner.busy && !known.contains(&runner.name))
        .map(|runner| runner.name)
        .collect();
    let (grace, now) = (stack.limits.reconcile_grace, stack.now());
    let before =
        stored_parameters::load::<P, OfflineRunners>(stack, until).await?.unwrap_or_default();
    let (mut suspects, ghosts) = before.after(&offline, grace, now);
    let mut done = Vec::new();
    if sabotage!("ghosts-are-left") {
        return Ok(Vec::new());
    }
    let live: BTreeSet<&InstanceId> = records.iter().map(|record| &record.id).collect();
    for ghost in ghosts {
        // A job's runner is named after its job, so only the job row knows it. Without an answer
        // from the ledger the sweep keeps this runner and goes on with the others.
        let awaited = runners::is_awaited(stack, &ghost, |id| live.contains(id), until).await;
        if awaited.unwrap_or(true) {
            continue;
        }
        match stack.ports.forge().delete(&ghost).await {
            Deletion::Deleted | Deletion::NotFound => {
                suspects.since.remove(&ghost);
                done.push(format!("removed {ghost}, which belonged to no machine"));
            }
            Deletion::Busy | Deletion::Unavailable => {}
        }
    }
    stored_parameters::update(stack, until, |_| suspects.clone()).await?;
    Ok(done)
}

/// The names under which a machine may be registered, by its record. A machine that is being
/// released was assigned one generation earlier.
fn runners_of<P: Ports>(stack: &Stack<P>, record: &Record) -> Vec<RunnerName> {
    let generation = record.generation;
    let earlier = Generation(generation.0.saturating_sub(1));
    let generations = match record.state {
        State::Running { .. } if sabotage!("ghosts-need-not-be-offline") => Vec::new(),
        State::Created { .. } | State::Claimed { .. } | State::Running { .. } => vec![generation],
        State::Releasing { .. } => vec![generation, earlier],
        _ => Vec::new(),
    };
    generations.into_iter().map(|each| stack.runner_name(&record.id, each)).collect()
}
