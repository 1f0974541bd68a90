//! Creating, checking and removing a stack's tables, and refusing tables of another layout.
//!
//! Not here: items in the tables (the contract suites).

use std::error::Error as _;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};
use bullpen_aws::setup::{self, SetupError};
use bullpen_aws::{DynamoLedger, DynamoMailbox, StackName};
use bullpen_core::ids::InstanceId;
use bullpen_core::mailbox::{AgentPhase, Beat, ReportRead};
use bullpen_core::ports::{Clock, Fault, Ledger, Mailbox};

use crate::emulator::{Service, block_on};
use crate::{Wire, World};

#[test]
fn tables_are_billed_by_request_and_expire_items() {
    block_on(async {
        let world = World::with_tables().await;
        let client = Client::new(&world.account.config(None).await);
        for (table, indexes) in [("contract-state", 4), ("contract-mailbox", 0)] {
            let found = client.describe_table().table_name(table).send().await.unwrap();
            let found = found.table.unwrap();
            let billing = found.billing_mode_summary().and_then(|billing| billing.billing_mode());
            assert_eq!(billing, Some(&BillingMode::PayPerRequest), "{table}");
            assert_eq!(found.local_secondary_indexes().len(), indexes, "{table}");
            let forgets = client.describe_time_to_live().table_name(table).send().await.unwrap();
            let attribute = forgets.time_to_live_description.and_then(|found| found.attribute_name);
            assert_eq!(attribute.as_deref(), Some("forget_at"), "{table}");
        }
    });
}

/// A second `ensure` writes nothing; a stack whose name begins the same is not touched.
#[test]
fn tables_are_created_once_and_removed_once() {
    block_on(async {
        let world = World::new(Service::Tables).await;
        let config = world.account.config(None).await;
        let clock = &*world.clock;
        let neighbour = StackName::new("contract-2").unwrap();
        setup::ensure(&config, &neighbour, clock).await.unwrap();
        let made = setup::ensure(&config, &world.stack, clock).await.unwrap();
        assert!(made.contains(&"made table contract-state".to_owned()), "{made:?}");
        assert_eq!(setup::ensure(&config, &world.stack, clock).await, Ok(Vec::new()));
        let removed = setup::remove(&config, &world.stack, clock).await.unwrap();
        assert_eq!(removed, ["removed table contract-mailbox", "removed table contract-state"]);
        assert_eq!(setup::remove(&config, &world.stack, clock).await, Ok(Vec::new()));
        let missing = setup::missing(&config, &world.stack).await.unwrap();
        assert_eq!(missing, ["contract-state", "contract-mailbox"]);
        assert_eq!(setup::verify(&config, &neighbour).await, Ok(()));
    });
}

#[test]
fn a_missing_table_is_named() {
    block_on(async {
        let world = World::new(Service::Tables).await;
        let config = world.account.config(None).await;
        let error = setup::verify(&config, &world.stack).await.unwrap_err();
        let expected = "table contract-state does not exist: run `bullpen refresh`";
        assert_eq!(error.to_string(), expected);
        let ledger = DynamoLedger::new(&config, &world.stack, Arc::clone(&world.clock));
        let Err(Fault::Denied(text)) = ledger.read(&InstanceId::new("i-1")).await else {
            panic!("a read without a table")
        };
        assert!(text.contains("ResourceNotFoundException") && text.contains("refresh"), "{text}");
    });
}

#[test]
fn a_table_of_another_layout_is_refused() {
    block_on(async {
        let world = World::with_tables().await;
        let config = world.account.config(None).await;
        let text = |text: &str| AttributeValue::S(text.to_owned());
        Client::new(&config)
            .update_item()
            .table_name("contract-state")
            .key("pk", text("layout"))
            .key("sk", text("layout"))
            .update_expression("SET layout_version = :two")
            .expression_attribute_values(":two", AttributeValue::N("2".to_owned()))
            .send()
            .await
            .unwrap();
        let expected = "table contract-state has layout 2; this program works with layout 1 only: \
                        use the version of Bullpen that made it, or another stack";
        let verified = setup::verify(&config, &world.stack).await.unwrap_err();
        let ensured = setup::ensure(&config, &world.stack, &*world.clock).await.unwrap_err();
        assert_eq!([verified.to_string(), ensured.to_string()], [expected, expected]);
    });
}

#[test]
fn a_table_that_is_not_ours_is_left_alone() {
    block_on(async {
        let world = World::new(Service::Tables).await;
        let config = world.account.config(None).await;
        let id = AttributeDefinition::builder().attribute_name("id");
        let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
        Client::new(&config)
            .create_table()
            .table_name("contract-state")
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(id.attribute_type(ScalarAttributeType::S).build().unwrap())
            .key_schema(key.build().unwrap())
            .send()
            .await
            .unwrap();
        let error = setup::ensure(&config, &world.stack, &*world.clock).await.unwrap_err();
        assert_eq!(error, SetupError::NotOurs { table: "contract-state".to_owned() });
        let kept = setup::remove(&config, &world.stack, &*world.clock).await.unwrap_err();
        assert_eq!(kept, error);
    });
}

#[test]
fn an_item_of_a_newer_program_is_not_read() {
    block_on(async {
        let world = World::with_tables().await;
        let config = world.account.config(None).await;
        let mailbox = DynamoMailbox::new(&config, &world.stack, Arc::clone(&world.clock));
        let key = "AROA:i-1".into();
        let beat = Beat {
            seq: 1,
            at: world.clock.now(),
            phase: AgentPhase::Waiting,
            boot: "b".to_owned(),
        };
        mailbox.beat(&key, &beat).await.unwrap();
        Client::new(&config)
            .update_item()
            .table_name("contract-mailbox")
            .key("pk", AttributeValue::S("out#AROA:i-1".to_owned()))
            .update_expression("SET v = :later")
            .expression_attribute_values(":later", AttributeValue::N("99".to_owned()))
            .send()
            .await
            .unwrap();
        let found = mailbox.reports(std::slice::from_ref(&key)).await.unwrap();
        let [ReportRead::Unreadable(text)] = &found[..] else { panic!("a newer item was read") };
        let text = text.to_string();
        assert_eq!(text, "out#AROA:i-1: the item has version 99; this program reads up to 1");
        let later = Beat { seq: 2, ..beat };
        mailbox.beat(&key, &later).await.unwrap();
        let still = mailbox.reports(&[key]).await.unwrap();
        assert!(
            matches!(still[..], [ReportRead::Unreadable(_)]),
            "an older program wrote the item: {still:?}"
        );
    });
}

#[test]
fn aws_is_the_source_of_a_setup_error_and_not_its_text() {
    block_on(async {
        let world = World::new(Service::Tables).await;
        let wire = Wire::default();
        let config = world.account.config(Some(wire.clone())).await;
        wire.lose_next_answer();
        let error = setup::verify(&config, &world.stack).await.unwrap_err();
        assert_eq!(error.to_string(), "the tables of the stack cannot be set up");
        let cause = error.source().expect("AWS did not answer").to_string();
        assert!(cause.contains("the test lost this answer"), "{cause}");
    });
}
