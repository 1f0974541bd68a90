//! The limits of the model of GitHub: points a minute, calls an hour, and the budgets with which the
//! callers keep to both, as the real client does.
//!
//! Not here: what the calls do ([`super::forge`], [`super::job_forge`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::forge_rates::{CallCounts, CallPriority, CallPurpose, HOUR, HourLeft};
use bullpen_core::ports::Fault;
use tokio::time::Instant;

use crate::clock::instant;
use crate::wire::Wire;

/// The points of a reading call.
pub(super) const READ: u32 = 1;
/// The points of a writing call.
pub(super) const WRITE: u32 = 5;
/// The window in which GitHub counts points.
const MINUTE: Duration = Duration::from_secs(60);

/// Calls that are made together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    purpose: CallPurpose,
    priority: CallPriority,
    points: u32,
    /// How many calls of the hour.
    calls: u64,
    /// Whether GitHub counts it towards the hour of the App's installation.
    is_of_the_installation: bool,
}

impl Call {
    /// A reading call for a decision.
    pub(super) const fn read(purpose: CallPurpose) -> Self {
        let priority = CallPriority::Read;
        Self { purpose, priority, points: READ, calls: 1, is_of_the_installation: true }
    }

    /// A writing call.
    pub(super) const fn write(purpose: CallPurpose) -> Self {
        Self { points: WRITE, ..Self::read(purpose) }
    }

    /// The same, for a job that waits.
    pub(super) const fn urgent(self) -> Self {
        Self { priority: CallPriority::Urgent, ..self }
    }

    /// The same, without a caller that waits.
    pub(super) const fn housekeeping(self) -> Self {
        Self { priority: CallPriority::Housekeeping, ..self }
    }

    /// The same, by the App itself.
    pub(super) const fn as_app(self) -> Self {
        Self { is_of_the_installation: false, ..self }
    }

    /// The same after a reading call, such as a search for an id.
    pub(super) const fn after_a_read(self) -> Self {
        Self { points: self.points + READ, calls: self.calls + 1, ..self }
    }

    /// How long the client lets it wait for its turn.
    pub(super) const fn patience(self) -> Duration {
        Duration::from_secs(match self.priority {
            CallPriority::Housekeeping => 0,
            CallPriority::Read => 5,
            CallPriority::Urgent => 15,
        })
    }

    /// The percentage of the minute's points up to which it may spend.
    const fn share(self) -> u32 {
        match self.priority {
            CallPriority::Housekeeping => 50,
            CallPriority::Read => 80,
            CallPriority::Urgent => 100,
        }
    }
}

/// The points that the callers allow themselves.
#[derive(Debug)]
struct Budget {
    points: u32,
    window: Duration,
    spent: VecDeque<(Instant, u32)>,
}

impl Budget {
    fn wait(&mut self, call: Call, now: Instant) -> Duration {
        let window = self.window;
        self.spent.retain(|(at, _)| now < *at + window);
        let total: u32 = self.spent.iter().map(|(_, points)| points).sum();
        let mut over = (total + call.points).saturating_sub(self.points * call.share() / 100);
        if over == 0 {
            return Duration::ZERO;
        }
        for (at, points) in &self.spent {
            over = over.saturating_sub(*points);
            if over == 0 {
                return *at + window - now;
            }
        }
        window
    }
}

/// The hour that GitHub counts now.
#[derive(Clone, Copy, Debug)]
struct CountedHour {
    began: Instant,
    used: u64,
}

/// All limits, and the calls so far.
#[derive(Debug, Default)]
pub(super) struct ForgeLimits {
    /// The points that all callers together may spend in a minute, and the points they spent in the
    /// last one.
    pub(super) points_a_minute: Option<u32>,
    spent: VecDeque<(Instant, u32)>,
    calls_an_hour: Option<u64>,
    hour: Option<CountedHour>,
    budget: Option<Budget>,
    /// The calls of each process, by its name.
    counts: BTreeMap<Arc<str>, CallCounts>,
    /// The calls that the clients made wait for a time that depends on GitHub's hour.
    postponed: BTreeMap<CallPurpose, u64>,
}

impl ForgeLimits {
    pub(super) fn set_budget(&mut self, points: u32, window: Duration) {
        self.budget = Some(Budget { points, window, spent: VecDeque::new() });
    }

