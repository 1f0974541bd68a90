//! A tenure: one instance's time with one owner, as pure decisions and state machines.
//!
//! A [`Won`] claim or launch begins it. [`Prepare`] makes a runner of the instance, or ends it, or gives
//! it back; [`left`] says what another process does if the worker may be dead. [`due`] says what a passed
//! deadline does to a tenure. [`owner_may_end`] and [`end_of_tenure`] take the instance back from its
//! owner. [`Release`] is the rest: the handshake that makes the instance idle again or ends it. The
//! engine reads, writes and calls; every decision is here, and the explorer of the protocol
//! (`bullpen_sim::explore`) steps the same functions.
//!
//! Not here: which instance to claim (`pickup`, `pool`), or performing anything (`bullpen-engine`).

mod due;
mod left;
mod prepare;
mod release;
#[cfg(test)]
mod tests;
mod won;

pub use due::{DueAction, OwnerMayEnd, due, due_while_running, end_of_tenure, owner_may_end};
pub use left::{LeftAction, ListeningRunner, left, left_after_removal, left_listening};
pub use prepare::{
    Prepare, PrepareEffect, PrepareInput, is_marked, is_same_tenure, register_by, registered,
};
pub use release::{Release, ReleaseEffect, ReleaseInput, ReleaseSettings, runner_name};
pub use won::{SettledClaim, Won, settle};
