//! The simulator: models of every outside system, virtual time, one seed, and checkers.
//!
//! The production engine runs here unchanged, against [`model`]s that follow the real rules and can
//! misbehave in named ways. [`contract`] tests every adapter, the models included, against the
//! ports' contracts; without it a simulation would prove nothing.
//!
//! Not here: code that runs in production. No other crate depends on this crate, except tests and
//! the command that runs seeds.

pub mod calm_world;
pub mod checker;
pub mod clock;
pub mod contract;
pub mod dice;
pub mod explore;
pub mod githubs_day;
pub mod kernel;
pub mod life;
pub mod load;
pub mod machine;
pub mod model;
mod odd_cloud;
pub mod pool_world;
mod sample;
pub mod scenario;
pub mod service;
pub mod storm_plan;
pub mod storms;
pub mod wire;
pub mod world;
