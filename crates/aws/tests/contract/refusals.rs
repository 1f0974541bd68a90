//! What cannot work ends in one line that says what AWS said and what to do.
//!
//! Permissions are refused at the wire, in AWS's own form: no emulator checks them.
//!
//! Not here: what passes by itself ([`crate::weather`]), and tables of another layout
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

use crate::emulator::{Account, Service, real};
use crate::stage::{HOUR, assigned, condemned, marks, newborn};
use crate::{Ground, Wire};

/// A refusal has one line, the code, and a hint.
#[track_caller]
fn says<T: std::fmt::Debug>(answer: Result<T, Fault>, parts: &[&str]) {
    let said = answer.expect_err("it cannot work").to_string();
    assert!(!said.contains('\n'), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

fn denied(code: &str, action: &str) -> String {
    let who = "User: arn:aws:sts::123456789012:assumed-role/bullpen/x is not authorized to perform";
    format!(r#"{{"__type":"com.amazonaws.any#{code}","message":"{who}: {action}"}}"#)
}

#[test]
fn nobody_at_the_endpoint() {
    real(async {
        let nobody = Account::new("http://127.0.0.1:1".to_owned()).await;
        let ground = Ground::on(nobody, None);
        let config = ground.account.another();
        let ledger = DynamoLedger::new(config, &ground.stack, ground.clock());
        let place = "check the AWS region and the network";
        says(ledger.read(&"i-1".into()).await, &["unavailable: AWS did not answer", place]);
        let queues = SqsQueues::new(config, &ground.stack);
        says(queues.depth(&"large".into()).await, &["unavailable: AWS did not answer", place]);
        let written = marks(&[newborn("i-1", ground.clock.now())], &condemned(ground.clock.now()));
        let answers = ledger.replace_all(&[written.clone(), written].concat()).await;
        assert_eq!(answers, [Ok(Written::Unknown), Ok(Written::Unknown)]);
    });
}

#[test]
fn something_else_at_the_endpoint() {
    real(async {
        let (ground, wire) = (Ground::new(Service::Tables).await, Wire::default());
        let config = ground.account.config(Some(wire.clone())).await;
        let ledger = DynamoLedger::new(&config, &ground.stack, ground.clock());
        for status in [403, 404] {
            wire.answer_next(status, "<html>\n<body>It works!</body>\n</html>");
            says(ledger.read(&"i-1".into()).await, &["check the AWS region and the network"]);
        }
    });
}

#[test]
fn another_region_has_no_tables() {
    real(async {
        let ground = Ground::new(Service::Tables).await;
        let config = ground.account.another();
        let (now, hint) = (ground.clock.now(), "check stack and region, or run `bullpen refresh`");
        let parts = ["denied: ResourceNotFoundException", hint];
        let ledger = DynamoLedger::new(config, &ground.stack, ground.clock());
        says(ledger.owned_by(&Owner::Pool("linux".into())).await, &parts);
        let born = [newborn("i-1", now), newborn("i-2", now)];
        for answer in ledger.replace_all(&marks(&born, &condemned(now))).await {
            says(answer, &parts);
        }
        let mailbox = DynamoMailbox::new(config, &ground.stack, ground.clock());
        let order: Order = assigned(1, "j-1", now);
        for answer in
            mailbox.post_all(&[("k-1".into(), order.clone()), ("k-2".into(), order)]).await
        {
            says(answer, &parts);
        }
    });
}

#[test]
fn a_missing_permission() {
    real(async {
        let (ground, wire) = (Ground::with_tables().await, Wire::default());
        let config = ground.account.config(Some(wire.clone())).await;
        let (code, policy) =
            ("AccessDeniedException", "the AWS policy of this role does not allow");
        let ledger = DynamoLedger::new(&config, &ground.stack, ground.clock());
        wire.answer_next(400, &denied(code, "dynamodb:GetItem"));
        says(ledger.read(&"i-1".into()).await, &[code, "dynamodb:GetItem", policy]);
        for _ in 0..8 {
            wire.answer_next(400, &denied(code, "dynamodb:Query"));
        }
        says(ledger.idle_in(&"large".into()).await, &[code, "dynamodb:Query", policy]);
    });
    real(async {
        let (ground, wire) = (Ground::new(Service::Tables).await, Wire::default());
        let config = ground.account.config(Some(wire.clone())).await;
        wire.answer_next(400, &denied("AccessDeniedException", "dynamodb:DescribeTable"));
        let error = setup::verify(&config, &ground.stack).await.expect_err("it is not allowed");
        let setup::SetupError::Aws(fault) = error else { panic!("{error}") };
        says(Err::<(), _>(fault), &["AccessDeniedException", "dynamodb:DescribeTable", "policy"]);
    });
    real(async {
        let (ground, wire) = (Ground::without_tables().await, Wire::default());
        let config = ground.account.config(Some(wire.clone())).await;
        let queues = SqsQueues::new(&config, &ground.stack);
        wire.answer_next(403, &denied("AccessDenied", "sqs:getqueueurl"));
        says(queues.depth(&"large".into()).await, &["AccessDenied", "sqs:getqueueurl", "policy"]);
    });
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().expect("nobody panics with it").push(format!("{field}={value:?}"));
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
fn a_queue_that_is_deleted_underneath() {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.clone());
    // The test's own thread runs it, which is the one that listens.
    real(async {
        let ground = Ground::without_tables().await;
        let config = ground.account.another();
        let spec = QueueSpec {
            name: "large".into(),
            kind: QueueKind::Standard,
            visibility: Duration::from_secs(30),
            retention: HOUR,
            dead_letters: None,
        };
        let queues = SqsQueues::new(config, &ground.stack);
        queues.ensure(&spec).await.unwrap();
        SqsQueues::new(config, &ground.stack).remove(&spec.name).await.unwrap();
        let message = [Outgoing::now("one".to_owned())];
        assert_eq!(queues.send(&spec.name, &message).await, Err(Fault::NotFound));
        let said = lines.0.lock().unwrap().join(" ");
        assert!(said.contains("QueueDoesNotExist") && said.contains("bullpen refresh"), "{said}");
        assert!(said.contains("large"), "{said}");
        ground.pass(Duration::from_secs(61)).await;
        queues.ensure(&spec).await.unwrap();
        assert_eq!(queues.send(&spec.name, &message).await, Ok(vec![Ok(())]));
    });
}
