//! A tenure: one instance's time with one owner, as pure decisions and a state machine.
//!
//! [`due`] says what a passed deadline does to a tenure. [`owner_may_end`] and [`end_of_tenure`] take
//! the instance back from its owner. [`Release`] is the rest: the handshake that makes the instance
//! idle again or ends it. The engine reads, writes and calls; every decision is here, and the
//! explorer of the protocol (`bullpen_sim::explore`) steps the same functions.
//!
//! Not here: how a tenure begins (`claim`, `mailbox`), or performing anything (`bullpen-engine`).

mod due;
mod release;
#[cfg(test)]
mod tests;

pub use due::{DueAction, OwnerMayEnd, due, due_while_running, end_of_tenure, owner_may_end};
pub use release::{Release, ReleaseEffect, ReleaseInput, ReleaseSettings, runner_name};
