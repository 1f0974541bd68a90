//! Standby pools, kept: again and again each pool is looked at as a whole, planned, and made what it
//! should be.
//!
//! One cycle: take the pools' leases, read what is remembered and recorded of them, ask the cloud once
//! for all of them ([`survey`]), plan each, and carry the plans out, pools side by side (`execute`).
//! Whoever dies in between leaves nothing that the next cycle, here or elsewhere, does not find: every
//! launch is in its pool's journal before it is made, and every change of a machine is a conditional
//! write on what was seen of it, so that a job that picked it meanwhile keeps it.
//!
//! Not here: deciding (`core::pool`), giving machines to jobs ([`crate::jobs`]), ending machines whose
//! time is over ([`crate::reap`]), or pools' configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::time::Duration;

use bullpen_core::ids::PoolName;
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::pool::{ActionTaken, Blueprints, Note};
use bullpen_core::ports::{Clock, Fault, Ids, Ports};
use bullpen_core::schedule::Target;
use futures_util::future::{join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::Stack;

mod execute;
mod journals;
mod launch;
mod leases;
mod orders;
mod survey;
mod tags;

pub use leases::Leases;
pub use orders::{Ordered, order};
pub use survey::{SurveyedPool, known, survey};

/// A pool on which something is under way is looked at so many times as often as others: what it
/// waits for takes seconds.
const HASTE: u32 = 10;
/// Looks that were asked for are not closer together than this.
const BREATH: Duration = Duration::from_secs(1);

/// What one look at a pool found and came to, for whoever counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleReport {
    /// Which pool.
    pub pool: PoolName,
    /// What it should keep.
    pub target: Target,
    /// How many machines it has, by what operators call their status.
    pub machines: BTreeMap<StandbyStatus, u32>,
    /// What it waits on.
    pub notes: Vec<Note>,
    /// What was done.
    pub deeds: Vec<ActionTaken>,
}

impl CycleReport {
    /// Whether nothing was to be done, and nothing is awaited that comes by itself.
    pub fn is_settled(&self) -> bool {
        self.deeds.is_empty() && !self.notes.iter().any(Note::is_passing)
    }
}

/// Whoever is told of every look.
pub type CycleObserver<'a> = &'a (dyn Fn(&CycleReport) + Sync);

/// One cycle over every pool that this process holds the lease of, carried out to its end.
pub async fn converge<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
    leases: &Leases,
) -> Result<Vec<CycleReport>, Fault> {
    let names = known(stack, configured).await?;
    let held = leases.hold(stack, &names).await;
    let found = survey(stack, configured, &held).await?;
    let kept = found.into_iter().map(|found| execute::execute(stack, found, leases));
    Ok(join_all(kept).await)
}

/// Keeps pools for as long as it is polled. `configured` is nothing until a configuration was read;
/// `hurried` comes back whenever somebody wants a look.
pub async fn keep<P: Ports>(
    stack: &Stack<P>,
    leases: &Leases,
    configured: impl Fn() -> Option<Blueprints>,
    hurried: impl AsyncFn(),
    tell: CycleObserver<'_>,
) {
    let cycles = cycles(stack, leases, &configured, &hurried, tell);
    join(Box::pin(cycles), leases.renew(stack)).await;
}

/// A pool that is being made what it should be.
type UnderWay<'k> = Pin<Box<dyn Future<Output = CycleReport> + 'k>>;

/// Cycles without an end. A pool whose plan is still carried out is not looked at meanwhile, and holds
/// up no other.
async fn cycles<P: Ports>(
    stack: &Stack<P>,
    leases: &Leases,
    configured: &impl Fn() -> Option<Blueprints>,
    hurried: &impl AsyncFn(),
    tell: CycleObserver<'_>,
) {
    let clock = stack.ports.clock();
    let mut under_way: FuturesUnordered<UnderWay<'_>> = FuturesUnordered::new();
    let mut busy: BTreeSet<PoolName> = BTreeSet::new();
    loop {
        let began = clock.monotonic();
        let look = begin(stack, leases, configured(), &busy);
        let (found, ended) = meanwhile(look, &mut under_way).await;
        let mut due = clock.monotonic() + jittered(stack, stack.limits.converge);
        for kept in ended {
            busy.remove(&kept.pool);
            if !kept.is_settled() {
                due = due.min(began + jittered(stack, stack.limits.converge / HASTE));
            }
            tell(&kept);
        }
        for found in found {
            busy.insert(found.pool.clone());
            under_way.push(Box::pin(execute::execute(stack, found, leases)));
        }
        while clock.monotonic() < due {
            tokio::select! {
                biased;
                Some(kept) = under_way.next() => {
                    busy.remove(&kept.pool);
                    if !kept.is_settled() {
                        due = due.min(began + jittered(stack, stack.limits.converge / HASTE));
                    }
                    tell(&kept);
                }
                () = hurried() => due = due.min(began + BREATH),
                () = clock.sleep(due.saturating_sub(clock.monotonic())) => {}
            }
        }
    }
}

/// Looks, and goes on meanwhile with what is under way: a call whose turn has come must not wait for a
/// look, or it would be made together with the next one's. And where callers are taken in their order,
/// as the process fleet does, a look would wait for ever behind a call that nobody goes on with.
async fn meanwhile(
    look: impl Future<Output = Vec<SurveyedPool>>,
    under_way: &mut FuturesUnordered<UnderWay<'_>>,
) -> (Vec<SurveyedPool>, Vec<CycleReport>) {
    let (mut look, mut ended) = (Box::pin(look), Vec::new());
    loop {
        tokio::select! {
            biased;
            found = &mut look => return (found, ended),
            Some(kept) = under_way.next() => ended.push(kept),
        }
    }
}

/// Between a half and three halves, so that replicas do not beat together.
fn jittered<P: Ports>(stack: &Stack<P>, wait: Duration) -> Duration {
    let spread = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    wait / 2 + Duration::from_millis(stack.ports.ids().jitter(spread))
}

/// Looks at every pool that is this process's and that nothing is under way on.
async fn begin<P: Ports>(
    stack: &Stack<P>,
    leases: &Leases,
    configured: Option<Blueprints>,
    busy: &BTreeSet<PoolName>,
) -> Vec<SurveyedPool> {
    let Some(configured) = configured else { return Vec::new() };
    let look = async {
        let names = known(stack, &configured).await?;
        let mut held = leases.hold(stack, &names).await;
        held.retain(|pool| !busy.contains(pool));
        survey(stack, &configured, &held).await
    };
    look.await.unwrap_or_else(|fault| {
        tracing::warn!(%fault, "could not look at the pools");
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::Mutex;

    use super::*;

    /// Under way, and done as soon as it has had its turn.
    fn waits(turn: &Mutex<()>) -> UnderWay<'_> {
        Box::pin(async {
            drop(turn.lock().await);
            CycleReport {
                pool: PoolName::new("ci"),
                target: Target::NOTHING,
                machines: BTreeMap::new(),
                notes: Vec::new(),
                deeds: Vec::new(),
            }
        })
    }

    #[test]
    fn a_look_that_waits_behind_what_is_under_way_does_not_hold_that_up() {
        let turn = Mutex::new(());
        let somebody = turn.try_lock().expect("it is free");
        let mut under_way = FuturesUnordered::from_iter([waits(&turn)]);
        assert!(under_way.next().now_or_never().is_none(), "it waits for its turn");
        drop(somebody);
        let look = async {
            drop(turn.lock().await);
            Vec::new()
        };
        let both = meanwhile(look, &mut under_way).now_or_never();
        assert_eq!(both.expect("both have had their turns").1.len(), 1);
    }
}
