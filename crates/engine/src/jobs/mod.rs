//! Jobs of the service: every accepted job gets a runner, or a failure that its author can see.
//!
//! A job's row is the truth; messages only wake workers. [`mod@ingest`] merges a fact into the row
//! and wakes a worker; [`assign`] takes a waiting row to a runner that listens; [`resume`]
//! continues a row that has a machine; [`finish`] runs the end tasks of a job that is over;
//! [`mod@sweep`] finds rows without a worker, [`mod@find`] jobs that no webhook announced;
//! [`workers`] receive wake-ups; [`fn@run`] is one process. Each may stop at any await: the next worker
//! continues from the row.
//!
//! Not here: webhooks (`bullpen-github`), where a job is served (`core::route`), the row's rules
//! (`core::job`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bullpen_core::ids::{JobId, Repository};
use bullpen_core::instance::Owner;
use bullpen_core::job::{self, fair::FairQueue};
use bullpen_core::ports::Ports;
use bullpen_core::time::Timestamp;

use self::recent::Recent;
use github_cache::GithubCache;

use crate::Stack;
use crate::pools::Requests;

mod active;
pub mod aside;
pub mod assign;
mod candidates;
pub mod find;
pub mod finish;
mod github_cache;
pub mod ingest;
mod kept_wakes;
mod launch;
pub mod observer;
mod origin;
pub(crate) mod queues;
mod recall;
mod recent;
mod rerun;
pub mod resume;
pub(crate) mod rows;
mod run;
pub(crate) mod runners;
pub mod settings;
pub mod sweep;
mod taken;
pub mod workers;

pub use find::{FindMemory, FoundJobs, find};
pub use finish::fail;
pub use ingest::{Ingested, deliver, ingest};
pub(crate) use kept_wakes::KeptWakes;
pub use observer::{ServiceEvent, ServiceObserver};
pub use origin::note_run;
pub use queues::{dead_letter_queue, ensure_queues, launch_queue, pool_queue};
pub use resume::process;
pub use run::{Duties, run};
pub use settings::JobSettings;
pub use sweep::{Swept, sweep};
pub use workers::{launch_worker, pool_worker};

/// A stack that serves jobs: its engine, its forge, and its current settings.
pub struct Service<'a, P, J> {
    /// The engine.
    pub stack: &'a Stack<P>,
    /// The port to GitHub for jobs and their authors.
    pub forge: &'a J,
    /// Counts the service's events.
    watch: ServiceObserver<'a>,
    settings: Mutex<Arc<JobSettings>>,
    turns: Mutex<FairQueue>,
    /// Failures of this process at rows.
    failed_rows: aside::FailedRows,
    /// Jobs that a worker of this process has, so that no other worker of it takes them.
    under_way: Mutex<BTreeSet<JobId>>,
    /// Repositories that this process noted as active lately.
    active_repositories: Mutex<Recent<Repository>>,
    /// Lanes that this process noted lately as waiting for capacity.
    announced_lanes: Mutex<Recent<String>>,
    /// Answers of GitHub that are used again.
    github_cache: Mutex<GithubCache>,
    /// Has the pool keeper look at a pool of which a job took a machine, and at all pools after the
    /// settings changed.
    pools: Requests,
    ending: run::Shutdown,
}

impl<'a, P: Ports, J> Service<'a, P, J> {
    /// Makes a service that serves no job yet.
    pub fn new(stack: &'a Stack<P>, forge: &'a J, settings: JobSettings) -> Self {
        let (turns, under_way, github_cache) =
            (Mutex::default(), Mutex::default(), Mutex::default());
        let (watch, ending): (ServiceObserver<'_>, _) =
            (&observer::unobserved, run::Shutdown::default());
        let active_repositories = Mutex::new(Recent::new(job::active::NOTED_EVERY));
        let announced_lanes = Mutex::new(Recent::new(job::capacity::NOTED_EVERY));
        stack.share(settings.sharing());
        let settings = Mutex::new(Arc::new(settings));
        let pools = Requests::default();
        Self {
            stack,
            forge,
            watch,
            settings,
            turns,
            failed_rows: aside::FailedRows::default(),
            under_way,
            active_repositories,
            announced_lanes,
            github_cache,
            pools,
            ending,
        }
    }

    /// The same service, whose events `watch` counts.
    #[must_use]
    pub fn observed_by(self, watch: ServiceObserver<'a>) -> Self {
        Self { watch, ..self }
    }

    /// The current settings.
    pub fn settings(&self) -> Arc<JobSettings> {
        Arc::clone(&self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the settings. The next sweep routes the rows that waited for them.
    pub fn configure(&self, settings: JobSettings) {
        self.stack.share(settings.sharing());
        self.pools.look_at_all();
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    fn github_cache(&self) -> MutexGuard<'_, GithubCache> {
        self.github_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, FairQueue> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeSet<JobId>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn active_repositories(&self) -> MutexGuard<'_, Recent<Repository>> {
        self.active_repositories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process has not noted lately that jobs of this lane wait for capacity.
    pub(crate) fn is_lane_news(&self, lane: &str, now: Timestamp) -> bool {
        self.announced_lanes().is_news(&lane.to_owned(), now)
    }

    /// Forgets that it noted this lane.
    pub(crate) fn forget_lane(&self, lane: &str) {
        self.announced_lanes().forget(&lane.to_owned());
    }

    fn announced_lanes(&self) -> MutexGuard<'_, Recent<String>> {
        self.announced_lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when a call to the ledger is retried.
    pub(crate) fn patience(&self) -> Timestamp {
        self.stack.now().after(self.stack.limits.release_retry)
    }
}

/// The outcome of processing a job's row.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processed {
    /// Everything possible now is done; another wake-up or the sweep continues.
    Done,
    /// Another worker has the row.
    Taken,
    /// A ceiling or the cloud leaves no capacity for the job. It is tried again when a machine is
    /// freed, or at the next sweep.
    NoCapacity,
    /// The row must be processed again, but not before this time.
    Again {
        /// The earliest time.
        at: Timestamp,
    },
}

fn owner_of(job: &JobId) -> Owner {
    Owner::Job(job.clone())
}
