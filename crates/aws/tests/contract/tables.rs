//! What a stack's tables are made of, and which are refused.

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

use crate::emulator::{Service, real};
use crate::{Ground, Wire};

#[test]
fn tables_pay_by_use_and_forget_by_themselves() {
    real(async {
        let ground = Ground::with_tables().await;
        let client = Client::new(&ground.account.config(None).await);
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

/// The second time nothing is written; a neighbour whose name begins the same is not touched.
#[test]
fn tables_are_made_once_and_removed_once() {
    real(async {
        let ground = Ground::new(Service::Tables).await;
        let config = ground.account.config(None).await;
        let clock = &*ground.clock;
        let neighbour = StackName::new("contract-2").unwrap();
        setup::ensure(&config, &neighbour, clock).await.unwrap();
        let made = setup::ensure(&config, &ground.stack, clock).await.unwrap();
        assert!(made.contains(&"made table contract-state".to_owned()), "{made:?}");
        assert_eq!(setup::ensure(&config, &ground.stack, clock).await, Ok(Vec::new()));
        let removed = setup::remove(&config, &ground.stack, clock).await.unwrap();
        assert_eq!(removed, ["removed table contract-mailbox", "removed table contract-state"]);
        assert_eq!(setup::remove(&config, &ground.stack, clock).await, Ok(Vec::new()));
        let missing = setup::missing(&config, &ground.stack).await.unwrap();
        assert_eq!(missing, ["contract-state", "contract-mailbox"]);
        assert_eq!(setup::verify(&config, &neighbour).await, Ok(()));
    });
}

#[test]
fn a_missing_table_is_named() {
    real(async {
        let ground = Ground::new(Service::Tables).await;
        let config = ground.account.config(None).await;
        let error = setup::verify(&config, &ground.stack).await.unwrap_err();
        let said = "table contract-state does not exist: run `bullpen refresh`";
        assert_eq!(error.to_string(), said);
        let ledger = DynamoLedger::new(&config, &ground.stack, Arc::clone(&ground.clock));
        let Err(Fault::Denied(said)) = ledger.read(&InstanceId::new("i-1")).await else {
            panic!("a read without a table")
        };
        assert!(said.contains("ResourceNotFoundException") && said.contains("refresh"), "{said}");
    });
}

#[test]
fn a_table_of_another_layout_is_refused() {
    real(async {
        let ground = Ground::with_tables().await;
        let config = ground.account.config(None).await;
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
        let said = "table contract-state has layout 2; this program works with layout 1 only: \
                    use the version of Bullpen that made it, or another stack";
        let verified = setup::verify(&config, &ground.stack).await.unwrap_err();
        let ensured = setup::ensure(&config, &ground.stack, &*ground.clock).await.unwrap_err();
        assert_eq!((verified.to_string(), ensured.to_string()), (said.to_owned(), said.to_owned()));
    });
}

#[test]
fn a_table_that_is_not_ours_is_left_alone() {
    real(async {
        let ground = Ground::new(Service::Tables).await;
        let config = ground.account.config(None).await;
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
        let error = setup::ensure(&config, &ground.stack, &*ground.clock).await.unwrap_err();
        assert_eq!(error, SetupError::NotOurs { table: "contract-state".to_owned() });
        let kept = setup::remove(&config, &ground.stack, &*ground.clock).await.unwrap_err();
        assert_eq!(kept, error);
    });
}

#[test]
fn an_item_of_a_newer_program_is_not_read() {
    real(async {
        let ground = Ground::with_tables().await;
        let config = ground.account.config(None).await;
        let mailbox = DynamoMailbox::new(&config, &ground.stack, Arc::clone(&ground.clock));
        let key = "AROA:i-1".into();
        let beat = Beat {
            seq: 1,
            at: ground.clock.now(),
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
        let [ReportRead::Unreadable(said)] = &found[..] else { panic!("a newer item was read") };
        let said = said.to_string();
        assert_eq!(said, "out#AROA:i-1: the item has version 99; this program reads up to 1");
        let later = Beat { seq: 2, ..beat };
        mailbox.beat(&key, &later).await.unwrap();
        let still = mailbox.reports(&[key]).await.unwrap();
        assert!(matches!(still[..], [ReportRead::Unreadable(_)]), "it was written over: {still:?}");
    });
}

#[test]
fn what_aws_says_is_the_cause_and_not_the_text() {
    real(async {
        let ground = Ground::new(Service::Tables).await;
        let wire = Wire::default();
        let config = ground.account.config(Some(wire.clone())).await;
        wire.lose_next_answer();
        let error = setup::verify(&config, &ground.stack).await.unwrap_err();
        assert_eq!(error.to_string(), "the tables of the stack cannot be set up");
        let cause = error.source().expect("AWS did not answer").to_string();
        assert!(cause.contains("the test lost this answer"), "{cause}");
    });
}
