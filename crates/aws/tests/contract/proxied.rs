//! The contract suites with a proxy between adapters and emulator, without faults.
//!
//! They show that the proxy itself changes nothing, which [`crate::races`] relies on.
//!
//! Not here: faults.

use std::sync::Arc;

use bullpen_aws::{DynamoLedger, DynamoMailbox, SqsQueues};
use bullpen_faulty::{Plan, Proxy};
use bullpen_sim::clock::ManualClock;

use crate::emulator::{self, Service};
use crate::{forges_reports, has_unreadable_items, on_aws};

/// Fewer rounds than without the proxy: it is the same code.
const ROUNDS: u32 = 10;

/// A proxy before the emulator. It fails a test that does not use it.
pub(crate) struct TestProxy(Proxy);

impl TestProxy {
    pub(crate) async fn start(service: Service) -> Self {
        let endpoint = emulator::endpoint(service);
        let target = endpoint.trim_start_matches("http://").trim_end_matches('/').parse();
        let target = target.expect("the emulator's address");
        Self(Proxy::start(target, Plan::calm()).await.expect("loopback has a free port"))
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        &self.0
    }
}

impl Drop for TestProxy {
    fn drop(&mut self) {
        let seen = self.0.counts().total();
        if !std::thread::panicking() {
            assert!(seen.arrived > 0, "no call went through the proxy");
            assert_eq!(seen.unanswered, 0, "the emulator did not answer");
        }
    }
}

on_aws!(
    Ledger,
    DynamoLedger<ManualClock>,
    false,
    ROUNDS,
    with_tables_behind_a_proxy,
    |config, on| DynamoLedger::new(config, &on.stack, Arc::clone(&on.clock))
);
on_aws!(
    Mailbox,
    DynamoMailbox<ManualClock>,
    true,
    ROUNDS,
    with_tables_behind_a_proxy,
    |config, on| DynamoMailbox::new(config, &on.stack, Arc::clone(&on.clock))
);
has_unreadable_items!(Ledger);
forges_reports!(Mailbox);
on_aws!(Queues, SqsQueues, false, ROUNDS, without_tables_behind_a_proxy, |config, on| {
    SqsQueues::new(config, &on.stack)
});

mod ledger {
    bullpen_sim::ledger_contract!(super::Ledger);
}

mod queues {
    bullpen_sim::queues_contract!(super::Queues);
}

mod mailbox {
    bullpen_sim::mailbox_contract!(super::Mailbox);
}
