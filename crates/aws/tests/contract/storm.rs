//! Bad weather: a world whose calls meet every fault that the proxy knows, by a seed.
//!
//! The n-th call of an operation meets the same fault in every run; which of several callers makes
//! it is for the machine to say. `BULLPEN_TEST_SEED` sets another seed.
//!
//! Not here: what must hold in it ([`crate::races`]).

use bullpen_aws::{DynamoLedger, DynamoMailbox};
use bullpen_core::ports::{Fault, Written};
use bullpen_faulty::{Fault as Mishap, Plan};
use bullpen_sim::clock::ManualClock;

use crate::Ground;
use crate::emulator::{self, Service};

/// Seeds of their own for the rounds of a test.
const SEED: u64 = 20_260_105;
/// More tries than this for one answer are no weather but a fault of ours.
pub(crate) const TRIES_MAX: u32 = 200;

/// About every second call meets one of these.
pub(crate) fn plan(seed: u64) -> Plan {
    Plan::seeded(seed)
        .with(Mishap::AnswerLost, 90)
        .with(Mishap::AnswerReset, 70)
        .with(Mishap::Throttled, 70)
        .with(Mishap::ThroughputExceeded, 30)
        .with(Mishap::InternalError, 60)
        .with(Mishap::Unavailable, 40)
        .with(Mishap::ResetBefore, 60)
        .with(Mishap::Conflict, 60)
}

/// A world with a proxy before it; it says its seed if the test fails.
pub(crate) struct Storm {
    pub(crate) ground: Ground,
    seed: u64,
}

impl Storm {
    /// With tables, and calm for now. The number is the test's own.
    pub(crate) async fn over_tables(number: u64) -> Self {
        Self::over(Ground::numbered(Service::Tables, number).await.and_tables().await)
    }

    pub(crate) async fn over_queues(number: u64) -> Self {
        Self::over(Ground::numbered(Service::Queues, number).await)
    }

    fn over(ground: Ground) -> Self {
        Self { ground, seed: emulator::seed().unwrap_or(SEED) }
    }

    /// Lets it begin, anew for every round.
    pub(crate) fn begins(&self, round: u64) {
        self.ground.proxy().set(plan(self.seed + round));
    }

    /// Lets it end, and says whether there was any.
    pub(crate) fn ends(&self) {
        self.ground.proxy().set(Plan::calm());
        let faults = self.ground.proxy().counts().total().faults;
        assert!(faults.values().sum::<u64>() > 0, "there was no storm");
    }

    /// As many processes as wanted.
    pub(crate) fn ledgers(&self, count: usize) -> Vec<DynamoLedger<ManualClock>> {
        let ground = &self.ground;
        let ledger = || DynamoLedger::new(ground.account.another(), &ground.stack, ground.clock());
        (0..count).map(|_| ledger()).collect()
    }

    pub(crate) fn mailboxes(&self, count: usize) -> Vec<DynamoMailbox<ManualClock>> {
        let ground = &self.ground;
        let mailbox =
            || DynamoMailbox::new(ground.account.another(), &ground.stack, ground.clock());
        (0..count).map(|_| mailbox()).collect()
    }
}

impl Drop for Storm {
    #[expect(clippy::print_stderr, reason = "a test that fails tells people how to see it again")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run again with BULLPEN_TEST_SEED={}", self.seed);
        }
    }
}

/// Asks until there is an answer. Nothing but the weather may stand in its way.
pub(crate) async fn insist<T>(ask: impl AsyncFn() -> Result<T, Fault>) -> T {
    for _ in 0..TRIES_MAX {
        match ask().await {
            Ok(answer) => return answer,
            Err(fault) => assert!(fault.is_transient(), "this is no weather: {fault}"),
        }
    }
    panic!("no answer in {TRIES_MAX} tries")
}

/// What reading says of a write that may have landed.
pub(crate) enum Found {
    Mine,
    /// As it was before: it may be written again.
    Before,
    Others,
}

/// Brings one write to its end: true if it is what is stored. `answer` is the first try's.
pub(crate) async fn settle<T>(
    answer: Result<Written<T>, Fault>,
    again: impl AsyncFn() -> Result<Written<T>, Fault>,
    look: impl AsyncFn() -> Found,
) -> bool {
    let (mut answer, mut unsure) = (answer, false);
    for _ in 0..TRIES_MAX {
        match answer {
            Ok(Written::Won(_)) => return true,
            Ok(Written::Lost) if !unsure => return false,
            Ok(Written::Lost | Written::Unknown) => {
                unsure = true;
                match look().await {
                    Found::Mine => return true,
                    Found::Others => return false,
                    Found::Before => {}
                }
            }
            Err(fault) => assert!(fault.is_transient(), "this is no weather: {fault}"),
        }
        answer = again().await;
    }
    panic!("not settled in {TRIES_MAX} tries")
}
