//! The contract suites of the `Fleet` and the `Site` port on the test EC2.
//!
//! Not here: behaviour beyond the port's promises (the other modules).

use std::future::Future;
use std::time::Duration;

use aws_sdk_ec2::types::Tag as Ec2Tag;
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{InstanceId, IntentId, PoolName};
use bullpen_core::ports::Clock as _;
use bullpen_core::request::TypePattern;
use bullpen_core::time::Timestamp;
use bullpen_faulty::Fault;
use bullpen_faulty::ec2::{Delays, Rule};
use bullpen_sim::contract::Harness;
use bullpen_sim::contract::fleet::FleetHarness;

use crate::world::{Fleet, World, block_on, request};

/// State changes take time, as in EC2.
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
        block_on(case)
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
        self.world.advance(wait);
    }

    /// The suite loses answers to launches only.
    fn lose_next_answer(&self) -> bool {
        self.world.proxy.fail_next("CreateFleet", Fault::AnswerLost);
        true
    }
}

impl FleetHarness for OnEc2 {
    /// EC2's answer to an instant fleet has no launch time.
    const TELLS_LAUNCH_TIME: bool = false;

    fn request(&self, intent: &IntentId, pool: Option<PoolName>, count: u32) -> LaunchRequest {
        let allowed_types = vec![TypePattern::new("*")];
        LaunchRequest { pool, allowed_types, ..request(intent.as_str(), count) }
    }

    /// The cases that call this begin without machines.
    fn leave_room_for(&self, machines: u32) -> bool {
        self.world.admin().set_capacity(&[Rule::of_all(machines)]);
        true
    }

    async fn untag(&self, id: &InstanceId) -> bool {
        let call = self.world.client.delete_tags().resources(id.as_str());
        let tags = ["bullpen:stack", "bullpen:intent", "bullpen:class"];
        let tags = tags.map(|key| Ec2Tag::builder().key(key).build());
        call.set_tags(Some(tags.into())).send().await.is_ok()
    }
}

bullpen_sim::fleet_contract!(OnEc2);
bullpen_sim::site_contract!(OnEc2);
