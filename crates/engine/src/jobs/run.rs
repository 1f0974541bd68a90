//! One process of the service: all its duties as one future, which ends when it has drained.
//!
//! A process ends in two steps. First it takes on nothing new and continues the work that it has
//! begun. After the drain time it hands back the rest: its workers set their rows back to waiting,
//! with the machines that the jobs have, and wake other workers for them.
//!
//! Not here: the server for webhooks (the `bullpen` command), or any of the duties' work.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bullpen_core::ids::Repository;
use bullpen_core::ports::{Clock, Ids, JobForge, Ports};
use bullpen_core::sabotage;
use futures_util::future::{join, join_all};
use tokio::sync::watch;

use super::assign::Reach;
use super::recall::recall;
use super::{FindMemory, FoundJobs, Service, ServiceEvent, find, sweep, workers};
use crate::advertise;
use crate::branch::branch;
use crate::ending;
use crate::pools;
use crate::refresh::{DesiredStack, Lane, run_lane};
use crate::replicas;

/// How long handing back may take: one write for each row, all at once. The sweep finds a row that
/// was not written by then once its lease is over.
const HAND_BACK: Duration = Duration::from_secs(3);

/// How long the process waits before it begins again with work that panicked.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// The duties of a process.
#[derive(Clone, Debug)]
pub struct Duties {
    /// Whether it serves jobs.
    pub jobs: bool,
    /// Whether it keeps the stack in order.
    pub upkeep: bool,
    /// Whether it keeps standby pools.
    pub pools: bool,
    /// Repositories about which it asks GitHub even if no webhook names them.
    pub repositories: Vec<Repository>,
}

impl Duties {
    /// Whether any duty calls the cloud.
    const fn use_the_cloud(&self) -> bool {
        self.jobs || self.upkeep || self.pools
    }
}

/// How far a process is with its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// It takes on new work.
    #[default]
    Serving,
    /// It takes on nothing new and finishes the work that it has begun.
    Finishing,
    /// It hands back the rest.
    HandingBack,
}

/// The phase of a process's end, shared by all its tasks.
#[derive(Debug)]
pub(super) struct Shutdown(watch::Sender<Phase>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::default()))
    }
}

impl Shutdown {
    fn has_reached(&self, phase: Phase) -> bool {
        *self.0.borrow() >= phase
    }

    async fn reached(&self, phase: Phase) {
        // `self` owns the sender, so the channel stays open during this wait.
        let _ = self.0.subscribe().wait_for(|now| *now >= phase).await;
    }
}

impl<P: Ports, J> Service<'_, P, J> {
    /// Whether the process takes on new work.
    pub fn takes(&self) -> bool {
        !self.ending.has_reached(Phase::Finishing)
    }

    /// Waits until the process takes on nothing new.
    pub async fn takes_no_more(&self) {
        self.ending.reached(Phase::Finishing).await;
    }

    /// Waits until the process must hand back unfinished work.
    pub(super) async fn hands_back(&self) {
        self.ending.reached(Phase::HandingBack).await;
    }
}

/// Runs a process's duties until `stop`, and then drains. `desired` returns the stack as it should
/// be now.
pub async fn run<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    duties: &Duties,
    desired: impl Fn() -> DesiredStack,
    stop: impl Future<Output = ()>,
) {
    let serve = async {
        if duties.jobs {
            let workers = join(
                branch(workers::work(service, Reach::Idle)),
                branch(workers::work(service, Reach::Launch)),
            );
            let loops =
                join(branch(sweep_loop(service)), branch(find_loop(service, &duties.repositories)));
            join(join(workers, loops), branch(recall_once(service))).await;
        }
    };
    let upkeep = async {
        if duties.upkeep {
            upkeep_loop(service, desired).await;
        }
    };
    let pools = async {
        if duties.pools {
            keep_pools(service).await;
        }
    };
    let all = async {
        join(join(branch(serve), branch(upkeep)), branch(pools)).await;
        service.takes_no_more().await;
    };
    let replica = async {
        if duties.use_the_cloud() {
            match on_and_on(service, "replica", async || replicas::run(service.stack).await).await {}
        }
        pending::<()>().await;
    };
    let ending = on_and_on(service, "ending", async || ending::run(service.stack).await);
    tokio::select! {
        biased;
        () = branch(all) => {}
        () = drain(service, stop) => {}
        () = branch(replica) => {}
        never = branch(ending) => match never {},
    }
    if duties.use_the_cloud() {
        leave(service).await;
    }
}

/// Removes this replica, so that the others may use its share of the cloud's rates at once. Waits
/// only briefly for the ledger.
async fn leave<P: Ports, J>(service: &Service<'_, P, J>) {
    tokio::select! {
        biased;
        () = replicas::leave(service.stack) => {}
        () = service.stack.ports.clock().sleep(HAND_BACK) => {}
    }
}

