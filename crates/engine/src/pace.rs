//! Pace: every call about machines waits for its turn within this process's share of the cloud's
//! rate limits, and a call that the cloud throttles halves the share.
//!
//! The engine launches, starts, stops, tags, lists and ends machines only through this module.
//!
//! Not here: counting tokens (`core::rates`), or which processes share the limits
//! ([`crate::replicas`]).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::InstanceId;
use bullpen_core::limits::Limits;
use bullpen_core::ports::{
    Clock, Fault, Fleet, Launched, Listing, Machine, Ports, StartOutcome, StopOrder, Tag,
};
use bullpen_core::rates::{Budget, FleetCall, RateShare};
use bullpen_core::replicas::{ReplicaList, ReplicaTimes};

use crate::Stack;

/// The longest that a call waits for its turn; a caller may try again. Short against the grace of
/// reconciliation, so that a launch that waited is still accounted for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A call that wakes this much later than its turn takes another one: while the process stood still,
/// the turns of other calls passed too, and all would be made at once.
const LATE: Duration = Duration::from_millis(100);
/// How often one call takes a turn at most.
const TURNS_MAX: u32 = 3;

/// The calls to the fleet that one process may make, by its share of the rate limits.
#[derive(Debug)]
pub(crate) struct Allowance {
    budget: Budget,
    /// The share that the budget is for.
    share: RateShare,
    /// The replicas that this process knows of.
    pub(crate) replicas: ReplicaList,
}

impl Allowance {
    /// Makes the allowance of a command.
    pub(crate) fn new<P: Ports>(ports: &P, limits: &Limits) -> Self {
        let share = RateShare::COMMAND;
        let rates = ports.fleet().rates().share(share);
        let budget = Budget::new(&rates, ports.clock().monotonic());
        let replicas = ReplicaList::new(ReplicaTimes { lease: limits.pool_lease, turn: PATIENCE });
        Self { budget, share, replicas }
    }

    /// The budget of this process, adapted to the share it has now.
    fn budget<P: Ports>(&mut self, ports: &P, now: Duration) -> &mut Budget {
        let share = self.replicas.share(now);
        if share != self.share {
            tracing::info!(?share, "share of the cloud's rates changed");
            self.budget.keep_to(&ports.fleet().rates().share(share), now);
            self.share = share;
        }
        &mut self.budget
    }
}

/// A stack's fleet, called in turn. A call whose turn is too far off fails with
/// [`Fault::Throttled`] and is not made.
#[derive(Debug)]
pub struct Paced<'a, P> {
    stack: &'a Stack<P>,
    allowance: &'a Mutex<Allowance>,
}

impl<'a, P: Ports> Paced<'a, P> {
    pub(crate) const fn new(stack: &'a Stack<P>, allowance: &'a Mutex<Allowance>) -> Self {
        Self { stack, allowance }
    }

    /// As [`Fleet::launch`].
    pub async fn launch(&self, request: &LaunchRequest) -> Result<Launched, Fault> {
        self.turn(FleetCall::Launch, request.count).await?;
        self.note_throttling(FleetCall::Launch, self.stack.ports.fleet().launch(request).await)
    }

    /// As [`Fleet::start`].
    pub async fn start(
        &self,
        ids: &[InstanceId],
    ) -> Result<Vec<(InstanceId, StartOutcome)>, Fault> {
        self.turn(FleetCall::Start, count(ids)).await?;
        self.note_throttling(FleetCall::Start, self.stack.ports.fleet().start(ids).await)
    }

    /// As [`Fleet::start`] for one machine, in one call with the starts of other workers.
    pub async fn start_one(&self, id: &InstanceId) -> Result<StartOutcome, Fault> {
        let call = async |ids: &[InstanceId]| Ok(self.start(ids).await?.into_iter().collect());
        let answer = self.stack.batches().starts.ask(self.stack, id, call).await?;
        Ok(answer.unwrap_or(StartOutcome::Failed(Fault::NotFound)))
    }

    /// As [`Fleet::stop`], if its turn comes while this process's monotonic clock is not past
    /// `send_by`; otherwise it fails with [`Fault::Throttled`]. A call without an answer within its
    /// own timeout fails, and may have landed. It is never tried again here: a late stop must not
    /// hit a machine that has an owner again, and the next stop needs a new operation.
    pub async fn stop(&self, orders: &[StopOrder], send_by: Duration) -> Result<(), Fault> {
        let clock = self.stack.ports.clock();
        let patience = PATIENCE.min(send_by.saturating_sub(clock.monotonic()));
        self.turn_within(FleetCall::Stop, count(orders), patience).await?;
        if clock.monotonic() > send_by {
            return Err(Fault::Throttled);
        }
        let answer = tokio::select! {
            biased;
            answer = self.stack.ports.fleet().stop(orders) => answer,
            () = clock.sleep(self.stack.limits.stop_call_timeout) => {
                Err(Fault::unavailable("a stop call was not answered in time"))
            }
        };
        self.note_throttling(FleetCall::Stop, answer)
    }

