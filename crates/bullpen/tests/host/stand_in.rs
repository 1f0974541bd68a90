//! `bullpen stand-in`.

use std::collections::BTreeMap;

use bullpen_core::mailbox::Secret;
use bullpen_embedded::system::SystemClock;
use bullpen_github::{GitHub, Login, Scope, Settings};
use rustix::process::Signal;

use crate::program::Program;

#[tokio::test]
async fn it_says_where_it_is_and_serves_until_it_is_interrupted() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let mut program = Program::start(&["stand-in"], directory.path(), &BTreeMap::new(), &output);
    let said = program.says("\n").await;
    let url = said.lines().next().expect("a line");
    let scope = Scope::parse("acme").expect("it is an organisation");
    let settings = Settings::new(scope, Login::Token(Secret::new("any")), "bp-");
    let settings = Settings { base_url: url.to_owned(), ..settings };
    let clock = std::sync::Arc::new(SystemClock::new());
    let client = GitHub::new(&settings, clock).expect("it printed an address");
    client.registration_token().await.expect("any token is accepted");
    program.signal(Signal::TERM);
    assert_eq!(program.ends().await, Some(0));
    assert_eq!(program.said().lines().count(), 1);
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
