//! Workflows without a credential for runners: a scheduled refresh keeps tokens for them.
//!
//! Not here: agents that remove their own runners, one by one (`host`).

use std::fs;

use crate::world::{TOKEN, World};

/// Asserts that no process of this host has this in its arguments, which every user can read.
#[track_caller]
fn is_in_no_argument(secret: &str) {
    for process in fs::read_dir("/proc").expect("this is Linux").flatten() {
        // Other processes end during the scan.
        let Ok(line) = fs::read(process.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        assert!(!line.contains(secret), "{line}");
    }
}

/// D42: a token that is about to expire is not handed out, and a token that refresh kept suffices.
#[tokio::test]
async fn with_kept_tokens_provision_and_release_need_no_credential() {
    let world = World::new().await;
    let none = world.bullpen("provision --count 1 --name early").without("INPUT_GITHUB_TOKEN");
    none.run().await.exits(1).says("no credential for GitHub").says("refresh");
    let keep = world.bullpen("refresh --json").with("INPUT_GITHUB_TOKEN_FILE", &world.token_file());
    keep.without("INPUT_GITHUB_TOKEN").run().await.exits(0);
    let mut ids = Vec::new();
    for (name, created) in [("one", 2), ("two", 0)] {
        let line = format!("provision --count 2 --name {name} --json");
        let provisioned = world.bullpen(&line).without("INPUT_GITHUB_TOKEN").run().await.json();
        assert_eq!(provisioned["created"].as_u64(), Some(created), "{provisioned}");
        let label = provisioned["label"].as_str().expect("a label");
        assert_eq!(world.online(label).len(), 2);
        is_in_no_argument(TOKEN);
        is_in_no_argument("registration-");
        world.runs_job(label, "true").await;
        let line = format!("release --name {name} --json");
        let released = world.bullpen(&line).without("INPUT_GITHUB_TOKEN").run().await.json();
        assert_eq!(released["returned"].as_array().map(Vec::len), Some(2), "{released}");
        assert_eq!(world.github.runners(), [], "each agent has removed its own runner");
        ids.push(provisioned["instances"].clone());
    }
    world.verify().await;
}
