//! `bullpen stand-in`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use bullpen_core::mailbox::Secret;
use bullpen_core::ports::Fault;
use bullpen_embedded::system::SystemClock;
use bullpen_github::{GitHub, Login, Scope, Settings};
use rustix::process::Signal;
use serde_json::Value;

use crate::program::Program;

fn client(url: &str, token: &str) -> GitHub<SystemClock> {
    let scope = Scope::parse("acme").expect("it is an organisation");
    let settings = Settings::new(scope, Login::Token(Secret::new(token)), "bp-");
    let settings = Settings { base_url: url.to_owned(), ..settings };
    GitHub::new(&settings, Arc::new(SystemClock::new())).expect("it printed an address")
}

#[tokio::test]
async fn it_says_where_it_is_and_takes_its_own_token_only_until_it_is_interrupted() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let mut program = Program::start(&["stand-in"], directory.path(), &BTreeMap::new(), &output);
    let said = program.says("\n").await;
    let told: Value = serde_json::from_str(&said).expect("one line of JSON");
    let text = |key: &str| told[key].as_str().expect(key).to_owned();
    let (url, token) = (text("url"), text("token"));
    assert!(token.len() >= 32, "it cannot be guessed");
    client(&url, &token).registration_token().await.expect("it is the right one");
    for wrong in ["any", "ghp_of_a_person", &token[1..]] {
        let refused = client(&url, wrong).registration_token().await;
        assert!(matches!(refused, Err(Fault::Denied(_))), "{wrong}: {refused:?}");
    }
    program.signal(Signal::TERM);
    assert_eq!(program.ends().await, Some(0));
    assert_eq!(program.said().lines().count(), 1);
}

#[tokio::test]
async fn its_token_is_in_a_file_of_its_users_if_it_is_told_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let (output, path) = (directory.path().join("output"), directory.path().join("token"));
    let arguments = ["stand-in", "--token-file", path.to_str().expect("text")];
    let mut program = Program::start(&arguments, directory.path(), &BTreeMap::new(), &output);
    let said = program.says("\n").await;
    let token = fs::read_to_string(&path).expect("it is there");
    assert_eq!(path.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
    assert!(!said.contains(&token), "{said}");
    let told: Value = serde_json::from_str(&said).expect("one line of JSON");
    let url = told["url"].as_str().expect("an address");
    client(url, &token).registration_token().await.expect("it is the right one");

    let again = directory.path().join("again");
    let mut second = Program::start(&arguments, directory.path(), &BTreeMap::new(), &again);
    assert_eq!(second.ends().await, Some(1), "a file that is there is left alone");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), token);
    program.signal(Signal::TERM);
    assert_eq!(program.ends().await, Some(0));
    assert!(!path.exists());
}

#[tokio::test]
async fn it_listens_on_loopback_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let arguments = ["stand-in", "--listen", "0.0.0.0:0"];
    let mut program = Program::start(&arguments, directory.path(), &BTreeMap::new(), &output);
    assert_eq!(program.ends().await, Some(1));
    assert!(program.said().contains("not a loopback address"), "{}", program.said());
}
