//! The process fleet with real processes: it passes the `Fleet` port's contract, its machines outlive
//! whoever launched them, and nothing of a machine outlives its end.
//!
//! The supervisor is this test program itself, run again with only `stage::the_supervisor` selected.
//! Agents are a few lines of shell. Whatever happens to a process is waited for by looking.
//!
//! Not here: choosing types, and what is left by a launcher that was killed at a certain line (both
//! beside the code).

#![expect(
    clippy::unwrap_used,
    reason = "all of this is a test, also what is outside of its functions"
)]

mod contract;
mod crowds;
mod lives;
mod stage;
