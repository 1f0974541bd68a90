//! A world whose calls meet faults of every kind that the proxy has, by a seed.
//!
//! The n-th call of an operation meets the same fault in every run; which of several callers makes
//! the n-th call depends on the scheduler. `BULLPEN_TEST_SEED` sets another seed.
//!
//! Not here: assertions under faults ([`crate::races`]).

use bullpen_aws::{DynamoLedger, DynamoMailbox};
use bullpen_core::ports::{Fault, Written};
use bullpen_faulty::{Fault as WireFault, Plan};
use bullpen_sim::clock::ManualClock;

use crate::World;
use crate::emulator::{self, Service};

/// The default seed; each round of a test adds its number.
const SEED: u64 = 20_260_105;
/// More tries than this for one answer mean a bug, not planned faults.
pub(crate) const TRIES_MAX: u32 = 200;

/// About every second call meets a fault.
pub(crate) fn plan(seed: u64) -> Plan {
    Plan::seeded(seed)
        .with(WireFault::AnswerLost, 90)
        .with(WireFault::AnswerReset, 70)
        .with(WireFault::Throttled, 70)
        .with(WireFault::ThroughputExceeded, 30)
        .with(WireFault::InternalError, 60)
        .with(WireFault::Unavailable, 40)
        .with(WireFault::ResetBefore, 60)
        .with(WireFault::Conflict, 60)
}

/// A world behind a proxy with faults; it prints its seed if the test fails.
pub(crate) struct FaultyWorld {
    pub(crate) world: World,
    seed: u64,
}

impl FaultyWorld {
    /// A world with tables, and without faults until [`Self::start_faults`]. Each test has a number
    /// of its own.
    pub(crate) async fn with_tables(number: u64) -> Self {
        Self::on(World::numbered(Service::Tables, number).await.create_tables().await)
    }

    pub(crate) async fn with_queues(number: u64) -> Self {
        Self::on(World::numbered(Service::Queues, number).await)
    }

    fn on(world: World) -> Self {
        Self { world, seed: emulator::seed().unwrap_or(SEED) }
    }

    /// Starts the faults of this round.
    pub(crate) fn start_faults(&self, round: u64) {
        self.world.proxy().set(plan(self.seed + round));
    }

    /// Stops the faults, and fails the test if none happened.
    pub(crate) fn stop_faults(&self) {
        self.world.proxy().set(Plan::calm());
        let faults = self.world.proxy().counts().total().faults;
        assert!(faults.values().sum::<u64>() > 0, "no call met a fault");
    }

    /// The ledgers of so many processes.
    pub(crate) fn ledgers(&self, count: usize) -> Vec<DynamoLedger<ManualClock>> {
        let world = &self.world;
        let ledger = || DynamoLedger::new(world.account.another(), &world.stack, world.clock());
        (0..count).map(|_| ledger()).collect()
    }

    pub(crate) fn mailboxes(&self, count: usize) -> Vec<DynamoMailbox<ManualClock>> {
        let world = &self.world;
        let mailbox = || DynamoMailbox::new(world.account.another(), &world.stack, world.clock());
        (0..count).map(|_| mailbox()).collect()
    }
}

impl Drop for FaultyWorld {
    #[expect(clippy::print_stderr, reason = "a failing test prints how to repeat the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run again with BULLPEN_TEST_SEED={}", self.seed);
        }
    }
}

/// Repeats a call until it succeeds; panics on a fault that is not transient.
pub(crate) async fn retry<T>(call: impl AsyncFn() -> Result<T, Fault>) -> T {
    for _ in 0..TRIES_MAX {
        match call().await {
            Ok(answer) => return answer,
            Err(fault) => assert!(fault.is_transient(), "not a planned fault: {fault}"),
        }
    }
    panic!("no answer in {TRIES_MAX} tries")
}

/// The stored value, read after a write that may have landed.
pub(crate) enum Found {
    /// The value of this write.
    Mine,
    /// The value from before the write, so the write may be repeated.
    Before,
    /// The value of another write.
    Others,
}

/// Repeats a write until its outcome is known; true if its value is stored. `answer` is the answer
/// to the first try.
pub(crate) async fn settle<T>(
    answer: Result<Written<T>, Fault>,
    write_again: impl AsyncFn() -> Result<Written<T>, Fault>,
    read: impl AsyncFn() -> Found,
) -> bool {
    let (mut answer, mut may_have_landed) = (answer, false);
    for _ in 0..TRIES_MAX {
        match answer {
            Ok(Written::Won(_)) => return true,
            Ok(Written::Lost) if !may_have_landed => return false,
            Ok(Written::Lost | Written::Unknown) => {
                may_have_landed = true;
                match read().await {
                    Found::Mine => return true,
                    Found::Others => return false,
                    Found::Before => {}
                }
            }
            Err(fault) => assert!(fault.is_transient(), "not a planned fault: {fault}"),
        }
        answer = write_again().await;
    }
    panic!("not settled in {TRIES_MAX} tries")
}
