//! Retries: repeats a call that fails with a transient fault, until a time and with growing,
//! jittered waits.
//!
//! Not here: conditional writes without an answer, which [`crate::transition`] settles by reading.

use std::time::Duration;

use bullpen_core::ports::{Clock, Fault, Ids, Ports};
use bullpen_core::time::Timestamp;

use crate::Stack;

/// The first wait between two tries.
const WAIT_FIRST: Duration = Duration::from_millis(50);
/// The longest wait between two tries: short against every deadline in `limits`.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Waits that grow from one try to the next.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: WAIT_FIRST }
    }
}

impl Backoff {
    /// Waits a little longer each time, with jitter, so that processes do not retry together.
    pub async fn wait<P: Ports>(&mut self, stack: &Stack<P>) {
        let half = self.next / 2;
        let spread = u64::try_from(half.as_millis()).unwrap_or(u64::MAX).max(1);
        let jitter = Duration::from_millis(stack.ports.ids().jitter(spread));
        stack.ports.clock().sleep(half + jitter).await;
        self.next = (self.next * 2).min(WAIT_MAX);
    }

    /// Waits before the next try of a call without an answer; fails once `until` has passed.
    pub async fn wait_until<P: Ports>(
        &mut self,
        stack: &Stack<P>,
        until: Timestamp,
    ) -> Result<(), Fault> {
        if stack.now() >= until {
            return Err(Fault::unavailable("the store did not answer in time"));
        }
        self.wait(stack).await;
        Ok(())
    }
}

/// Repeats `call` until it succeeds, its fault is final, or `until` has passed.
pub async fn retry_until<P, T, F, Fut>(
    stack: &Stack<P>,
    until: Timestamp,
    call: F,
) -> Result<T, Fault>
where
    P: Ports,
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, Fault>>,
{
    let mut backoff = Backoff::default();
    loop {
        match call().await {
            Err(fault) if fault.is_transient() && stack.now() < until => {
                tracing::debug!(%fault, "retrying after a transient fault");
                backoff.wait(stack).await;
            }
            answer => return answer,
        }
    }
}