    pub(super) fn limit_calls(&mut self, an_hour: Option<u64>) {
        self.calls_an_hour = an_hour;
    }

    /// What the answers tell the callers of the hour.
    fn hour_left(&self, now: Instant) -> Option<HourLeft> {
        let limit = self.calls_an_hour?;
        let hour = self.hour.filter(|hour| now < hour.began + HOUR)?;
        let remaining = limit.saturating_sub(hour.used);
        // Counted from the beginning of the hour.
        Some(HourLeft { limit, remaining, reset: HOUR.saturating_sub(now - hour.began) })
    }

    /// How long the client makes a call wait.
    pub(super) fn wait(&mut self, call: Call, now: Instant) -> Duration {
        let hour = self.hour_left(now).filter(|_| call.is_of_the_installation);
        let hour = hour.map_or(Duration::ZERO, |hour| hour.wait(Duration::ZERO, call.priority));
        let points = self.budget.as_mut().map_or(Duration::ZERO, |budget| budget.wait(call, now));
        hour.max(points)
    }

    /// Counts a call that the client makes now.
    pub(super) fn sent(&mut self, call: Call, now: Instant) {
        if let Some(budget) = &mut self.budget {
            budget.spent.push_back((now, call.points));
        }
    }

    /// Counts a call that the client makes wait.
    pub(super) fn postpone(&mut self, call: Call) {
        *self.postponed.entry(call.purpose).or_default() += 1;
    }

    /// How long a credential would have to wait.
    pub(super) fn credential_wait(&mut self, now: Instant) -> Duration {
        self.wait(Call::write(CallPurpose::Mint).urgent(), now)
    }

    /// Accepts and counts a call, or refuses it. A call that is `free` costs nothing of the hour.
    pub(super) fn admit(&mut self, call: Call, free: bool, wire: &Wire) -> Result<(), Fault> {
        let now = instant();
        self.admit_to_hour(call, free, now, wire)?;
        self.admit_points(call, now, wire)?;
        let counts = self.counts.entry(Arc::clone(wire.name())).or_default();
        let count = counts.entry(call.purpose).or_default();
        count.sent += call.calls;
        count.free += if free { call.calls } else { 0 };
        Ok(())
    }

    fn admit_to_hour(
        &mut self,
        call: Call,
        free: bool,
        now: Instant,
        wire: &Wire,
    ) -> Result<(), Fault> {
        let Some(most) = self.calls_an_hour.filter(|_| call.is_of_the_installation) else {
            return Ok(());
        };
        let new = CountedHour { began: now, used: 0 };
        let hour = self.hour.filter(|hour| now < hour.began + HOUR).unwrap_or(new);
        let used = hour.used + if free { 0 } else { call.calls };
        if used > most || hour.used == most {
            wire.happened("GitHub's hour used up");
            return Err(Fault::Throttled);
        }
        self.hour = Some(CountedHour { used, ..hour });
        Ok(())
    }

    fn admit_points(&mut self, call: Call, now: Instant, wire: &Wire) -> Result<(), Fault> {
        let Some(most) = self.points_a_minute else { return Ok(()) };
        while self.spent.front().is_some_and(|(at, _)| now - *at >= MINUTE) {
            self.spent.pop_front();
        }
        let spent: u32 = self.spent.iter().map(|(_, points)| points).sum();
        if spent + call.points > most {
            wire.happened("GitHub's limit reached");
            return Err(Fault::Throttled);
        }
        self.spent.push_back((now, call.points));
        Ok(())
    }

    /// The calls of one process.
    pub(super) fn calls_of(&self, process: &str) -> CallCounts {
        self.counts.get(process).cloned().unwrap_or_default()
    }

    /// The calls of all processes.
    pub(super) fn calls(&self) -> CallCounts {
        let mut all = CallCounts::new();
        for (purpose, count) in self.counts.values().flatten() {
            let sum = all.entry(*purpose).or_default();
            sum.sent += count.sent;
            sum.free += count.free;
        }
        all
    }

    /// How many calls of each purpose the clients postponed.
    pub(super) fn postponed(&self) -> BTreeMap<CallPurpose, u64> {
        self.postponed.clone()
    }
}
