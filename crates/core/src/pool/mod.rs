//! Standby pools: what to do next so that a pool keeps its promise, and whom a job gets.
//!
//! [`plan`] takes what was *observed* of one pool and what is *desired* of it, and answers with
//! ordered *actions* and *notes*: what it waits on, and why it goes no further now. It is asked again
//! and again; each plan is made of the whole, never of what changed. [`pick`] maps jobs to a pool's
//! idle machines.
//!
//! The words: a machine is *protected* if anybody but the pool has a say in it, and then it is never
//! touched. It is *ready* if it can be picked, *coming* if it will be (launching, warming up, being
//! stopped), *expiring* if it is ready and due to be replaced, *old* if it is ready and built
//! otherwise than would be built now. Ready and coming are *supply*; expiring and old ones stand in
//! for supply that is still coming.
//!
//! A [`Blueprint`] is a pool as configured, a [`Journal`] what is remembered of it between plans.
//!
//! Not here: observing and doing (the engine's `pools`), which target a
//! schedule gives (`schedule`), what counts as drift (`spec_hash`), or keeping ceilings when several
//! launch at once (the `Ledger` port's reservation).

mod action;
mod blueprint;
mod boot_history;
mod capacity;
mod desired;
pub mod journal;
mod lifetime;
mod line;
mod note;
mod observed;
mod pick;
mod plan;
mod role;
mod rollout;
mod supply;
#[cfg(test)]
mod tests;
mod waiting;

pub use action::{Action, Cause, MachineEnding, Plan, StopWhy};
pub use blueprint::{Blueprint, Blueprints, StackBase, Unbuildable};
pub use desired::{Allowance, DesiredPool, PoolMode};
pub use journal::{ActionTaken, Booted, Journal, OperatorOrder};
pub use lifetime::{hot_deadline, lifetime};
pub use line::{IdleMachine, LineResult, PoolLine};
pub use note::Note;
pub use observed::{BootFailure, ObservedPool, PoolMachine, WarmUp};
pub use pick::{PickedMachine, WaitingJob, pick};
pub use plan::plan;
