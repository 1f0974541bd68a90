//! The contract suites of the ledger, mailbox and queues on ministack's DynamoDB and SQS, directly
//! and through a proxy ([`proxied`]), and further tests of the adapters.
//!
//! All tests share one server, and each has an account of its own in it. A second client on the
//! account stands for a second process.
//!
//! Not here: stale reads, and other behaviour that no emulator shows (`docs/aws.md`).

mod answers;
mod calls;
mod emulator;
mod faulty;
mod fixtures;
mod history;
mod proxied;
mod races;
mod refusals;
mod tables;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use bullpen_aws::{DynamoLedger, DynamoMailbox, SqsQueues, StackName, setup};
use bullpen_core::ids::MailboxKey;
use bullpen_core::ports::{Clock, ItemKind};
use bullpen_faulty::Proxy;
use bullpen_sim::clock::ManualClock;
use bullpen_sim::model::mailbox::Forgery;
use emulator::{Account, Service};
use proxied::TestProxy;
use wire::Wire;

/// The rounds of cases that provoke races: fewer than elsewhere, because ministack performs some
/// hundred writes a second, one after the other.
const ROUNDS: u32 = 50;

/// The environment of one test: an account of its own and a clock.
struct World {
    account: Account,
    clock: Arc<ManualClock>,
    stack: StackName,
    /// The proxy before the emulator, if the test has one.
    proxy: Option<TestProxy>,
}

impl World {
    async fn new(service: Service) -> Self {
        Self::on(Account::new(emulator::endpoint(service)).await, None)
    }

    /// A world behind a proxy without faults.
    async fn behind_a_proxy(service: Service) -> Self {
        let proxy = TestProxy::start(service).await;
        Self::on(Account::new(proxy.url()).await, Some(proxy))
    }

    /// A world behind a proxy, with the account of this number.
    async fn numbered(service: Service, number: u64) -> Self {
        let proxy = TestProxy::start(service).await;
        Self::on(Account::numbered(proxy.url(), number).await, Some(proxy))
    }

    fn on(account: Account, proxy: Option<TestProxy>) -> Self {
        // So late that the emulator, which deletes by the real time, deletes no item of a test.
        let start = "2100-01-01T00:00:00Z".parse().expect("a time in RFC 3339");
        let clock = ManualClock::at(start);
        account.set_time(clock.now());
        let stack = StackName::new("contract").expect("a valid name");
        Self { account, clock, stack, proxy }
    }

    async fn with_tables() -> Self {
        Self::new(Service::Tables).await.create_tables().await
    }

    async fn with_tables_behind_a_proxy() -> Self {
        Self::behind_a_proxy(Service::Tables).await.create_tables().await
    }

    async fn create_tables(self) -> Self {
        let world = self;
        let config = world.account.config(None).await;
        for _ in 0..2 {
            setup::ensure(&config, &world.stack, &*world.clock).await.expect("new tables");
        }
        setup::verify(&config, &world.stack).await.expect("the tables of this stack");
        world
    }

    /// A world for queues, which the tests create themselves.
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
        self.proxy.as_ref().expect("a world behind a proxy").proxy()
    }

    /// Advances the clock, and lets calls that wait at the emulator notice.
    async fn advance(&self, wait: Duration) {
        const PAUSE: Duration = Duration::from_millis(20);
        self.clock.advance(wait);
        self.account.set_time(self.clock.now());
        #[expect(clippy::disallowed_methods, reason = "the emulator runs on real time")]
        tokio::time::sleep(PAUSE).await;
    }
}

