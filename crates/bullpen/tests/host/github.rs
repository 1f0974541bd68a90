//! A stand-in GitHub in this process, and a client of it.
//! Not here: its runners.

use std::net::SocketAddr;
use std::sync::Arc;

use bullpen_core::claim::Deletion;
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::RunnerSpec;
use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::protocol::{Conclusion, JobOrder};
use bullpen_github::stand_in::{Options, StandIn};
use bullpen_github::{GitHub, Login, Scope, Settings};

use crate::waiting::until;

/// The token of a person.
const TOKEN: &str = "ghp_test";

/// GitHub for organisation `acme`.
pub(crate) struct Forge {
    pub(crate) stand_in: StandIn,
    pub(crate) client: GitHub<SystemClock>,
}

impl Forge {
    pub(crate) async fn new() -> Self {
        Self::at("127.0.0.1:0".parse().expect("it is an address")).await
    }

    pub(crate) async fn at(address: SocketAddr) -> Self {
        let clock = Arc::new(SystemClock::new());
        let stand_in =
            StandIn::start(address, Options::new(Secret::new(TOKEN)), Arc::clone(&clock)).await;
        let stand_in = stand_in.expect("the port is free");
        let scope = Scope::parse("acme").expect("it is an organisation");
        let settings = Settings::new(scope, Login::Token(Secret::new(TOKEN)), "bp-");
        let settings = Settings { base_url: stand_in.url(), ..settings };
        let client = GitHub::new(&settings, clock).expect("the settings are good");
        Self { stand_in, client }
    }

    /// The URL with which runners register.
    pub(crate) fn url(&self) -> String {
        format!("{}/acme", self.stand_in.url())
    }

    pub(crate) async fn registration_token(&self) -> Secret {
        self.client.registration_token().await.expect("the weather is good").token
    }

    pub(crate) async fn removal_token(&self) -> Secret {
        self.client.removal_token().await.expect("the weather is good").token
    }

    pub(crate) async fn jit(&self, name: &str, label: &str) -> (u64, Secret) {
        let labels = vec![label.to_owned()];
        let spec = RunnerSpec { name: name.into(), labels, group: None, ephemeral: true };
        let jit = self.client.jit(&spec).await.expect("the weather is good");
        (jit.runner_id, jit.config)
    }

    pub(crate) fn job(&self, label: &str, name: &str, script: &str) -> u64 {
        let order = JobOrder {
            repository: String::from("acme/app"),
            labels: vec![label.to_owned()],
            name: Some(name.to_owned()),
            script: script.to_owned(),
            env: [(String::from("OF_THE_JOB"), String::from("yes"))].into(),
            ..JobOrder::default()
        };
        self.stand_in.submit(order).id
    }

    pub(crate) async fn over(&self, job: u64) -> Option<Conclusion> {
        let over = || self.stand_in.job(job).and_then(|view| view.conclusion);
        Some(until("end of the job", async || over()).await)
    }

    pub(crate) async fn runs(&self, job: u64) {
        let view = || self.stand_in.job(job).expect("it was queued");
        until("start of the job", async || (view().status == "in_progress").then_some(())).await;
    }

    pub(crate) async fn delete(&self, runner: &str) {
        let deletion = self.client.delete_named(&runner.into()).await;
        assert_eq!(deletion, Ok(Deletion::Deleted));
    }

    pub(crate) async fn waits_for_message(&self) {
        let waiting = || self.stand_in.runners().iter().any(|runner| runner.waiting);
        until("waiting runner", async || waiting().then_some(())).await;
    }
}
