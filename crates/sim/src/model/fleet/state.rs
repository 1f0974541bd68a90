//! What the model cloud holds: machines, launches it remembers, what it is out of.
//!
//! Not here: trips over the wire ([`super::FleetModel`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::Architecture;
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::{InstanceId, InstanceType, IntentId, MailboxKey, Zone};
use bullpen_core::ports::{Launched, Machine, MachineState};
use bullpen_core::time::Timestamp;
use tokio::sync::watch;

use crate::wire::Wire;

/// A machine type of the model's catalogue: name, vCPU, MiB.
pub(super) const CATALOGUE: [(&str, u32, u32); 8] = [
    ("c6i.large", 2, 4_096),
    ("m6i.large", 2, 8_192),
    ("r6i.large", 2, 16_384),
    ("c6i.xlarge", 4, 8_192),
    ("m6i.xlarge", 4, 16_384),
    ("r6i.xlarge", 4, 32_768),
    ("c6i.2xlarge", 8, 16_384),
    ("m6i.2xlarge", 8, 32_768),
];
pub(super) const ZONES: [&str; 2] = ["zone-a", "zone-b"];

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

pub(super) type Boot = Arc<dyn Fn(Machine, Life) + Send + Sync>;
pub(super) type Observer = Box<dyn FnMut(Timestamp, &FleetEvent) + Send>;

pub(super) struct Entry {
    pub(super) machine: Machine,
    pub(super) visible_at: Timestamp,
    pub(super) life: Option<watch::Sender<bool>>,
}

/// The model's state, shared by all processes.
pub struct FleetState {
    pub(super) entries: BTreeMap<InstanceId, Entry>,
    pub(super) launches: BTreeMap<IntentId, Launched>,
    pub(super) depleted: BTreeSet<Offering>,
    pub(super) capacity_left: Option<u32>,
    pub(super) serial: u64,
    pub(super) boot_max: Duration,
    pub(super) visible_after_max: Duration,
    pub(super) on_boot: Option<Boot>,
    pub(super) observer: Option<Observer>,
}

impl fmt::Debug for FleetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetState").field("machines", &self.entries.len()).finish_non_exhaustive()
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

    pub(super) fn launch(
        &mut self,
        request: &LaunchRequest,
        now: Timestamp,
        wire: &Wire,
    ) -> Launched {
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

    pub(super) fn tell(&mut self, now: Timestamp, event: &FleetEvent) {
        if let Some(observer) = &mut self.observer {
            observer(now, event);
        }
    }

    /// Pending → running: the agent starts.
    pub(super) fn boot(&mut self, id: &InstanceId) {
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

    pub(super) fn end(&mut self, id: &InstanceId, now: Timestamp, asked: bool) {
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

    pub(super) fn visible(&self, now: Timestamp) -> impl Iterator<Item = &Machine> {
        self.entries.values().filter(move |entry| entry.visible_at <= now).map(|e| &e.machine)
    }
}
