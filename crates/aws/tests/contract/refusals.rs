//! Errors that an operator must act on: each is one line with AWS's code and a hint.
//!
//! The test's HTTP client denies permissions, in AWS's own form: no emulator checks them.
//!
//! Not here: transient errors ([`crate::answers`]), and tables of another layout
//! ([`crate::tables`]).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_aws::{DynamoLedger, DynamoMailbox, SqsQueues, setup};
use bullpen_core::instance::Owner;
use bullpen_core::mailbox::Order;
use bullpen_core::ports::{
    Clock, Fault, Ledger, Mailbox, Outgoing, QueueKind, QueueSpec, Queues, Written,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::emulator::{Account, Service, block_on};
use crate::fixtures::{HOUR, assigned, condemned, newborn, transitions};
use crate::{Wire, World};

/// Asserts that a call fails with one line that has all these parts.
#[track_caller]
fn fails_with<T: std::fmt::Debug>(answer: Result<T, Fault>, parts: &[&str]) {
    let text = answer.expect_err("a fault").to_string();
    assert!(!text.contains('\n'), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

fn denied(code: &str, action: &str) -> String {
    let who = "User: arn:aws:sts::123456789012:assumed-role/bullpen/x is not authorized to perform";
    format!(r#"{{"__type":"com.amazonaws.any#{code}","message":"{who}: {action}"}}"#)
}

#[test]
fn no_server_at_the_endpoint() {
    block_on(async {
        let unreachable = Account::new("http://127.0.0.1:1".to_owned()).await;
        let world = World::on(unreachable, None);
        let config = world.account.another();
        let ledger = DynamoLedger::new(config, &world.stack, world.clock());
        let place = "check the AWS region and the network";
        fails_with(ledger.read(&"i-1".into()).await, &["unavailable: AWS did not answer", place]);
        let queues = SqsQueues::new(config, &world.stack);
        fails_with(
            queues.depth(&"large".into()).await,
            &["unavailable: AWS did not answer", place],
        );
        let written =
            transitions(&[newborn("i-1", world.clock.now())], &condemned(world.clock.now()));
        let answers = ledger.replace_all(&[written.clone(), written].concat()).await;
        assert_eq!(answers, [Ok(Written::Unknown), Ok(Written::Unknown)]);
    });
}

#[test]
fn another_server_at_the_endpoint() {
    block_on(async {
        let (world, wire) = (World::new(Service::Tables).await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let ledger = DynamoLedger::new(&config, &world.stack, world.clock());
        for status in [403, 404] {
            wire.answer_next(status, "<html>\n<body>It works!</body>\n</html>");
            fails_with(ledger.read(&"i-1".into()).await, &["check the AWS region and the network"]);
        }
    });
}

#[test]
fn another_region_has_no_tables() {
    block_on(async {
        let world = World::new(Service::Tables).await;
        let config = world.account.another();
        let (now, hint) = (world.clock.now(), "check stack and region, or run `bullpen refresh`");
        let parts = ["denied: ResourceNotFoundException", hint];
        let ledger = DynamoLedger::new(config, &world.stack, world.clock());
        fails_with(ledger.owned_by(&Owner::Pool("linux".into())).await, &parts);
        let born = [newborn("i-1", now), newborn("i-2", now)];
        for answer in ledger.replace_all(&transitions(&born, &condemned(now))).await {
            fails_with(answer, &parts);
        }
        let mailbox = DynamoMailbox::new(config, &world.stack, world.clock());
        let order: Order = assigned(1, "j-1", now);
        for answer in
            mailbox.post_all(&[("k-1".into(), order.clone()), ("k-2".into(), order)]).await
        {
            fails_with(answer, &parts);
        }
    });
}

#[test]
fn a_missing_permission() {
    block_on(async {
        let (world, wire) = (World::with_tables().await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let (code, policy) =
            ("AccessDeniedException", "the AWS policy of this role does not allow");
        let ledger = DynamoLedger::new(&config, &world.stack, world.clock());
        wire.answer_next(400, &denied(code, "dynamodb:GetItem"));
        fails_with(ledger.read(&"i-1".into()).await, &[code, "dynamodb:GetItem", policy]);
        for _ in 0..8 {
            wire.answer_next(400, &denied(code, "dynamodb:Query"));
        }
        fails_with(ledger.idle_in(&"large".into()).await, &[code, "dynamodb:Query", policy]);
    });
    block_on(async {
        let (world, wire) = (World::new(Service::Tables).await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        wire.answer_next(400, &denied("AccessDeniedException", "dynamodb:DescribeTable"));
        let error = setup::verify(&config, &world.stack).await.expect_err("a denial");
        let setup::SetupError::Aws(fault) = error else { panic!("{error}") };
        fails_with(
            Err::<(), _>(fault),
            &["AccessDeniedException", "dynamodb:DescribeTable", "policy"],
        );
    });
    block_on(async {
        let (world, wire) = (World::without_tables().await, Wire::default());
        let config = world.account.config(Some(wire.clone())).await;
        let queues = SqsQueues::new(&config, &world.stack);
        wire.answer_next(403, &denied("AccessDenied", "sqs:getqueueurl"));
        fails_with(
            queues.depth(&"large".into()).await,
            &["AccessDenied", "sqs:getqueueurl", "policy"],
        );
    });
}

/// A subscriber that keeps the fields of log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().expect("no panic while locked").push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("bullpen_aws")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_queue_that_is_deleted_while_in_use() {
    let lines = Lines::default();
    let _subscribed = tracing::subscriber::set_default(lines.clone());
    // `block_on` runs the case on this thread, which has the subscriber.
    block_on(async {
        let world = World::without_tables().await;
        let config = world.account.another();
        let spec = QueueSpec {
            name: "large".into(),
            kind: QueueKind::Standard,
            visibility: Duration::from_secs(30),
            retention: HOUR,
            dead_letters: None,
        };
        let queues = SqsQueues::new(config, &world.stack);
        queues.ensure(&spec).await.unwrap();
        SqsQueues::new(config, &world.stack).remove(&spec.name).await.unwrap();
        let message = [Outgoing::now("one".to_owned())];
        assert_eq!(queues.send(&spec.name, &message).await, Err(Fault::NotFound));
        let text = lines.0.lock().unwrap().join(" ");
        assert!(text.contains("QueueDoesNotExist") && text.contains("bullpen refresh"), "{text}");
        assert!(text.contains("large"), "{text}");
        world.advance(Duration::from_secs(61)).await;
        queues.ensure(&spec).await.unwrap();
        assert_eq!(queues.send(&spec.name, &message).await, Ok(vec![Ok(())]));
    });
}
