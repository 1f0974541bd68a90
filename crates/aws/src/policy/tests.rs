//! Tests of what each party's policy allows and denies.
//!
//! Not here: whether the policies fit the calls that Bullpen makes.

use super::*;

fn settings() -> PolicySettings {
    PolicySettings {
        stack: StackName::new("prod").unwrap(),
        region: "eu-west-1".to_owned(),
        account: Some("123456789012".to_owned()),
        instance_profile: "bullpen-instance".to_owned(),
        role: "bullpen-instance".to_owned(),
        subnets: vec!["subnet-1".to_owned()],
        security_groups: vec!["sg-1".to_owned()],
        fetched: vec!["s3://bucket/agent".to_owned(), "https://example.com/r".to_owned()],
        kept_tokens: false,
    }
}

fn statements(party: Party) -> Vec<Value> {
    document(party, &settings())["Statement"].as_array().unwrap().clone()
}

fn allows(party: Party, action: &str) -> Vec<Value> {
    let has = |found: &Value| found["Action"].as_array().unwrap().iter().any(|is| is == action);
    let allow = |found: &Value| found["Effect"] == "Allow" && has(found);
    statements(party).into_iter().filter(allow).collect()
}

/// The policies allow no change to a machine or a template without the stack's tag.
#[test]
fn every_change_in_ec2_requires_the_stacks_tag() {
    for party in [ControlPlane, Workflow] {
        for action in [
            "ec2:StartInstances",
            "ec2:StopInstances",
            "ec2:TerminateInstances",
            "ec2:CreateTags",
            "ec2:CreateLaunchTemplate",
            "ec2:DeleteLaunchTemplate",
        ] {
            for statement in allows(party, action) {
                let equals = &statement["Condition"]["StringEquals"];
                let carries = equals["aws:ResourceTag/bullpen:stack"] == "prod";
                let is_given = equals["aws:RequestTag/bullpen:stack"] == "prod";
                assert!(carries || is_given, "{party:?} {action}: {statement}");
            }
        }
    }
}

#[test]
fn no_action_has_a_star_and_statement_ids_are_unique() {
    for party in [ControlPlane, Workflow, Instance] {
        let mut ids = Vec::new();
        for statement in statements(party) {
            let id = statement["Sid"].as_str().unwrap().to_owned();
            assert!(!ids.contains(&id) && id.bytes().all(|b| b.is_ascii_alphanumeric()));
            ids.push(id);
            for action in statement["Action"].as_array().unwrap() {
                let action = action.as_str().unwrap();
                assert!(action.contains(':') && !action.contains('*'), "{action}");
            }
        }
    }
}

#[test]
fn an_instance_reaches_its_own_two_items_and_its_programs() {
    let [read] = &allows(Instance, "dynamodb:GetItem")[..] else { panic!("one statement") };
    assert_eq!(
        read["Resource"],
        json!(["arn:aws:dynamodb:eu-west-1:123456789012:table/prod-mailbox"])
    );
    let keys = |statement: &Value| {
        statement["Condition"]["ForAllValues:StringEquals"]["dynamodb:LeadingKeys"].clone()
    };
    assert_eq!(keys(read), json!(["in#${aws:userid}"]));
    let [write] = &allows(Instance, "dynamodb:UpdateItem")[..] else { panic!("one statement") };
    assert_eq!(keys(write), json!(["out#${aws:userid}"]));
    let [fetch] = &allows(Instance, "s3:GetObject")[..] else { panic!("one statement") };
    assert_eq!(fetch["Resource"], json!(["arn:aws:s3:::bucket/agent"]));
    assert_eq!(allows(Instance, "ec2:CreateTags").len(), 0);
    assert!(statements(Instance).iter().any(|statement| statement["Effect"] == "Deny"));
    let allowed = allowed(Instance);
    assert_eq!(allowed.len(), 3, "{allowed:?}");
    let without = PolicySettings { fetched: Vec::new(), ..settings() };
    let document = document(Instance, &without).to_string();
    assert!(!document.contains("s3:"), "{document}");
}

