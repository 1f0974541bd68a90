//! What becomes of a machine after its job: it ends, or it serves others of its trust group.
//!
//! That is decided once, by whoever works off the end of the job. A machine that is to serve on has
//! it in its job's row before it is returned, so that anybody can return it; about a machine of which
//! the row says nothing, nothing is assumed but that it ends.
//!
//! Not here: the handshake before that (`bullpen-engine`), or how old and worn a machine of any owner
//! may become (`limits`).

use serde::{Deserialize, Serialize};

use super::{CodeRules, EndTasks, Job, JobMachine, JobState, Origin};
use crate::config::runner::Reuse;
use crate::ids::InstanceId;
use crate::instance::{EndReason, Record};
use crate::sabotage;
use crate::time::Timestamp;

/// What becomes of a machine that a job had for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterJob {
    /// It serves others of its trust group.
    Pool,
    /// It ends.
    End(EndReason),
}

/// Why a machine ends with its job, whatever code ran in it; none if the code decides. `reuse` is
/// what its class says about serving more than once.
pub fn ends_anyway(
    job: &Job,
    held: &JobMachine,
    record: &Record,
    reuse: Option<&Reuse>,
    now: Timestamp,
) -> Option<EndReason> {
    let Some(reuse) = reuse else { return Some(EndReason::WornOut) };
    let age = now.since(record.facts.launched_at);
    if reuse.max_uses.is_some_and(|most| record.uses >= most)
        || reuse.max_age.is_some_and(|most| age >= most)
    {
        return Some(EndReason::WornOut);
    }
    // Its own job ran elsewhere, so nobody knows who ran here.
    let elsewhere = job.known.runner().is_some_and(|runner| *runner != held.runner);
    elsewhere.then_some(EndReason::Untrusted)
}

/// What becomes of a machine whose code decides. Code of which nobody said whose it is ends it.
pub fn after_job(origin: Option<Origin>, rules: &CodeRules) -> AfterJob {
    match origin {
        Some(Origin::Fork) if sabotage!("forks-are-trusted") => AfterJob::Pool,
        Some(origin) if rules.trusts(origin) => AfterJob::Pool,
        Some(_) | None => AfterJob::End(EndReason::Untrusted),
    }
}

impl Job {
    /// What becomes of a machine that is being taken back from this job; none while that is yet to
    /// be decided. `ran` says whether a job was seen on it.
    pub fn says_of(&self, instance: &InstanceId, ran: bool) -> Option<AfterJob> {
        let JobState::Ended { debts: EndTasks { release: Some(held), after, .. }, .. } =
            &self.state
        else {
            return Some(AfterJob::End(EndReason::WornOut));
        };
        if held.instance != *instance {
            return Some(AfterJob::End(EndReason::WornOut));
        }
        if ran && self.known.runner() != Some(&held.runner) {
            return Some(AfterJob::End(EndReason::Untrusted));
        }
        *after
    }
}
