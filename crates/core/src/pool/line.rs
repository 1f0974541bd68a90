//! Jobs that look for a machine of one pool together: the first job that looks, looks for all of
//! them, and no job is sent to a machine that another job was sent to.
//!
//! The line skips a stopped machine of a kind that the cloud was just short of: the cloud would
//! refuse to start it as well.
//!
//! Not here: the order of machines and jobs ([`pick`]), or listing the pool.

use std::collections::{BTreeMap, BTreeSet};

use super::pick::{PickedMachine, WaitingJob, pick, withheld};
use crate::creation::Offering;
use crate::ids::{Generation, InstanceId};
use crate::instance::{Record, State, Tier};
use crate::limits::Limits;
use crate::time::Timestamp;

/// An idle machine as the look saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleMachine {
    /// Which machine.
    pub id: InstanceId,
    /// Its generation then: the worker claims the machine at this generation only.
    pub generation: Generation,
    /// Its tier: the worker must start a stopped machine.
    pub tier: Tier,
}

/// The result of a look for one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineResult {
    /// This machine.
    Machine(IdleMachine),
    /// No machine.
    Nothing {
        /// How many machines it may not have because they are used.
        withheld: usize,
    },
}

/// Jobs of one pool, and the results for them.
#[derive(Clone, Debug, Default)]
pub struct PoolLine {
    /// The jobs that the next look is for, in their order.
    waiting: Vec<WaitingJob>,
    found: BTreeMap<WaitingJob, LineResult>,
    /// Machines that jobs were sent to: each is lost, or about to be claimed.
    given: BTreeSet<InstanceId>,
}

impl PoolLine {
    /// Adds a job, behind the others.
    pub fn join(&mut self, seeker: WaitingJob) {
        self.waiting.push(seeker);
    }

    /// Takes the result for this job. If there is none, the caller must look: there was no look for
    /// the job yet, or its machine was lost.
    pub fn take(&mut self, seeker: &WaitingJob) -> Option<LineResult> {
        self.found.remove(seeker)
    }

    /// Looks at the pool for this job, and for every job that waits for a look.
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
        records.retain(|record| !self.is_skipped(record, short));
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

    /// Offers this machine to other jobs again: the job that was sent to it may not have it.
    pub fn put_back(&mut self, id: &InstanceId) {
        self.given.remove(id);
    }

    fn is_skipped(&self, record: &Record, short: &BTreeSet<Offering>) -> bool {
        let is_stopped = matches!(record.state, State::Idle { tier: Tier::Stopped, .. });
        self.given.contains(&record.id) || is_stopped && short.contains(&record.facts.offering())
    }
}
