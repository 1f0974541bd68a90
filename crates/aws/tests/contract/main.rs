//! DynamoDB and SQS pass the same contract suites as the models, as ministack plays them.
//!
//! One server per test process; every world is an account of its own in it, which is what ministack
//! makes of a 12-digit access key. A second client on the account stands for a second process. An
//! answer is lost at the wire, after it was given.
//!
//! Besides: what the tables are made of ([`tables`]), how many calls each operation takes ([`calls`])
//! however long the history is ([`history`]), what becomes of the answers that no emulator gives
//! ([`weather`]), and of what cannot work ([`refusals`]).
//!
//! The suites run once more through a proxy ([`through`]), and so do races in bad weather
//! ([`races`]).
//!
//! Not here: what no emulator shows: throttling, stale reads, permissions (`docs/aws.md`).

mod calls;
mod emulator;
mod history;
mod races;
mod refusals;
mod stage;
mod storm;
mod tables;
mod through;
mod weather;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use bullpen_aws::{DynamoLedger, DynamoMailbox, SqsQueues, StackName, setup};
use bullpen_core::ids::MailboxKey;
use bullpen_core::ports::Clock;
use bullpen_faulty::Proxy;
use bullpen_sim::clock::ManualClock;
use bullpen_sim::model::mailbox::Forgery;
use emulator::{Account, Service};
use through::Between;
use wire::Wire;

/// How many rounds the cases that look for races try: fewer than elsewhere, because ministack does
/// some hundred writes a second, one after the other.
const ROUNDS: u32 = 50;

/// What every harness here has: an account of its own and a clock.
struct Ground {
    account: Account,
    clock: Arc<ManualClock>,
    stack: StackName,
    /// What is between us and the emulator, if anything is.
    proxy: Option<Between>,
}

impl Ground {
    async fn new(service: Service) -> Self {
        Self::on(Account::new(emulator::endpoint(service)).await, None)
    }

    /// Goes through a proxy without faults.
    async fn behind_a_proxy(service: Service) -> Self {
        let proxy = Between::start(service).await;
        Self::on(Account::new(proxy.url()).await, Some(proxy))
    }

    /// Goes through a proxy, as the account of this number.
    async fn numbered(service: Service, number: u64) -> Self {
        let proxy = Between::start(service).await;
        Self::on(Account::numbered(proxy.url(), number).await, Some(proxy))
    }

    fn on(account: Account, proxy: Option<Between>) -> Self {
        // So late that nothing is forgotten by the emulator's own, real time.
        let begins = "2100-01-01T00:00:00Z".parse().expect("it is RFC 3339");
        let clock = ManualClock::at(begins);
        account.set_time(clock.now());
        let stack = StackName::new("contract").expect("it is plain");
        Self { account, clock, stack, proxy }
    }

    async fn with_tables() -> Self {
        Self::new(Service::Tables).await.and_tables().await
    }

    async fn with_tables_behind_a_proxy() -> Self {
        Self::behind_a_proxy(Service::Tables).await.and_tables().await
    }

    async fn and_tables(self) -> Self {
        let ground = self;
        let config = ground.account.config(None).await;
        for _ in 0..2 {
            setup::ensure(&config, &ground.stack, &*ground.clock)
                .await
                .expect("it is a new account");
        }
        setup::verify(&config, &ground.stack).await.expect("the tables were just made");
        ground
    }

    /// Queues are made when they are needed.
    async fn without_tables() -> Self {
        Self::new(Service::Queues).await
    }

    async fn without_tables_behind_a_proxy() -> Self {
        Self::behind_a_proxy(Service::Queues).await
    }

    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("it was asked for").proxy()
    }

    /// Moves the clock, and lets whoever waits at the emulator notice.
    async fn pass(&self, wait: Duration) {
        const TURN: Duration = Duration::from_millis(20);
        self.clock.advance(wait);
        self.account.set_time(self.clock.now());
        #[expect(clippy::disallowed_methods, reason = "the emulator runs on real time")]
        tokio::time::sleep(TURN).await;
    }
}

