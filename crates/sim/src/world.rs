//! A world: all models on one virtual time, and the processes and agents that live in it.
//!
//! A *process* is one run of the production engine with its own wire and its own clock skew. It can
//! die at any await ([`World::run`]), and calls that it already sent may still land.
//!
//! Not here: the life of a world ([`crate::life`]), or judging it ([`crate::checker`]).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::clock_witness::ClockWitness;
use bullpen_core::creation::Ceiling;
use bullpen_core::ids::{ClaimId, HolderId, InstanceId, SpecHash, StopOp};
use bullpen_core::limits::Limits;
use bullpen_core::ports::{Ids, Ports};
use bullpen_core::rates::Rates;
use bullpen_engine::Stack;
use bullpen_engine::branch::branch;
use bullpen_engine::defects::Defects;

use crate::clock::{SimClock, Unsteady, WORLD_BEGINS};
use crate::dice::Dice;
use crate::machine::{AgentBehaviour, Machine};
use crate::model::fleet::Delays;
use crate::model::{FleetModel, ForgeModel, JobForgeModel, LedgerModel, MailboxModel, QueuesModel};
use crate::storms::{Party, Storm, StormId, StormKind, Storms};
use crate::wire::{Counts, Weather, Wire, detach};

/// Ids from the process's own random stream.
#[derive(Debug)]
pub struct SimIds {
    dice: Dice,
    labels: Dice,
    process: String,
}

impl Ids for SimIds {
    fn claim(&self) -> ClaimId {
        ClaimId::new(format!("{}-{:016x}", self.process, self.dice.any()))
    }

    fn stop_op(&self) -> StopOp {
        StopOp::new(format!("{}-{:016x}", self.process, self.dice.any()))
    }

    fn holder(&self) -> HolderId {
        HolderId::new(&self.process)
    }

    /// Uses a separate stream, so that drawing a label changes no other id.
    fn label_bits(&self) -> u128 {
        let (high, low) = (self.labels.any(), self.labels.any());
        u128::from(high) << 64 | u128::from(low)
    }

    fn jitter(&self, bound: u64) -> u64 {
        self.dice.below(bound)
    }
}

/// The ports of one process: all models.
#[derive(Debug)]
pub struct SimPorts {
    ledger: LedgerModel,
    queues: QueuesModel,
    mailbox: MailboxModel,
    fleet: FleetModel,
    forge: ForgeModel,
    clock: SimClock,
    ids: SimIds,
}

impl Ports for SimPorts {
    type Ledger = LedgerModel;
    type Queues = QueuesModel;
    type Mailbox = MailboxModel;
    type Fleet = FleetModel;
    type Site = FleetModel;
    type Forge = ForgeModel;
    type Clock = SimClock;
    type Ids = SimIds;

    fn ledger(&self) -> &LedgerModel {
        &self.ledger
    }
    fn queues(&self) -> &QueuesModel {
        &self.queues
    }
    fn mailbox(&self) -> &MailboxModel {
        &self.mailbox
    }
    fn fleet(&self) -> &FleetModel {
        &self.fleet
    }
    fn site(&self) -> &FleetModel {
        &self.fleet
    }
    fn forge(&self) -> &ForgeModel {
        &self.forge
    }
    fn clock(&self) -> &SimClock {
        &self.clock
    }
    fn ids(&self) -> &SimIds {
        &self.ids
    }
}

/// The name of every world's stack.
pub(crate) const STACK: &str = "sim";
/// The spec hash of machines until the world changes it.
pub const FIRST_SPEC: &str = "1:aa";

