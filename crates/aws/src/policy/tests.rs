//! What policies allow, and what they do not.
//!
//! Not here: whether they are the calls that are made.

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
    let has = |one: &Value| one["Action"].as_array().unwrap().iter().any(|is| is == action);
    let allow = |one: &Value| one["Effect"] == "Allow" && has(one);
    statements(party).into_iter().filter(allow).collect()
}

/// Nothing that changes a machine or a template is allowed without the stack's tag.
#[test]
fn what_changes_something_in_ec2_is_bound_to_the_tag() {
    for party in [ControlPlane, Workflow] {
        for action in [
            "ec2:StartInstances",
            "ec2:StopInstances",
            "ec2:TerminateInstances",
            "ec2:CreateTags",
            "ec2:CreateLaunchTemplate",
            "ec2:DeleteLaunchTemplate",
        ] {
            for one in allows(party, action) {
                let equals = &one["Condition"]["StringEquals"];
                let carries = equals["aws:ResourceTag/bullpen:stack"] == "prod";
                let is_given = equals["aws:RequestTag/bullpen:stack"] == "prod";
                assert!(carries || is_given, "{party:?} {action}: {one}");
            }
        }
    }
}

#[test]
fn nobody_may_do_anything_with_a_star_and_ids_are_told_apart() {
    for party in [ControlPlane, Workflow, Instance] {
        let mut ids = Vec::new();
        for one in statements(party) {
            let id = one["Sid"].as_str().unwrap().to_owned();
            assert!(!ids.contains(&id) && id.bytes().all(|b| b.is_ascii_alphanumeric()));
            ids.push(id);
            for action in one["Action"].as_array().unwrap() {
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
    let keys =
        |one: &Value| one["Condition"]["ForAllValues:StringEquals"]["dynamodb:LeadingKeys"].clone();
    assert_eq!(keys(read), json!(["in#${aws:userid}"]));
    let [write] = &allows(Instance, "dynamodb:UpdateItem")[..] else { panic!("one statement") };
    assert_eq!(keys(write), json!(["out#${aws:userid}"]));
    let [fetch] = &allows(Instance, "s3:GetObject")[..] else { panic!("one statement") };
    assert_eq!(fetch["Resource"], json!(["arn:aws:s3:::bucket/agent"]));
    assert_eq!(allows(Instance, "ec2:CreateTags").len(), 0);
    assert!(statements(Instance).iter().any(|one| one["Effect"] == "Deny"));
    let allowed = allowed(Instance);
    assert_eq!(allowed.len(), 3, "{allowed:?}");
    let without = PolicySettings { fetched: Vec::new(), ..settings() };
    let document = document(Instance, &without).to_string();
    assert!(!document.contains("s3:"), "{document}");
}

#[test]
fn a_workflow_makes_and_removes_no_stores_and_stops_nothing() {
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
    let more: Vec<_> = allowed(Workflow);
    let all = allowed(ControlPlane);
    assert!(more.iter().all(|one| all.contains(one)), "a workflow may no more than the service");
}

/// Tokens that register and remove runners are for steps that have no credential of their own.
#[test]
fn a_workflow_reads_no_kept_token_unless_it_needs_them() {
    let denies = |settings: &PolicySettings| -> Vec<Value> {
        let statements = document(Workflow, settings)["Statement"].as_array().unwrap().clone();
        statements.into_iter().filter(|one| one["Effect"] == "Deny").collect()
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
    // Whatever else is allowed on items of that table is denied on these.
    for (action, _) in allowed(Workflow) {
        let on_items = action.starts_with("dynamodb:") && !action.contains("Describe");
        let is_denied = deny["Action"].as_array().unwrap().iter().any(|one| one == action);
        assert_eq!(is_denied, on_items, "{action}");
    }
    let needed = PolicySettings { kept_tokens: true, ..settings() };
    assert_eq!(denies(&needed), std::slice::from_ref(of_orders));
}

/// Orders hold what runners register with. A step settles one that it wrote, and needs no others.
#[test]
fn a_workflow_reads_no_orders_at_once() {
    let statements = statements(Workflow);
    let deny = statements.iter().find(|one| one["Sid"] == "OrdersOneByOne").expect("a statement");
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

/// IAM takes managed policies of up to 6,144 characters, white space apart.
#[test]
fn policies_are_short_enough_for_iam() {
    for party in [ControlPlane, Workflow, Instance] {
        let text = document(party, &settings()).to_string();
        assert!(text.len() <= 6_144, "{party:?}: {}", text.len());
    }
}

#[test]
fn names_are_of_the_world_that_the_region_is_in() {
    for (region, world) in [("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")] {
        let there = PolicySettings { region: region.to_owned(), ..settings() };
        for party in [Party::ControlPlane, Party::Instance, Party::Workflow] {
            let text = document(party, &there).to_string();
            assert!(
                text.contains(&format!("arn:{world}:")) && !text.contains("arn:aws:"),
                "{text}"
            );
        }
    }
}
