//! One process of the service: everything it does by itself, as one future, until it has drained.
//!
//! A process ends in two steps. First it takes nothing new on and goes on with what it has begun;
//! when its time for that is over, it hands back what is left: rows go back to waiting, with whatever
//! machine they have, and others are woken for them.
//!
//! Not here: the listener for webhooks (the `bullpen` command), or any of the work itself.

use std::future::pending;
use std::time::Duration;

use bullpen_core::ids::Repository;
use bullpen_core::ports::{Clock, Ids, JobForge, Ports};
use futures_util::future::join;
use tokio::sync::watch;

use super::assign::Reach;
use super::{FindMemory, Service, ServiceEvent, find, sweep, workers};
use crate::advertise;
use crate::pools;
use crate::refresh::{DesiredStack, refresh};
use crate::replicas;

/// How long handing back may take: one write a row, all at once. Whoever is not done by then is found
/// when its lease is over.
const HAND_BACK: Duration = Duration::from_secs(3);

/// What a process does by itself.
#[derive(Clone, Debug)]
pub struct Duties {
    /// Whether it serves jobs.
    pub jobs: bool,
    /// Whether it keeps the stack in order.
    pub upkeep: bool,
    /// Whether it keeps standby pools.
    pub pools: bool,
    /// Repositories that are looked at whether or not anything was heard of them.
    pub repositories: Vec<Repository>,
}

impl Duties {
    /// Whether it ever asks the cloud for anything.
    const fn ask_the_cloud(&self) -> bool {
        self.jobs || self.upkeep || self.pools
    }
}

/// How far a process is with ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Not at all.
    #[default]
    Serving,
    /// It takes nothing new on.
    Finishing,
    /// It hands back what is left.
    HandingBack,
}

/// The end of a process, as everything in it sees it.
#[derive(Debug)]
pub(super) struct Shutdown(watch::Sender<Phase>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::default()))
    }
}

impl Shutdown {
    fn is(&self, phase: Phase) -> bool {
        *self.0.borrow() >= phase
    }

    async fn comes_to(&self, phase: Phase) {
        // The sender is ours and outlives this wait.
        let _ = self.0.subscribe().wait_for(|now| *now >= phase).await;
    }
}

impl<P: Ports, J> Service<'_, P, J> {
    /// Whether it takes on anything new.
    pub fn takes(&self) -> bool {
        !self.ending.is(Phase::Finishing)
    }

    /// Waits until it takes on nothing new.
    pub async fn takes_no_more(&self) {
        self.ending.comes_to(Phase::Finishing).await;
    }

    /// Waits until what is begun is to be handed back.
    pub(super) async fn hands_back(&self) {
        self.ending.comes_to(Phase::HandingBack).await;
    }
}

/// Does its duties until `stop`, and then drains. `desired` says what the stack should be like now.
pub async fn run<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    duties: &Duties,
    desired: impl Fn() -> DesiredStack,
    stop: impl Future<Output = ()>,
) {
    let serve = async {
        if duties.jobs {
            let workers =
                join(workers::work(service, Reach::Idle), workers::work(service, Reach::Launch));
            join(workers, join(sweeping(service), finding(service, &duties.repositories))).await;
        }
    };
    let upkeep = async {
        if duties.upkeep {
            keep_up(service, desired).await;
        }
    };
    let pools = async {
        if duties.pools {
            keep_pools(service).await;
        }
    };
    let all = async {
        // Boxed: whole services are in here.
        join(join(Box::pin(serve), Box::pin(upkeep)), Box::pin(pools)).await;
        service.takes_no_more().await;
    };
    let attends = async {
        if duties.ask_the_cloud() {
            match replicas::run(service.stack).await {}
        }
        pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = all => {}
        () = drain(service, stop) => {}
        () = Box::pin(attends) => {}
    }
    if duties.ask_the_cloud() {
        leave(service).await;
    }
}

/// The others may have this one's share at once. Nobody waits long for that to be heard.
async fn leave<P: Ports, J>(service: &Service<'_, P, J>) {
    tokio::select! {
        biased;
        () = replicas::leave(service.stack) => {}
        () = service.stack.ports.clock().sleep(HAND_BACK) => {}
    }
}

/// Waits for the end, and then no longer than there is time for it.
async fn drain<P: Ports, J>(service: &Service<'_, P, J>, stop: impl Future<Output = ()>) {
    stop.await;
    let (ending, clock) = (&service.ending.0, service.stack.ports.clock());
    ending.send_replace(Phase::Finishing);
    clock.sleep(service.stack.limits.drain).await;
    ending.send_replace(Phase::HandingBack);
    clock.sleep(HAND_BACK).await;
}

async fn sweeping<P: Ports, J: JobForge>(service: &Service<'_, P, J>) {
    let every = service.stack.limits.sweep;
    rhythmically(service, every, async || {
        if let Err(fault) = sweep(service).await {
            tracing::warn!(%fault, "could not look for rows that are due");
        }
    })
    .await;
}

async fn finding<P: Ports, J: JobForge>(service: &Service<'_, P, J>, always: &[Repository]) {
    let mut memory = FindMemory::default();
    let every = service.stack.limits.find;
    rhythmically(service, every, async || match find(service, always, &mut memory).await {
        Ok(found) if found != super::FoundJobs::default() => {
            let (redelivered, unannounced) = (found.redelivered, found.unannounced);
            tracing::info!(redelivered, unannounced, "GitHub had more to say");
        }
        Ok(_) => {}
        Err(fault) => tracing::warn!(%fault, "could not ask GitHub for what no webhook said"),
    })
    .await;
}

async fn keep_up<P: Ports, J>(service: &Service<'_, P, J>, desired: impl Fn() -> DesiredStack) {
    let mut memory = advertise::AdvertMemory::default();
    let every = service.stack.limits.upkeep;
    rhythmically(service, every, async || {
        for report in refresh(service.stack, &desired(), &mut memory).await {
            if let Ok(done) = report.outcome
                && !done.is_empty()
            {
                tracing::info!(step = report.step, done = done.join("; "), "put in order");
            }
        }
    })
    .await;
}

/// Keeps pools until nothing new is taken on. What is under way is dropped then: whoever keeps them
/// next goes on with it, and does not have to wait for a lease to end.
async fn keep_pools<P: Ports, J>(service: &Service<'_, P, J>) {
    let leases = pools::Leases::new(service.stack);
    let configured = || service.settings().blueprints();
    let hurried = async || service.pools.notified().await;
    let tell = |kept: &pools::CycleReport| (service.watch)(&ServiceEvent::Kept(kept.clone()));
    tokio::select! {
        biased;
        () = service.takes_no_more() => {}
        () = pools::keep(service.stack, &leases, configured, hurried, &tell) => {}
    }
    leases.give_up(service.stack).await;
}

/// Does something at once and then every so often, jittered so that replicas do not beat together,
/// until nothing new is taken on.
async fn rhythmically<P: Ports, J>(
    service: &Service<'_, P, J>,
    every: Duration,
    mut once: impl AsyncFnMut(),
) {
    let ports = &service.stack.ports;
    while service.takes() {
        once().await;
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