macro_rules! on_aws {
    ($harness:ident, $port:ty, $weak:literal, $rounds:expr, $ground:ident, |$config:ident, $on:ident| $make:expr) => {
        pub(crate) struct $harness {
            port: $port,
            wire: $crate::wire::Wire,
            ground: $crate::Ground,
        }

        impl $harness {
            fn open($config: &bullpen_aws::SdkConfig, $on: &$crate::Ground) -> $port {
                $make
            }
        }

        impl bullpen_sim::contract::Harness for $harness {
            type Port = $port;
            const WEAK: bool = $weak;
            const ROUNDS: u32 = $rounds;

            fn block_on<F: std::future::Future>(case: F) -> F::Output {
                $crate::emulator::real(case)
            }

            async fn fresh() -> Self {
                let (ground, wire) =
                    ($crate::Ground::$ground().await, $crate::wire::Wire::default());
                let config = ground.account.config(Some(wire.clone())).await;
                Self { port: Self::open(&config, &ground), wire, ground }
            }

            fn port(&self) -> &Self::Port {
                &self.port
            }

            fn another_process(&self) -> Self::Port {
                Self::open(self.ground.account.another(), &self.ground)
            }

            fn now(&self) -> bullpen_core::time::Timestamp {
                bullpen_core::ports::Clock::now(&*self.ground.clock)
            }

            async fn pass(&self, wait: std::time::Duration) {
                self.ground.pass(wait).await;
            }

            fn lose_next_answer(&self) -> bool {
                self.wire.lose_next_answer();
                true
            }
        }
    };
}

use on_aws;

/// Writes what an instance's role may write: any attribute of its own item, of any type.
async fn forge_report(on: &Ground, key: &MailboxKey, forged: &Forgery) {
    let client = Client::new(&on.account.config(None).await);
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let one = || AttributeValue::N("1".to_owned());
    let mut parts: Vec<(String, AttributeValue)> = vec![("v".to_owned(), one())];
    parts.extend(forged.beat.iter().map(|beat| ("beat_doc".to_owned(), text(beat))));
    let signals = forged.signals.iter();
    parts.extend(signals.map(|(kind, body)| (format!("signal_{kind}"), text(body))));
    if forged.ill_typed {
        parts.push(("beat_doc".to_owned(), AttributeValue::L(vec![one()])));
    }
    for (name, value) in parts {
        client
            .update_item()
            .table_name(on.stack.mailbox_table())
            .key("pk", text(&format!("out#{key}")))
            .update_expression("SET #part = :part")
            .expression_attribute_names("#part", name)
            .expression_attribute_values(":part", value)
            .send()
            .await
            .expect("a role may write its own item");
    }
}

macro_rules! forges_reports {
    ($harness:ident) => {
        impl bullpen_sim::contract::mailbox::MailboxHarness for $harness {
            async fn forge_report(
                &self,
                key: &bullpen_core::ids::MailboxKey,
                forged: &bullpen_sim::model::mailbox::Forgery,
            ) {
                $crate::forge_report(&self.ground, key, forged).await;
            }
        }
    };
}

use forges_reports;

on_aws!(Ledger, DynamoLedger<ManualClock>, false, ROUNDS, with_tables, |config, on| {
    DynamoLedger::new(config, &on.stack, Arc::clone(&on.clock))
});
// Weak, because nothing wakes a waiter.
on_aws!(Mailbox, DynamoMailbox<ManualClock>, true, ROUNDS, with_tables, |config, on| {
    DynamoMailbox::new(config, &on.stack, Arc::clone(&on.clock))
});
forges_reports!(Mailbox);
on_aws!(Queues, SqsQueues, false, ROUNDS, without_tables, |config, on| SqsQueues::new(
    config, &on.stack
));

mod ledger {
    bullpen_sim::ledger_contract!(super::Ledger);
}

mod queues {
    bullpen_sim::queues_contract!(super::Queues);
}

mod mailbox {
    bullpen_sim::mailbox_contract!(super::Mailbox);
}
