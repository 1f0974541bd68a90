//! The engine: use cases over the ports. A use case observes, asks the core, and executes.
//!
//! A *use case* is an `async fn` over a [`Stack`]. It stores everything it must not lose in the
//! ledger before it acts, so each of these functions may stop at any await, and another process can
//! continue.
//!
//! Not here: deciding (`bullpen-core`), any adapter, the wall clock, entropy, the environment.

pub mod advertise;
mod at_once;
mod batch;
pub mod branch;
mod capacity;
pub mod defects;
pub mod destroy;
mod document;
mod ending;
pub mod jobs;
pub mod mail;
mod order_batcher;
pub mod pace;
pub mod pools;
pub mod progress;
pub mod provision;
pub mod readiness;
pub mod reap;
pub mod reconcile;
pub mod refresh;
pub mod release;
pub mod replicas;
pub mod reports;
pub mod retry;
mod silence;
pub mod stack;
pub mod stored_parameters;
pub mod strangers;
pub mod transition;
pub mod unreadable;

pub use stack::Stack;
