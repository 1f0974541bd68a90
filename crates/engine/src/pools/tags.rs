//! Tags: show operators the status of a pool's machines in the cloud's own console. The process
//! that keeps the pool writes only tags that differ, and of all tags relies only on `job_started`.
//!
//! Not here: deriving a machine's status (`core::instance::standby`).

use std::collections::BTreeMap;

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::standby::{StandbyStatus, standby_status};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Fault, MachineState, Ports, Tag};

use super::survey::SurveyedPool;
use crate::Stack;

/// Writes the tags that differ. The next pass writes those that fail.
pub(super) async fn write<P: Ports>(stack: &Stack<P>, found: &SurveyedPool) {
    let (statuses, started) = differences(found);
    let statuses = statuses.into_iter().map(|(status, ids)| (Tag::Standby(status), ids));
    for (tag, ids) in statuses.chain([(Tag::JobStarted, started)]) {
        for batch in ids.chunks(IDS_PER_CALL_MAX) {
            let Err(fault) = stack.fleet().tag(batch, tag).await else { continue };
            tracing::info!(pool = %found.pool, %fault, "could not tag machines");
            // What the cloud denies is one machine of the call; it has tagged the others.
            if !matches!(fault, Fault::Denied(_) | Fault::Unreadable(_)) {
                return;
            }
        }
    }
}

type Differences = (BTreeMap<StandbyStatus, Vec<InstanceId>>, Vec<InstanceId>);

fn differences(found: &SurveyedPool) -> Differences {
    let (mut statuses, mut started) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    for one in &found.observed.instances {
        let id = &one.record.id;
        let Some(machine) = found.machines.get(id) else { continue };
        if machine.state == MachineState::Gone {
            continue;
        }
        if let Some(status) = standby_status(&one.record)
            && machine.tags.standby != Some(status)
        {
            statuses.entry(status).or_default().push(id.clone());
        }
        if found.begun_jobs.contains(id) && !machine.tags.job_started {
            started.push(id.clone());
        }
    }
    (statuses, started)
}
