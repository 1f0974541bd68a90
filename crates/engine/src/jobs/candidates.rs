//! Idle machines for jobs: of their pools, and of their classes' resource pools.
//!
//! Jobs that were received together look at their pool together, and are sent to different machines.
//! Each claims its own; one that lost it looks again.
//!
//! Not here: whom a job gets (`core::pool`), judging (`core::pickup`), or launching
//! ([`super::launch`]).

use std::collections::BTreeMap;

use bullpen_core::ids::{Generation, InstanceId, JobId, PoolName};
use bullpen_core::instance::Tier;
use bullpen_core::job::{MachineSource, Setback, UsedMachines};
use bullpen_core::pool::{IdleMachine, LineResult, PoolLine, WaitingJob};
use bullpen_core::ports::{Fault, Ids, Ledger, Ports};
use bullpen_core::request::Request;
use bullpen_core::time::Timestamp;
use tokio::sync::Mutex;

use super::settings::WantedMachine;
use crate::Stack;
use crate::provision::pickup::PickupManager;
use crate::provision::worker::{self, HeldMachine, Terms};
use crate::retry::retry_until;

/// A machine that is the job's, and that nothing was done with yet.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) held: HeldMachine,
    pub(super) tier: Tier,
    pub(super) how: MachineSource,
}

impl Taken {
    /// A machine that was idle in this tier, under this claim.
    pub(super) fn warm(held: HeldMachine, tier: Tier, how: MachineSource) -> Self {
        let by = if tier == Tier::Stopped {
            worker::AcquiredBy::Started
        } else {
            worker::AcquiredBy::Reused
        };
        Self { held: HeldMachine { how: by, ..held }, tier, how }
    }
}

/// Why no machine was claimed.
#[derive(Debug)]
pub(super) enum NotTaken {
    /// None is there for the job; so many are for others, by reason.
    Nothing(BTreeMap<String, u32>),
    /// There are no terms to claim it on.
    SetBack(Setback),
    /// Somebody did not answer.
    Fault(Fault),
}

impl From<Fault> for NotTaken {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Jobs that look for machines together, by their pools. Whoever looks has it for so long: who comes
/// meanwhile needs no look of its own.
#[derive(Debug, Default)]
pub(super) struct PoolLines(Mutex<BTreeMap<PoolName, PoolLine>>);

impl PoolLines {
    /// These jobs, in their order.
    pub(super) fn of(jobs: impl IntoIterator<Item = (PoolName, WaitingJob)>) -> Self {
        let mut lines: BTreeMap<PoolName, PoolLine> = BTreeMap::new();
        for (pool, seeker) in jobs {
            lines.entry(pool).or_default().join(seeker);
        }
        Self(Mutex::new(lines))
    }

    /// The machine that this job is sent to, if there is one for it. Whoever asks again has lost it,
    /// or had no use for it.
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
            line.look(seeker, records, &short, &stack.limits, now);
            found = line.take(seeker);
        }
        Ok(found.unwrap_or(LineResult::Nothing { withheld: 0 }))
    }

    /// A machine that a job was sent to and may not have is there for the others again.
    async fn put_back(&self, pool: &PoolName, id: &InstanceId) {
        if let Some(line) = self.0.lock().await.get_mut(pool) {
            line.put_back(id);
        }
    }
}

/// Claims the first machine that can be had: of the pool first, then of the class if it is reused.
/// `terms` are asked for whenever a machine is in sight: where nothing is idle they cost nothing. So is
/// `may_have_used`, the first time that a used machine is in sight and the row does not say whether the
/// job may have one.
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
                    LineResult::Machine(sighting) => sighting,
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

/// What its pool has to know of a job.
pub(super) fn seeker(job: &JobId, wanted: &WantedMachine) -> WaitingJob {
    let trust = wanted.request.trust.clone();
    WaitingJob { job: job.clone(), trust, only_unused: wanted.used.withheld() }
}

/// Counts machines of the pool that the job may not have, by reason.
fn note_withheld(unfit: &mut BTreeMap<String, u32>, seeker: &WaitingJob, withheld: usize) {
    if let Some(why) = seeker.only_unused.filter(|_| withheld > 0) {
        let count = u32::try_from(withheld).unwrap_or(u32::MAX);
        unfit.insert(why.as_str().to_owned(), count);
    }
}

/// Claims a machine of the pool as it was seen; none if another process was faster.
async fn claim<'t, P: Ports>(
    stack: &Stack<P>,
    (id, generation, tier): (&InstanceId, Generation, Tier),
    terms: &impl AsyncFn() -> Result<Terms<'t>, Setback>,
) -> Result<Option<(Terms<'t>, Taken)>, NotTaken> {
    let terms = terms().await.map_err(NotTaken::SetBack)?;
    let claim = stack.ports.ids().claim();
    let record = worker::claim_seen(stack, &terms, (id, generation), &claim).await?;
    Ok(record.map(|record| {
        let held = HeldMachine::new(record, Some(claim), worker::AcquiredBy::Reused);
        (terms, Taken::warm(held, tier, MachineSource::Picked))
    }))
}

async fn of_class<'t, P: Ports>(
    stack: &Stack<P>,
    request: &Request,
    terms: &impl AsyncFn() -> Result<Terms<'t>, Setback>,
) -> Result<(Terms<'t>, Taken), NotTaken> {
    let manager = PickupManager::new(stack, request, 1);
    let mut taken = Err(NotTaken::Nothing(BTreeMap::new()));
    while stack.now() < request.deadline {
        let Some(advert) = manager.candidate().await? else {
            let unfit = manager.unfit().await.into_iter();
            let unfit = unfit.map(|(why, count)| (why.to_owned(), count)).collect();
            taken = Err(NotTaken::Nothing(unfit));
            break;
        };
        let terms = match terms().await {
            Ok(terms) => terms,
            Err(setback) => {
                // The machine is there for whoever comes next.
                manager.not_wanted(advert).await;
                taken = Err(NotTaken::SetBack(setback));
                break;
            }
        };
        let claim = stack.ports.ids().claim();
        if let Some(record) = worker::take(stack, &terms, &advert, &claim).await? {
            let held = HeldMachine::new(record, Some(claim), worker::AcquiredBy::Reused);
            taken = Ok((terms, Taken::warm(held, advert.tier, MachineSource::Reused)));
            break;
        }
        manager.came_to_nothing();
    }
    manager.close().await;
    taken
}
