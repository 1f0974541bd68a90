//! The contract suites of the `Fleet` and the `Site` port on real processes.
//!
//! Not here: behaviour beyond the port (`lifecycle`, `concurrent`).

use std::future::Future;
use std::time::Duration;

use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{IntentId, PoolName};
use bullpen_core::ports::Clock as _;
use bullpen_core::time::Timestamp;
use bullpen_embedded::fleet::Capacity;
use bullpen_sim::contract::Harness;
use bullpen_sim::contract::fleet::FleetHarness;

use crate::support::{Fleet, RealClock, STUBBORN, TestHost, real, request};

struct Processes {
    port: Fleet,
    host: TestHost,
}

impl Harness for Processes {
    type Port = Fleet;

    fn block_on<F: Future>(case: F) -> F::Output {
        real(case)
    }

    async fn fresh() -> Self {
        let host = TestHost::new();
        Self { port: host.fleet(STUBBORN), host }
    }

    fn port(&self) -> &Fleet {
        &self.port
    }

    fn another_process(&self) -> Fleet {
        self.host.fleet(STUBBORN)
    }

    fn now(&self) -> Timestamp {
        RealClock::new().now()
    }

    /// Real processes need only a moment where the suite allows minutes.
    async fn pass(&self, wait: Duration) {
        RealClock::new().sleep(wait.min(Duration::from_millis(100))).await;
    }
}

impl FleetHarness for Processes {
    fn request(&self, intent: &IntentId, pool: Option<PoolName>, count: u32) -> LaunchRequest {
        LaunchRequest { pool, ..request(intent.as_str(), count) }
    }

    /// The cases that call this begin without machines.
    fn leave_room_for(&self, machines: u32) -> bool {
        self.port.set_capacity(Capacity { machines_max: Some(machines), ..Capacity::default() });
        true
    }
}

bullpen_sim::fleet_contract!(Processes);
bullpen_sim::site_contract!(Processes);
