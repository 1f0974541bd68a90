//! The models pass the contract suites, strong and weak; otherwise a simulation would prove
//! nothing.
//!
//! A strong model is calm. A weak model uses every liberty of its port's contract, but loses no
//! answers and refuses no calls by chance: the suites pull those levers themselves.
//!
//! Not here: the suites (`bullpen_sim::contract`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{
    ClaimId, HolderId, InstanceId, IntentId, MailboxKey, PoolName, RunnerName, SpecHash, StopOp,
};
use bullpen_core::mailbox::Credential;
use bullpen_core::ports::{Ids, ItemKind, RunnerSpec};
use bullpen_core::request::TypePattern;
use bullpen_core::time::Timestamp;
use bullpen_sim::clock::{SimClock, on_virtual_time, pass};
use bullpen_sim::contract::Harness;
use bullpen_sim::contract::fleet::FleetHarness;
use bullpen_sim::contract::forge::ForgeHarness;
use bullpen_sim::contract::ledger::LedgerHarness;
use bullpen_sim::contract::mailbox::MailboxHarness;
use bullpen_sim::dice::Dice;
use bullpen_sim::model::fleet::{Delays, Listings, Oddity};
use bullpen_sim::model::forge::{ListenerMessage, ListenerPort};
use bullpen_sim::model::mailbox::Forgery;
use bullpen_sim::model::{FleetModel, ForgeModel, LedgerModel, MailboxModel, QueuesModel};
use bullpen_sim::wire::{Weather, Wire};

const LAG_MAX: Duration = Duration::from_secs(2);

/// The parts of every harness here: a wire, a clock and a number for the next process.
struct HarnessBase {
    wire: Wire,
    clock: SimClock,
    processes: AtomicU64,
}

impl HarnessBase {
    fn new(weak: bool) -> Self {
        let weather = if weak {
            Weather {
                latency_max: Duration::from_millis(3),
                false_empty: 200,
                deliver_twice: 150,
                lag_max: LAG_MAX,
                ..Weather::default()
            }
        } else {
            Weather::default()
        };
        let wire = Wire::new(7, "contract", weather);
        let clock = SimClock::new(wire.clone(), 0);
        Self { wire, clock, processes: AtomicU64::new(0) }
    }

    fn another(&self) -> (Wire, SimClock) {
        let process = self.processes.fetch_add(1, Ordering::SeqCst);
        let wire = Wire::new(process, "another", self.wire.weather());
        let clock = self.clock.for_process(wire.clone(), 0);
        (wire, clock)
    }
}

macro_rules! world {
    ($harness:ident, $model:ty, $weak:literal, $make:expr, $another:expr) => {
        struct $harness {
            base: HarnessBase,
            port: $model,
        }

        impl Harness for $harness {
            type Port = $model;
            const WEAK: bool = $weak;

            fn block_on<F: Future>(case: F) -> F::Output {
                on_virtual_time(case)
            }

            async fn fresh() -> Self {
                let base = HarnessBase::new($weak);
                let port = $make(base.wire.clone(), base.clock.clone());
                Self { base, port }
            }

            fn port(&self) -> &$model {
                &self.port
            }

            fn another_process(&self) -> $model {
                let (wire, clock) = self.base.another();
                $another(&self.port, wire, clock)
            }

            fn now(&self) -> Timestamp {
                self.base.clock.true_now()
            }

            async fn pass(&self, wait: Duration) {
                pass(wait).await;
            }

            async fn settle(&self) {
                pass(LAG_MAX + Duration::from_millis(1)).await;
            }

            fn lose_next_answer(&self) -> bool {
                self.base.wire.lose_next_answer();
                true
            }
        }
    };
}

world!(StrongLedger, LedgerModel, false, LedgerModel::new, LedgerModel::for_process);
world!(WeakLedger, LedgerModel, true, LedgerModel::weak, LedgerModel::for_process);
world!(StrongQueues, QueuesModel, false, QueuesModel::new, QueuesModel::for_process);
world!(WeakQueues, QueuesModel, true, QueuesModel::weak, QueuesModel::for_process);
world!(StrongMailbox, MailboxModel, false, MailboxModel::new, MailboxModel::for_process);
world!(WeakMailbox, MailboxModel, true, MailboxModel::weak, MailboxModel::for_process);

macro_rules! has_unreadable_items {
    ($($harness:ident),+) => {$(
        impl LedgerHarness for $harness {
            async fn make_unreadable(&self, kind: ItemKind, key: &str) {
                self.port.write_as(kind, key, true);
            }
        }
    )+};
}

has_unreadable_items!(StrongLedger, WeakLedger);

macro_rules! forges_reports {
    ($($harness:ident),+) => {$(
        impl MailboxHarness for $harness {
            async fn forge_report(&self, key: &MailboxKey, forged: &Forgery) {
                self.port.forge_report(key, Some(forged.clone()));
            }
        }
    )+};
}

forges_reports!(StrongMailbox, WeakMailbox);
world!(VirtualClock, SimClock, false, |_, clock| clock, |clock: &SimClock, wire, _| clock
    .for_process(wire, 0));
world!(
    CountedIds,
    Counted,
    false,
    |_, _| Counted::new(0, Arc::default()),
    |ids: &Counted, _, _| Counted::new(1, Arc::clone(&ids.next))
);

world!(StrongFleet, FleetModel, false, fleet, FleetModel::for_process);
world!(WeakFleet, FleetModel, true, weak_fleet, FleetModel::for_process);
world!(
    CalmForge,
    ForgeModel,
    false,
    |wire, _| ForgeModel::new(wire),
    |forge: &ForgeModel, wire, _| forge.for_process(wire)
);

