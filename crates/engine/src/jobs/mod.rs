//! Jobs of the service: every accepted job gets a runner, or a failure that its author can see.
//!
//! A job's row is the truth and messages only wake. [`mod@ingest`] merges a fact into the row and wakes
//! somebody; [`assign`] takes one waiting row to a runner that listens; [`tend`] carries on with a
//! row that has a machine; [`ends`] works off what is left to do about a job that is over; [`mod@sweep`]
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
use bullpen_core::job::{self, fair::Turns};
use bullpen_core::ports::Ports;
use bullpen_core::time::Timestamp;

use tokio::sync::Notify;

use self::lately::Lately;
use recall::Recall;

use crate::Stack;

mod active;
mod again;
pub mod assign;
mod candidates;
pub mod ends;
mod exchange;
pub mod ingest;
mod lately;
mod launch;
pub mod note;
mod origin;
mod queues;
mod recall;
pub(crate) mod room;
pub(crate) mod rows;
mod run;
pub(crate) mod runners;
pub mod settings;
pub mod sweep;
pub mod tend;
pub mod workers;

pub use ends::fail;
pub use ingest::{Ingested, deliver, ingest};
pub use note::{Noted, Watch};
pub use origin::hear_run;
pub use queues::{dead_letter_queue, ensure_queues, launch_queue, pool_queue};
pub use run::{Duties, run};
pub use settings::Settings;
pub use sweep::{Found, Memory, Swept, find, sweep};
pub use tend::attend;
pub use workers::{launch_worker, pool_worker};

/// A stack that serves jobs: its engine, its forge, and what is configured now.
pub struct Service<'a, P, J> {
    /// The engine.
    pub stack: &'a Stack<P>,
    /// GitHub, as far as jobs and their authors are concerned.
    pub forge: &'a J,
    /// Whoever counts what it does.
    watch: Watch<'a>,
    settings: Mutex<Arc<Settings>>,
    turns: Mutex<Turns>,
    /// What this process works on, so that its workers do not meet.
    under_way: Mutex<BTreeSet<JobId>>,
    /// Which repositories were written down as heard of.
    heard: Mutex<Lately<Repository>>,
    /// Which lanes were written down as crowded.
    crowded: Mutex<Lately<String>>,
    /// What GitHub need not be asked again.
    recall: Mutex<Recall>,
    /// Rung when a pool has lost a machine to a job, or had none for it.
    pools: Notify,
    ending: run::Ending,
}

impl<'a, P: Ports, J> Service<'a, P, J> {
    /// A service that has nothing under way yet.
    pub fn new(stack: &'a Stack<P>, forge: &'a J, settings: Settings) -> Self {
        let (turns, under_way, recall) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (watch, ending): (Watch<'_>, _) = (&note::nobody, run::Ending::default());
        let heard = Mutex::new(Lately::new(job::active::NOTED_EVERY));
        let crowded = Mutex::new(Lately::new(job::room::NOTED_EVERY));
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
            heard,
            crowded,
            recall,
            pools,
            ending,
        }
    }

    /// The same, and somebody counts what it does.
    #[must_use]
    pub fn watched_by(self, watch: Watch<'a>) -> Self {
        Self { watch, ..self }
    }

    /// What is configured now.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on this is configured. Rows that waited for it are routed by the next sweep.
    pub fn configure(&self, settings: Settings) {
        self.stack.share(settings.sharing());
        self.pools.notify_one();
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    fn recall(&self) -> MutexGuard<'_, Recall> {
        self.recall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeSet<JobId>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self) -> MutexGuard<'_, Lately<Repository>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn crowded(&self) -> MutexGuard<'_, Lately<String>> {
        self.crowded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a row or a directory is asked for again.
    fn patience(&self) -> Timestamp {
        self.stack.now().after(self.stack.limits.release_retry)
    }
}

/// What looking at a job came to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attended {
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
