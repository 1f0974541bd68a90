//! Makes a credential's calls wait for its budget, and updates the budget from the answers.
//!
//! Not here: computing the wait (`budget`), and sending a call (`wire`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use bullpen_core::forge_rates::{CallCounts, HourLeft};
use bullpen_core::ports::{Clock, Fault};
use bullpen_core::time::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::budget::{Budget, Spent, patience};
use crate::fault::pause_for;
use crate::limits::{CALLS_AT_ONCE_MAX, PAUSE_MAX};
use crate::wire::{Answer, Call};

/// One credential's budget, and its calls under way.
#[derive(Debug)]
pub(crate) struct Meter {
    budget: Mutex<Budget>,
    counts: Mutex<CallCounts>,
    under_way: Semaphore,
}

/// A call that may be sent. It is under way until the caller drops this.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    meter: &'a Meter,
    spent: Spent,
    is_answered: bool,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.meter.budget().lost();
        }
    }
}

impl Meter {
    pub(crate) fn new() -> Self {
        let (budget, counts) = (Mutex::default(), Mutex::default());
        Self { budget, counts, under_way: Semaphore::new(CALLS_AT_ONCE_MAX) }
    }

    /// Adds this credential's calls so far.
    pub(crate) fn add_counts(&self, all: &mut CallCounts) {
        let counts = self.counts();
        for (purpose, count) in counts.iter() {
            let sum = all.entry(*purpose).or_default();
            sum.sent += count.sent;
            sum.free += count.free;
        }
    }

    fn counts(&self) -> MutexGuard<'_, CallCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the budget allows the call, or refuses it if that takes longer than its
    /// patience.
    pub(crate) async fn wait_for_turn<C: Clock>(
        &self,
        clock: &C,
        call: &Call,
    ) -> Result<UnderWay<'_>, Fault> {
        // `acquire` fails only on a closed semaphore, and this one stays open.
        let permit = self.under_way.acquire().await.ok();
        let points = call.points();
        let latest = clock.monotonic() + patience(call.priority);
        loop {
            let now = clock.monotonic();
            let wait = {
                let mut budget = self.budget();
                let wait = budget.wait(now, call.priority, points);
                if wait.is_zero() {
                    let spent = budget.spend(now, points);
                    self.counts().entry(call.purpose).or_default().sent += 1;
                    let is_answered = false;
                    return Ok(UnderWay { meter: self, spent, is_answered, _permit: permit });
                }
                wait
            };
            if now + wait > latest {
                return Err(Fault::Throttled);
            }
            clock.sleep(wait).await;
        }
    }

    /// Updates the budget with an answer's limits.
    pub(crate) fn record<C: Clock>(
        &self,
        clock: &C,
        call: &Call,
        mut under_way: UnderWay<'_>,
        answer: &Answer,
    ) {
        let (now, mono) = (clock.now(), clock.monotonic());
        if answer.status == 304 {
            self.counts().entry(call.purpose).or_default().free += 1;
        }
        let mut budget = self.budget();
        under_way.is_answered = true;
        budget.answered(under_way.spent, mono);
        if let (Some(limit), Some(remaining), Some(reset)) =
            (answer.limit, answer.remaining, answer.reset)
        {
            // A second more, because GitHub rounds the reset to whole seconds.
            let reset = Timestamp::from_millis(reset.saturating_add(1).saturating_mul(1000));
            let reset = mono + reset.since(now).min(PAUSE_MAX);
            budget.update_hour(HourLeft { limit, remaining, reset });
        }
        if let Some(wait) = pause_for(answer, now) {
            let wait_s = wait.as_secs();
            tracing::warn!(path = %call.path, wait_s, "github limits the rate");
            budget.pause(mono + wait);
        }
    }
}
