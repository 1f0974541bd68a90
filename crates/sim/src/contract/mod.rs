//! One contract suite per port. Every adapter passes the same cases, the models first; without that
//! a simulation proves nothing about what ships.
//!
//! A suite is a list of cases, each an async function over any [`Harness`] whose port it is, and a
//! macro that makes one test of each: [`ledger_contract!`](crate::ledger_contract),
//! [`queues_contract!`](crate::queues_contract), [`mailbox_contract!`](crate::mailbox_contract),
//! [`fleet_contract!`](crate::fleet_contract), [`forge_contract!`](crate::forge_contract),
//! [`demand_contract!`](crate::demand_contract), [`clock_contract!`](crate::clock_contract),
//! [`ids_contract!`](crate::ids_contract). For a new adapter, write a harness that makes a fresh
//! world (its own file, its own tables), and say in an otherwise empty module:
//!
//! ```text
//! mod ledger {
//!     bullpen_sim::ledger_contract!(super::SqliteLedger);
//! }
//! ```
//!
//! A case asserts only what the port promises. Where the promise has a *weak arm*, a case waits
//! ([`Harness::settle`]), asks again, or asserts absences only if the harness is not
//! [`Harness::WEAK`].
//!
//! Not here: what an adapter does beyond its port, or how fast it is.

use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bullpen_core::ports::{Fault, Written};
use bullpen_core::time::Timestamp;
use futures_util::future::{Either, select};

pub mod clock;
pub mod demand;
pub mod fleet;
pub mod forge;
pub mod ids;
pub mod ledger;
pub mod mailbox;
pub mod queues;

/// A fresh world around one adapter.
pub trait Harness: Sized {
    /// The adapter.
    type Port;

    /// Whether this world may do everything its port allows: lag, list too much, double, reorder.
    const WEAK: bool = false;
    /// How often the cases that look for races try; each costs some seventy writes.
    const ROUNDS: u32 = 200;

    /// Runs one case to its end, on a runtime that suits the adapter.
    fn block_on<F: Future>(case: F) -> F::Output;
    /// A new world, with nothing in it.
    fn fresh() -> impl Future<Output = Self>;
    /// The adapter as one process has it.
    fn port(&self) -> &Self::Port;
    /// The adapter as another process has it, on the same world.
    fn another_process(&self) -> Self::Port;
    /// The time, as the adapter's clock says it.
    fn now(&self) -> Timestamp;
    /// Lets time pass. Whatever waits meanwhile must get its turn: where the clock is turned by hand,
    /// some real time has to pass as well.
    fn pass(&self, wait: Duration) -> impl Future<Output = ()>;
    /// Lets everything that may lag catch up.
    fn settle(&self) -> impl Future<Output = ()> {
        async {}
    }
    /// Makes the next call of [`Harness::port`] land without an answer; false if that cannot be
    /// arranged here.
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

/// An answer that must have come.
#[track_caller]
pub(crate) fn answered<T>(result: Result<T, Fault>) -> T {
    match result {
        Ok(answer) => answer,
        Err(fault) => panic!("the adapter failed in good weather: {fault}"),
    }
}

/// A write that must have won.
#[track_caller]
pub(crate) fn won<T: Debug>(result: Result<Written<T>, Fault>) -> T {
    match answered(result) {
        Written::Won(stored) => stored,
        other => panic!("a write that had to win answered {other:?}"),
    }
}

/// A write that must have lost.
#[track_caller]
pub(crate) fn lost<T: Debug>(result: Result<Written<T>, Fault>) {
    match answered(result) {
        Written::Lost => {}
        other => panic!("a write that had to lose answered {other:?}"),
    }
}

/// A write that landed, whose answer was lost exactly if the lever worked.
#[track_caller]
pub(crate) fn landed<T: Debug>(result: Result<Written<T>, Fault>, answer_lost: bool) {
    match (answered(result), answer_lost) {
        (Written::Unknown, true) | (Written::Won(_), false) => {}
        (other, _) => panic!("a write that landed answered {other:?}"),
    }
}

/// Awaits `work`, which `change` is to end: no time passes but what the change takes, until it is
/// made; then as in [`while_time_passes`].
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

/// Awaits `work` while time passes in small steps, at most `at_most` of it; none if that was not
/// enough. For what waits on its own: nobody else would turn a clock that is turned by hand.
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
