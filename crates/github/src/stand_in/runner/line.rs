//! The line to the server: asks until there is an answer, as the official program does, and tells when
//! the connection is lost and when it is back.
//!
//! Not here: a single request (`server`).

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bullpen_core::ports::Clock;

use super::console::Console;
use super::server::{Server, ServerAnswer, ServerTrouble};

/// The first wait after a failed request; doubles.
const RETRY: Duration = Duration::from_millis(100);
/// The longest one.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// A server, and whether it answers.
pub(super) struct ServerConnection<'a, C, W> {
    pub(super) server: Server<'a, C>,
    pub(super) console: &'a Console<'a, C, W>,
    /// For all requests together: a caller may drop a request that failed, and the next may succeed.
    is_down: AtomicBool,
}

impl<'a, C: Clock, W: Write> ServerConnection<'a, C, W> {
    pub(super) fn new(server: Server<'a, C>, console: &'a Console<'a, C, W>) -> Self {
        Self { server, console, is_down: AtomicBool::new(false) }
    }

    /// Asks until there is an answer.
    pub(super) async fn insist<F: Future<Output = Result<ServerAnswer, ServerTrouble>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> ServerAnswer {
        let mut wait = Duration::ZERO;
        loop {
            match ask().await.and_then(ServerAnswer::settled) {
                Ok(answer) => {
                    if self.is_down.swap(false, Ordering::Relaxed) {
                        self.console.line_with_time("Runner reconnected.");
                    }
                    return answer;
                }
                Err(ServerTrouble(words)) => {
                    if !self.is_down.swap(true, Ordering::Relaxed) {
                        self.console.line_with_time(&format!(
                            "Runner connect error: {words}. Retrying until reconnected."
                        ));
                    }
                }
            }
            wait = (wait * 2).clamp(RETRY, RETRY_MAX);
            self.server.clock().sleep(wait).await;
        }
    }
}
