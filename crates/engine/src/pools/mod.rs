//! Standby pools: in cycles, a replica brings each pool whose lease it holds to its desired state.
//!
//! In a cycle it reads the pools' journals and records, asks the cloud once for all machines
//! ([`survey`]), plans each pool, and executes the plans side by side (`execute`). If it dies, the
//! next cycle of any replica finds everything: a launch is in its pool's journal before it is made,
//! and each change of a machine is conditional on the record that was read, so a job that has
//! picked the machine keeps it.
//!
//! Not here: deciding (`core::pool`), giving machines to jobs ([`crate::jobs`]), ending machines
//! whose time is over ([`crate::reap`]), or pools' configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use bullpen_core::ids::PoolName;
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::pool::{ActionTaken, Blueprints, Note};
use bullpen_core::ports::{Clock, Fault, Ids, Ports, Unreadable};
use bullpen_core::schedule::Target;
use futures_util::future::join;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Semaphore;

use self::agenda::Agenda;
use self::requests::Requested;
use crate::Stack;
use crate::at_once::at_once;

mod agenda;
mod execute;
mod journals;
mod launch;
mod leases;
mod orders;
mod requests;
mod survey;
mod tags;

pub use leases::Leases;
pub use orders::{Ordered, order};
pub use requests::Requests;
pub use survey::{Survey, SurveyedPool, known, survey};

/// How many times more often a pool is surveyed while it is not settled: it waits for events that take
/// seconds.
const SPEEDUP: u32 = 10;
/// How many times more often all pools are surveyed while they cannot be: machines that became ready
/// during an outage must be seen before their deadlines are judged.
const RETRY_SPEEDUP: u32 = 3;
/// A requested cycle begins no sooner than this after the last one began.
const CYCLE_MIN: Duration = Duration::from_secs(1);
/// How many plans are executed at once: those of all pools, in most stacks. With thousands of pools
/// the others wait for their turn.
const EXECUTED_MAX: usize = 64;

/// The outcome of one cycle for one pool, for metrics and tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleReport {
    /// The pool.
    pub pool: PoolName,
    /// What it should keep.
    pub target: Target,
    /// How many machines it has, by their status for operators.
    pub machines: BTreeMap<StandbyStatus, u32>,
    /// What it waits for.
    pub notes: Vec<Note>,
    /// The actions taken.
    pub deeds: Vec<ActionTaken>,
}

impl CycleReport {
    /// Whether the cycle did nothing and the pool waits for nothing that comes by itself.
    pub fn is_settled(&self) -> bool {
        self.deeds.is_empty() && !self.notes.iter().any(Note::is_passing)
    }
}

/// Receives the report of every cycle.
pub type CycleObserver<'a> = &'a (dyn Fn(&CycleReport) + Sync);

/// Runs one cycle to its end, over every pool whose lease this process holds.
pub async fn converge<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
    leases: &Leases,
) -> Result<Vec<CycleReport>, Fault> {
    let held = hold(stack, configured, leases).await?;
    let found = survey(stack, configured, &held).await?.complete()?;
    Ok(at_once(found, async |found: SurveyedPool| execute::execute(stack, found, leases).await)
        .await)
}

/// Runs cycles for as long as it is polled. `configured` returns `None` while the process may keep no
/// pool.
pub async fn keep<P: Ports>(
    stack: &Stack<P>,
    leases: &Leases,
    configured: impl Fn() -> Option<Blueprints>,
    requests: &Requests,
    tell: CycleObserver<'_>,
) -> Infallible {
    let cycles = cycles(stack, leases, &configured, requests, tell);
    join(Box::pin(cycles), leases.renew(stack)).await.0
}

/// The execution of one pool's plan; without a report, if it panicked.
type Execution<'k> = Pin<Box<dyn Future<Output = (PoolName, Option<CycleReport>)> + 'k>>;

fn executed<'k, P: Ports>(
    stack: &'k Stack<P>,
    found: SurveyedPool,
    leases: &'k Leases,
    turns: &'k Semaphore,
) -> Execution<'k> {
    let pool = found.pool.clone();
    Box::pin(async move {
        let _turn = turns.acquire().await;
        let execution = execute::execute(stack, found, leases);
        let kept = stack.caught("pool", &pool, execution).await.ok();
        (pool, kept)
    })
}

