//! The pure core of Bullpen: types, states, decisions, messages, and the ports to the outside.
//!
//! The functions here compute values from their arguments. There is no I/O, no clock, no randomness
//! and no `async` body: time, ids and stored data are arguments. [`ports`] declares what the outside
//! must provide; the adapters are in other crates.
//!
//! Not here: doing anything (`bullpen-engine`), storing anything (`bullpen-embedded`), or reading
//! the environment (`bullpen`).

pub mod claim;
pub mod class;
pub mod clock_witness;
pub mod config;
pub mod creation;
pub mod denied;
pub mod download;
pub mod explain;
pub mod forge_rates;
pub mod ids;
pub mod instance;
pub mod invariants;
pub mod isolation;
pub mod job;
pub mod labels;
pub mod lease;
pub mod limits;
pub mod mailbox;
pub mod message;
pub mod parameters;
pub mod pickup;
pub mod pool;
pub mod ports;
pub mod presence;
pub mod printable;
pub mod rates;
pub mod replicas;
pub mod request;
pub mod route;
pub mod sabotage;
#[cfg(test)]
mod samples;
pub mod schedule;
pub mod scope;
pub mod severity;
pub mod site;
pub mod spec_hash;
pub mod spelling;
pub mod tenure;
pub mod time;
