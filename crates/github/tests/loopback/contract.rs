//! The `Forge` contract suite for the client, on the stand-in, as an App and with a token.
//!
//! Not here: tests of the client beyond the port (`client`).

use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bullpen_core::ids::RunnerName;
use bullpen_core::mailbox::Credential;
use bullpen_core::ports::{Clock as _, RunnerSpec};
use bullpen_core::time::Timestamp;
use bullpen_github::stand_in::protocol::{Register, Registered};
use bullpen_github::{GitHub, Login};
use bullpen_sim::clock::ManualClock;
use bullpen_sim::contract::Harness;
use bullpen_sim::contract::forge::ForgeHarness;

use crate::world::{PREFIX, World, app, order, pat};

/// The scope and the login of a run of the suite.
trait Stack {
    const SCOPE: &'static str;
    fn login() -> Login;
}

struct Organization;
struct Repository;

impl Stack for Organization {
    const SCOPE: &'static str = "acme";

    fn login() -> Login {
        app()
    }
}

impl Stack for Repository {
    const SCOPE: &'static str = "acme/app";

    fn login() -> Login {
        pat()
    }
}

/// A registered runner, its labels, and its job.
struct Up {
    registered: Registered,
    labels: Vec<String>,
    job: Option<u64>,
}

struct Loopback<S> {
    world: World,
    port: GitHub<ManualClock>,
    up: Mutex<BTreeMap<RunnerName, Up>>,
    stack: PhantomData<S>,
}

impl<S> Loopback<S> {
    fn up(&self) -> MutexGuard<'_, BTreeMap<RunnerName, Up>> {
        self.up.lock().expect("no case panics while it holds the lock")
    }
}

impl<S: Stack> Harness for Loopback<S> {
    type Port = GitHub<ManualClock>;

    fn block_on<F: Future>(case: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("the system allows a runtime").block_on(case)
    }

    async fn fresh() -> Self {
        let world = World::new().await;
        let port = world.client(S::SCOPE, S::login());
        Self { world, port, up: Mutex::default(), stack: PhantomData }
    }

    fn port(&self) -> &Self::Port {
        &self.port
    }

    fn another_process(&self) -> Self::Port {
        self.world.client(S::SCOPE, S::login())
    }

    fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    async fn pass(&self, wait: Duration) {
        self.world.clock.advance(wait);
        tokio::task::yield_now().await;
    }

    fn lose_next_answer(&self) -> bool {
        self.world.stand_in.pull(|levers| levers.lose_answers = 1);
        true
    }
}

impl<S: Stack> ForgeHarness for Loopback<S> {
    async fn listen(&self, runner: &RunnerSpec, credential: &Credential) -> bool {
        let request = match credential {
            Credential::Jit(jit) => Register { jit: Some(jit.clone()), ..Register::default() },
            Credential::RegistrationToken(token) => Register {
                token: Some(token.clone()),
                name: runner.name.to_string(),
                labels: runner.labels.clone(),
                ephemeral: runner.ephemeral,
                ..Register::default()
            },
        };
        let Ok(registered) = self.world.register(&request).await else { return false };
        let up = Up { registered, labels: runner.labels.clone(), job: None };
        self.up().insert(runner.name.clone(), up);
        true
    }

    async fn give_job(&self, runner: &RunnerName) {
        let (registered, labels) = {
            let up = self.up();
            (up[runner].registered.clone(), up[runner].labels.clone())
        };
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let job = self.world.stand_in.submit(order(&labels));
        assert_eq!(job.runner.as_deref(), Some(runner.as_str()));
        assert_eq!(self.world.started(&registered, job.id).await, 204);
        self.up().get_mut(runner).expect("the runner is up").job = Some(job.id);
    }

    async fn end_job(&self, runner: &RunnerName) {
        let (registered, job) = {
            let up = self.up();
            (up[runner].registered.clone(), up[runner].job.expect("the runner has a job"))
        };
        assert_eq!(self.world.completed(&registered, job, "success").await, 204);
    }

    fn name(&self, stem: &str) -> RunnerName {
        RunnerName::new(format!("{PREFIX}{stem}"))
    }
}

mod organization {
    bullpen_sim::forge_contract!(super::Loopback<super::Organization>);
}

mod repository {
    bullpen_sim::forge_contract!(super::Loopback<super::Repository>);
}
