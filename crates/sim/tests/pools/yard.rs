//! A yard: a calm world whose pools are kept, and looks into it from outside.
//!
//! Not here: what is expected of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::config::runs_on;
use bullpen_core::ids::PoolName;
use bullpen_core::instance::{Record, State, Tier};
use bullpen_core::pool::{Blueprints, Foundation};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_engine::pools::{self, Leases};
use bullpen_sim::checker::Checker;
use bullpen_sim::clock::pass;
use bullpen_sim::life::keep_up;
use bullpen_sim::stage;
use bullpen_sim::world::World;

/// One pool on machines of one class.
pub(crate) const CI: &str = "
runners:
  large: {cpu: 2, ram: 4}
pools:
  ci:
    runner: large
    schedule: [{name: always, hot: 2, stopped: 1}]
";

pub(crate) struct Yard {
    pub(crate) world: Arc<World>,
    pub(crate) checker: Checker,
    config: Mutex<String>,
    foundation: Mutex<Foundation>,
}

impl Yard {
    /// With room for this many machines, and this configured.
    pub(crate) async fn new(machines_max: u32, config: &str) -> Self {
        Self::in_world(stage::calm(7, machines_max).await, config)
    }

    /// In this world.
    pub(crate) fn in_world(world: Arc<World>, config: &str) -> Self {
        let checker = Checker::watch(&world, false);
        let (config, foundation) = (Mutex::new(config.to_owned()), Mutex::default());
        Self { world, checker, config, foundation }
    }

    /// From now on this is configured.
    pub(crate) fn configure(&self, config: &str) {
        config.clone_into(&mut self.config.lock().expect("nobody panicked"));
    }

    pub(crate) fn blueprints(&self) -> Blueprints {
        let config = self.config.lock().expect("nobody panicked");
        let (read, _) = runs_on::read(config.as_bytes()).into_parts();
        let foundation = self.foundation.lock().expect("nobody panicked");
        Blueprints::of("production", &read.expect("it is good"), &foundation)
    }

    /// A process keeps the pools until `done`; false if that did not come in time.
    pub(crate) async fn keep(
        &self,
        name: &str,
        within: Duration,
        done: impl AsyncFn() -> bool,
    ) -> bool {
        let (wire, stack) = self.world.process(name);
        let leases = Leases::new(&stack);
        let never = async || std::future::pending::<()>().await;
        let came = tokio::select! {
            biased;
            () = until(done) => true,
            () = pass(within) => false,
            () = wire.died() => false,
            () = Box::pin(pools::keep(
                &stack, &leases, || Some(self.blueprints()), never, &|_| {},
            )) => false,
            never = keep_up(&self.world) => match never {},
        };
        leases.give_up(&stack).await;
        came
    }

    /// Everything that the pool has, in the order of the machines' ids.
    pub(crate) async fn records(&self, pool: &str) -> Vec<Record> {
        let ledger = self.world.outside.ledger();
        let mut records = ledger.standing_by(&PoolName::new(pool)).await.expect("calm");
        records.retain(|record| record.state.is_live());
        records.sort_by(|one, other| one.id.cmp(&other.id));
        records
    }

    /// How many of the pool's machines are idle, running and stopped.
    pub(crate) async fn ready(&self, pool: &str) -> (usize, usize) {
        let records = self.records(pool).await;
        let count = |tier| {
            let is_it = |record: &&Record| matches!(record.state, State::Idle { tier: of, .. } if of == tier);
            records.iter().filter(is_it).count()
        };
        (count(Tier::Hot), count(Tier::Stopped))
    }
}

async fn until(done: impl AsyncFn() -> bool) {
    while !done().await {
        pass(Duration::from_millis(500)).await;
    }
}
