//! The model of the cloud's machines: a catalogue, capacity and quotas that run out, boots, starts
//! and stops that take time, ids that become visible late, launches that are idempotent on their
//! intent, spot machines that are reclaimed after a notice, and rate limits.
//!
//! The world starts an agent on each boot ([`FleetModel::on_boot`]); an observer sees every call,
//! launch and end.
//!
//! Not here: the agent on a machine.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::{InstanceId, InstanceType, PoolName, Zone};
use bullpen_core::ports::{
    Fault, Fleet, Launched, Listing, Machine, Page, Site, StartOutcome, StopOrder, Tag,
};
use bullpen_core::rates::{Budget, FleetCall, Rates};
use bullpen_core::time::Timestamp;

use super::locked;
use crate::clock::{SimClock, pass};
use crate::dice::Dice;
use crate::wire::{Wire, detach};

mod listing;
mod neighbours;
mod state;

pub use listing::{Listings, Oddity};
use state::{CATALOGUE, ZONES, denied};
pub use state::{FleetEvent, FleetState, MachineLife};

/// The time between the cloud's notice and the end of a spot machine.
const SPOT_NOTICE: Duration = Duration::from_secs(120);

/// The cloud's longest delays; most are much shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// From a launch, or a start, to a running machine.
    pub boot_max: Duration,
    /// From a stop to a stopped machine.
    pub stop_max: Duration,
    /// From a launch until the new id is listed.
    pub visible_after_max: Duration,
}

/// One process's view of the cloud.
#[derive(Clone, Debug)]
pub struct FleetModel {
    state: Arc<Mutex<FleetState>>,
    wire: Wire,
    clock: SimClock,
}

impl FleetModel {
    /// An empty cloud without rate limits.
    pub fn new(wire: Wire, clock: SimClock) -> Self {
        Self { state: Arc::default(), wire, clock }
    }

    /// The same cloud for another process.
    #[must_use]
    pub fn for_process(&self, wire: Wire, clock: SimClock) -> Self {
        Self { state: Arc::clone(&self.state), wire, clock }
    }