/// The conditions in a world, drawn from its seed.
#[derive(Clone, Debug)]
pub struct Climate {
    /// The faults of the control plane's calls.
    pub control: Weather,
    /// The faults of the agents' calls.
    pub agents: Weather,
    /// How agents behave.
    pub temper: AgentBehaviour,
    /// How long the cloud takes for each step.
    pub delays: Delays,
    /// Of a thousand launches of several machines, how many are incomplete.
    pub partial: u32,
    /// The largest clock skew, in either direction.
    pub skew_max: Duration,
    /// Of a thousand processes, how many die.
    pub crash: u32,
    /// Whether the stores use the weaker guarantees that their ports allow.
    pub weak: bool,
    /// Of a thousand processes of the control plane, how many pause.
    pub pauses: u32,
    /// Of a thousand processes of the control plane, how many have a clock that steps and drifts.
    pub unsteady: u32,
}

/// A world in which nothing goes wrong.
pub const CALM: Climate = Climate {
    control: CALM_WEATHER,
    agents: CALM_WEATHER,
    temper: AgentBehaviour {
        warm_up_max: Duration::from_secs(20),
        warm_up_fails: 0,
        warm_up_slow: 0,
        warm_up_hangs: 0,
        register_max: Duration::from_secs(3),
        dies: 0,
        hangs: 0,
        mute: 0,
        skew_max: Duration::ZERO,
        skewed: 0,
        exits: 0,
        forgotten: 0,
        updates: 0,
    },
    delays: Delays {
        boot_max: Duration::from_secs(30),
        stop_max: Duration::from_secs(60),
        visible_after_max: Duration::ZERO,
    },
    partial: 0,
    skew_max: Duration::ZERO,
    crash: 0,
    weak: false,
    pauses: 0,
    unsteady: 0,
};

const CALM_WEATHER: Weather = Weather {
    latency_max: Duration::from_millis(8),
    throttle: 0,
    refuse: 0,
    lose_answer: 0,
    land_late: 0,
    late_max: Duration::ZERO,
    false_empty: 0,
    deliver_twice: 0,
    lag_max: Duration::ZERO,
    slow: 0,
    hang: 0,
    late_refusals: 0,
};

/// The longest step of a process's clock, and the most it drifts: with the usual skew, two clocks
/// stay within the skew that the engine tolerates.
const STEP_MAX: Duration = Duration::from_secs(4);
const DRIFT_MAX: Duration = Duration::from_secs(1);
/// The latest time after its start at which a process's clock steps.
const STEPS_WITHIN: Duration = Duration::from_secs(1_200);
/// How long a process pauses.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(240));
/// A process pauses in its first awaits, where machines change owners, or at a later one.
const PAUSES_AT: (u64, u64) = (60, 6_000);
/// How often one process pauses at most.
const PAUSES_MAX: u64 = 3;

/// The machines that had trouble of their own: an agent that died or hung, a wrong clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ailing(Arc<Mutex<BTreeSet<InstanceId>>>);

impl Ailing {
    /// Notes a machine.
    pub(crate) fn note(&self, machine: &InstanceId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(machine.clone());
    }

    /// Whether this machine had trouble.
    pub(crate) fn has(&self, machine: &InstanceId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(machine)
    }
}

/// All models, and the settings of the processes that run on them.
#[derive(Debug)]
pub struct World {
    /// The seed of every draw.
    pub seed: u64,
    /// The limits of every process.
    pub limits: Limits,
    /// The ceilings of every process.
    pub ceilings: Vec<Ceiling>,
    /// The simulator's own ports, on a wire without faults.
    pub outside: SimPorts,
    /// GitHub's jobs, as the simulator sees them.
    pub jobs: JobForgeModel,
    spec_hash: Mutex<SpecHash>,
    climate: Mutex<Climate>,
    counts: Mutex<Counts>,
    wires: Mutex<Vec<Wire>>,
    storms: Storms,
    /// The panics that any process caught.
    defects: Defects,
    /// A part of processes' names, and how far the clocks of these processes are ahead.
    wrong_clock: Mutex<Option<(String, i64)>>,
    healed: AtomicBool,
    ailing: Ailing,
}

impl World {
    /// A world of this seed and climate; an agent starts on each machine that boots.
    pub fn new(seed: u64, limits: Limits, ceilings: Vec<Ceiling>, climate: Climate) -> Arc<Self> {
        Self::beginning(WORLD_BEGINS, seed, limits, ceilings, climate)
    }

