//! Idle machines for jobs: of their pools, and of their classes' resource pools.
//!
//! Jobs that one worker received together share one read of their pool, and get different machines.
//! Each attempt claims its own machine; an attempt that loses the race looks again.
//!
//! Not here: which machine a job gets (`core::pool`), judging adverts (`core::pickup`), or
//! launching ([`super::launch`]).

use std::collections::BTreeMap;

use bullpen_core::ids::{Generation, InstanceId, JobId, PoolName};
use bullpen_core::instance::Tier;
use bullpen_core::job::{MachineSource, Setback, UsedMachines};
use bullpen_core::pool::{IdleMachine, LineResult, PoolLine, WaitingJob};
use bullpen_core::ports::{Fault, Ledger, Ports};
use bullpen_core::request::Request;
use bullpen_core::tenure::Won;
use bullpen_core::time::Timestamp;
use tokio::sync::Mutex;

use super::settings::WantedMachine;
use crate::Stack;
use crate::provision::pickup::PickupManager;
use crate::provision::worker::{self, Terms};
use crate::retry::retry_until;

/// A machine that the job has won, before the worker tells its agent.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) won: Won,
    /// How it stood by until now.
    pub(super) tier: Tier,
    pub(super) how: MachineSource,
}

/// Why no machine was claimed.
#[derive(Debug)]
pub(super) enum NotTaken {
    /// No idle machine fits; the counts are of idle machines that do not fit, by reason.
    Nothing(BTreeMap<String, u32>),
    /// The worker could not make terms.
    SetBack(Setback),
    /// A port failed.
    Fault(Fault),
}

impl From<Fault> for NotTaken {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Jobs that look for machines together, by their pools. The lock is held during a read of a pool,
/// so that jobs which come meanwhile use its result.
#[derive(Debug, Default)]
pub(super) struct PoolLines(Mutex<BTreeMap<PoolName, PoolLine>>);

impl PoolLines {
    /// Makes the lines of these jobs, in this order.
    pub(super) fn of(jobs: impl IntoIterator<Item = (PoolName, WaitingJob)>) -> Self {
        let mut lines: BTreeMap<PoolName, PoolLine> = BTreeMap::new();
        for (pool, seeker) in jobs {
            lines.entry(pool).or_default().join(seeker);
        }
        Self(Mutex::new(lines))
    }

    /// Returns a machine for this job, if the pool has one. A second call means that the job lost
    /// the first machine, or could not use it.
    async fn next<P: Ports>(
        &self,
        stack: &Stack<P>,
        pool: &PoolName,
        seeker: &WaitingJob,
        until: Timestamp,
    ) -> Result<LineResult, Fault> {
        let mut lines = self.0.lock().await;
        let line = lines.entry(pool.clone()).or_default();
        let mut found = line.take(seeker);
        if found.is_none() {
            let records =
                retry_until(stack, until, || stack.ports.ledger().standing_by(pool)).await?;
            let now = stack.now();
            let short = stack.shortages().at(now);
            line.look(seeker, stack.readable(records), &short, &stack.limits, now);
            found = line.take(seeker);
        }
        Ok(found.unwrap_or(LineResult::Nothing { withheld: 0 }))
    }

