//! A model of the cloud's machines: a catalogue, capacity that can run out, boots that take time,
//! ids that are visible late, and launches that are idempotent on their intent.
//!
//! What boots is up to the world ([`FleetModel::on_boot`]); what was ended, and with what running on
//! it, is told to an observer.
//!
//! Not here: the agent on a machine ([`super::agent`]), rate limits.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::{InstanceId, InstanceType, Zone};
use bullpen_core::ports::{Fault, Fleet, Launched, Machine, MachineState, Started, StopOrder};
use bullpen_core::time::Timestamp;

use crate::clock::{SimClock, pass};
use crate::wire::{Wire, detach};

mod state;

use state::{CATALOGUE, ZONES};
pub use state::{FleetEvent, FleetState, Life};

/// One process's view of the cloud.
#[derive(Clone, Debug)]
pub struct FleetModel {
    state: Arc<Mutex<FleetState>>,
    wire: Wire,
    clock: SimClock,
}

impl FleetModel {
    /// An empty cloud.
    pub fn new(wire: Wire, clock: SimClock) -> Self {
        let state = FleetState {
            entries: BTreeMap::new(),
            launches: BTreeMap::new(),
            depleted: BTreeSet::new(),
            capacity_left: None,
            serial: 0,
            boot_max: Duration::ZERO,
            visible_after_max: Duration::ZERO,
            on_boot: None,
            observer: None,
        };
        Self { state: Arc::new(Mutex::new(state)), wire, clock }
    }

    /// The same cloud for another process.
    #[must_use]
    pub fn for_process(&self, wire: Wire, clock: SimClock) -> Self {
        Self { state: Arc::clone(&self.state), wire, clock }
    }

    fn state(&self) -> MutexGuard<'_, FleetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a boot, and the visibility of a new id, may take at most.
    pub fn set_delays(&self, boot_max: Duration, visible_after_max: Duration) {
        let mut state = self.state();
        state.boot_max = boot_max;
        state.visible_after_max = visible_after_max;
    }

    /// What happens when a machine has booted.
    pub fn on_boot(&self, boot: impl Fn(Machine, Life) + Send + Sync + 'static) {
        self.state().on_boot = Some(Arc::new(boot));
    }

    /// Who is told of every launch and end.
    pub fn set_observer(&self, observer: impl FnMut(Timestamp, &FleetEvent) + Send + 'static) {
        self.state().observer = Some(Box::new(observer));
    }

    /// Everything the cloud offers, whether it has it now or not.
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

    /// Lever: the cloud is out of this.
    pub fn deplete(&self, offering: Offering) {
        self.state().depleted.insert(offering);
    }

    /// Lever: only this many more machines can be had, of anything.
    pub fn limit_capacity(&self, machines: Option<u32>) {
        self.state().capacity_left = machines;
    }

    /// Lever: the cloud has everything again.
    pub fn replenish(&self) {
        let mut state = self.state();
        state.depleted.clear();
        state.capacity_left = None;
    }

    /// Lever: a machine dies without anyone having asked for it.
    pub fn lose(&self, id: &InstanceId) {
        let now = self.clock.true_now();
        self.state().end(id, now, false);
    }

    /// Every machine there is, seen from outside the world.
    pub fn snapshot(&self) -> Vec<Machine> {
        self.state().entries.values().map(|entry| entry.machine.clone()).collect()
    }
}

fn boot_later(state: &Arc<Mutex<FleetState>>, id: InstanceId, wire: &Wire) {
    let boot_max = state.lock().unwrap_or_else(PoisonError::into_inner).boot_max;
    let delay = wire.dice().between(boot_max / 4, boot_max);
    let state = Arc::clone(state);
    detach(async move {
        pass(delay).await;
        state.lock().unwrap_or_else(PoisonError::into_inner).boot(&id);
    });
}

impl Fleet for FleetModel {
    fn launch(
        &self,
        request: &LaunchRequest,
    ) -> impl Future<Output = Result<Launched, Fault>> + Send {
        let (model, request) = (self.clone(), request.clone());
        async move {
            let (shared, wire, clock) = (model.state, model.wire.clone(), model.clock);
            let reply = model.wire.call("fleet", move || {
                let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let before = state.serial;
                let launched = state.launch(&request, clock.true_now(), &wire);
                let is_new = state.serial > before;
                drop(state);
                for machine in launched.machines.iter().filter(|_| is_new) {
                    boot_later(&shared, machine.id.clone(), &wire);
                }
                launched
            });
            let launched = reply.await.or_unavailable()?;
            if launched.machines.is_empty() && launched.shortages.is_empty() {
                return Err(Fault::NoCapacity);
            }
            Ok(launched)
        }
    }

    fn start(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, Started)>, Fault>> + Send {
        let (model, ids) = (self.clone(), ids.to_vec());
        async move {
            let (shared, wire) = (model.state, model.wire.clone());
            let reply = model.wire.call("fleet", move || {
                ids.into_iter()
                    .map(|id| {
                        let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                        let Some(entry) = state.entries.get_mut(&id) else {
                            return (id, Started::Failed(Fault::NotFound));
                        };
                        match entry.machine.state {
                            MachineState::Stopped => {
                                entry.machine.state = MachineState::Pending;
                                drop(state);
                                boot_later(&shared, id.clone(), &wire);
                                (id, Started::Starting)
                            }
                            MachineState::Pending | MachineState::Running => {
                                (id, Started::Starting)
                            }
                            MachineState::Stopping | MachineState::Gone => {
                                (id, Started::Failed(Fault::NotFound))
                            }
                        }
                    })
                    .collect()
            });
            reply.await.or_unavailable()
        }
    }

    /// As the cloud does: it knows nothing of `until`.
    fn stop(&self, orders: &[StopOrder]) -> impl Future<Output = Result<(), Fault>> + Send {
        let (model, orders) = (self.clone(), orders.to_vec());
        async move {
            let shared = model.state;
            let reply = model.wire.call("fleet", move || {
                let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                for order in orders {
                    if let Some(entry) = state.entries.get_mut(&order.id)
                        && entry.machine.state == MachineState::Running
                    {
                        entry.machine.state = MachineState::Stopped;
                        if let Some(life) = entry.life.take() {
                            let _ = life.send(true);
                        }
                    }
                }
            });
            reply.await.or_unavailable()
        }
    }

    fn terminate(&self, ids: &[InstanceId]) -> impl Future<Output = Result<(), Fault>> + Send {
        let (model, ids) = (self.clone(), ids.to_vec());
        async move {
            let (shared, clock) = (model.state, model.clock);
            let reply = model.wire.call("fleet", move || {
                let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                for id in &ids {
                    state.end(id, clock.true_now(), true);
                }
            });
            reply.await.or_unavailable()
        }
    }

    fn list(&self) -> impl Future<Output = Result<Vec<Machine>, Fault>> + Send {
        let model = self.clone();
        async move {
            let (shared, clock) = (model.state, model.clock);
            let reply = model.wire.call("fleet", move || {
                let state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                state.visible(clock.true_now()).cloned().collect()
            });
            reply.await.or_unavailable()
        }
    }

    fn describe(
        &self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<Machine>, Fault>> + Send {
        let (model, ids) = (self.clone(), ids.to_vec());
        async move {
            let (shared, clock) = (model.state, model.clock);
            let reply = model.wire.call("fleet", move || {
                let state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let now = clock.true_now();
                ids.iter()
                    .filter_map(|id| state.entries.get(id))
                    .filter(|entry| entry.visible_at <= now)
                    .map(|entry| entry.machine.clone())
                    .collect()
            });
            reply.await.or_unavailable()
        }
    }
}