macro_rules! on_aws {
    ($harness:ident, $port:ty, $weak:literal, $rounds:expr, $new:ident, |$config:ident, $on:ident| $make:expr) => {
        pub(crate) struct $harness {
            port: $port,
            wire: $crate::wire::Wire,
            world: $crate::World,
        }

        impl $harness {
            fn open($config: &bullpen_aws::SdkConfig, $on: &$crate::World) -> $port {
                $make
            }
        }

        impl bullpen_sim::contract::Harness for $harness {
            type Port = $port;
            const WEAK: bool = $weak;
            const ROUNDS: u32 = $rounds;

            fn block_on<F: std::future::Future>(case: F) -> F::Output {
                $crate::emulator::block_on(case)
            }

            async fn fresh() -> Self {
                let (world, wire) = ($crate::World::$new().await, $crate::wire::Wire::default());
                let config = world.account.config(Some(wire.clone())).await;
                Self { port: Self::open(&config, &world), wire, world }
            }

            fn port(&self) -> &Self::Port {
                &self.port
            }

            fn another_process(&self) -> Self::Port {
                Self::open(self.world.account.another(), &self.world)
            }

            fn now(&self) -> bullpen_core::time::Timestamp {
                bullpen_core::ports::Clock::now(&*self.world.clock)
            }

            async fn pass(&self, wait: std::time::Duration) {
                self.world.advance(wait).await;
            }

            fn lose_next_answer(&self) -> bool {
                self.wire.lose_next_answer();
                true
            }
        }
    };
}

use on_aws;

/// Writes a forged report. An instance's role may write any attribute of any type to its own item.
async fn forge_report(on: &World, key: &MailboxKey, forged: &Forgery) {
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

/// Writes an item as a newer program would: one version and one revision later.
async fn make_unreadable(on: &World, kind: ItemKind, key: &str) {
    let client = Client::new(&on.account.config(None).await);
    let (letter, name) = match kind {
        ItemKind::Record => ("i#", key),
        ItemKind::Intent => ("n#", key),
        ItemKind::Row => ("j#", key),
        ItemKind::Document => {
            let (collection, name) = key.split_once('/').expect("a collection and a name");
            (&*format!("d#{collection}"), name)
        }
        other => panic!("the suite has no case for a {other}"),
    };
    let (text, number) = (
        |text: &str| AttributeValue::S(text.to_owned()),
        |number: u32| AttributeValue::N(number.to_string()),
    );
    let found = client
        .scan()
        .table_name(on.stack.state_table())
        .filter_expression("begins_with(pk, :letter) AND sk = :name")
        .expression_attribute_values(":letter", text(letter))
        .expression_attribute_values(":name", text(name))
        .send()
        .await
        .expect("the table is ours");
    let found = found.items.unwrap_or_default();
    assert_eq!(found.len(), 1, "{kind} {key}");
    client
        .update_item()
        .table_name(on.stack.state_table())
        .key("pk", found[0]["pk"].clone())
        .key("sk", text(name))
        .update_expression("SET v = :newer, rev = rev + :one")
        .expression_attribute_values(":newer", number(kind.version() + 1))
        .expression_attribute_values(":one", number(1))
        .send()
        .await
        .expect("the table is ours");
}

macro_rules! has_unreadable_items {
    ($harness:ident) => {
        impl bullpen_sim::contract::ledger::LedgerHarness for $harness {
            async fn make_unreadable(&self, kind: bullpen_core::ports::ItemKind, key: &str) {
                $crate::make_unreadable(&self.world, kind, key).await;
            }
        }
    };
}

use has_unreadable_items;

macro_rules! forges_reports {
    ($harness:ident) => {
        impl bullpen_sim::contract::mailbox::MailboxHarness for $harness {
            async fn forge_report(
                &self,
                key: &bullpen_core::ids::MailboxKey,
                forged: &bullpen_sim::model::mailbox::Forgery,
            ) {
                $crate::forge_report(&self.world, key, forged).await;
            }
        }
    };
}

use forges_reports;

on_aws!(Ledger, DynamoLedger<ManualClock>, false, ROUNDS, with_tables, |config, on| {
    DynamoLedger::new(config, &on.stack, Arc::clone(&on.clock))
});
has_unreadable_items!(Ledger);
// Weak, because nothing wakes a waiting agent.
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