    /// Offers a machine that its job may not have to the other jobs again.
    async fn put_back(&self, pool: &PoolName, id: &InstanceId) {
        if let Some(line) = self.0.lock().await.get_mut(pool) {
            line.put_back(id);
        }
    }
}

/// Claims the first machine that the job can get: of its pool first, then of its class if the class
/// is reused. Calls `terms` only when it has found an idle machine, because they may cost a call to
/// GitHub. If the row does not say whether the job may have a used machine, calls `may_have_used`
/// once: for the first used machine of the pool, or before it searches the class.
pub(super) async fn take<'t, P: Ports>(
    stack: &Stack<P>,
    (job, lines): (&JobId, &PoolLines),
    wanted: &WantedMachine,
    terms: impl AsyncFn() -> Result<Terms<'t>, Setback>,
    may_have_used: impl AsyncFn() -> UsedMachines,
) -> Result<(Terms<'t>, Taken), NotTaken> {
    let mut seeker = seeker(job, wanted);
    let mut used = wanted.used;
    let mut unfit = BTreeMap::new();
    if let Some(pool) = &wanted.pool {
        let until = wanted.request.deadline;
        loop {
            let IdleMachine { id, generation, tier } =
                match lines.next(stack, pool, &seeker, until).await? {
                    LineResult::Machine(idle) => idle,
                    LineResult::Nothing { withheld } => {
                        note_withheld(&mut unfit, &seeker, withheld);
                        break;
                    }
                };
            if tier.is_used() && used == UsedMachines::Ask {
                used = may_have_used().await;
                seeker.only_unused = used.withheld();
            }
            if tier.is_used() && seeker.only_unused.is_some() {
                lines.put_back(pool, &id).await;
                continue;
            }
            if let Some(taken) = claim(stack, (&id, generation, tier), &terms).await? {
                return Ok(taken);
            }
        }
    }
    if !wanted.reuse {
        return Err(NotTaken::Nothing(unfit));
    }
    if used == UsedMachines::Ask {
        used = may_have_used().await;
    }
    let request = Request { only_unused: used.withheld(), ..wanted.request.clone() };
    match of_class(stack, &request, &terms).await {
        Err(NotTaken::Nothing(of_class)) => {
            for (why, count) in of_class {
                *unfit.entry(why).or_insert(0) += count;
            }
            Err(NotTaken::Nothing(unfit))
        }
        taken => taken,
    }
}

/// The job as its pool's line has it.
pub(super) fn seeker(job: &JobId, wanted: &WantedMachine) -> WaitingJob {
    let trust = wanted.request.trust.clone();
    WaitingJob { job: job.clone(), trust, only_unused: wanted.used.withheld() }
}

/// Counts the pool's machines that the job may not have, by reason.
fn note_withheld(unfit: &mut BTreeMap<String, u32>, seeker: &WaitingJob, withheld: usize) {
    if let Some(why) = seeker.only_unused.filter(|_| withheld > 0) {
        let count = u32::try_from(withheld).unwrap_or(u32::MAX);
        unfit.insert(why.as_str().to_owned(), count);
    }
}

/// Claims a machine of the pool as it was read. None if another process was faster.
async fn claim<'t, P: Ports>(
    stack: &Stack<P>,
    (id, generation, tier): (&InstanceId, Generation, Tier),
    terms: &impl AsyncFn() -> Result<Terms<'t>, Setback>,
) -> Result<Option<(Terms<'t>, Taken)>, NotTaken> {
    let terms = terms().await.map_err(NotTaken::SetBack)?;
    let won = worker::claim_seen(stack, &terms, (id, generation)).await?;
    Ok(won.map(|won| (terms, Taken { won, tier, how: MachineSource::Picked })))
}

async fn of_class<'t, P: Ports>(
    stack: &Stack<P>,
    request: &Request,
    terms: &impl AsyncFn() -> Result<Terms<'t>, Setback>,
) -> Result<(Terms<'t>, Taken), NotTaken> {
    let manager = PickupManager::new(stack, request, 1);
    let won = worker::win(stack, &manager, async || terms().await.map_err(NotTaken::SetBack)).await;
    let taken = match won {
        Ok(Some((terms, advert, won))) => {
            Ok((terms, Taken { won, tier: advert.tier, how: MachineSource::Reused }))
        }
        Ok(None) => {
            let unfit = manager.unfit().await.into_iter();
            Err(NotTaken::Nothing(unfit.map(|(why, count)| (why.to_owned(), count)).collect()))
        }
        Err(not_taken) => Err(not_taken),
    };
    manager.close().await;
    taken
}