    /// As [`Fleet::tag`].
    pub async fn tag(&self, ids: &[InstanceId], tag: Tag) -> Result<(), Fault> {
        self.turn(FleetCall::Tag, count(ids)).await?;
        self.note_throttling(FleetCall::Tag, self.stack.ports.fleet().tag(ids, tag).await)
    }

    /// As [`Fleet::terminate`].
    pub async fn terminate(&self, ids: &[InstanceId]) -> Result<(), Fault> {
        self.turn(FleetCall::Terminate, count(ids)).await?;
        self.note_throttling(FleetCall::Terminate, self.stack.ports.fleet().terminate(ids).await)
    }

    /// As [`Fleet::terminate`] for one machine, in one call with those of other workers.
    pub async fn terminate_one(&self, id: &InstanceId) -> Result<(), Fault> {
        let call = async |ids: &[InstanceId]| {
            match self.terminate(ids).await {
                // The fleet has ended the others; the reaper asks for each again.
                Err(Fault::Unreadable(_) | Fault::Denied(_)) if ids.len() > 1 => {}
                ended => ended?,
            }
            Ok(ids.iter().map(|id| (id.clone(), ())).collect())
        };
        self.stack.batches().terminates.ask(self.stack, id, call).await?;
        Ok(())
    }

    /// As [`Fleet::list`], all pages; each page waits for a turn of its own.
    pub async fn list(&self) -> Result<Listing<Machine>, Fault> {
        let mut machines = Listing::from(Vec::new());
        let mut after: Option<String> = None;
        loop {
            self.turn(FleetCall::Describe, 0).await?;
            let page = self.stack.ports.fleet().list(after.as_deref()).await;
            let page = self.note_throttling(FleetCall::Describe, page)?;
            machines.items.extend(page.items);
            machines.unreadable.extend(page.unreadable);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(machines),
            }
        }
    }

    /// As [`Fleet::describe`].
    pub async fn describe(&self, ids: &[InstanceId]) -> Result<Listing<Machine>, Fault> {
        self.turn(FleetCall::Describe, 0).await?;
        self.note_throttling(FleetCall::Describe, self.stack.ports.fleet().describe(ids).await)
    }

    /// As [`Fleet::describe`] for one machine, in one call with those of other workers.
    pub async fn describe_one(&self, id: &InstanceId) -> Result<Option<Machine>, Fault> {
        let call = async |ids: &[InstanceId]| {
            let Listing { items, unreadable } = self.describe(ids).await?;
            let readable = items.into_iter().map(|machine| (machine.id.clone(), Ok(machine)));
            let others = unreadable.into_iter().map(|bad| (InstanceId::new(&bad.key), Err(bad)));
            Ok(readable.chain(others).collect())
        };
        let found = self.stack.batches().describes.ask(self.stack, id, call).await?;
        Ok(found.transpose()?)
    }

    async fn turn(&self, call: FleetCall, machines: u32) -> Result<(), Fault> {
        self.turn_within(call, machines, PATIENCE).await
    }

    async fn turn_within(
        &self,
        call: FleetCall,
        machines: u32,
        patience: Duration,
    ) -> Result<(), Fault> {
        let (ports, clock) = (&self.stack.ports, self.stack.ports.clock());
        for _ in 0..TURNS_MAX {
            let now = clock.monotonic();
            let wait = self.allowance().budget(ports, now).take(call, machines, now, patience);
            let wait = wait.ok_or(Fault::Throttled)?;
            if wait.is_zero() {
                return Ok(());
            }
            tracing::debug!(?call, ?wait, "call waits for its turn");
            clock.sleep(wait).await;
            if clock.monotonic() <= now + wait + LATE {
                return Ok(());
            }
        }
        Err(Fault::Throttled)
    }

    fn note_throttling<T>(&self, call: FleetCall, answer: Result<T, Fault>) -> Result<T, Fault> {
        if let Err(Fault::Throttled) = answer {
            let (ports, now) = (&self.stack.ports, self.stack.ports.clock().monotonic());
            self.allowance().budget(ports, now).complained(call, now);
        }
        answer
    }

    fn allowance(&self) -> MutexGuard<'_, Allowance> {
        self.allowance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count<T>(machines: &[T]) -> u32 {
    u32::try_from(machines.len()).unwrap_or(u32::MAX)
}