    fn state(&self) -> MutexGuard<'_, FleetState> {
        locked(&self.state)
    }

    /// Sets the delays.
    pub fn set_delays(&self, delays: Delays) {
        self.state().delays = delays;
    }

    /// Sets the rate limits of all processes together.
    pub fn set_rates(&self, rates: Rates) {
        let now = self.clock.elapsed();
        let mut state = self.state();
        state.budget = Budget::new(&rates, now);
        state.rates = rates;
    }

    /// Sets how many of a thousand launches of several machines are incomplete.
    pub fn set_partial(&self, per_mille: u32) {
        self.state().partial = per_mille;
    }

    /// The client panics when it launches for this pool, if there is one.
    pub fn break_launches_of(&self, pool: Option<PoolName>) {
        let mut state = self.state();
        state.has_broken |= pool.is_some();
        state.breaks_for = pool;
    }

    /// Whether the client panicked by a lever, or would.
    pub fn has_broken(&self) -> bool {
        self.state().has_broken
    }

    /// Sets the callback that runs when a machine has booted.
    pub fn on_boot(&self, boot: impl Fn(Machine, MachineLife) + Send + Sync + 'static) {
        self.state().on_boot = Some(Arc::new(boot));
    }

    /// Sets the observer of every call, launch and end.
    pub fn set_observer(&self, observer: impl FnMut(Timestamp, &FleetEvent) + Send + 'static) {
        self.state().observer = Some(Box::new(observer));
    }

    /// Everything in the catalogue, available or not.
    pub fn offerings(&self) -> Vec<Offering> {
        let mut offerings = Vec::new();
        for (name, ..) in CATALOGUE {
            for zone in ZONES {
                for usage in [Usage::Spot, Usage::OnDemand] {
                    let instance_type = InstanceType::new(name);
                    offerings.push(Offering { usage, instance_type, zone: Zone::new(zone) });
                }
            }
        }
        offerings
    }

    /// Lever: the cloud runs out of an offering.
    pub fn deplete(&self, offering: Offering) {
        self.state().depleted.insert(offering);
    }

    /// Lever: the cloud has only this many more machines, of all types.
    pub fn limit_capacity(&self, machines: Option<u32>) {
        self.state().capacity_left = machines;
    }

    /// Lever: sets the account's vCPU quota for this usage.
    pub fn set_quota(&self, usage: Usage, vcpu_max: u32) {
        self.state().vcpu_max.insert(usage, vcpu_max);
    }

    /// Lever: the cloud has everything again, allows everything and shows everything.
    pub fn replenish(&self) {
        let mut state = self.state();
        state.set_listings(Listings::TRUE, None);
        state.oddities.retain(|(_, oddity)| *oddity == Oddity::Newer);
        state.depleted.clear();
        state.capacity_left = None;
        state.vcpu_max.clear();
        state.partial = 0;
    }

    /// Lever: a machine dies that no process terminated.
    pub fn lose(&self, id: &InstanceId) {
        let now = self.clock.true_now();
        self.state().end(id, now, FleetEvent::Lost);
    }

    /// Whether a listing ever missed the machine.
    pub(crate) fn was_hidden(&self, id: &InstanceId) -> bool {
        locked(&self.state().hidden).contains(id)
    }

    /// When an answer to a question about this machine last failed to show it.
    pub(crate) fn was_unseen(&self, id: &InstanceId) -> Option<Timestamp> {
        locked(&self.state().unseen).get(id).copied()
    }

    /// Lever: a machine is odd from now on, or no longer.
    pub fn make_odd(&self, id: &InstanceId, oddity: Oddity, is_odd: bool) {
        let (oddities, odd) = (&mut self.state().oddities, (id.clone(), oddity));
        let _ = if is_odd { oddities.insert(odd) } else { oddities.remove(&odd) };
    }

    /// Sets how far the cloud's answers are from the truth, drawn from a stream of its own.
    pub fn set_listings(&self, listings: Listings, seed: u64) {
        self.state().set_listings(listings, Some(Dice::new(seed, "the cloud's answers")));
    }

    /// A machine switches itself off.
    pub fn power_off(&self, id: &InstanceId) {
        let now = self.clock.true_now();
        self.state().end(id, now, FleetEvent::PoweredOff);
    }

    /// Lever: the cloud gives notice to a machine, and later takes it away.
    pub async fn reclaim(&self, id: &InstanceId) {
        let now = self.clock.true_now();
        self.state().give_notice(id, now);
        pass(SPOT_NOTICE).await;
        self.lose(id);
    }

    /// Every machine of this stack, without a call.
    pub fn snapshot(&self) -> Vec<Machine> {
        let state = self.state();
        let own = state.entries.values().filter(|entry| !state.is_neighbours(&entry.machine.id));
        own.map(|entry| entry.machine.clone()).collect()
    }

    /// The approximate number of machines of each call of this kind, without a call.
    pub fn asked(&self, call: FleetCall) -> Vec<u32> {
        self.state().asked.get(&call).cloned().unwrap_or_default()
    }

    /// Makes one call: the observer sees it now; on arrival it is counted or refused.
    async fn ask<T: Send + 'static>(
        &self,
        call: FleetCall,
        machines: usize,
        effect: impl FnOnce(&Self, &mut FleetState) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let machines = u32::try_from(machines).unwrap_or(u32::MAX);
        let now = self.clock.true_now();
        let asked = FleetEvent::Asked(Arc::clone(self.wire.name()), call, machines);
        {
            let mut state = self.state();
            state.tell(now, &asked);
            state.asked.entry(call).or_default().push(machines);
        }
        let model = self.clone();
        let reply = self.wire.call("fleet", move || {
            let mut state = locked(&model.state);
            state.admit(call, machines, model.clock.elapsed(), &model.wire)?;
            Ok(effect(&model, &mut state))
        });
        reply.await.or_unavailable()?
    }

    fn boot_later(&self, delays: Delays, id: InstanceId) {
        let delay = self.wire.dice().delay(delays.boot_max / 4, delays.boot_max);
        self.later(delay, move |state, now| state.boot(&id, now));
    }

    fn later(
        &self,
        delay: Duration,
        change: impl FnOnce(&mut FleetState, Timestamp) + Send + 'static,
    ) {
        let (state, clock) = (Arc::clone(&self.state), self.clock.clone());
        detach(async move {
            pass(delay).await;
            change(&mut locked(&state), clock.true_now());
        });
    }

    /// Makes one call that changes each of these machines, except those that the cloud denies or
    /// this program cannot read.
    async fn change_each(
        &self,
        call: FleetCall,
        ids: Vec<InstanceId>,
        change: impl Fn(&Self, &mut FleetState, &InstanceId) + Send + 'static,
    ) -> Result<(), Fault> {
        let changed = self.ask(call, ids.len(), move |model, state| {
            let mut refused = Ok(());
            for id in &ids {
                if state.is_neighbours(id) {
                    let trespassed = FleetEvent::Trespassed(id.clone(), call);
                    state.tell(model.clock.true_now(), &trespassed);
                }
                match state.readable(id) {
                    _ if state.denies(id) => refused = Err(denied(id)),
                    Ok(()) => change(model, state, id),
                    Err(bad) => refused = Err(bad.fault()),
                }
            }
            refused
        });
        changed.await?
    }
}

