//! The contract suite of the `Fleet` port on the test EC2.
//!
//! Not here: what the port does not promise.

use std::future::Future;
use std::time::Duration;

use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{IntentId, PoolName};
use bullpen_core::ports::Clock as _;
use bullpen_core::request::TypePattern;
use bullpen_core::time::Timestamp;
use bullpen_faulty::Fault;
use bullpen_faulty::ec2::{Delays, Rule};
use bullpen_sim::contract::Harness;
use bullpen_sim::contract::fleet::FleetHarness;

use crate::stage::{Fleet, World, real, request};

/// Nothing is so at once.
const DELAYS: Delays = Delays {
    visible: Duration::ZERO,
    running: Duration::from_secs(15),
    stopped: Duration::from_secs(30),
    terminated: Duration::from_secs(30),
};

struct OnEc2 {
    port: Fleet,
    world: World,
}

impl Harness for OnEc2 {
    type Port = Fleet;

    fn block_on<F: Future>(case: F) -> F::Output {
        real(case)
    }

    async fn fresh() -> Self {
        let world = World::new().await;
        world.admin().set_delays(DELAYS);
        Self { port: world.fleet(), world }
    }

    fn port(&self) -> &Fleet {
        &self.port
    }

    fn another_process(&self) -> Fleet {
        self.world.fleet()
    }

    fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    async fn pass(&self, wait: Duration) {
        self.world.pass(wait);
    }

    /// The suite loses answers of launches only.
    fn lose_next_answer(&self) -> bool {
        self.world.proxy.fail_next("CreateFleet", Fault::AnswerLost);
        true
    }
}

impl FleetHarness for OnEc2 {
    /// An instant fleet's answer does not say it.
    const TELLS_LAUNCH_TIME: bool = false;

    fn request(&self, intent: &IntentId, pool: Option<PoolName>, count: u32) -> LaunchRequest {
        let allowed_types = vec![TypePattern::new("*")];
        LaunchRequest { pool, allowed_types, ..request(intent.as_str(), count) }
    }

    /// The cases that ask begin with none.
    fn leave_room_for(&self, machines: u32) -> bool {
        self.world.admin().set_capacity(&[Rule::of_all(machines)]);
        true
    }
}

bullpen_sim::fleet_contract!(OnEc2);
