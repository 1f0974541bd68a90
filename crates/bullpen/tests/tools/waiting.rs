//! Waits for a condition, up to the limit of all tests.
//!
//! Not here: the conditions.

use std::time::Duration;

use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;

/// The longest wait of a test, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(5);

/// Calls `find` until it returns a value.
pub(crate) async fn until<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let clock = SystemClock::new();
    while clock.monotonic() < PATIENCE {
        if let Some(found) = find().await {
            return found;
        }
        clock.sleep(LOOK).await;
    }
    panic!("no {what} within {PATIENCE:?}");
}
