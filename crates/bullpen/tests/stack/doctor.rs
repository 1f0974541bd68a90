//! `doctor` names each problem and its remedy, and changes nothing.

use bullpen_faulty::ec2::Refusal;
use serde_json::Value;

use crate::account::Account;
use crate::process::Ran;

fn verdict(ran: &Ran, name: &str) -> (String, String) {
    let told: Value = serde_json::from_str(&ran.data).unwrap_or_else(|_| panic!("{ran:#?}"));
    let checks = told["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["check"] == name);
    let check = check.unwrap_or_else(|| panic!("no {name}: {told:#}"));
    let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), format!("{}; {}", text("what"), text("then")))
}

#[tokio::test]
async fn a_stack_is_looked_at_and_not_changed() {
    let account = Account::new();
    let before = account.run("prod", "doctor --json").await;
    let (word, what) = verdict(before.exits(1), "tables");
    assert!(word == "FAILED" && what.contains("prod-state") && what.contains("bullpen refresh"));
    assert_eq!(verdict(&before, "credentials").0, "ok");
    assert_eq!(verdict(&before, "clock").0, "ok", "it is this machine's clock: {before:#?}");

    account.run("prod", "refresh").await.exits(0);
    account.instance_of("prod");
    let all = account.all_of("prod");
    let ran = account.run("prod", "doctor --json").await;
    ran.exits(0);
    for name in ["tables", "queues", "role and network", "class large", "ec2:StopInstances"] {
        assert_eq!(verdict(&ran, name).0, "ok", "{name}: {ran:#?}");
    }
    assert_eq!(account.all_of("prod"), all, "nothing was changed");
    assert_eq!(account.instances("prod"), 1);

    let denied = Refusal {
        code: "UnauthorizedOperation",
        status: 403,
        action: "StopInstances",
        times: 1,
        carried_out: false,
    };
    account.ec2.admin().refuse(denied);
    let ran = account.run("prod", "doctor").await;
    let line = ran.exits(1).data.lines().find(|line| line.contains("ec2:StopInstances"));
    let line = line.unwrap_or_else(|| panic!("{ran:#?}"));
    assert!(
        line.starts_with("FAILED") && line.contains("bullpen policies control-plane"),
        "{line}"
    );

    let no_image = account.file("prod").replace("00000864", "00000865");
    let ran = account.run_with(&no_image, "doctor --json", &[]).await;
    let (word, what) = verdict(ran.exits(1), "class large");
    assert!(word == "FAILED" && what.contains("ami-00000000000000865"), "{what}");
}
