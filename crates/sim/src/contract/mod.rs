//! One contract suite per port. Every adapter passes the same cases, the models first; otherwise a
//! simulation would prove nothing about the shipped program.
//!
//! A suite is a list of cases, async functions over any [`Harness`] of its port, and a macro such
//! as [`ledger_contract!`](crate::ledger_contract) that makes one test of each. For a new adapter,
//! write a [`Harness`] and call the macro in an otherwise empty module, such as `mod ledger`.
//!
//! Not here: an adapter's behaviour beyond its port, or its speed.

use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bullpen_core::ports::{Fault, Listing, Written};
use bullpen_core::time::Timestamp;
use futures_util::future::{Either, select};

pub mod clock;
pub mod fleet;
pub mod forge;
pub mod ids;
pub mod ledger;
pub mod mailbox;
pub mod queues;
pub mod site;

/// A fresh world around one adapter.
pub trait Harness: Sized {
    /// The adapter.
    type Port;

    /// Whether this world may do everything its port allows: lag, list too much, double, reorder.
    /// There a case waits ([`Harness::settle`]), asks again, and asserts no absences.
    const WEAK: bool = false;
    /// The number of rounds of a case that looks for races; a round costs some seventy writes.
    const ROUNDS: u32 = 200;

    /// Runs one case to its end, on a runtime that suits the adapter.
    fn block_on<F: Future>(case: F) -> F::Output;
    /// A new, empty world.
    fn fresh() -> impl Future<Output = Self>;
    /// The adapter of one process.
    fn port(&self) -> &Self::Port;
    /// The adapter of another process, on the same world.
    fn another_process(&self) -> Self::Port;
    /// The time of the adapter's clock.
    fn now(&self) -> Timestamp;
    /// Lets time pass. Tasks that wait meanwhile must run: where the harness advances the clock by
    /// hand, some real time has to pass too.
    fn pass(&self, wait: Duration) -> impl Future<Output = ()>;
    /// Lets lagging reads catch up.
    fn settle(&self) -> impl Future<Output = ()> {
        async {}
    }
    /// Makes the next call of [`Harness::port`] land without an answer; false if the harness cannot
    /// arrange that.
    fn lose_next_answer(&self) -> bool {
        false
    }
}

/// Runs one case in a fresh world.
pub fn run<H: Harness, F: Future<Output = ()>>(case: impl FnOnce(H) -> F) {
    H::block_on(async { case(H::fresh().await).await });
}

/// One test per case; the suites' macros use it.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_cases {
    ($harness:ty, $suite:ident, [$($case:ident),+ $(,)?]) => {$(
        #[test]
        fn $case() {
            $crate::contract::run::<$harness, _>($crate::contract::$suite::$case);
        }
    )+};
}

/// Takes an answer that must have come.
#[track_caller]
pub(crate) fn answered<T>(result: Result<T, Fault>) -> T {
    match result {
        Ok(answer) => answer,
        Err(fault) => panic!("the adapter failed without a fault: {fault}"),
    }
}

/// Takes the items of a listing in which all are readable.
#[track_caller]
pub(crate) fn all_of<T>(result: Result<Listing<T>, Fault>) -> Vec<T> {
    answered(result.and_then(Listing::complete))
}

/// Takes the answer of a write that must have won.
#[track_caller]
pub(crate) fn won<T: Debug>(result: Result<Written<T>, Fault>) -> T {
    match answered(result) {
        Written::Won(stored) => stored,
        other => panic!("a write that had to win answered {other:?}"),
    }
}

/// Checks a write that must have lost.
#[track_caller]
pub(crate) fn lost<T: Debug>(result: Result<Written<T>, Fault>) {
    match answered(result) {
        Written::Lost => {}
        other => panic!("a write that had to lose answered {other:?}"),
    }
}

/// Checks a write that landed, and whose answer was lost if the harness arranged that.
#[track_caller]
pub(crate) fn landed<T: Debug>(result: Result<Written<T>, Fault>, answer_lost: bool) {
    match (answered(result), answer_lost) {
        (Written::Unknown, true) | (Written::Won(_), false) => {}
        (other, _) => panic!("a write that landed answered {other:?}"),
    }
}

/// Awaits `work`, which `change` should end: until the change is made only its own time passes;
/// then as [`while_time_passes`].
pub(crate) async fn while_this_happens<H: Harness, T>(
    harness: &H,
    at_most: Duration,
    work: impl Future<Output = T>,
    change: impl Future<Output = ()>,
) -> Option<T> {
    match select(pin!(work), pin!(change)).await {
        Either::Left((done, change)) => {
            change.await;
            Some(done)
        }
        Either::Right(((), work)) => while_time_passes(harness, at_most, work).await,
    }
}

/// Awaits `work` while time passes in small steps; none if `at_most` was not enough. For work that
/// only waits: nothing else would advance a clock that the harness advances by hand.
pub(crate) async fn while_time_passes<H: Harness, T>(
    harness: &H,
    at_most: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    const STEPS: u32 = 50;
    let passing = async {
        for _ in 0..STEPS {
            harness.pass(at_most / STEPS).await;
        }
    };
    match select(pin!(work), pin!(passing)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(((), _)) => None,
    }
}
