//! The world that is explored: one instance as the ledger, the mailbox, the cloud, GitHub and the
//! machine itself have it, and how far each actor is.
//!
//! Records and inboxes are production values, and change only by production rules: [`ExploredWorld::write`]
//! stores what `Record::on` made of what was read, [`ExploredWorld::post`] what `Inbox::accept` made of an
//! order. Time is a small number of *ticks*; every deadline is a whole number of them away, so each
//! is either passed or not, in every order that the limits allow.
//!
//! Not here: who does what (`actors`), or what must hold (`check`).

use std::hash::{Hash, Hasher};
use std::time::Duration;

use bullpen_agent::agent_life::{AgentLife, Effect};
use bullpen_core::ids::{Generation, InstanceId, Revision, RunnerName};
use bullpen_core::instance::{Owner, Record, State, Tier};
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::{Assignment, Inbox, Order, Report, Signal, SignalKind};
use bullpen_core::tenure::runner_name;
use bullpen_core::time::Timestamp;

use super::Config;
use super::actors::{Claimer, Manager, Pending, agent};
use super::fingerprint::{Fingerprint, Part};
use super::rules::{Property, Rule};
use crate::sample::record;

/// One tick of the world's clock.
pub(super) const TICK: Duration = Duration::from_secs(10);
/// Later than any exploration lasts.
const NEVER: Duration = Duration::from_secs(100_000);

/// When a tick is.
pub(super) fn at(tick: u8) -> Timestamp {
    Timestamp::EPOCH.after(TICK * u32::from(tick))
}

/// For what does not end within an exploration.
pub(super) fn never() -> Timestamp {
    Timestamp::EPOCH.after(NEVER)
}

/// The limits of the world: everything that matters is one tick, everything else never comes.
pub(super) fn limits(config: &Config) -> Limits {
    Limits {
        assignment_acknowledged: TICK,
        registration: Duration::ZERO,
        first_beat_stopped: TICK,
        registration_stopped: Duration::ZERO,
        fleet_validation: TICK,
        claim_lease: TICK,
        release_acknowledgement: TICK,
        stop_fence: TICK,
        clock_skew: if config.holds(Rule::SkewTolerated) { TICK } else { Duration::ZERO },
        not_claimable_before_deadline: TICK,
        heartbeat_stale: NEVER,
        ..Limits::DEFAULT
    }
}

/// A record of the ledger. Its fingerprint leaves the revision out: what matters of a revision is
/// whether it is still the stored one.
#[derive(Clone, Debug)]
pub(super) struct LedgerRow(pub(super) Record);

impl Hash for LedgerRow {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Record { state, generation, uses, .. } = &self.0;
        (state, generation, uses).hash(hasher);
    }
}

/// What the cloud says of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Power {
    Running,
    Stopped,
    Gone,
}

/// The runner program's process on the machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Listener {
    pub(super) to: Assignment,
    pub(super) listening: bool,
    pub(super) job: bool,
    /// What the agent was told of it.
    pub(super) told: (bool, bool),
}

/// The agent's process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Agent {
    pub(super) life: AgentLife,
    pub(super) effect: Option<Effect>,
    pub(super) outbox: Vec<(SignalKind, Signal)>,
    /// The next read must be consistent.
    pub(super) consistent: bool,
}

/// A runner as GitHub knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Registration {
    pub(super) generation: Generation,
    pub(super) busy: bool,
}

/// Everything.
#[derive(Clone, Debug)]
pub(super) struct ExploredWorld {
    pub(super) clock: u8,
    pub(super) faults_left: u8,
    pub(super) restarts_left: u8,
    pub(super) jobs_left: u8,
    pub(super) claims_left: u8,
    pub(super) record: Part<LedgerRow>,
    /// Every inbox that a read may still show; the last is the stored one.
    pub(super) inboxes: Part<Vec<Inbox>>,
    pub(super) report: Part<Report>,
    /// Assignments without an answer, which may land later.
    pub(super) letters: Part<Vec<Order>>,
    pub(super) power: Power,
    pub(super) start_called: bool,
    pub(super) terminate_called: bool,
    /// Stop calls on their way, and the tick after which each cannot land.
    pub(super) stops: Vec<u8>,
    pub(super) runners: Vec<Registration>,
    pub(super) agent: Option<Part<Agent>>,
    pub(super) listener: Option<Part<Listener>>,
    /// The trace of a started listener on the machine's disk.
    pub(super) trace: Option<Part<Assignment>>,
    pub(super) claimers: [Claimer; 2],
    pub(super) releaser: Pending,
    pub(super) reaper: Pending,
    pub(super) manager: Manager,
    /// What the step that led here broke.
    pub(super) broke: Option<Property>,
}

/// The owner a claimer works for.
pub(super) fn owner(config: &Config, claimer: usize) -> Owner {
    let name = if config.one_owner { "A" } else { ["A", "B"][claimer] };
    Owner::Request(name.into())
}

/// The stack's name.
pub(super) const STACK: &str = "explored";

/// The name of the machine's runner at this generation.
pub(super) fn runner(generation: Generation) -> RunnerName {
    runner_name(STACK, &InstanceId::new("i-1"), generation)
}

