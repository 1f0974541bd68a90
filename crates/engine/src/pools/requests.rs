//! Requests to look at pools at once, by the tasks of the process that keeps them.
//!
//! Not here: when a pool is looked at without a request ([`super::agenda`]).

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bullpen_core::ids::PoolName;
use tokio::sync::Notify;

/// The requests that no cycle has taken yet.
#[derive(Debug, Default)]
pub struct Requests {
    requested: Mutex<Requested>,
    news: Notify,
}

/// Which pools are to be looked at.
#[derive(Debug, Default)]
pub(super) struct Requested {
    pub(super) all: bool,
    pub(super) pools: BTreeSet<PoolName>,
}

impl Requests {
    fn requested(&self) -> MutexGuard<'_, Requested> {
        self.requested.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a look at every pool.
    pub fn look_at_all(&self) {
        self.requested().all = true;
        self.news.notify_one();
    }

    /// Requests a look at this pool.
    pub fn look_at(&self, pool: &PoolName) {
        self.requested().pools.insert(pool.clone());
        self.news.notify_one();
    }

    /// Takes the requests; waits for the first.
    pub(super) async fn take(&self) -> Requested {
        self.news.notified().await;
        std::mem::take(&mut *self.requested())
    }
}
