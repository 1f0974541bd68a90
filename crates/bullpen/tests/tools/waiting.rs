//! Waiting for what happens, as long as a test may.
//!
//! Not here: what is waited for.

use std::time::Duration;

use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;

/// How long anything that a test waits for may take on a machine with better things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(5);

/// Waits until there is something to find.
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
