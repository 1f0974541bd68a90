//! Rates: how many calls the cloud allows, and how many of them one process may make.
//!
//! A *bucket* holds tokens, up to its burst, and refills steadily. Every call takes one token of
//! its kind's request bucket, and one of its machine bucket for each machine. The cloud counts per
//! account, so a process keeps to its *share*, and halves it at each complaint. The shares of all
//! replicas and one command fit into a bucket. [`Budget::take`] takes tokens at once and returns
//! the wait before the call, so calls keep the order in which callers asked, without retries.
//!
//! Not here: waiting (the engine), counting replicas ([`crate::replicas`]), or GitHub's points.

use std::collections::BTreeMap;
use std::time::Duration;

/// The share of a process that is not a replica of the service: one part in this many.
pub const COMMAND_SHARE: u32 = 10;
/// A halved share doubles again after this long without a complaint.
const RECOVERY: Duration = Duration::from_secs(60);
/// The smallest part of a share that stays after any number of complaints: one part in this many.
const SLOWEST: u32 = 16;

/// The share of the cloud's buckets that one process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateShare {
    /// The share of a command, or of a replica that the others do not count yet; at most one
    /// replica's share.
    Outsider {
        /// The number of replicas.
        replicas: u32,
    },
    /// An even part of the bucket without a command's share.
    Replica {
        /// The number of replicas, this one included.
        replicas: u32,
    },
}

impl RateShare {
    /// The share of a command.
    pub const COMMAND: Self = Self::Outsider { replicas: 1 };
}

/// A kind of call that the cloud counts separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetCall {
    /// Launching.
    Launch,
    /// Starting.
    Start,
    /// Stopping.
    Stop,
    /// Ending.
    Terminate,
    /// Listing and describing.
    Describe,
    /// Tagging.
    Tag,
}

impl FleetCall {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Launch, Self::Start, Self::Stop, Self::Terminate, Self::Describe, Self::Tag];
}

/// A bucket's size and its refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// How many thousandths of a token it holds.
    burst_millis: u64,
    /// How many thousandths of a token it gains each second.
    refill_millis: u64,
}

impl Bucket {
    /// A bucket of whole tokens.
    pub const fn new(burst: u32, refill_per_second: u32) -> Self {
        Self { burst_millis: burst as u64 * 1_000, refill_millis: refill_per_second as u64 * 1_000 }
    }

    /// One part in `parts`; never less than one whole token, or no call could ever be made.
    #[must_use]
    pub fn share(self, parts: u32) -> Self {
        let parts = u64::from(parts.max(1));
        Self {
            burst_millis: (self.burst_millis / parts).max(1_000),
            refill_millis: (self.refill_millis / parts).max(1),
        }
    }

    /// The rest of this bucket without `other`.
    #[must_use]
    const fn beside(self, other: Self) -> Self {
        Self {
            burst_millis: self.burst_millis.saturating_sub(other.burst_millis),
            refill_millis: self.refill_millis.saturating_sub(other.refill_millis),
        }
    }

    #[must_use]
    fn smaller(self, other: Self) -> Self {
        Self {
            burst_millis: self.burst_millis.min(other.burst_millis),
            refill_millis: self.refill_millis.min(other.refill_millis),
        }
    }

    /// The part of it that a process with this share may take.
    #[must_use]
    fn taken(self, share: RateShare) -> Self {
        let command = self.share(COMMAND_SHARE);
        let replica = |replicas| self.beside(command).share(replicas);
        match share {
            RateShare::Outsider { replicas } => command.smaller(replica(replicas)),
            RateShare::Replica { replicas } => replica(replicas),
        }
    }
}

/// The buckets of one kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRates {
    /// One token a call.
    pub requests: Bucket,
    /// One token a machine, if the cloud counts machines.
    pub machines: Option<Bucket>,
}

/// A cloud's buckets; a kind that is absent is not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates(BTreeMap<FleetCall, CallRates>);

