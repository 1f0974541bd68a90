//! A machine's directory, with the stand-in runner and a mailbox in SQLite, and the actions of
//! fleet and control plane.
//!
//! Not here: tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bullpen_agent::machine::{self, RunnerProgram, UserData};
use bullpen_agent::runner::tree;
use bullpen_core::ids::{Generation, MailboxKey, RequestId, RunnerName};
use bullpen_core::instance::Owner;
use bullpen_core::mailbox::{
    Assignment, Credential, Order, Report, Secret, Signal, SignalKind, Withdrawal, WithdrawalMode,
};
use bullpen_core::ports::{Clock as _, Mailbox as _, Written};
use bullpen_embedded::SqliteMailbox;
use bullpen_embedded::system::SystemClock;

use crate::github::Forge;
use crate::program::Program;
use crate::waiting::until;

const HOUR: Duration = Duration::from_secs(3_600);
/// A variable's value that must not reach a job.
pub(crate) const OURS: &str = "of-the-control-plane";

/// A machine of the process fleet, with the fleet's and the control plane's actions on it.
pub(crate) struct Machine {
    pub(crate) state: tempfile::TempDir,
    pub(crate) id: String,
    pub(crate) clock: SystemClock,
    agents: std::cell::Cell<u32>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let machine = Self::called("i-1");
        fs::create_dir_all(machine.path("")).expect("a directory");
        machine
    }

    /// A machine that another program makes.
    pub(crate) fn called(id: &str) -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let (id, agents) = (id.to_owned(), std::cell::Cell::new(0));
        Self { state, id, clock: SystemClock::new(), agents }
    }

    /// A machine with the user data to run jobs for `forge`.
    pub(crate) fn of(forge: &Forge) -> Self {
        let machine = Self::new();
        machine.tell(&machine.user_data(forge));
        machine
    }

    pub(crate) fn user_data(&self, forge: &Forge) -> UserData {
        let command = [env!("CARGO_BIN_EXE_bullpen"), "stand-in-runner"].map(String::from).to_vec();
        let mailbox = self.state.path().join("mailbox.db");
        UserData::new(mailbox, forge.url(), RunnerProgram::StandIn { command })
    }

    pub(crate) fn tell(&self, data: &UserData) {
        fs::write(self.path(machine::USER_DATA), data.to_text()).expect("it can be written");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.state.path().join("machines").join(&self.id).join(name)
    }

    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.path("agent/work").join(name)
    }

    pub(crate) fn mark(&self) -> String {
        machine::mark(&self.path("")).expect("it is there")
    }

    fn key(&self) -> MailboxKey {
        MailboxKey::new(&self.id)
    }

    /// Starts the agent as the fleet does.
    pub(crate) fn agent(&self) -> Program {
        self.agent_of_boot("boot-1")
    }

    pub(crate) fn agent_of_boot(&self, boot: &str) -> Program {
        let number = self.agents.get() + 1;
        self.agents.set(number);
        let dir = self.path("");
        let dir = dir.to_str().expect("it is text");
        let arguments = ["agent", "--machine", dir, "--boot", boot];
        let environment = BTreeMap::from([(String::from("BULLPEN_TOKEN"), String::from(OURS))]);
        let output = self.state.path().join(format!("agent-{number}.log"));
        Program::start(&arguments, self.state.path(), &environment, &output)
    }

    pub(crate) fn mailbox(&self) -> SqliteMailbox<SystemClock> {
        let path = self.state.path().join("mailbox.db");
        SqliteMailbox::open(&path, Arc::new(self.clock)).expect("it can be opened")
    }

    pub(crate) async fn post(&self, order: Order) {
        let written = self.mailbox().post(&self.key(), &order).await;
        assert!(matches!(written, Ok(Written::Won(_))), "{written:?}");
    }

    pub(crate) async fn assign(&self, generation: u64, credential: Credential) {
        let assignment = Assignment {
            generation: Generation(generation),
            owner: Owner::Request(RequestId::new("1.1.a")),
            runner: RunnerName::new(format!("bp-{}-{generation}", self.id)),
            label: String::from("warm"),
            credential: Some(credential),
            register_by: None,
            hard_cap: self.clock.now().after(HOUR),
            issued_at: None,
            own_run: None,
            group: None,
            ephemeral: false,
        };
        self.post(Order::Assigned(assignment)).await;
    }

    pub(crate) async fn withdraw(
        &self,
        generation: u64,
        mode: WithdrawalMode,
        removal_token: Option<Secret>,
    ) {
        let withdrawal = Withdrawal {
            generation: Generation(generation),
            mode,
            at: self.clock.now(),
            idle_deadline: self.clock.now().after(HOUR),
            removal_token,
        };
        self.post(Order::Withdrawn(withdrawal)).await;
    }

    pub(crate) async fn report(&self, what: &str, find: impl Fn(&Report) -> bool) -> Report {
        let mailbox = self.mailbox();
        until(what, async || {
            let reports = mailbox.reports(&[self.key()]).await.expect("the file is there");
            reports.into_iter().next()?.report().filter(|report| find(report))
        })
        .await
    }

    pub(crate) async fn signal(&self, kind: SignalKind, generation: u64) -> Signal {
        let generation = Generation(generation);
        let what = format!("{kind:?} {generation}");
        let report = self.report(&what, |report| report.signal(kind, generation).is_some()).await;
        report.signal(kind, generation).expect("it was just there").clone()
    }

    /// Waits until a file exists.
    pub(crate) async fn appears(&self, path: PathBuf) {
        until("file", async || path.exists().then_some(())).await;
    }

    pub(crate) fn is_clean(&self) {
        assert_eq!(tree::marked(&self.mark()).expect("this is Linux"), []);
        for directory in ["agent/work", "agent/temp"] {
            let left = fs::read_dir(self.path(directory)).expect("it is there").count();
            assert_eq!(left, 0, "{directory}");
        }
        for file in [".runner", ".credentials", "_diag"] {
            assert!(!self.path("agent/runner").join(file).exists(), "{file}");
        }
    }
}

pub(crate) async fn token(forge: &Forge) -> Credential {
    Credential::RegistrationToken(forge.registration_token().await)
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A failed test leaves no process behind.
        let mark = BTreeSet::from([self.mark()]);
        for process in tree::under(&mark).unwrap_or_default() {
            let _ = process.kill();
        }
    }
}