    /// Like [`World::new`], with another time of day at the start.
    pub fn beginning(
        begins: &str,
        seed: u64,
        limits: Limits,
        ceilings: Vec<Ceiling>,
        climate: Climate,
    ) -> Arc<Self> {
        let wire = Wire::calm();
        let begins = begins.parse().expect("a world's first time is in RFC 3339");
        let clock = SimClock::beginning(begins, wire.clone(), 0);
        let outside = SimPorts {
            ledger: LedgerModel::new(wire.clone(), clock.clone()),
            queues: QueuesModel::new(wire.clone(), clock.clone()),
            mailbox: MailboxModel::new(wire.clone(), clock.clone()),
            fleet: FleetModel::new(wire.clone(), clock.clone()),
            forge: ForgeModel::new(wire.clone()),
            clock,
            ids: SimIds {
                dice: Dice::new(seed, "outside"),
                labels: Dice::new(seed, "labels of outside"),
                process: "outside".into(),
            },
        };
        let jobs = JobForgeModel::new(wire, outside.forge.clone());
        outside.ledger.set_weak(climate.weak);
        outside.queues.set_weak(climate.weak);
        outside.mailbox.set_weak(climate.weak);
        outside.fleet.set_delays(climate.delays);
        outside.fleet.set_partial(climate.partial);
        outside.fleet.set_rates(Rates::ec2());
        let world = Arc::new(Self {
            seed,
            limits,
            ceilings,
            outside,
            jobs,
            spec_hash: Mutex::new(SpecHash::new(FIRST_SPEC)),
            climate: Mutex::new(climate),
            counts: Mutex::default(),
            wires: Mutex::default(),
            storms: Storms::default(),
            defects: Defects::default(),
            wrong_clock: Mutex::default(),
            healed: AtomicBool::new(false),
            ailing: Ailing::default(),
        });
        world.start_agents();
        world
    }

    /// Starts an agent on every machine that boots.
    fn start_agents(self: &Arc<Self>) {
        let world = Arc::downgrade(self);
        self.outside.fleet.on_boot(move |facts, life| {
            let Some(world) = world.upgrade() else { return };
            detach(Machine::new(facts, &world).live(life));
        });
    }

    /// The current climate.
    pub fn climate(&self) -> Climate {
        self.climate.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the climate for processes and machines that begin from now on.
    pub fn change_climate(&self, change: impl FnOnce(&mut Climate)) {
        let mut climate = self.climate.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut climate);
        self.outside.fleet.set_delays(climate.delays);
        self.outside.fleet.set_partial(climate.partial);
    }

