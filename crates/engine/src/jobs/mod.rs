//! Jobs of the service: every accepted job gets a runner, or a failure that its author can see.
//!
//! A job's row is the truth and messages only wake. [`mod@ingest`] merges a fact into the row and wakes
//! somebody; [`assign`] takes one waiting row to a runner that listens; [`resume`] carries on with a
//! row that has a machine; [`finish`] works off what is left to do about a job that is over; [`mod@sweep`]
//! finds every row that nobody works on, and every job that nobody announced; [`workers`] are woken;
//! [`fn@run`] is all of it in one process.
//! Each may stop at any await, and whoever comes next carries on from the row.
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

use tokio::sync::Notify;

use self::recent::Recent;
use github_cache::GithubCache;

use crate::Stack;

mod active;
pub mod assign;
mod candidates;
pub(crate) mod capacity;
mod exchange;
pub mod finish;
mod github_cache;
pub mod ingest;
mod launch;
pub mod observer;
mod origin;
mod queues;
mod recent;
mod rerun;
pub mod resume;
pub(crate) mod rows;
mod run;
pub(crate) mod runners;
pub mod settings;
pub mod sweep;
pub mod workers;

pub use finish::fail;
pub use ingest::{Ingested, deliver, ingest};
pub use observer::{ServiceEvent, ServiceObserver};
pub use origin::note_run;
pub use queues::{dead_letter_queue, ensure_queues, launch_queue, pool_queue};
pub use resume::process;
pub use run::{Duties, run};
pub use settings::JobSettings;
pub use sweep::{FindMemory, FoundJobs, Swept, find, sweep};
pub use workers::{launch_worker, pool_worker};

/// A stack that serves jobs: its engine, its forge, and what is configured now.
pub struct Service<'a, P, J> {
    /// The engine.
    pub stack: &'a Stack<P>,
    /// GitHub, as far as jobs and their authors are concerned.
    pub forge: &'a J,
    /// Whoever counts what it does.
    watch: ServiceObserver<'a>,
    settings: Mutex<Arc<JobSettings>>,
    turns: Mutex<FairQueue>,
    /// What this process works on, so that its workers do not meet.
    under_way: Mutex<BTreeSet<JobId>>,
    /// Which repositories were written down as heard of.
    active_repositories: Mutex<Recent<Repository>>,
    /// Which lanes were written down as crowded.
    announced_lanes: Mutex<Recent<String>>,
    /// What GitHub need not be asked again.
    github_cache: Mutex<GithubCache>,
    /// Rung when a pool has lost a machine to a job, or had none for it.
    pools: Notify,
    ending: run::Shutdown,
}

impl<'a, P: Ports, J> Service<'a, P, J> {
    /// A service that has nothing under way yet.
    pub fn new(stack: &'a Stack<P>, forge: &'a J, settings: JobSettings) -> Self {
        let (turns, under_way, github_cache) =
            (Mutex::default(), Mutex::default(), Mutex::default());
        let (watch, ending): (ServiceObserver<'_>, _) =
            (&observer::unobserved, run::Shutdown::default());
        let active_repositories = Mutex::new(Recent::new(job::active::NOTED_EVERY));
        let announced_lanes = Mutex::new(Recent::new(job::capacity::NOTED_EVERY));
        stack.share(settings.sharing());
        let settings = Mutex::new(Arc::new(settings));
        let pools = Notify::new();
        Self {
            stack,
            forge,
            watch,
            settings,
            turns,
            under_way,
            active_repositories,
            announced_lanes,
            github_cache,
            pools,
            ending,
        }
    }

    /// The same, and somebody counts what it does.
    #[must_use]
    pub fn observed_by(self, watch: ServiceObserver<'a>) -> Self {
        Self { watch, ..self }
    }

    /// What is configured now.
    pub fn settings(&self) -> Arc<JobSettings> {
        Arc::clone(&self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on this is configured. Rows that waited for it are routed by the next sweep.
    pub fn configure(&self, settings: JobSettings) {
        self.stack.share(settings.sharing());
        self.pools.notify_one();
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

    fn announced_lanes(&self) -> MutexGuard<'_, Recent<String>> {
        self.announced_lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a row or a directory is asked for again.
    fn patience(&self) -> Timestamp {
        self.stack.now().after(self.stack.limits.release_retry)
    }
}

/// What looking at a job came to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processed {
    /// Everything is done that can be done now; something else will wake us.
    Done,
    /// Somebody else works on it.
    Taken,
    /// There is no room for it under a ceiling. It is tried again when there is, or at the next sweep.
    NoRoom,
    /// There is something left to do, not before this.
    Again {
        /// When.
        at: Timestamp,
    },
}

fn owner_of(job: &JobId) -> Owner {
    Owner::Job(job.clone())
}
