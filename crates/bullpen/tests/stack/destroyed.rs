//! `destroy` removes one stack, and nothing else.

use crate::account::Account;

/// A stack whose name has the same prefix keeps everything, byte for byte.
#[tokio::test]
async fn a_stack_goes_and_its_neighbour_stays() {
    let account = Account::new();
    for stack in ["prod", "prod-2"] {
        account.run(stack, "refresh").await.exits(0);
        account.instance_of(stack);
    }
    let before = account.all_of("prod-2");
    assert_eq!((account.instances("prod"), account.instances("prod-2")), (1, 1));

    let refused = account.run("prod", "destroy").await;
    assert!(refused.exits(64).talk.contains("bullpen:stack=prod,"), "{refused:?}");
    assert!(refused.talk.contains("prod-state and prod-mailbox"), "{refused:?}");
    assert_eq!(account.instances("prod"), 1, "nothing was touched");

    let told = account.run("prod", "destroy --yes --json").await.json();
    assert_eq!(told["machines"].as_array().map(Vec::len), Some(1), "{told:#}");
    let removed = told["removed"].to_string();
    for what in
        ["launch template bullpen-prod-", "queue prod-", "table prod-state", "table prod-mailbox"]
    {
        assert!(removed.contains(what), "{what}: {told:#}");
    }
    assert!(!removed.contains("prod-2-"), "{told:#}");
    assert_eq!((account.instances("prod"), account.instances("prod-2")), (0, 1));
    assert_eq!(account.all_of("prod-2"), before);

    let again = account.run("prod", "destroy --yes --json").await.json();
    assert_eq!(again["machines"], serde_json::json!([]), "{again:#}");
    assert_eq!(again["removed"], serde_json::json!([]), "{again:#}");
    assert_eq!(account.all_of("prod-2"), before);
    account.run("prod-2", "refresh").await.exits(0);
}

/// Without a ledger, `destroy` finds machines by their tags.
#[tokio::test]
async fn what_is_left_of_a_stack_without_a_ledger_goes_too() {
    let account = Account::new();
    account.run("prod", "refresh").await.exits(0);
    account.run("prod", "destroy --yes").await.exits(0);
    account.instance_of("prod");
    let told = account.run("prod", "destroy --yes --json").await.json();
    assert_eq!(told["machines"].as_array().map(Vec::len), Some(1), "{told:#}");
    assert_eq!(account.instances("prod"), 0);
}
