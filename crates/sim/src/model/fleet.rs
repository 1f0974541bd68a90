//! A model of the cloud's machines: a catalogue, capacity that can run out, boots that take time,
//! ids that are visible late, and launches that are idempotent on their intent.
//!
//! What boots is up to the world ([`FleetModel::on_boot`]); what was ended, and with what running on
//! it, is told to an observer.
//!
//! Not here: the agent on a machine ([`super::agent`]), rate limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::class::{Architecture, Usage};
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::{InstanceId, InstanceType, IntentId, MailboxKey, StopOp, Zone};
use bullpen_core::ports::{Fault, Fleet, Launched, Machine, MachineState, Started};
use bullpen_core::time::Timestamp;
use tokio::sync::watch;

use crate::clock::{SimClock, pass};
use crate::wire::{Wire, detach};

/// A machine type of the model's catalogue: name, vCPU, MiB.
const CATALOGUE: [(&str, u32, u32); 8] = [
    ("c6i.large", 2, 4_096),
    ("m6i.large", 2, 8_192),
    ("r6i.large", 2, 16_384),
    ("c6i.xlarge", 4, 8_192),
    ("m6i.xlarge", 4, 16_384),
    ("r6i.xlarge", 4, 32_768),
    ("c6i.2xlarge", 8, 16_384),
    ("m6i.2xlarge", 8, 32_768),
];
const ZONES: [&str; 2] = ["zone-a", "zone-b"];

/// Ends when the machine's present boot ends.
#[derive(Clone, Debug)]
pub struct Life(watch::Receiver<bool>);

impl Life {
    /// Returns when the boot has ended.
    pub async fn ended(&self) {
        let mut over = self.0.clone();
        // A dropped sender is an ended boot as well.
        let _ = over.wait_for(|over| *over).await;
    }
}

/// What an observer is told.
#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// A machine exists now.
    Launched(Machine),
    /// A machine was ended because somebody asked.
    Terminated(InstanceId),
    /// A machine died by itself.
    Lost(InstanceId),
}

type Boot = Arc<dyn Fn(Machine, Life) + Send + Sync>;
type Observer = Box<dyn FnMut(Timestamp, &FleetEvent) + Send>;

struct Entry {
    machine: Machine,
    visible_at: Timestamp,
    life: Option<watch::Sender<bool>>,
}

/// The model's state, shared by all processes.
pub struct FleetState {
    entries: BTreeMap<InstanceId, Entry>,
    launches: BTreeMap<IntentId, Launched>,
    depleted: BTreeSet<Offering>,
    capacity_left: Option<u32>,
    serial: u64,
    boot_max: Duration,
    visible_after_max: Duration,
    on_boot: Option<Boot>,
    observer: Option<Observer>,
}

impl fmt::Debug for FleetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetState").field("machines", &self.entries.len()).finish_non_exhaustive()
    }
}

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

impl FleetState {
    fn offerings(&self, request: &LaunchRequest) -> (Vec<(Offering, u32, u32)>, Vec<Offering>) {
        let mut open = Vec::new();
        let mut short = Vec::new();
        for (name, vcpu, memory_mib) in CATALOGUE {
            let instance_type = InstanceType::new(name);
            let fits = request.class.vcpu.contains(vcpu)
                && memory_mib >= request.class.memory_mib_min
                && request.allowed_types.iter().any(|pattern| pattern.matches(&instance_type));
            for zone in ZONES.iter().filter(|_| fits) {
                let offering = Offering {
                    usage: request.usage,
                    instance_type: instance_type.clone(),
                    zone: Zone::new(zone),
                };
                if request.avoid.contains(&offering) {
                    continue;
                }
                if self.depleted.contains(&offering) {
                    short.push(offering);
                } else {
                    open.push((offering, vcpu, memory_mib));
                }
            }
        }
        (open, short)
    }

    fn launch(&mut self, request: &LaunchRequest, now: Timestamp, wire: &Wire) -> Launched {
        if let Some(known) = self.launches.get(&request.intent) {
            return known.clone();
        }
        let (open, shortages) = self.offerings(request);
        let mut launched = Launched { machines: Vec::new(), shortages };
        for _ in 0..request.count {
            let Some((offering, vcpu, memory_mib)) = wire.dice().pick(&open) else { break };
            match &mut self.capacity_left {
                Some(0) => break,
                Some(left) => *left -= 1,
                None => {}
            }
            self.serial += 1;
            let id = InstanceId::new(format!("i-{:06}", self.serial));
            launched.machines.push(Machine {
                mailbox: MailboxKey::new(id.as_str()),
                id,
                state: MachineState::Pending,
                intent: request.intent.clone(),
                class: request.class.name.clone(),
                pool: request.pool.clone(),
                instance_type: offering.instance_type.clone(),
                vcpu: *vcpu,
                memory_mib: *memory_mib,
                architecture: Architecture::X64,
                zone: offering.zone.clone(),
                usage: request.usage,
                launched_at: now,
            });
        }
        for machine in &launched.machines {
            let visible_at = now.after(wire.dice().between(Duration::ZERO, self.visible_after_max));
            let entry = Entry { machine: machine.clone(), visible_at, life: None };
            self.entries.insert(machine.id.clone(), entry);
            self.tell(now, &FleetEvent::Launched(machine.clone()));
        }
        self.launches.insert(request.intent.clone(), launched.clone());
        launched
    }

    fn tell(&mut self, now: Timestamp, event: &FleetEvent) {
        if let Some(observer) = &mut self.observer {
            observer(now, event);
        }
    }

    /// Pending → running: the agent starts.
    fn boot(&mut self, id: &InstanceId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        if entry.machine.state != MachineState::Pending {
            return;
        }
        entry.machine.state = MachineState::Running;
        let (over, life) = watch::channel(false);
        entry.life = Some(over);
        if let Some(boot) = self.on_boot.clone() {
            boot(entry.machine.clone(), Life(life));
        }
    }

    fn end(&mut self, id: &InstanceId, now: Timestamp, asked: bool) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        if entry.machine.state == MachineState::Gone {
            return;
        }
        entry.machine.state = MachineState::Gone;
        if let Some(life) = entry.life.take() {
            let _ = life.send(true);
        }
        let event = if asked { FleetEvent::Terminated } else { FleetEvent::Lost };
        self.tell(now, &event(id.clone()));
    }

    fn visible(&self, now: Timestamp) -> impl Iterator<Item = &Machine> {
        self.entries.values().filter(move |entry| entry.visible_at <= now).map(|e| &e.machine)
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

    fn stop(&self, ops: &[(InstanceId, StopOp)]) -> impl Future<Output = Result<(), Fault>> + Send {
        let (model, ops) = (self.clone(), ops.to_vec());
        async move {
            let shared = model.state;
            let reply = model.wire.call("fleet", move || {
                let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                for (id, _) in ops {
                    if let Some(entry) = state.entries.get_mut(&id)
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
