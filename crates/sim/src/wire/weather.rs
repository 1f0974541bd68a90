//! The odds of faults on a wire, and how long adapters wait for an answer.
//!
//! Not here: drawing the fate of a call ([`super::fate`]).

use std::time::Duration;

/// The odds of each fault, out of a thousand calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// The longest trip, in each direction.
    pub latency_max: Duration,
    /// A call is refused as throttled, before it has an effect.
    pub throttle: u32,
    /// A call is refused for lack of a connection, before it has an effect.
    pub refuse: u32,
    /// A call lands, and its answer is lost.
    pub lose_answer: u32,
    /// A call gets no answer, and lands later.
    pub land_late: u32,
    /// The longest delay of a late call.
    pub late_max: Duration,
    /// A short poll is empty although the queue has messages.
    pub false_empty: u32,
    /// A message is delivered a second time.
    pub deliver_twice: u32,
    /// The longest lag of a listing that may lag.
    pub lag_max: Duration,
    /// A call takes up to its adapter's timeout.
    pub slow: u32,
    /// A call waits for its adapter's timeout. It has its effect at once, later, or never.
    pub hang: u32,
    /// Of a thousand refusals, how many come only after the adapter's timeout. Unless this is 0, all
    /// others take as long as answers.
    pub late_refusals: u32,
}

/// How long the client of GitHub waits for the answer to one call.
pub const GITHUB_CALL: Duration = Duration::from_secs(12);
/// How long a method of a port to GitHub may take with all its calls.
pub const GITHUB_METHOD: Duration = Duration::from_secs(60);

/// How long the adapter of a port waits for an answer.
pub(super) const fn timeout(port: &str) -> Duration {
    match port.as_bytes() {
        b"fleet" => Duration::from_secs(20),
        b"forge" | b"job-forge" => GITHUB_CALL,
        _ => Duration::from_secs(5),
    }
}

/// How long a method of a port waits at most, if its calls before the one without an answer were slow.
pub(super) const fn method_timeout(port: &str) -> Duration {
    match port.as_bytes() {
        b"forge" | b"job-forge" => GITHUB_METHOD,
        _ => timeout(port),
    }
}