/// Runs cycles without an end. A pool whose plan is still being executed is left out of a survey.
async fn cycles<P: Ports>(
    stack: &Stack<P>,
    leases: &Leases,
    configured: &impl Fn() -> Option<Blueprints>,
    requests: &Requests,
    tell: CycleObserver<'_>,
) -> Infallible {
    let (clock, turns) = (stack.ports.clock(), Semaphore::new(EXECUTED_MAX));
    let mut executing: FuturesUnordered<Execution<'_>> = FuturesUnordered::new();
    let mut agenda = Agenda::default();
    loop {
        let began = clock.monotonic();
        let only = agenda.begin(began, began + jittered(stack, stack.limits.converge));
        let surveying = survey_held(stack, leases, configured(), (&agenda, only.as_ref()));
        let (found, ended) = survey_while_executing(surveying, &mut executing).await;
        let end = |agenda: &mut Agenda, (pool, kept): (PoolName, Option<CycleReport>)| {
            agenda.has_executed(&pool);
            if kept.inspect(tell).is_some_and(|kept| !kept.is_settled()) {
                let soon = began + jittered(stack, stack.limits.converge / SPEEDUP);
                agenda.soon_by(soon, pool);
            }
        };
        for ended in ended {
            end(&mut agenda, ended);
        }
        if found.is_none() {
            let retry = jittered(stack, stack.limits.converge / RETRY_SPEEDUP);
            agenda.all_by(clock.monotonic() + retry);
        }
        for found in found.unwrap_or_default() {
            agenda.executes(&found.pool);
            executing.push(executed(stack, found, leases, &turns));
        }
        while clock.monotonic() < agenda.next() {
            tokio::select! {
                biased;
                Some(ended) = executing.next() => end(&mut agenda, ended),
                Requested { all, pools } = requests.take() => {
                    if all {
                        agenda.all_by(began + CYCLE_MIN);
                    }
                    for pool in pools {
                        agenda.soon_by(began + CYCLE_MIN, pool);
                    }
                }
                () = clock.sleep(agenda.next().saturating_sub(clock.monotonic())) => {}
            }
        }
    }
}

/// Surveys, and polls the running executions meanwhile. A call whose turn has come must not wait
/// for the survey, or it would be made together with the next call. A fleet that serves callers in
/// order, as the process fleet does, would let the survey wait for ever behind a call that is not
/// polled.
async fn survey_while_executing<F>(
    surveying: impl Future<Output = F>,
    executing: &mut FuturesUnordered<Execution<'_>>,
) -> (F, Vec<(PoolName, Option<CycleReport>)>) {
    let (mut surveying, mut ended) = (Box::pin(surveying), Vec::new());
    loop {
        tokio::select! {
            biased;
            found = &mut surveying => return (found, ended),
            Some(kept) = executing.next() => ended.push(kept),
        }
    }
}

/// Between half and one and a half times `wait`, so that replicas do not act at the same time.
fn jittered<P: Ports>(stack: &Stack<P>, wait: Duration) -> Duration {
    let spread = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    wait / 2 + Duration::from_millis(stack.ports.ids().jitter(spread))
}

/// The journals that this program cannot read.
pub(crate) async fn unreadable_journals<P: Ports>(
    stack: &Stack<P>,
) -> Result<Vec<Unreadable>, Fault> {
    Ok(journals::all(stack).await?.unreadable.into_values().collect())
}

/// Takes the leases that this process can get, and returns the pools whose lease it holds. It lets
/// go of a pool whose journal it cannot read: a newer replica can keep it.
async fn hold<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
    leases: &Leases,
) -> Result<Vec<PoolName>, Fault> {
    let known = survey::list(stack, configured).await?;
    leases.let_go(stack, &known.unreadable).await;
    Ok(leases.hold(stack, &known.readable).await)
}

/// Surveys every pool, or `only` these, whose lease this process holds and whose last plan is executed.
/// Leases are taken with a survey of all. `None`: the pools cannot be surveyed now.
async fn survey_held<P: Ports>(
    stack: &Stack<P>,
    leases: &Leases,
    configured: Option<Blueprints>,
    (agenda, only): (&Agenda, Option<&BTreeSet<PoolName>>),
) -> Option<Vec<SurveyedPool>> {
    let Some(configured) = configured else {
        leases.give_up(stack).await;
        return Some(Vec::new());
    };
    let surveying = async {
        let mut held = match only {
            Some(only) => leases.held_among(stack, only),
            None => hold(stack, &configured, leases).await?,
        };
        held.retain(|pool| !agenda.is_busy(pool));
        survey(stack, &configured, &held).await
    };
    let surveyed = stack.caught("survey", "", surveying).await;
    let Survey { pools, failed } = match surveyed.unwrap_or_else(|defect| Err(defect.into())) {
        Ok(survey) => survey,
        Err(fault) => {
            tracing::warn!(%fault, "could not survey the pools");
            return None;
        }
    };
    if let Some((first, fault)) = failed.first_key_value() {
        let pools = failed.len();
        tracing::warn!(pools, %first, %fault, "could not survey some of the pools");
    }
    Some(pools)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::Mutex;

    use super::*;

    /// An execution that is done once it has had its turn.
    fn waits_for_turn(turn: &Mutex<()>) -> Execution<'_> {
        Box::pin(async {
            drop(turn.lock().await);
            (PoolName::new("ci"), None)
        })
    }

    #[test]
    fn a_look_that_waits_behind_what_is_under_way_does_not_hold_that_up() {
        let turn = Mutex::new(());
        let held = turn.try_lock().expect("the lock is free");
        let mut executing = FuturesUnordered::from_iter([waits_for_turn(&turn)]);
        assert!(executing.next().now_or_never().is_none(), "the execution waits for its turn");
        drop(held);
        let look = async {
            drop(turn.lock().await);
        };
        let both = survey_while_executing(look, &mut executing).now_or_never();
        assert_eq!(both.expect("both have had their turns").1.len(), 1);
    }
}