/// The model's machines need nothing before their launch.
impl Site for FleetModel {}

impl Fleet for FleetModel {
    fn rates(&self) -> Rates {
        self.state().rates.clone()
    }

    fn launch(
        &self,
        request: &LaunchRequest,
    ) -> impl Future<Output = Result<Launched, Fault>> + Send {
        let request = request.clone();
        async move {
            let breaks_for = self.state().breaks_for.clone();
            let breaks = breaks_for.is_some() && breaks_for == request.pool;
            assert!(!breaks, "a planned defect of the client");
            let count = usize::try_from(request.count).unwrap_or(usize::MAX);
            let launched = self.ask(FleetCall::Launch, count, move |model, state| {
                let (launched, new) = state.launch(&request, model.clock.true_now(), &model.wire);
                for machine in launched.machines.iter().filter(|_| new) {
                    model.boot_later(state.delays, machine.id.clone());
                }
                launched
            });
            let launched = launched.await?;
            if launched.machines.is_empty() && launched.shortages.is_empty() {
                return Err(Fault::NoCapacity);
            }
            Ok(launched)
        }
    }

    fn start(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, StartOutcome)>, Fault>> + Send {
        let ids = ids.to_vec();
        self.ask(FleetCall::Start, ids.len(), move |model, state| {
            let start = |id: InstanceId| {
                let now = model.clock.true_now();
                if state.is_neighbours(&id) {
                    state.tell(now, &FleetEvent::Trespassed(id.clone(), FleetCall::Start));
                }
                let (started, boots) = state.start(&id, now, &model.wire);
                if boots {
                    model.boot_later(state.delays, id.clone());
                }
                (id, started)
            };
            ids.into_iter().map(start).collect()
        })
    }

    /// Ignores `until`, as the cloud does.
    fn stop(&self, orders: &[StopOrder]) -> impl Future<Output = Result<(), Fault>> + Send {
        let ids = orders.iter().map(|order| order.id.clone()).collect();
        self.change_each(FleetCall::Stop, ids, |model, state, id| {
            if state.stop(id, model.clock.true_now()) {
                let delay = model.wire.dice().delay(Duration::ZERO, state.delays.stop_max);
                let id = id.clone();
                model.later(delay, move |state, now| state.stopped(&id, now));
            }
        })
    }

    fn terminate(&self, ids: &[InstanceId]) -> impl Future<Output = Result<(), Fault>> + Send {
        self.change_each(FleetCall::Terminate, ids.to_vec(), |model, state, id| {
            state.end(id, model.clock.true_now(), FleetEvent::Terminated);
        })
    }

    fn tag(&self, ids: &[InstanceId], tag: Tag) -> impl Future<Output = Result<(), Fault>> + Send {
        self.change_each(FleetCall::Tag, ids.to_vec(), move |_, state, id| state.tag(id, tag))
    }

    fn list(
        &self,
        after: Option<&str>,
    ) -> impl Future<Output = Result<Page<Machine>, Fault>> + Send {
        let after = after.map(str::to_owned);
        self.ask(FleetCall::Describe, 0, move |model, state| {
            state.page(after.as_deref(), model.clock.true_now())
        })
    }

    fn describe(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Listing<Machine>, Fault>> + Send {
        let ids = ids.to_vec();
        self.ask(FleetCall::Describe, 0, move |model, state| {
            state.described(&ids, model.clock.true_now())
        })
    }
}