    /// The name of the stack.
    pub const fn stack_name(&self) -> &'static str {
        STACK
    }

    /// The spec hash of a machine launched now.
    pub fn spec_hash(&self) -> SpecHash {
        self.spec_hash.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the spec hash of machines launched from now on.
    pub fn build_from(&self, spec_hash: SpecHash) {
        *self.spec_hash.lock().unwrap_or_else(PoisonError::into_inner) = spec_hash;
    }

    /// Stops all faults, also for processes and machines that exist already.
    pub fn heal(&self) {
        let mut climate = self.climate.lock().unwrap_or_else(PoisonError::into_inner);
        let temper = climate.temper.healed();
        *climate = Climate { delays: climate.delays, temper, ..CALM.clone() };
        drop(climate);
        for wire in &*self.wires.lock().unwrap_or_else(PoisonError::into_inner) {
            wire.set_weather(CALM_WEATHER);
            wire.pause_no_more();
        }
        self.end_storms();
        self.outside.fleet.replenish();
        self.outside.forge.set_outage(false);
        self.outside.forge.limit_points(None);
        self.healed.store(true, Ordering::Relaxed);
    }

    /// Whether all trouble is over for good.
    pub(crate) fn is_calm(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    /// Whether a storm goes on.
    pub(crate) fn has_storms(&self) -> bool {
        self.storms.are_there()
    }

    /// The storms, and the pauses of processes.
    pub(crate) const fn storms(&self) -> &Storms {
        &self.storms
    }

    /// The machines that had trouble of their own.
    pub(crate) const fn ailing(&self) -> &Ailing {
        &self.ailing
    }

    /// Begins a storm.
    pub fn begin_storm(&self, storm: Storm) -> StormId {
        self.happened(match (storm.kind, &storm.place) {
            (_, Some(_)) => "storm over one place",
            (StormKind::Gone, None) => "storm: a service gone",
            (StormKind::Slow, None) => "storm: a service slow",
            (StormKind::Throttling, None) => "storm: a service throttles",
        });
        let id = self.storms.begin(storm);
        self.outside.mailbox.set_cut_off(self.storms.cut_off());
        id
    }

    /// Ends one storm.
    pub fn end_storm(&self, id: StormId) {
        self.storms.end(id);
        self.outside.mailbox.set_cut_off(self.storms.cut_off());
    }

    /// Ends all storms.
    pub fn end_storms(&self) {
        self.storms.end_all();
        self.outside.mailbox.set_cut_off(self.storms.cut_off());
    }

    /// A wire of this name, and of this party at this place: an agent's zone, or a replica's name.
    pub(crate) fn wire(&self, name: &str, weather: Weather, party: Party, place: &str) -> Wire {
        let wire = Wire::new(self.seed, name, weather).of(party, place, self.storms.clone());
        self.wires.lock().unwrap_or_else(PoisonError::into_inner).push(wire.clone());
        wire
    }

    /// Counts a trouble that belongs to no process.
    pub fn happened(&self, what: &'static str) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).happened(what);
    }

    /// How often each kind of trouble occurred, in all processes so far.
    pub fn counts(&self) -> Counts {
        let mut total = self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for wire in &*self.wires.lock().unwrap_or_else(PoisonError::into_inner) {
            total += wire.counts();
        }
        total
    }

    /// Runs one engine process to its end, or to its death at an await.
    pub async fn run<T, F>(self: &Arc<Self>, name: &str, fuse: Option<u64>, body: F) -> Option<T>
    where
        F: AsyncFnOnce(&Stack<SimPorts>) -> T,
    {
        let (wire, stack) = self.process(name);
        if let Some(awaits) = fuse {
            wire.die_after(awaits);
        }
        branch(self.run_on(&wire, &stack, body)).await
    }

    /// Runs a process that the caller made and prepared, to its end or its death.
    pub async fn run_on<T, F>(&self, wire: &Wire, stack: &Stack<SimPorts>, body: F) -> Option<T>
    where
        F: AsyncFnOnce(&Stack<SimPorts>) -> T,
    {
        self.may_pause(wire);
        let ended = tokio::select! {
            biased;
            () = wire.died() => None,
            ended = wire.with_pauses(body(stack)) => Some(ended),
        };
        self.retire(wire);
        ended
    }

    /// Draws the pauses of a process.
    fn may_pause(&self, wire: &Wire) {
        let odds = self.climate().pauses;
        if odds == 0 {
            return;
        }
        let dice = Dice::new(self.seed, &format!("pauses of {}", wire.name()));
        if dice.chance(odds) {
            for _ in 0..=dice.below(PAUSES_MAX) {
                let (early, late) = PAUSES_AT;
                let awaits = dice.below(if dice.chance(500) { early } else { late });
                wire.pause_after(awaits, dice.delay(PAUSES.0, PAUSES.1));
            }
        }
    }

    /// Makes a process of this name: its wire, and its engine's stack.
    pub fn process(&self, name: &str) -> (Wire, Stack<SimPorts>) {
        let climate = self.climate();
        // A replica is named with the number of its process: `serve 1.3`.
        let place = name.rsplit_once('.').map_or(name, |(replica, _)| replica);
        let wire = self.wire(name, climate.control, Party::ControlPlane, place);
        let stack = self.stack(name, &wire, &climate);
        (wire, stack)
    }

    /// An engine process without faults, for a check that reads the world through the engine.
    pub fn onlooker(&self) -> Stack<SimPorts> {
        self.stack("onlooker", &Wire::calm(), &CALM)
    }

    /// Drops the wire of a process that has ended, and keeps its counts.
    pub(crate) fn retire(&self, wire: &Wire) {
        let mut wires = self.wires.lock().unwrap_or_else(PoisonError::into_inner);
        wires.retain(|other| !other.is_same(wire));
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) += wire.counts();
    }

    fn stack(&self, name: &str, wire: &Wire, climate: &Climate) -> Stack<SimPorts> {
        let dice = Dice::new(self.seed, name);
        let ahead_millis = self.ahead_millis(name);
        let skew = draw_skew(&dice, climate.skew_max) + ahead_millis;
        let unsteady = self.draw_unsteady(name, climate);
        let clock = self.outside.clock.for_process(wire.clone(), skew).unsteady(unsteady);
        let ports = SimPorts {
            ledger: self.outside.ledger.for_process(wire.clone(), clock.clone()),
            queues: self.outside.queues.for_process(wire.clone(), clock.clone()),
            mailbox: self.outside.mailbox.for_process(wire.clone(), clock.clone()),
            fleet: self.outside.fleet.for_process(wire.clone(), clock.clone()),
            forge: self.outside.forge.for_process(wire.clone()),
            clock,
            ids: SimIds {
                dice,
                labels: Dice::new(self.seed, &format!("labels of {name}")),
                process: name.to_owned(),
            },
        };
        let (limits, ceilings) = (self.limits.clone(), self.ceilings.clone());
        let mut stack = Stack::new(ports, STACK, limits, ceilings, self.spec_hash());
        stack.defects = self.defects.clone();
        stack.clock = ClockWitness::ahead_by(ahead_millis);
        stack
    }

    /// Puts the clocks of all processes that begin from now on, and have this in their name, ahead of
    /// the others; negative: behind. The dates of answers show it.
    pub fn set_wrong_clock(&self, name_part: &str, ahead_millis: i64) {
        let mut wrong = self.wrong_clock.lock().unwrap_or_else(PoisonError::into_inner);
        *wrong = Some((name_part.to_owned(), ahead_millis));
    }

    fn ahead_millis(&self, name: &str) -> i64 {
        let wrong = self.wrong_clock.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = wrong.as_ref().filter(|(part, _)| name.contains(part));
        wrong.map_or(0, |(_, ahead_millis)| *ahead_millis)
    }

    /// The first panic that a process caught although no lever caused it.
    pub fn defect(&self) -> Option<String> {
        let is_planned = self.outside.forge.is_breaking() || self.outside.fleet.has_broken();
        self.defects.first().filter(|_| !is_planned)
    }
}

impl World {
    /// Draws a step and a drift, in some processes of worlds with unsteady clocks.
    fn draw_unsteady(&self, name: &str, climate: &Climate) -> Option<Unsteady> {
        if climate.unsteady == 0 {
            return None;
        }
        let dice = Dice::new(self.seed, &format!("clock of {name}"));
        dice.chance(climate.unsteady).then(|| {
            self.happened("clock steps");
            Unsteady {
                steps_at: self.outside.clock.elapsed() + dice.between(Duration::ZERO, STEPS_WITHIN),
                step_millis: draw_skew(&dice, STEP_MAX),
                drift_millis: draw_skew(&dice, Duration::from_millis(200)),
                drift_max: i64::try_from(DRIFT_MAX.as_millis()).unwrap_or(0),
            }
        })
    }
}

pub(crate) fn draw_skew(dice: &Dice, most: Duration) -> i64 {
    let most = i64::try_from(most.as_millis()).unwrap_or(i64::MAX / 4);
    let span = u64::try_from(2 * most + 1).unwrap_or(1);
    i64::try_from(dice.below(span)).unwrap_or(0) - most
}
