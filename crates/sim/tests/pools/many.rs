//! Thousands of pools: what they cost a process in calls and log lines, and that one of them costs the
//! others nothing.
//!
//! Not here: the CPU time of a cycle (the bench `cycle`).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::{self, Write as _};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::ids::PoolName;
use bullpen_core::ports::{Fault, Ports};
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::pool_world::PoolWorld;
use bullpen_sim::storms::{MAILBOX, Party, Storm, StormKind};
use bullpen_sim::wire::Weather;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

use super::{LONG, MINUTE, end, fill};

/// The most calls of one process at once: those of a survey, of executions and of renewals.
const AT_ONCE_MAX: u64 = 100;

/// A configuration with this many pools that keep nothing, and `ci` with one hot machine.
fn many(pools: usize) -> String {
    let mut text = String::from("runners:\n  large: {cpu: 2, ram: 4}\npools:\n");
    let entry = |hot| format!("{{runner: large, schedule: [{{name: a, hot: {hot}, stopped: 0}}]}}");
    writeln!(text, "  ci: {}", entry(1)).expect("memory");
    for pool in 0..pools {
        writeln!(text, "  pool-{pool}: {}", entry(0)).expect("memory");
    }
    text + "x-bullpen:\n  pools:\n    ci: {hot-lifetime: 16h}\n"
}

/// Lets `life` go on for this long.
async fn live(time: Duration, life: impl Future<Output = Infallible>) {
    tokio::select! {
        biased;
        () = pass(time) => {}
        never = Box::pin(life) => match never {},
    }
}

/// How often each message was logged, at a level that operators see.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<BTreeMap<String, usize>>>);

impl Lines {
    fn take(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Message(String);
        impl Visit for Message {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(message.0).or_default() += 1;
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn thousands_of_leases_make_few_lines_and_few_calls_at_once() {
    const POOLS: usize = 2_000;
    let lines = Lines::default();
    subscriber::with_default(lines.clone(), || {
        on_virtual_time(async {
            let sim = PoolWorld::new(10, &many(POOLS)).await;
            let takes_time =
                Weather { latency_max: Duration::from_millis(2), ..Weather::default() };
            let first = sim.keeper("first");
            first.wire.set_weather(takes_time);
            live(MINUTE, sim.keeping(&first)).await;
            let held = first.wire.writes()["leases"];
            assert!(held > POOLS as u64, "all are taken, and renewed: {held}");
            let most = first.wire.most_at_once();
            assert!((2..=AT_ONCE_MAX).contains(&most), "{most} calls at once");
            lines.take();
            // The store refuses everything: neither renewing nor taking a lease works.
            let second = sim.keeper("second");
            let refused = Weather { refuse: 1_000, ..takes_time };
            first.wire.set_weather(refused);
            second.wire.set_weather(refused);
            let keeping = async {
                let (never, _) = tokio::join!(sim.keeping(&first), sim.keeping(&second));
                never
            };
            live(5 * MINUTE, keeping).await;
            let said = lines.take();
            assert!(said.values().sum::<usize>() < 100, "{said:?}");
            assert!(said.keys().any(|line| line.contains("renew")), "it says so: {said:?}");
        });
    });
}

#[test]
fn many_leases_that_cannot_be_taken_are_one_line() {
    let lines = Lines::default();
    subscriber::with_default(lines.clone(), || {
        on_virtual_time(async {
            let sim = PoolWorld::new(10, &many(500)).await;
            let keeper = sim.keeper("first");
            let pools: Vec<PoolName> = (0..500).map(|n| PoolName::new(format!("p{n}"))).collect();
            keeper.wire.set_weather(Weather { refuse: 1_000, ..Weather::default() });
            assert_eq!(keeper.leases.hold(&keeper.stack, &pools).await, []);
            let said = lines.take();
            assert_eq!(said.values().sum::<usize>(), 1, "{said:?}");
        });
    });
}

/// The machine of `ci` never reports that it is warm, so its keeper hurries.
#[test]
pub(crate) fn a_pool_that_is_not_settled_has_no_other_read() {
    const POOLS: u64 = 200;
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &many(200)).await;
        sim.world.change_climate(|climate| climate.temper.mute = 1_000);
        let keeper = sim.keeper("first");
        live(5 * MINUTE, sim.keeping(&keeper)).await;
        let listings = sim.world.outside.ledger().pool_listings();
        // At the shortest a whole cycle comes every 15 s, and one for `ci` every 1.5 s.
        assert!(listings <= 21 * POOLS + 200, "{listings} listings");
        assert!(listings >= 7 * POOLS + 60, "all pools are looked at, and `ci` soon: {listings}");
    });
}

/// The ledger cannot list the machines of `ci`.
#[test]
pub(crate) fn a_pool_that_cannot_be_read_stops_no_other() {
    on_virtual_time(async {
        let text = many(1).replace("hot: 0", "hot: 2");
        let sim = PoolWorld::new(10, &text).await;
        let ledger = sim.world.outside.ledger();
        let broken = |fault| ledger.fail_listings_of(Some((PoolName::new("ci"), fault)));
        broken(Fault::Denied("no".to_owned()));
        let keeper = sim.keeper("first");
        live(LONG, sim.keeping(&keeper)).await;
        assert_eq!(sim.ready("pool-0").await, (2, 0));
        keeper.leases.give_up(&keeper.stack).await;
        ledger.fail_listings_of(None);
        fill(&sim, 1, 0).await;
        end(&sim).await;
    });
}

/// The mailboxes are away. `pool-0` has a machine that warms up, so its plan needs a report; `ci`
/// has none and grows.
#[test]
fn a_report_that_cannot_be_read_stops_only_its_pool() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &many(1)).await;
        fill(&sim, 1, 0).await;
        sim.world.change_climate(|climate| climate.temper.mute = 1_000);
        let both = many(1).replace("hot: 0", "hot: 1");
        sim.configure(&both);
        let keeper = sim.keeper("first");
        live(MINUTE, sim.keeping(&keeper)).await;
        assert_eq!(sim.records("pool-0").await.len(), 1, "it warms up");
        keeper.leases.give_up(&keeper.stack).await;
        let (kind, ports, party) = (StormKind::Gone, MAILBOX, Some(Party::ControlPlane));
        sim.world.begin_storm(Storm { kind, ports, party, place: None });
        sim.configure(&both.replacen("hot: 1", "hot: 2", 1));
        let keeper = sim.keeper("second");
        live(3 * MINUTE, sim.keeping(&keeper)).await;
        assert_eq!(sim.records("ci").await.len(), 2);
        sim.world.end_storms();
    });
}
