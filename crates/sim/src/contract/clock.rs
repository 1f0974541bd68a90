//! The contract of the `Clock` port.
//!
//! Not here: how far two clocks may differ; `doctor` measures that.

use std::time::Duration;

use bullpen_core::ports::Clock;

use super::{Harness, while_time_passes};

/// One test per case of the clock's contract.
#[macro_export]
macro_rules! clock_contract {
    ($harness:ty) => {
        $crate::contract_cases!(
            $harness,
            clock,
            [monotonic_time_never_goes_back, a_sleep_lasts_as_long_as_it_says]
        );
    };
}

/// Monotonic time never goes back, and the time of day advances with it.
pub async fn monotonic_time_never_goes_back<H: Harness<Port: Clock>>(harness: H) {
    let clock = harness.port();
    let (began, mut last) = (clock.now(), clock.monotonic());
    for _ in 0..100 {
        harness.pass(Duration::from_millis(2)).await;
        let next = clock.monotonic();
        assert!(next >= last, "{next:?} after {last:?}");
        last = next;
    }
    assert!(clock.now() > began, "the time of day stands still");
}

/// A sleep lasts at least its time, and ends.
pub async fn a_sleep_lasts_as_long_as_it_says<H: Harness<Port: Clock>>(harness: H) {
    let (clock, wait) = (harness.port(), Duration::from_millis(250));
    let began = clock.monotonic();
    let done = while_time_passes(&harness, wait * 20, clock.sleep(wait)).await;
    assert!(done.is_some(), "the sleep never ended");
    let slept = clock.monotonic().saturating_sub(began);
    assert!(slept >= wait, "woke after {slept:?}");
}