/// Waits for `stop`, gives the process its drain time, and then has it hand back the rest.
async fn drain<P: Ports, J>(service: &Service<'_, P, J>, stop: impl Future<Output = ()>) {
    stop.await;
    let (ending, clock) = (&service.ending.0, service.stack.ports.clock());
    ending.send_replace(Phase::Finishing);
    clock.sleep(service.stack.limits.drain).await;
    ending.send_replace(Phase::HandingBack);
    clock.sleep(HAND_BACK).await;
}

async fn sweep_loop<P: Ports, J: JobForge>(service: &Service<'_, P, J>) {
    let every = service.stack.limits.sweep;
    repeat(service, "sweep", every, async || {
        if let Err(fault) = sweep(service).await {
            tracing::warn!(%fault, "sweep over due rows failed");
        }
    })
    .await;
}

async fn recall_once<P: Ports, J: JobForge>(service: &Service<'_, P, J>) {
    if let Err(fault) = recall(service).await {
        tracing::warn!(%fault, "could not read what agents said; left for the sweep");
    }
}

/// Searches GitHub while this process has the lease of the search. Every process with a search of its
/// own would cost as many calls.
async fn find_loop<P: Ports, J: JobForge>(service: &Service<'_, P, J>, always: &[Repository]) {
    let stack = service.stack;
    let (leases, lease) = (pools::Leases::new(stack), super::find::lease());
    let mut memory = FindMemory::default();
    let often = sabotage!("searches-never-rest");
    let every = if often { stack.limits.sweep } else { stack.limits.find };
    let rounds = repeat(service, "find", every, async || {
        if !leases.hold_named(stack, &lease).await && !sabotage!("every-replica-looks") {
            return;
        }
        let FoundJobs { redelivered, unannounced, failed } =
            find(service, always, &mut memory).await;
        if redelivered + unannounced + failed > 0 {
            tracing::info!(redelivered, unannounced, failed, "searched for what webhooks missed");
        }
    });
    tokio::select! {
        biased;
        () = rounds => {}
        () = leases.renew(stack) => {}
    }
    leases.give_up(stack).await;
}

/// Runs each lane of upkeep at its own pace: a slow one delays no other.
async fn upkeep_loop<P: Ports, J>(service: &Service<'_, P, J>, desired: impl Fn() -> DesiredStack) {
    let (memory, desired) = (advertise::AdvertMemory::default(), &desired);
    let limits = &service.stack.limits;
    let lanes = Lane::ALL.map(|lane| {
        let memory = &memory;
        let every = if lane == Lane::Ghosts { limits.list_runners } else { limits.upkeep };
        branch(repeat(service, "upkeep", every, async move || {
            for report in run_lane(service.stack, lane, &desired(), memory).await {
                if let Ok(done) = report.outcome
                    && !done.is_empty()
                {
                    let (step, done) = (report.step, done.join("; "));
                    tracing::info!(step, done, "refresh changed the stack");
                }
            }
        }))
    });
    join_all(lanes).await;
}

/// Keeps pools until the process takes on nothing new. It then drops the running cycles and gives
/// the leases up, so that the next keeper continues at once instead of waiting for a lease to end.
async fn keep_pools<P: Ports, J>(service: &Service<'_, P, J>) {
    let leases = pools::Leases::new(service.stack);
    // A wrong clock would replace every machine for its age: another process keeps the pools.
    let is_right = || service.stack.clock_error().is_none();
    let configured = || is_right().then(|| service.settings().blueprints())?;
    let tell = |kept: &pools::CycleReport| (service.watch)(&ServiceEvent::Kept(kept.clone()));
    let keeping = on_and_on(service, "pools", async || {
        pools::keep(service.stack, &leases, configured, &service.pools, &tell).await
    });
    tokio::select! {
        biased;
        () = service.takes_no_more() => {}
        never = keeping => match never {},
    }
    leases.give_up(service.stack).await;
}

/// Runs work that does not end by itself, and begins it again after a panic.
async fn on_and_on<P: Ports, J>(
    service: &Service<'_, P, J>,
    task: &'static str,
    work: impl AsyncFn() -> Infallible,
) -> Infallible {
    loop {
        if let Ok(never) = service.stack.caught(task, "", work()).await {
            match never {}
        }
        service.stack.ports.clock().sleep(AFTER_PANIC).await;
    }
}

/// Calls `once` immediately and then at this interval, until the process takes on nothing new. The
/// interval is jittered, so that replicas do not call at the same moments.
async fn repeat<P: Ports, J>(
    service: &Service<'_, P, J>,
    task: &'static str,
    every: Duration,
    mut once: impl AsyncFnMut(),
) {
    let ports = &service.stack.ports;
    while service.takes() {
        // The next call follows a panic, too.
        let _ = service.stack.caught(task, "", once()).await;
        let half = every / 2;
        let spread = u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1);
        let wait = half + Duration::from_millis(ports.ids().jitter(spread));
        tokio::select! {
            biased;
            () = service.takes_no_more() => {}
            () = ports.clock().sleep(wait) => {}
        }
    }
}