impl Rates {
    /// The rates of a fleet without limits.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// EC2's rates per account and region, from its documentation or from reports. The rates for
    /// starting, stopping, ending and tagging are from memory and need checking in a real account.
    pub fn ec2() -> Self {
        let rates = |requests, machines| CallRates { requests, machines };
        Self(BTreeMap::from([
            (FleetCall::Launch, rates(Bucket::new(5, 2), Some(Bucket::new(1_000, 2)))),
            (FleetCall::Start, rates(Bucket::new(5, 2), Some(Bucket::new(1_000, 2)))),
            (FleetCall::Stop, rates(Bucket::new(50, 5), Some(Bucket::new(1_000, 20)))),
            (FleetCall::Terminate, rates(Bucket::new(100, 5), Some(Bucket::new(1_000, 20)))),
            (FleetCall::Describe, rates(Bucket::new(100, 20), None)),
            (FleetCall::Tag, rates(Bucket::new(50, 5), None)),
        ]))
    }

    /// Whether no call is limited.
    pub fn is_unlimited(&self) -> bool {
        self.0.is_empty()
    }

    /// The part of each bucket that a process with this share may take.
    #[must_use]
    pub fn share(&self, share: RateShare) -> Self {
        let taken = |rates: &CallRates| CallRates {
            requests: rates.requests.taken(share),
            machines: rates.machines.map(|bucket| bucket.taken(share)),
        };
        Self(self.0.iter().map(|(call, rates)| (*call, taken(rates))).collect())
    }
}

/// How full one bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    bucket: Bucket,
    /// Millionths of a token; below zero if waiting calls have taken tokens in advance.
    micros: i64,
    /// The time of that level.
    at: Duration,
}

impl Level {
    fn full(bucket: Bucket, at: Duration) -> Self {
        Self { bucket, micros: micros(bucket.burst_millis), at }
    }

    /// `slowed`: the refill is divided by this.
    fn refill(&mut self, now: Duration, slowed: u32) {
        let passed = now.saturating_sub(self.at).as_millis();
        let refill = u128::from(self.bucket.refill_millis) / u128::from(slowed.max(1));
        let gained = i64::try_from(passed * refill.max(1)).unwrap_or(i64::MAX);
        self.micros = self.micros.saturating_add(gained).min(micros(self.bucket.burst_millis));
        self.at = self.at.max(now);
    }

    /// How long until this many tokens are there; for more than the bucket ever holds, until it is
    /// full.
    fn wait_for(&self, tokens: u32, slowed: u32) -> Duration {
        let wanted = (i64::from(tokens) * 1_000_000).min(micros(self.bucket.burst_millis));
        let missing = u64::try_from(wanted.saturating_sub(self.micros)).unwrap_or(0);
        let refill = (self.bucket.refill_millis / u64::from(slowed.max(1))).max(1);
        Duration::from_millis(missing.div_ceil(refill))
    }

    /// Replaces the bucket: saved tokens above the new burst are lost, owed tokens stay owed.
    fn move_to(&mut self, bucket: Bucket) {
        self.bucket = bucket;
        self.micros = self.micros.min(micros(bucket.burst_millis));
    }

    fn take(&mut self, tokens: u32) {
        self.micros = self.micros.saturating_sub(i64::from(tokens) * 1_000_000);
    }
}

