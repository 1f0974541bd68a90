//! The model cloud's state: machines, the launches it remembers, depleted offerings, quotas and
//! rate limits.
//!
//! Not here: trips over the wire ([`super::FleetModel`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::class::{Architecture, Usage};
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::{InstanceId, InstanceType, IntentId, MailboxKey, PoolName, Zone};
use bullpen_core::ports::{Fault, Launched, Machine, MachineState, StartOutcome, Tag, Tags};
use bullpen_core::rates::{Budget, FleetCall, Rates};
use bullpen_core::time::Timestamp;
use tokio::sync::watch;

use super::Delays;
use super::listing::{Listings, Oddity, StateBefore};
use crate::dice::Dice;
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

/// The cloud's messages to one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BootSignal {
    /// The boot has not ended.
    Running,
    /// The cloud will take the machine away soon.
    Notice,
    /// The boot has ended.
    Ended,
}

/// One boot of a machine, for the agent on it.
#[derive(Clone, Debug)]
pub struct MachineLife(watch::Receiver<BootSignal>);

impl MachineLife {
    /// Returns when the boot has ended.
    pub async fn ended(&self) {
        self.at_least(BootSignal::Ended).await;
    }

    /// Returns when the cloud has given notice, or has taken the machine away.
    pub async fn noticed(&self) {
        self.at_least(BootSignal::Notice).await;
    }

    async fn at_least(&self, signal: BootSignal) {
        let mut signals = self.0.clone();
        // A dropped sender means that the boot has ended.
        let _ = signals.wait_for(|now| *now >= signal).await;
    }
}

/// An event that the observer receives.
#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// A process makes a call: its name, the call, and the approximate number of machines.
    Asked(Arc<str>, FleetCall, u32),
    /// A machine exists now.
    Launched(Machine),
    /// A running machine stops, at a process's call.
    Stopping(InstanceId),
    /// A machine ended, at a process's call.
    Terminated(InstanceId),
    /// The cloud gave notice to a machine.
    Noticed(InstanceId),
    /// A machine died, or the cloud took it away.
    Lost(InstanceId),
    /// A machine switched itself off.
    PoweredOff(InstanceId),
    /// A process asks to change a machine of another stack.
    Trespassed(InstanceId, FleetCall),
}

pub(super) type Boot = Arc<dyn Fn(Machine, MachineLife) + Send + Sync>;
pub(super) type FleetObserver = Box<dyn FnMut(Timestamp, &FleetEvent) + Send>;

pub(super) struct FleetEntry {
    pub(super) machine: Machine,
    pub(super) visible_at: Timestamp,
    pub(super) before: Option<StateBefore>,
    life: Option<watch::Sender<BootSignal>>,
}

impl FleetEntry {
    /// A machine that runs without an agent of this stack.
    pub(super) const fn running(machine: Machine, now: Timestamp) -> Self {
        Self { machine, visible_at: now, before: None, life: None }
    }

    fn end_boot(&mut self) {
        if let Some(life) = self.life.take() {
            life.send_replace(BootSignal::Ended);
        }
    }
}

/// The model's state, shared by all processes.
#[derive(Default)]
pub struct FleetState {
    pub(super) entries: BTreeMap<InstanceId, FleetEntry>,
    /// Those of other stacks.
    pub(super) neighbours: BTreeSet<InstanceId>,
    pub(super) oddities: BTreeSet<(InstanceId, Oddity)>,
    /// The machines that a listing once missed.
    pub(super) hidden: Mutex<BTreeSet<InstanceId>>,
    /// The machines that an answer about them failed to show, and when last.
    pub(super) unseen: Mutex<BTreeMap<InstanceId, Timestamp>>,
    pub(super) listings: Listings,
    /// Draws what answers miss, and for how long they lag.
    pub(super) dice: Option<Dice>,
    launches: BTreeMap<IntentId, Launched>,
    pub(super) depleted: BTreeSet<Offering>,
    pub(super) capacity_left: Option<u32>,
    pub(super) vcpu_max: BTreeMap<Usage, u32>,
    /// Of a thousand launches of several machines, how many are incomplete.
    pub(super) partial: u32,
    /// The pool for which the client panics.
    pub(super) breaks_for: Option<PoolName>,
    pub(super) has_broken: bool,
    serial: u64,
    pub(super) delays: Delays,
    pub(super) rates: Rates,
    pub(super) budget: Budget,
    /// The approximate number of machines of each call.
    pub(super) asked: BTreeMap<FleetCall, Vec<u32>>,
    pub(super) on_boot: Option<Boot>,
    pub(super) observer: Option<FleetObserver>,
}