fn fleet(wire: Wire, clock: SimClock) -> FleetModel {
    let fleet = FleetModel::new(wire, clock);
    // No agents: a machine that has booted only runs.
    fleet.on_boot(|_, _| {});
    fleet
}

fn weak_fleet(wire: Wire, clock: SimClock) -> FleetModel {
    let fleet = fleet(wire, clock);
    let (boot_max, stop_max) = (Duration::from_secs(40), Duration::from_secs(60));
    fleet.set_delays(Delays { boot_max, stop_max, visible_after_max: LAG_MAX });
    fleet.set_listings(Listings { lag_max: LAG_MAX, ..Listings::TRUE }, 7);
    fleet
}

macro_rules! catalogue {
    ($($harness:ident),+) => {$(
        impl FleetHarness for $harness {
            fn request(
                &self,
                intent: &IntentId,
                pool: Option<PoolName>,
                count: u32,
            ) -> LaunchRequest {
                LaunchRequest {
                    intent: intent.clone(),
                    class: RunnerClass::defaults().remove(0),
                    pool,
                    usage: Usage::Spot,
                    allowed_types: vec![TypePattern::new("c6i.*"), TypePattern::new("m*")],
                    avoid: BTreeSet::new(),
                    spec_hash: SpecHash::new("1:abc"),
                    count,
                }
            }

            fn leave_room_for(&self, machines: u32) -> bool {
                self.port.limit_capacity(Some(machines));
                true
            }

            fn page_by(&self, page: usize) -> bool {
                self.port.set_listings(Listings { page, ..Listings::TRUE }, 7);
                true
            }

            async fn deny(&self, id: &InstanceId) -> bool {
                self.port.make_odd(id, Oddity::Denied, true);
                true
            }

            async fn untag(&self, id: &InstanceId) -> bool {
                self.port.make_odd(id, Oddity::Untagged, true);
                true
            }
        }
    )+};
}

catalogue!(StrongFleet, WeakFleet);

/// The runtime of a job here.
const JOB: Duration = Duration::from_secs(600);

/// A listener that ignores GitHub's messages.
#[derive(Debug)]
struct IgnoringListener;

impl ListenerPort for IgnoringListener {
    fn receive(&self, _: ListenerMessage) {}
}

impl ForgeHarness for CalmForge {
    async fn listen(&self, runner: &RunnerSpec, credential: &Credential) -> bool {
        let machine = InstanceId::new(runner.name.as_str());
        let listener: Arc<dyn ListenerPort> = Arc::new(IgnoringListener);
        let is_known = match credential {
            Credential::Jit(_) => true,
            Credential::RegistrationToken(_) => {
                self.port.register(&runner.name, &runner.labels[0], &machine).is_ok()
            }
        };
        is_known && self.port.listen(&runner.name, &machine, &listener) == Ok(true)
    }

    async fn give_job(&self, runner: &RunnerName) {
        // The suite gives each runner its own label, by which the forge finds it.
        self.port.submit(&format!("warm-{runner}"), JOB);
    }

    async fn end_job(&self, _: &RunnerName) {
        pass(JOB).await;
    }

    fn name(&self, stem: &str) -> RunnerName {
        RunnerName::new(stem)
    }
}

/// The simplest ids that satisfy the contract: a check of the suite itself.
struct Counted {
    process: u64,
    next: Arc<AtomicU64>,
    dice: Dice,
}

impl Counted {
    fn new(process: u64, next: Arc<AtomicU64>) -> Self {
        Self { process, next, dice: Dice::new(process, "ids") }
    }

    fn next(&self) -> String {
        self.next.fetch_add(1, Ordering::SeqCst).to_string()
    }
}

impl Ids for Counted {
    fn claim(&self) -> ClaimId {
        ClaimId::new(self.next())
    }

    fn stop_op(&self) -> StopOp {
        StopOp::new(self.next())
    }

    fn holder(&self) -> HolderId {
        HolderId::new(self.process.to_string())
    }

    fn label_bits(&self) -> u128 {
        u128::from(self.dice.any())
    }

    fn jitter(&self, bound: u64) -> u64 {
        self.dice.below(bound)
    }
}

mod strong {
    mod ledger {
        bullpen_sim::ledger_contract!(crate::StrongLedger);
    }
    mod queues {
        bullpen_sim::queues_contract!(crate::StrongQueues);
    }
    mod mailbox {
        bullpen_sim::mailbox_contract!(crate::StrongMailbox);
    }
    mod fleet {
        bullpen_sim::fleet_contract!(crate::StrongFleet);
    }
    mod site {
        bullpen_sim::site_contract!(crate::StrongFleet);
    }
    mod forge {
        bullpen_sim::forge_contract!(crate::CalmForge);
    }
    mod clock {
        bullpen_sim::clock_contract!(crate::VirtualClock);
    }
    mod ids {
        bullpen_sim::ids_contract!(crate::CountedIds);
    }
}

mod weak {
    mod ledger {
        bullpen_sim::ledger_contract!(crate::WeakLedger);
    }
    mod queues {
        bullpen_sim::queues_contract!(crate::WeakQueues);
    }
    mod mailbox {
        bullpen_sim::mailbox_contract!(crate::WeakMailbox);
    }
    mod fleet {
        bullpen_sim::fleet_contract!(crate::WeakFleet);
    }
    mod site {
        bullpen_sim::site_contract!(crate::WeakFleet);
    }
}