fn micros(millis: u64) -> i64 {
    i64::try_from(millis.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CallBudget {
    requests: Level,
    machines: Option<Level>,
    /// The refill is divided by this: doubled by each complaint.
    slowed: u32,
    /// When `slowed` last changed.
    slowed_at: Duration,
    /// The time of the last call that had to wait, if any had to.
    last_turn: Option<Duration>,
}

/// The tokens left of one share of the cloud's buckets. Times are on one monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget(BTreeMap<FleetCall, CallBudget>);

impl Budget {
    /// A budget of full buckets.
    pub fn new(rates: &Rates, now: Duration) -> Self {
        let call_budget = |rates: &CallRates| CallBudget {
            requests: Level::full(rates.requests, now),
            machines: rates.machines.map(|bucket| Level::full(bucket, now)),
            slowed: 1,
            slowed_at: now,
            last_turn: None,
        };
        Self(rates.0.iter().map(|(call, rates)| (*call, call_budget(rates))).collect())
    }

    /// Takes the tokens of one call about `machines` machines and returns how long the call must
    /// wait; takes nothing if that is longer than `patience`.
    #[must_use = "the call must not be made before this wait is over"]
    pub fn take(
        &mut self,
        call: FleetCall,
        machines: u32,
        now: Duration,
        patience: Duration,
    ) -> Option<Duration> {
        let Some(call_budget) = self.0.get_mut(&call) else { return Some(Duration::ZERO) };
        let wait = call_budget.wait_for(machines, now);
        if wait > patience {
            return None;
        }
        call_budget.requests.take(1);
        if let Some(level) = &mut call_budget.machines {
            level.take(machines);
        }
        if !wait.is_zero() {
            call_budget.last_turn = Some(now + wait);
        }
        Some(wait)
    }

    /// Replaces the buckets. Turns already given out stay, owed tokens stay owed, and a slowed kind
    /// of call stays slow; a larger bucket fills at its own pace.
    pub fn keep_to(&mut self, rates: &Rates, now: Duration) {
        for (call, call_budget) in &mut self.0 {
            let Some(rates) = rates.0.get(call) else { continue };
            call_budget.refill(now);
            call_budget.requests.move_to(rates.requests);
            if let (Some(level), Some(bucket)) = (&mut call_budget.machines, rates.machines) {
                level.move_to(bucket);
            }
        }
    }

    /// Slows a kind of call after the cloud refused a call for its rate.
    pub fn complained(&mut self, call: FleetCall, now: Duration) {
        let Some(call_budget) = self.0.get_mut(&call) else { return };
        call_budget.refill(now);
        call_budget.slowed = (call_budget.slowed * 2).min(SLOWEST);
        call_budget.slowed_at = now;
        // The refusal shows that the cloud did not have the saved tokens.
        call_budget.requests.micros = call_budget.requests.micros.min(0);
    }
}

impl CallBudget {
    fn wait_for(&mut self, machines: u32, now: Duration) -> Duration {
        self.refill(now);
        let wait = self.requests.wait_for(1, self.slowed);
        let wait = match &self.machines {
            Some(level) => wait.max(level.wait_for(machines, self.slowed)),
            None => wait,
        };
        wait.max(self.after_last_turn(now))
    }

    /// A call that waited while the refill was slow got a late turn. A call that comes after the
    /// recovery must not get the same turn.
    fn after_last_turn(&self, now: Duration) -> Duration {
        let step = 1_000_000_u64.div_ceil(self.requests.bucket.refill_millis.max(1));
        let next = self.last_turn.map(|turn| turn + Duration::from_millis(step));
        next.unwrap_or_default().saturating_sub(now)
    }

    /// Credits the time before each recovery at the slower pace.
    fn refill(&mut self, now: Duration) {
        while self.slowed > 1 && now.saturating_sub(self.slowed_at) >= RECOVERY {
            self.slowed_at += RECOVERY;
            self.credit(self.slowed_at);
            self.slowed /= 2;
        }
        self.credit(now);
    }

    fn credit(&mut self, now: Duration) {
        self.requests.refill(now, self.slowed);
        if let Some(level) = &mut self.machines {
            level.refill(now, self.slowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Takes the tokens, for any wait.
    fn take(budget: &mut Budget, call: FleetCall, machines: u32, now: Duration) -> Duration {
        budget.take(call, machines, now, Duration::MAX).expect("no wait is too long")
    }

    #[test]
    fn no_two_calls_share_a_slow_turn() {
        let mut budget = Budget::new(&Rates::ec2().share(RateShare::COMMAND), Duration::ZERO);
        budget.complained(FleetCall::Launch, Duration::ZERO);
        budget.complained(FleetCall::Launch, Duration::ZERO);
        assert_eq!(take(&mut budget, FleetCall::Launch, 1, secs(41)), Duration::ZERO);
        let slow = secs(41) + take(&mut budget, FleetCall::Launch, 1, secs(41));
        assert!(slow > RECOVERY, "{slow:?}");
        let next = RECOVERY + take(&mut budget, FleetCall::Launch, 1, RECOVERY);
        assert!(next >= slow + secs(5), "{slow:?}, {next:?}");
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_in_step() {
        let mut budget = Budget::new(&Rates::ec2(), Duration::ZERO);
        let waits: Vec<u128> = (0..9)
            .map(|_| take(&mut budget, FleetCall::Launch, 1, Duration::ZERO).as_millis())
            .collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 500, 1_000, 1_500, 2_000]);
        assert_eq!(take(&mut budget, FleetCall::Launch, 1, secs(60)), Duration::ZERO);
    }

    #[test]
    fn machines_count_too_and_more_than_a_bucket_holds_waits_for_a_full_one() {
        let mut budget = Budget::new(&Rates::ec2(), Duration::ZERO);
        assert_eq!(take(&mut budget, FleetCall::Launch, 1_500, Duration::ZERO), Duration::ZERO);
        // 500 are owed: a thousand and five hundred halves of a second until it is full again.
        assert_eq!(take(&mut budget, FleetCall::Launch, 1_500, Duration::ZERO), secs(750));
    }

    #[test]
    fn a_command_has_a_tenth_and_never_less_than_one_call() {
        let mut budget = Budget::new(&Rates::ec2().share(RateShare::COMMAND), Duration::ZERO);
        assert_eq!(take(&mut budget, FleetCall::Launch, 4, Duration::ZERO), Duration::ZERO);
        assert_eq!(take(&mut budget, FleetCall::Launch, 4, Duration::ZERO), secs(5));
        let at_once = (0..20)
            .filter(|_| take(&mut budget, FleetCall::Describe, 0, Duration::ZERO).is_zero())
            .count();
        assert_eq!(at_once, 10);
    }

    #[test]
    fn a_complaint_halves_the_pace_until_a_minute_passes_without_one() {
        let mut budget = Budget::new(&Rates::ec2(), Duration::ZERO);
        budget.complained(FleetCall::Terminate, Duration::ZERO);
        let pace = |budget: &mut Budget, now| {
            let first = take(budget, FleetCall::Terminate, 1, now);
            take(budget, FleetCall::Terminate, 1, now).saturating_sub(first).as_millis()
        };
        assert_eq!(pace(&mut budget, Duration::ZERO), 400, "five a second, halved");
        budget.complained(FleetCall::Terminate, secs(10));
        assert_eq!(pace(&mut budget, secs(10)), 800);
        budget.complained(FleetCall::Terminate, secs(129));
        assert_eq!(pace(&mut budget, secs(129)), 800, "one minute of two forgotten, then halved");
    }

    #[test]
    fn an_impatient_caller_takes_no_tokens() {
        let mut budget = Budget::new(&Rates::ec2().share(RateShare::COMMAND), Duration::ZERO);
        let mut start = |now| budget.take(FleetCall::Start, 1, now, secs(4));
        assert_eq!(start(Duration::ZERO), Some(Duration::ZERO));
        for _ in 0..10 {
            assert_eq!(start(Duration::ZERO), None);
        }
        assert_eq!(start(secs(2)), Some(secs(3)));
    }

    fn share_of(bucket: Bucket, share: RateShare) -> (u64, u64) {
        let Bucket { burst_millis, refill_millis } = bucket.taken(share);
        (burst_millis, refill_millis)
    }

    #[test]
    fn replicas_and_one_command_fit_into_a_bucket() {
        let launches = Bucket::new(5, 2);
        assert_eq!(share_of(launches, RateShare::COMMAND), (1_000, 200));
        assert_eq!(share_of(launches, RateShare::Replica { replicas: 1 }), (4_000, 1_800));
        assert_eq!(share_of(launches, RateShare::Replica { replicas: 3 }), (1_333, 600));
        assert_eq!(
            share_of(launches, RateShare::Replica { replicas: 30 }),
            (1_000, 60),
            "one call"
        );
        assert_eq!(share_of(launches, RateShare::Outsider { replicas: 3 }), (1_000, 200));
        let crowded = share_of(launches, RateShare::Outsider { replicas: 30 });
        assert_eq!(crowded, (1_000, 60), "no more than one of them");
        for replicas in 1..=9 {
            let all = u64::from(replicas);
            let (burst, refill) = share_of(Bucket::new(50, 5), RateShare::Replica { replicas });
            let (more, faster) = share_of(Bucket::new(50, 5), RateShare::COMMAND);
            assert!(all * burst + more <= 50_000 && all * refill + faster <= 5_000, "{replicas}");
        }
    }

    #[test]
    fn a_share_that_shrinks_owes_what_it_owed() {
        let alone = Rates::ec2().share(RateShare::Replica { replicas: 1 });
        let mut budget = Budget::new(&alone, Duration::ZERO);
        for _ in 0..4 {
            assert_eq!(take(&mut budget, FleetCall::Launch, 1, Duration::ZERO), Duration::ZERO);
        }
        let turn = take(&mut budget, FleetCall::Launch, 1, Duration::ZERO);
        budget.keep_to(&Rates::ec2().share(RateShare::Replica { replicas: 3 }), Duration::ZERO);
        // One is owed and one is wanted, at six tenths a second.
        let next = take(&mut budget, FleetCall::Launch, 1, Duration::ZERO);
        assert_eq!((turn.as_millis(), next.as_millis()), (556, 3_334));
    }

    #[test]
    fn what_was_saved_up_fits_the_share_that_is_left() {
        let mut budget = Budget::new(&Rates::ec2(), Duration::ZERO);
        budget.keep_to(&Rates::ec2().share(RateShare::COMMAND), Duration::ZERO);
        assert_eq!(take(&mut budget, FleetCall::Launch, 1, Duration::ZERO), Duration::ZERO);
        assert_eq!(take(&mut budget, FleetCall::Launch, 1, Duration::ZERO), secs(5));
    }

    #[test]
    fn a_share_that_grows_has_saved_up_nothing_and_is_as_slow_as_it_was() {
        let mut budget = Budget::new(&Rates::ec2().share(RateShare::COMMAND), Duration::ZERO);
        assert_eq!(take(&mut budget, FleetCall::Launch, 1, Duration::ZERO), Duration::ZERO);
        budget.complained(FleetCall::Launch, Duration::ZERO);
        let alone = Rates::ec2().share(RateShare::Replica { replicas: 1 });
        budget.keep_to(&alone, Duration::ZERO);
        let next = take(&mut budget, FleetCall::Launch, 1, Duration::ZERO);
        assert_eq!(next.as_millis(), 1_112, "nine tenths of two a second, halved");
        assert_eq!(take(&mut budget, FleetCall::Launch, 1, secs(300)), Duration::ZERO);
    }

    #[test]
    fn what_is_not_counted_never_waits() {
        let mut budget = Budget::new(&Rates::unlimited(), Duration::ZERO);
        for call in FleetCall::ALL {
            for _ in 0..1_000 {
                assert_eq!(take(&mut budget, call, 50, Duration::ZERO), Duration::ZERO);
            }
        }
    }

    /// In any window, no more calls than its burst and its refill allow.
    #[test]
    fn no_window_ever_sees_more_than_the_bucket_allows() {
        let mut budget = Budget::new(&Rates::ec2(), Duration::ZERO);
        let asked = (0..200_u64).map(|n| Duration::from_millis(n * n % 7_919));
        let mut asked: Vec<_> = asked.collect();
        asked.sort();
        let mut made: Vec<_> =
            asked.iter().map(|at| *at + take(&mut budget, FleetCall::Launch, 1, *at)).collect();
        made.sort();
        for (from, first) in made.iter().enumerate() {
            for (to, last) in made.iter().enumerate().skip(from) {
                let calls = u128::try_from(to - from).unwrap_or(0) + 1;
                let allowed = 5_000 + 2 * last.saturating_sub(*first).as_millis() + 2;
                assert!(calls * 1_000 <= allowed, "{calls} calls from {first:?} to {last:?}");
            }
        }
    }
}
