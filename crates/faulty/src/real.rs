//! Real time and the environment, which real sockets and child processes need.
//!
//! Not here: decisions that depend on them.

#![expect(clippy::disallowed_methods, reason = "real sockets and processes live in real time")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Blocks the thread, for callers that are not asynchronous.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// An environment variable; `None` if it is unset or empty.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
