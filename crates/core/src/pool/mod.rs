//! Standby pools: what to do next so that a pool has the machines that it promises, and which
//! machine each job gets.
//!
//! [`plan`] compares what was *observed* of one pool with what is *desired*, and returns ordered
//! actions and notes. The planner makes each plan from the whole pool, never from what changed.
//! [`pick`] maps jobs to idle machines. A [`Blueprint`] is a pool as configured, a [`Journal`] its
//! memory between plans. `PoolRole` defines the words for its machines.
//!
//! Not here: observing and carrying out (the engine's `pools`), schedules (`schedule`), drift
//! (`spec_hash`), or keeping ceilings when several replicas launch at once (the `Ledger` port).

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

pub use action::{Action, Cause, MachineEnding, Plan, StopWhy, found_stopped};
pub use blueprint::{Blueprint, Blueprints, StackBase, Unbuildable};
pub use desired::{Allowance, DesiredPool, PoolMode};
pub use journal::{ActionTaken, Booted, Journal, OperatorOrder};
pub use lifetime::{hot_deadline, lifetime};
pub use line::{IdleMachine, LineResult, PoolLine};
pub use note::Note;
pub use observed::{BootFailure, ObservedPool, PoolMachine, WarmUp};
pub use pick::{PickedMachine, WaitingJob, pick};
pub use plan::plan;