#[test]
fn a_workflow_creates_and_removes_no_store_and_stops_no_machine() {
    for action in [
        "dynamodb:CreateTable",
        "dynamodb:DeleteTable",
        "sqs:CreateQueue",
        "sqs:DeleteQueue",
        "ec2:StopInstances",
        "ec2:DeleteLaunchTemplate",
        "servicequotas:GetServiceQuota",
    ] {
        assert_eq!(allows(Workflow, action).len(), 0, "{action}");
        assert_eq!(allows(ControlPlane, action).len(), 1, "{action}");
    }
    let (step, service) = (allowed(Workflow), allowed(ControlPlane));
    let is_subset = step.iter().all(|action| service.contains(action));
    assert!(is_subset, "the policy allows a workflow more than the service");
}

/// Stored tokens register and remove runners; only steps without a credential of their own use
/// them.
#[test]
fn a_workflow_reads_no_stored_token_unless_it_needs_them() {
    let denies = |settings: &PolicySettings| -> Vec<Value> {
        let statements = document(Workflow, settings)["Statement"].as_array().unwrap().clone();
        statements.into_iter().filter(|statement| statement["Effect"] == "Deny").collect()
    };
    let [deny, of_orders] = &denies(&settings())[..] else { panic!("two statements") };
    assert_eq!(
        deny["Condition"],
        json!({ "ForAnyValue:StringEquals": { "dynamodb:LeadingKeys": ["d#tokens"] } })
    );
    #[cfg(feature = "ledger")]
    assert_eq!(crate::ledger::keys::documents(parameters::TOKENS), "d#tokens");
    let table = "arn:aws:dynamodb:eu-west-1:123456789012:table/prod-state";
    assert_eq!(deny["Resource"], json!([table, format!("{table}/index/*")]));
    // The deny covers every action that the policy allows on other items of that table.
    for (action, _) in allowed(Workflow) {
        let on_items = action.starts_with("dynamodb:") && !action.contains("Describe");
        let is_denied = deny["Action"].as_array().unwrap().iter().any(|denied| denied == action);
        assert_eq!(is_denied, on_items, "{action}");
    }
    let needed = PolicySettings { kept_tokens: true, ..settings() };
    assert_eq!(denies(&needed), std::slice::from_ref(of_orders));
}

/// Orders hold the credentials of runners. A step reads only an order of its own, to settle a
/// write.
#[test]
fn a_workflow_cannot_read_orders_in_batches() {
    let statements = statements(Workflow);
    let is_deny = |statement: &&Value| statement["Sid"] == "OrdersOneByOne";
    let deny = statements.iter().find(is_deny).expect("a statement");
    assert_eq!(deny["Effect"], "Deny");
    assert_eq!(deny["Action"], json!(["dynamodb:BatchGetItem", "dynamodb:Query"]));
    assert_eq!(
        deny["Resource"],
        json!(["arn:aws:dynamodb:eu-west-1:123456789012:table/prod-mailbox"])
    );
    assert_eq!(
        deny["Condition"],
        json!({ "ForAnyValue:StringLike": { "dynamodb:LeadingKeys": ["in#*"] } })
    );
    let of_service = document(ControlPlane, &settings()).to_string();
    assert!(!of_service.contains("OrdersOneByOne"));
}

/// IAM accepts managed policies of up to 6,144 characters, not counting white space.
#[test]
fn policies_are_short_enough_for_iam() {
    for party in [ControlPlane, Workflow, Instance] {
        let text = document(party, &settings()).to_string();
        assert!(text.len() <= 6_144, "{party:?}: {}", text.len());
    }
}

#[test]
fn arns_have_the_partition_of_the_region() {
    for (region, partition) in [("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")] {
        let settings = PolicySettings { region: region.to_owned(), ..settings() };
        for party in [Party::ControlPlane, Party::Instance, Party::Workflow] {
            let text = document(party, &settings).to_string();
            assert!(
                text.contains(&format!("arn:{partition}:")) && !text.contains("arn:aws:"),
                "{text}"
            );
        }
    }
}
