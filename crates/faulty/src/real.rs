//! Real time: sockets know no other.
//!
//! Not here: anything that decides by them.

#![expect(clippy::disallowed_methods, reason = "real sockets live in real time")]

use std::time::{Duration, Instant};

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}
