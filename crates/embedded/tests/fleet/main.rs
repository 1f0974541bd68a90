//! Tests of the process fleet with real processes.
//!
//! The supervisor is this test program, started again with only `support::the_supervisor` selected.
//! Agents are a few lines of shell. Tests poll until a process has changed its state.
//!
//! Not here: choosing types, and repairs after a launcher died at a certain line (tests beside the
//! code).

#![expect(clippy::unwrap_used, reason = "this crate is a test, including its helper functions")]

#[path = "../common/child.rs"]
mod child;
mod concurrent;
mod contract;
mod lifecycle;
mod support;
