//! What happens to a machine after its job: it ends, or it serves other jobs of its trust group.
//!
//! The process that works off the job's end decides this once. If the machine is to serve on, the
//! process writes that to the job's row before it returns the machine, so that every replica can
//! return it. A machine about which the row says nothing ends.
//!
//! Not here: the handshake before that (`bullpen-engine`), or the largest age and number of uses of
//! any machine (`limits`).

use serde::{Deserialize, Serialize};

use super::{CodeRules, EndTasks, Job, JobState, Origin};
use crate::config::runner::Reuse;
use crate::ids::InstanceId;
use crate::instance::{EndReason, Record};
use crate::sabotage;
use crate::time::Timestamp;

/// What happens to a machine after its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterJob {
    /// It serves other jobs of its trust group.
    Pool,
    /// It ends.
    End(EndReason),
}

/// Why a machine ends with its job no matter whose code ran on it; none if the code decides.
/// `reuse` is the rule of its class about serving more than once.
pub fn ends_anyway(record: &Record, reuse: Option<&Reuse>, now: Timestamp) -> Option<EndReason> {
    let Some(reuse) = reuse else { return Some(EndReason::WornOut) };
    let age = now.since(record.facts.launched_at);
    let is_worn = reuse.max_uses.is_some_and(|most| record.uses >= most)
        || reuse.max_age.is_some_and(|most| age >= most);
    is_worn.then_some(EndReason::WornOut)
}

/// What happens to a machine by the origin of the code that ran on it. An unknown origin ends it.
pub fn after_job(origin: Option<Origin>, rules: &CodeRules) -> AfterJob {
    match origin {
        Some(Origin::Fork) if sabotage!("forks-are-trusted") => AfterJob::Pool,
        Some(origin) if rules.trusts(origin) => AfterJob::Pool,
        Some(_) | None => AfterJob::End(EndReason::Untrusted),
    }
}

impl Job {
    /// What happens to a machine that is being released from this job; none while that is
    /// undecided. `ran` says whether the agent saw a job on it.
    pub fn says_of(&self, instance: &InstanceId, ran: bool) -> Option<AfterJob> {
        let (held, after) = match &self.state {
            JobState::Ended { debts: EndTasks { release: Some(held), after, .. }, .. } => {
                (held, *after)
            }
            JobState::Assigned { held, after, .. }
                if after.is_some() || self.taken_by.is_some() =>
            {
                (held, *after)
            }
            _ => return Some(AfterJob::End(EndReason::WornOut)),
        };
        if held.instance != *instance {
            return Some(AfterJob::End(EndReason::WornOut));
        }
        // No row says whose code it was.
        if ran && self.taken_by.is_none() && self.known.runner() != Some(&held.runner) {
            return Some(AfterJob::End(EndReason::Untrusted));
        }
        after
    }
}
