//! The contract suites of the ports `Clock` and `Ids` for the operating system's clock and entropy.
//!
//! Not here: whether the host's clock is right.

use std::future::Future;
use std::time::Duration;

use bullpen_core::ports::Clock;
use bullpen_core::time::Timestamp;
use bullpen_embedded::system::{SystemClock, SystemIds};
use bullpen_sim::contract::Harness;

macro_rules! system {
    ($harness:ident, $port:ident) => {
        struct $harness($port);

        impl Harness for $harness {
            type Port = $port;

            fn block_on<F: Future>(case: F) -> F::Output {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                runtime.expect("the system allows a runtime").block_on(case)
            }

            async fn fresh() -> Self {
                Self($port::new())
            }

            fn port(&self) -> &$port {
                &self.0
            }

            fn another_process(&self) -> $port {
                $port::new()
            }

            fn now(&self) -> Timestamp {
                SystemClock::new().now()
            }

            async fn pass(&self, wait: Duration) {
                SystemClock::new().sleep(wait).await;
            }
        }
    };
}

system!(ClockOfTheSystem, SystemClock);
system!(IdsOfTheSystem, SystemIds);

mod clock {
    bullpen_sim::clock_contract!(super::ClockOfTheSystem);
}

mod ids {
    bullpen_sim::ids_contract!(super::IdsOfTheSystem);
}