impl fmt::Debug for FleetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetState").field("machines", &self.entries.len()).finish_non_exhaustive()
    }
}

impl FleetState {
    /// Counts a call that arrived, or refuses it.
    pub(super) fn admit(
        &mut self,
        call: FleetCall,
        machines: u32,
        now: Duration,
        wire: &Wire,
    ) -> Result<(), Fault> {
        if self.budget.take(call, machines, now, Duration::ZERO).is_some() {
            return Ok(());
        }
        wire.happened("cloud's bucket empty");
        Err(Fault::Throttled)
    }

    /// The offerings that fit a request: the available ones, and those the cloud is out of.
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
                if self.depleted.contains(&offering) || !self.has_quota(request.usage, vcpu) {
                    short.push(offering);
                } else {
                    open.push((offering, vcpu, memory_mib));
                }
            }
        }
        (open, short)
    }

    /// Whether the account's quota allows this many more vCPUs.
    fn has_quota(&self, usage: Usage, vcpu: u32) -> bool {
        let Some(most) = self.vcpu_max.get(&usage) else { return true };
        let counts = |entry: &&FleetEntry| {
            entry.machine.usage == usage
                && matches!(entry.machine.state, MachineState::Pending | MachineState::Running)
        };
        let used: u32 = self.entries.values().filter(counts).map(|it| it.machine.vcpu).sum();
        used + vcpu <= *most
    }

    /// Launches the available machines; the flag says whether the launch was new.
    pub(super) fn launch(
        &mut self,
        request: &LaunchRequest,
        now: Timestamp,
        wire: &Wire,
    ) -> (Launched, bool) {
        if let Some(known) = self.launches.get(&request.intent) {
            return (known.clone(), false);
        }
        let mut launched = Launched::default();
        for _ in 0..self.granted(request.count, wire) {
            let (open, shortages) = self.offerings(request);
            launched.shortages = shortages;
            let Some((offering, vcpu, memory_mib)) = wire.dice().pick(&open) else { break };
            match &mut self.capacity_left {
                Some(0) => break,
                Some(left) => *left -= 1,
                None => {}
            }
            let machine = self.build(request, offering, *vcpu, *memory_mib, now, wire);
            launched.machines.push(machine);
        }
        if launched.machines.len() < usize::try_from(request.count).unwrap_or(usize::MAX) {
            wire.happened("fleet incomplete");
        }
        self.launches.insert(request.intent.clone(), launched.clone());
        (launched, true)
    }

    /// How many of the requested machines the cloud grants.
    fn granted(&self, count: u32, wire: &Wire) -> u32 {
        if count > 1 && wire.dice().chance(self.partial) {
            let some = wire.dice().below(u64::from(count));
            return u32::try_from(some).unwrap_or(count).max(1);
        }
        count
    }

    fn build(
        &mut self,
        request: &LaunchRequest,
        offering: &Offering,
        vcpu: u32,
        memory_mib: u32,
        now: Timestamp,
        wire: &Wire,
    ) -> Machine {
        self.serial += 1;
        let id = InstanceId::new(format!("i-{:06}", self.serial));
        let machine = Machine {
            mailbox: MailboxKey::new(id.as_str()),
            id: id.clone(),
            state: MachineState::Pending,
            intent: request.intent.clone(),
            class: request.class.name.clone(),
            pool: request.pool.clone(),
            instance_type: offering.instance_type.clone(),
            vcpu,
            memory_mib,
            architecture: Architecture::X64,
            zone: offering.zone.clone(),
            usage: request.usage,
            launched_at: now,
            tags: Tags::default(),
        };
        let hidden = wire.dice().between(Duration::ZERO, self.delays.visible_after_max);
        if !hidden.is_zero() {
            wire.happened("id visible late");
        }
        let entry = FleetEntry {
            machine: machine.clone(),
            visible_at: now.after(hidden),
            before: None,
            life: None,
        };
        self.entries.insert(id, entry);
        self.tell(now, &FleetEvent::Launched(machine.clone()));
        machine
    }

    pub(super) fn tell(&mut self, now: Timestamp, event: &FleetEvent) {
        if let Some(observer) = &mut self.observer {
            observer(now, event);
        }
    }

    /// Pending → running: starts the agent.
    pub(super) fn boot(&mut self, id: &InstanceId, now: Timestamp) {
        if self.entries.get(id).is_none_or(|it| it.machine.state != MachineState::Pending) {
            return;
        }
        self.set(id, MachineState::Running, now);
        let Some(entry) = self.entries.get_mut(id) else { return };
        let (signals, life) = watch::channel(BootSignal::Running);
        entry.life = Some(signals);
        if let Some(boot) = self.on_boot.clone() {
            boot(entry.machine.clone(), MachineLife(life));
        }
    }

    /// Stopped → pending; the flag says whether the machine boots now.
    pub(super) fn start(
        &mut self,
        id: &InstanceId,
        now: Timestamp,
        wire: &Wire,
    ) -> (StartOutcome, bool) {
        if self.denies(id) {
            return (StartOutcome::Failed(denied(id)), false);
        }
        let Some(entry) = self.entries.get(id) else {
            return (StartOutcome::Failed(Fault::NotFound), false);
        };
        let machine = &entry.machine;
        let offering = Offering {
            usage: machine.usage,
            instance_type: machine.instance_type.clone(),
            zone: machine.zone.clone(),
        };
        match machine.state {
            MachineState::Stopped
                if self.depleted.contains(&offering)
                    || !self.has_quota(machine.usage, machine.vcpu) =>
            {
                wire.happened("start refused");
                (StartOutcome::NoCapacity, false)
            }
            MachineState::Stopped => {
                self.set(id, MachineState::Pending, now);
                (StartOutcome::Starting, true)
            }
            MachineState::Pending | MachineState::Running => (StartOutcome::Starting, false),
            MachineState::Stopping | MachineState::Gone => {
                (StartOutcome::Failed(Fault::NotFound), false)
            }
        }
    }

    /// Running → stopping; says whether the machine was running.
    pub(super) fn stop(&mut self, id: &InstanceId, now: Timestamp) -> bool {
        match self.entries.get_mut(id) {
            Some(entry) if entry.machine.state == MachineState::Running => {
                entry.end_boot();
            }
            Some(_) | None => return false,
        }
        self.set(id, MachineState::Stopping, now);
        self.tell(now, &FleetEvent::Stopping(id.clone()));
        true
    }

    /// Stopping → stopped.
    pub(super) fn stopped(&mut self, id: &InstanceId, now: Timestamp) {
        if self.entries.get(id).is_some_and(|it| it.machine.state == MachineState::Stopping) {
            self.set(id, MachineState::Stopped, now);
        }
    }

    /// Sets a tag; a machine that is gone keeps the tags it had.
    pub(super) fn tag(&mut self, id: &InstanceId, tag: Tag) {
        if let Some(entry) = self.entries.get_mut(id)
            && entry.machine.state != MachineState::Gone
        {
            entry.machine.tags.put(tag);
        }
    }

    /// Tells the agent that the cloud will take the machine away.
    pub(super) fn give_notice(&mut self, id: &InstanceId, now: Timestamp) {
        if let Some(life) = self.entries.get(id).and_then(|entry| entry.life.as_ref()) {
            life.send_replace(BootSignal::Notice);
            self.tell(now, &FleetEvent::Noticed(id.clone()));
        }
    }

    pub(super) fn end(
        &mut self,
        id: &InstanceId,
        now: Timestamp,
        event: impl FnOnce(InstanceId) -> FleetEvent,
    ) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        if entry.machine.state == MachineState::Gone {
            return;
        }
        entry.end_boot();
        self.set(id, MachineState::Gone, now);
        self.tell(now, &event(id.clone()));
    }
}

/// The answer to a call about a machine that the cloud lets no process of the stack change.
pub(super) fn denied(id: &InstanceId) -> Fault {
    Fault::Denied(format!("the policy does not allow this for {id}"))
}
