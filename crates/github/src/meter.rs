//! One credential's budget and its calls under way: waiting for a call's turn, and keeping in mind
//! what its answer says.
//!
//! Not here: how much may be asked (`budget`), or sending anything (`wire`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use bullpen_core::ports::{Clock, Fault};
use bullpen_core::time::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::budget::{Budget, Hour};
use crate::fault::quiet_for;
use crate::limits::{CALLS_AT_ONCE_MAX, QUIET_MAX};
use crate::wire::{Answer, Call};

/// One credential's budget, and its calls under way.
#[derive(Debug)]
pub(crate) struct Meter {
    budget: Mutex<Budget>,
    under_way: Semaphore,
}

/// A call may be sent; it is under way until this is dropped.
pub(crate) type UnderWay<'a> = Option<SemaphorePermit<'a>>;

impl Meter {
    pub(crate) fn new() -> Self {
        Self { budget: Mutex::default(), under_way: Semaphore::new(CALLS_AT_ONCE_MAX) }
    }

    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the call's turn, or refuses it if that is too far away.
    pub(crate) async fn turn<C: Clock>(
        &self,
        clock: &C,
        call: &Call,
    ) -> Result<UnderWay<'_>, Fault> {
        // It is never closed, so that waiting for it cannot fail.
        let under_way = self.under_way.acquire().await.ok();
        let points = call.points();
        let latest = clock.monotonic() + call.priority.patience();
        loop {
            let now = clock.monotonic();
            let wait = {
                let mut budget = self.budget();
                let wait = budget.wait(now, call.priority, points);
                if wait.is_zero() {
                    budget.spend(now, points);
                    return Ok(under_way);
                }
                wait
            };
            if now + wait > latest {
                return Err(Fault::Throttled);
            }
            clock.sleep(wait).await;
        }
    }

    /// Keeps in mind what an answer says about limits.
    pub(crate) fn note<C: Clock>(&self, clock: &C, call: &Call, answer: &Answer) {
        let (now, mono) = (clock.now(), clock.monotonic());
        let mut budget = self.budget();
        if let (Some(limit), Some(remaining), Some(reset)) =
            (answer.limit, answer.remaining, answer.reset)
        {
            // A second more: the window is told in whole seconds.
            let reset = Timestamp::from_millis(reset.saturating_add(1).saturating_mul(1000));
            let reset = mono + reset.since(now).min(QUIET_MAX);
            budget.told(Hour { limit, remaining, reset });
        }
        if let Some(wait) = quiet_for(answer, now) {
            let wait_s = wait.as_secs();
            tracing::warn!(path = %call.path, wait_s, "github limits the rate");
            budget.be_quiet(mono + wait);
        }
    }
}