impl ExploredWorld {
    /// One idle machine and everybody at rest.
    pub(super) fn begin(config: &Config) -> Self {
        let idle = State::Idle { tier: config.tier, since: at(0), deadline: never(), shared: true };
        let mut world = Self {
            clock: 0,
            faults_left: config.faults,
            restarts_left: config.restarts,
            jobs_left: config.jobs,
            claims_left: config.claims,
            record: Part::new(LedgerRow(record(idle))),
            inboxes: Part::new(Vec::new()),
            report: Part::new(Report::default()),
            letters: Part::new(Vec::new()),
            power: Power::Stopped,
            start_called: false,
            terminate_called: false,
            stops: Vec::new(),
            runners: Vec::new(),
            agent: None,
            listener: None,
            trace: None,
            claimers: [Claimer::default(), Claimer::default()],
            releaser: Pending::Nothing,
            reaper: Pending::Nothing,
            manager: Manager::Rests,
            broke: None,
        };
        if config.tier != Tier::Stopped {
            world.power = Power::Running;
            agent::begin_warm(&mut world, config);
        }
        world
    }

    pub(super) fn fingerprint(&self) -> u128 {
        let mut hasher = Fingerprint::new();
        let current = self.record.0.revision;
        (self.clock, self.faults_left, self.restarts_left, self.jobs_left, self.claims_left)
            .hash(&mut hasher);
        (&self.record, &self.inboxes, &self.report, &self.letters).hash(&mut hasher);
        (self.power, self.start_called, self.terminate_called, &self.stops, &self.runners)
            .hash(&mut hasher);
        (&self.agent, &self.listener, &self.trace).hash(&mut hasher);
        self.claimers.hash(&mut hasher);
        (&self.releaser, self.releaser.is_current(current)).hash(&mut hasher);
        (&self.reaper, self.reaper.is_current(current)).hash(&mut hasher);
        (&self.manager, self.manager.is_current(current)).hash(&mut hasher);
        hasher.bits()
    }

    pub(super) fn now(&self) -> Timestamp {
        at(self.clock)
    }

    pub(super) fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next
    }

    pub(super) fn breaks(&mut self, property: Property) {
        self.broke.get_or_insert(property);
    }

    /// Stores what became of the record as it was read, if that is still what is stored. The ledger's
    /// condition is the revision.
    pub(super) fn write(&mut self, seen: &LedgerRow, next: Record) -> bool {
        if seen.0.revision != self.record.0.revision {
            return false;
        }
        self.overwrite(next);
        true
    }

    /// Stores a record. Instants that only people read are left out, so that they tell no states apart.
    pub(super) fn overwrite(&mut self, mut next: Record) {
        match &mut next.state {
            State::Terminating { since, .. } => *since = at(0),
            // No owner's time ends here while its job runs.
            State::Running { since, deadline, cap, .. } => {
                (*since, *deadline, *cap) = (at(0), never(), never());
            }
            // An idle machine is claimed long before its deadline, or never.
            State::Idle { since, deadline, .. } => (*since, *deadline) = (at(0), never()),
            State::Releasing { cap, .. } => *cap = never(),
            // A machine that is being stopped is stopped long before its deadline, or never.
            State::Stopping { deadline, .. } => *deadline = never(),
            _ => {}
        }
        next.revision = Revision(self.record.0.revision.0 + 1);
        self.record.set(LedgerRow(next));
    }

    pub(super) fn inbox(&self) -> Option<&Inbox> {
        self.inboxes.last()
    }

    /// Stores an order if the mailbox accepts it; whether it is stored now.
    pub(super) fn post(&mut self, order: Order) -> bool {
        let Ok(inbox) = Inbox::accept(self.inbox(), order) else { return false };
        self.inboxes.change(|inboxes| inboxes.push(inbox));
        true
    }

    pub(super) fn registration(&self, generation: Generation) -> Option<Registration> {
        self.runners.iter().copied().find(|runner| runner.generation == generation)
    }

    /// In a line, for people.
    pub(super) fn summary(&self) -> String {
        let record = &self.record.0;
        let owner = record.state.listed_under().map(|owner| match owner {
            Owner::Request(id) => format!(" of {id}"),
            other => format!(" of {other}"),
        });
        let inbox = self.inbox().map(|inbox| {
            let rank = inbox.order.rank();
            let kind = ["assigned", "drain", "stop"][usize::from(rank.step)];
            format!(", mail {kind} {}", rank.generation)
        });
        let listener = self.listener.as_ref().map(|listener| {
            let doing = match (listener.listening, listener.job) {
                (_, true) => "works",
                (true, false) => "listens",
                (false, false) => "starts",
            };
            format!(", {doing} for {}", listener.to.generation)
        });
        format!(
            "t{} {}{} {}, {:?}{}{}",
            self.clock,
            record.state.name().as_str(),
            owner.unwrap_or_default(),
            record.generation,
            self.power,
            inbox.unwrap_or_default(),
            listener.unwrap_or_default(),
        )
        .to_lowercase()
    }
}
