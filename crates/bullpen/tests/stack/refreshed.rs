//! `refresh` creates a stack, once.

use bullpen_faulty::{Counts, Plan, Proxy};
use serde_json::Value;

use crate::account::{Account, CEILING, stores};

/// Calls that only read.
const READS: [&str; 6] = ["BatchGet", "Describe", "Get", "List", "Query", "Scan"];

fn step<'a>(told: &'a Value, name: &str) -> &'a Value {
    let steps = told["steps"].as_array().expect("steps");
    steps.iter().find(|step| step["step"] == name).unwrap_or_else(|| panic!("{name} of {told:#}"))
}

/// Creates a stack; the second time every step is as it should be, and nothing is written.
#[tokio::test]
async fn a_stack_is_made_once() {
    let account = Account::new();
    let made = account.run("prod", "refresh --json").await.json();
    for name in ["tables", "ground", "queues", "templates"] {
        let done = step(&made, name)["done"].as_array().expect(name);
        assert!(!done.is_empty(), "{name}: {made:#}");
    }
    assert!(!account.has_home(), "there is no state on this machine");
    let tables = Proxy::start(stores(), Plan::calm()).await.expect("a free port");
    let ec2 = Proxy::start(account.ec2.address(), Plan::calm()).await.expect("a free port");
    let through = [
        ("AWS_ENDPOINT_URL", tables.url()),
        ("AWS_ENDPOINT_URL_EC2", ec2.url()),
        ("AWS_ENDPOINT_URL_IAM", ec2.url()),
    ];
    let through: Vec<(&str, &str)> = through.iter().map(|(name, url)| (*name, &**url)).collect();
    let again = account.run_with(&account.file("prod"), "refresh --json", &through).await.json();
    for step in again["steps"].as_array().expect("steps") {
        assert_eq!(step["done"], serde_json::json!([]), "{again:#}");
    }
    let mut calls = Vec::new();
    let mut note = |counts: &Counts| {
        for (_, operation, tally) in counts.each() {
            calls.push((operation.to_owned(), tally.arrived));
        }
    };
    note(&tables.counts());
    note(&ec2.counts());
    let reads = |(name, _): &&(String, u64)| READS.iter().any(|read| name.starts_with(read));
    let writes: Vec<_> = calls.iter().filter(|call| !reads(call)).collect();
    assert!(calls.len() > 8, "the calls were not seen: {calls:?}");
    assert!(writes.is_empty(), "{writes:?} of {calls:?}");
    let shown = account.run("prod", "refresh").await;
    assert!(shown.exits(0).data.lines().all(|line| line.ends_with("as it should be")), "{shown:?}");
    tables.stop().await;
    ec2.stop().await;
}

/// A dry run lists the resources that it would create, and creates none, before the first refresh
/// and after.
#[tokio::test]
async fn a_dry_run_makes_nothing() {
    let account = Account::new();
    for _ in 0..2 {
        let told = account.run("prod", "refresh --dry-run --json").await.json();
        let would = |name: &str| step(&told, name)["done"].to_string();
        assert!(would("tables").contains("make table prod-state"), "{told:#}");
        assert!(would("ground").contains("subnets"), "{told:#}");
        assert!(would("queues").contains("queue of class"), "{told:#}");
        assert!(would("templates").contains("launch template bullpen-prod-"), "{told:#}");
    }
    account.run("prod", "refresh").await.exits(0);
    let told = account.run("prod", "refresh --dry-run --json").await.json();
    assert_eq!(told["would"], serde_json::json!([]), "{told:#}");
}

/// Commands name wrong or missing settings, and the remedy, before any launch.
#[tokio::test]
async fn what_is_missing_or_wrong_is_named() {
    let account = Account::new();
    let file =
        "[stack]\nname = \"prod\"\n[aws]\nregion = \"us-east-1\"\nsubnets = [\"subnet-1\"]\n";
    for line in ["refresh", "status", "provision", "destroy --yes", "doctor"] {
        let ran = account.run_with(file, line, &[("AWS_ENDPOINT_URL_EC2", "http://127.0.0.1:1")]);
        let ran = ran.await;
        let talk = &ran.exits(64).talk;
        assert!(talk.contains("`security-groups`, `instance-profile`"), "{line}: {ran:?}");
        assert!(talk.contains(".toml") && !talk.contains("`subnets`"), "{line}: {ran:?}");
    }
    // Without a ceiling, jobs of strangers could cost any amount. Commands that launch nothing
    // work.
    let unbounded = account.file("prod").replace(CEILING, "");
    for line in ["serve", "provision"] {
        let ran = account.run_with(&unbounded, line, &[]).await;
        let talk = &ran.exits(64).talk;
        assert!(talk.contains("[ceilings]") && talk.contains("stack = 20"), "{line}: {ran:?}");
    }
    let ran = account.run_with(&unbounded, "serve", &[("BULLPEN_CEILINGS_STACK", "7")]).await;
    assert!(!ran.talk.contains("[ceilings]"), "{ran:?}");
    let ran = account.run_with(&unbounded, "doctor", &[]).await;
    assert!(ran.exits(1).data.contains("ceiling: no ceiling for the stack"), "{ran:?}");
    account.run_with(&unbounded, "refresh --dry-run", &[]).await.exits(0);
    let ran = account.run("prod", "provision --fleet ec2 --engine embedded").await;
    assert!(ran.exits(64).talk.contains("instances cannot reach the files"), "{ran:?}");
    let no_image = account.file("prod").replace("00000864", "00000865");
    let ran = account.run_with(&no_image, "refresh", &[]).await;
    assert!(ran.exits(1).data.contains("ami-00000000000000865"), "{ran:?}");
    let no_subnet = account.file("prod").replace("\"subnet-", "\"subnet-00");
    let ran = account.run_with(&no_subnet, "refresh", &[]).await;
    assert!(ran.exits(1).data.contains("InvalidSubnetID.NotFound"), "{ran:?}");
}
