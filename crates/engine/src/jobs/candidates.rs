//! Idle machines for one job: of its pool, and of its class's resource pool.
//!
//! Not here: judging (`core::pickup`), or launching ([`super::launch`]).

use std::collections::BTreeMap;

use bullpen_core::instance::{Record, State, Tier};
use bullpen_core::job::{How, Setback};
use bullpen_core::ports::{Fault, Ids, Ledger, Ports};
use bullpen_core::request::Request;
use bullpen_core::time::Timestamp;

use super::settings::Wanted;
use crate::Stack;
use crate::patience::patiently;
use crate::provision::pickup::PickupManager;
use crate::provision::worker::{self, Held, Terms};

/// A machine that is the job's, and that nothing was done with yet.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) held: Held,
    pub(super) tier: Tier,
    pub(super) how: How,
}

impl Taken {
    /// A machine that was idle in this tier, under this claim.
    pub(super) fn warm(held: Held, tier: Tier, how: How) -> Self {
        let by = if tier == Tier::Stopped { worker::How::Started } else { worker::How::Reused };
        Self { held: Held { how: by, ..held }, tier, how }
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

/// Claims the first machine that can be had: of the pool first, then of the class if it is reused.
/// `terms` are asked for whenever a machine is in sight: where nothing is idle they cost nothing.
pub(super) async fn take<'t, P: Ports>(
    stack: &Stack<P>,
    wanted: &Wanted,
    terms: impl AsyncFn() -> Result<Terms<'t>, Setback>,
) -> Result<(Terms<'t>, Taken), NotTaken> {
    if let Some(taken) = of_pool(stack, wanted, &terms).await? {
        return Ok(taken);
    }
    if !wanted.reuse {
        return Err(NotTaken::Nothing(BTreeMap::new()));
    }
    of_class(stack, &wanted.request, &terms).await
}

async fn of_pool<'t, P: Ports>(
    stack: &Stack<P>,
    wanted: &Wanted,
    terms: &impl AsyncFn() -> Result<Terms<'t>, Setback>,
) -> Result<Option<(Terms<'t>, Taken)>, NotTaken> {
    let Some(pool) = &wanted.pool else { return Ok(None) };
    let until = wanted.request.deadline;
    let records = patiently(stack, until, || stack.ports.ledger().standing_by(pool)).await?;
    for (tier, _, record) in in_order(&records, &wanted.request, stack.now()) {
        let terms = terms().await.map_err(NotTaken::SetBack)?;
        let claim = stack.ports.ids().claim();
        let seen = (&record.id, record.generation);
        if let Some(record) = worker::claim_seen(stack, &terms, seen, &claim).await? {
            let held = Held::new(record, Some(claim), worker::How::Reused);
            return Ok(Some((terms, Taken::warm(held, tier, How::Picked))));
        }
    }
    Ok(None)
}

/// Released before hot before stopped, and of those whoever has been ready longest.
fn in_order<'r>(
    records: &'r [Record],
    request: &Request,
    now: Timestamp,
) -> Vec<(Tier, Timestamp, &'r Record)> {
    let fit = |record: &Record| {
        !record.tainted
            && request.trusts(record.trust.as_ref())
            && request.fits(Some(&record.facts.spec_hash))
    };
    let idle =
        records.iter().filter(|record| fit(record)).filter_map(|record| match record.state {
            State::Idle { tier, since, deadline, .. } if now < deadline => {
                Some((tier, since, record))
            }
            _ => None,
        });
    let mut idle: Vec<_> = idle.collect();
    idle.sort_by(|one, other| (one.0, one.1, &one.2.id).cmp(&(other.0, other.1, &other.2.id)));
    idle
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
            let held = Held::new(record, Some(claim), worker::How::Reused);
            taken = Ok((terms, Taken::warm(held, advert.tier, How::Reused)));
            break;
        }
        manager.came_to_nothing();
    }
    manager.close().await;
    taken
}
