//! Jobs that look for a machine of one pool together: whoever looks first looks for all of them, and
//! nobody is sent where another one was sent before.
//!
//! A stopped machine of a kind that the cloud was just short of is passed over: it would be refused
//! as well.
//!
//! Not here: the order of machines and jobs ([`pick`]), or listing the pool.

use std::collections::{BTreeMap, BTreeSet};

use super::pick::{PickedMachine, WaitingJob, pick, withheld};
use crate::creation::Offering;
use crate::ids::{Generation, InstanceId};
use crate::instance::{Record, State, Tier};
use crate::limits::Limits;
use crate::time::Timestamp;

/// An idle machine as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleMachine {
    /// Which machine.
    pub id: InstanceId,
    /// At which generation: whoever claims it claims it as it was seen.
    pub generation: Generation,
    /// What it is; one that is stopped has to be started.
    pub tier: Tier,
}

/// What a look brought for one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineResult {
    /// This machine.
    Machine(IdleMachine),
    /// There is none for it.
    Nothing {
        /// How many machines it was kept from because others used them.
        withheld: usize,
    },
}

/// Jobs of one pool, and what was found for them.
#[derive(Clone, Debug, Default)]
pub struct PoolLine {
    /// Whoever is looked for when somebody looks first, in their order.
    waiting: Vec<WaitingJob>,
    found: BTreeMap<WaitingJob, LineResult>,
    /// Where somebody was sent: it was lost, or is about to be claimed.
    given: BTreeSet<InstanceId>,
}

impl PoolLine {
    /// Adds a job, behind the others.
    pub fn join(&mut self, seeker: WaitingJob) {
        self.waiting.push(seeker);
    }

    /// What was found for this job, once. Without an answer somebody has to look: nobody has yet, or
    /// what was found was lost.
    pub fn take(&mut self, seeker: &WaitingJob) -> Option<LineResult> {
        self.found.remove(seeker)
    }

    /// Looks at the pool for this job, and for everybody who has not been looked for.
    pub fn look(
        &mut self,
        seeker: &WaitingJob,
        mut records: Vec<Record>,
        short: &BTreeSet<Offering>,
        limits: &Limits,
        now: Timestamp,
    ) {
        let mut seekers = std::mem::take(&mut self.waiting);
        if !seekers.contains(seeker) {
            seekers.push(seeker.clone());
        }
        records.retain(|record| !self.is_passed_over(record, short));
        for PickedMachine { job, record, tier } in pick(&records, &seekers, limits, now) {
            self.given.insert(record.id.clone());
            let (id, generation) = (record.id.clone(), record.generation);
            let sighting = IdleMachine { id, generation, tier };
            if let Some(seeker) = seekers.iter().find(|seeker| seeker.job == job) {
                self.found.insert(seeker.clone(), LineResult::Machine(sighting));
            }
        }
        records.retain(|record| !self.given.contains(&record.id));
        for seeker in seekers {
            let withheld = withheld(&records, &seeker, limits, now);
            self.found.entry(seeker).or_insert(LineResult::Nothing { withheld });
        }
    }

    /// The job that was sent to this machine may not have it: it is there for the others again.
    pub fn put_back(&mut self, id: &InstanceId) {
        self.given.remove(id);
    }

    fn is_passed_over(&self, record: &Record, short: &BTreeSet<Offering>) -> bool {
        let is_stopped = matches!(record.state, State::Idle { tier: Tier::Stopped, .. });
        self.given.contains(&record.id) || is_stopped && short.contains(&record.facts.offering())
    }
}
