//! A GitHub of our own on loopback: runners, jobs, and the calls about them, with GitHub's fields,
//! status codes, error bodies, page links and rate-limit headers.
//!
//! It answers every call that this crate makes: installation tokens for an App (it checks the JWT),
//! registration and removal tokens, JIT configurations, runners, runs and jobs, files, check runs and
//! statuses, deliveries of webhooks; the same under `/api/v3`, as GitHub Enterprise Server has it.
//! Runner programs speak [`protocol`] with it instead of GitHub's private one, and tests queue jobs and
//! pull [`Levers`] by the same, or directly.
//!
//! Jobs go to any online idle runner whose labels contain theirs, so that runners can be taken by
//! jobs they were not made for. The same calls in the same order make the same world.
//!
//! [`runner`] is a runner program for it.
//!
//! It sends webhooks about jobs, signed, to one address on loopback.
//!
//! Not here: logs, artifacts, webhooks about anything else.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bullpen_core::mailbox::Secret;
use bullpen_core::ports::Clock;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

mod access;
mod actions;
mod admission;
mod control;
mod hooks;
mod http;
mod jobs;
mod json;
mod levers;
pub mod protocol;
mod repository;
mod rest;
pub mod runner;
mod runners;
mod server;
mod state;
mod world;

pub use access::{KnownApp, Options};
pub use hooks::Hook;
pub use levers::{Levers, Outage, RateLimit, WebhookLevers};
pub use runners::ONLINE_FOR;

use protocol::{JobOrder, JobView, NoticeView, RunnerView};
use world::World;

/// A running stand-in. It ends when it is dropped, and every connection with it.
pub struct StandIn {
    address: SocketAddr,
    world: Arc<World>,
    task: JoinHandle<()>,
}

impl std::fmt::Debug for StandIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StandIn").field("address", &self.address).finish_non_exhaustive()
    }
}

impl StandIn {
    /// Listens at `address`, which must be loopback: with its token one can have scripts run.
    /// Port 0 means any free one. Must be called on a runtime.
    pub async fn start<C: Clock + 'static>(
        address: SocketAddr,
        options: Options,
        clock: Arc<C>,
    ) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            let text = format!("{address} is not a loopback address");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let hook = options.hook.clone();
        let installed = options.app.iter().flat_map(|app| &app.installations);
        let by_name = |(id, name): (&u64, &String)| (name.to_ascii_lowercase(), *id);
        let installations = installed.map(by_name).collect();
        let world = Arc::new(World::new(options, clock));
        world.act(|state, _| {
            state.base = format!("http://{address}");
            state.installations = installations;
            state.outbox.hook = hook;
        });
        #[expect(
            clippy::disallowed_methods,
            reason = "the stand-in holds the task and ends it; the task holds its connections"
        )]
        let task = tokio::spawn(server::serve(listener, Arc::clone(&world)));
        Ok(Self { address, world, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base of GitHub's interface; runner programs find theirs under `/_stand-in`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The one token that it accepts.
    pub fn token(&self) -> &Secret {
        &self.world.options.token
    }

    /// Ends it, and waits until its port is free.
    pub async fn stop(mut self) {
        self.task.abort();
        // Aborting is how it ends, so an error is what is expected.
        let _ = (&mut self.task).await;
    }

    /// The levers as they are.
    pub fn levers(&self) -> Levers {
        self.world.look(|state, _| state.levers.clone())
    }

    /// Pulls levers: `stand_in.pull(|levers| levers.outage = Some(Outage::Drop))`.
    pub fn pull(&self, pull: impl FnOnce(&mut Levers)) {
        self.world.act(|state, _| pull(&mut state.levers));
    }

    /// Makes every token that was handed out worthless, as revoking them does.
    pub fn revoke_tokens(&self) {
        self.world.act(|state, _| state.tokens.clear());
    }

    /// Has webhooks sent there from now on, which must be on loopback.
    pub fn hook(&self, hook: Hook) -> io::Result<()> {
        if !hook.is_local() {
            let text = format!("{} is not http on loopback", hook.url);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.world.act(|state, _| state.outbox.hook = Some(hook));
        Ok(())
    }

    /// Waits until every webhook was sent, or none can be.
    pub async fn webhooks_sent(&self) {
        self.world.until(|state, _| state.outbox.is_empty().then_some(())).await;
    }

    /// What webhooks were answered with, in the order they were sent; 502 for what did not arrive.
    pub fn webhook_answers(&self) -> Vec<u16> {
        let answers = |state: &mut state::State, _| {
            state.outbox.log.iter().filter_map(|it| it.tried.map(|(_, code)| code)).collect()
        };
        self.world.look(answers)
    }

    /// Opens the gate of a job that is held back. False if it is not.
    pub fn approve(&self, job: u64) -> bool {
        self.world.act(|state, now| state.approve(job, now)).is_ok()
    }

    /// Puts a file into a repository.
    pub fn put_file(&self, repository: &str, path: &str, text: &str) {
        let key = (repository.to_owned(), path.to_owned());
        self.world.act(|state, _| state.files.insert(key, text.to_owned()));
    }

    /// All check runs and statuses, in the order they were made.
    pub fn notices(&self) -> Vec<NoticeView> {
        self.world.look(|state, _| state.notices.clone())
    }

    /// How many calls were refused for their number.
    pub fn limited(&self) -> u64 {
        self.world.look(|state, _| state.limited)
    }

    /// Queues a job.
    pub fn submit(&self, order: JobOrder) -> JobView {
        self.world.act(|state, now| state.submit(order, now))
    }

    /// Cancels a job: at once if it does not run, else by asking its runner. False if it is over.
    pub fn cancel(&self, job: u64) -> bool {
        self.world.act(|state, now| state.cancel(job, now)).is_ok()
    }

    /// One job.
    pub fn job(&self, job: u64) -> Option<JobView> {
        self.world.act(|state, _| state.jobs.get(&job).map(state::Job::view))
    }

    /// All jobs, in the order they were queued.
    pub fn jobs(&self) -> Vec<JobView> {
        self.world.act(|state, _| state.jobs.values().map(state::Job::view).collect())
    }

    /// All runners, in the order they were made.
    pub fn runners(&self) -> Vec<RunnerView> {
        self.world.act(|state, now| state.runners.values().map(|row| row.view(now)).collect())
    }

    /// Waits until a job is over. Never returns for a job that was never queued.
    pub async fn over(&self, job: u64) -> JobView {
        let view = |state: &mut state::State, _| state.jobs.get(&job).map(state::Job::view);
        self.world.until(|state, now| view(state, now).filter(|it| it.conclusion.is_some())).await
    }

    /// Waits until a job has started; never returns if it never does.
    pub async fn started(&self, job: u64) -> JobView {
        let view = |state: &mut state::State| state.jobs.get(&job).map(state::Job::view);
        self.world.until(|state, _| view(state).filter(|it| it.started_at.is_some())).await
    }

    /// How many calls of GitHub's interface there have been, with any answer or none.
    pub fn calls(&self) -> u64 {
        self.world.look(|state, _| state.calls)
    }

    /// How often each kind of call, such as `POST actions/runners/generate-jitconfig`, was answered
    /// with each status. An outage's closed connections are in [`StandIn::calls`] only.
    pub fn answers(&self) -> BTreeMap<(String, u16), u64> {
        self.world.look(|state, _| state.answers.clone())
    }

    /// Waits until there have been so many calls.
    pub async fn called(&self, calls: u64) {
        self.world.until(|state, _| (state.calls >= calls).then_some(())).await;
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}
