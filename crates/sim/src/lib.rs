//! The simulator: model worlds of everything outside, virtual time, one seed, and checkers.
//!
//! The production engine runs here unchanged, against [`model`]s that follow the real rules and can
//! misbehave in named ways. [`contract`] holds every adapter, the models included, to what the ports
//! promise; without that a simulation would prove nothing.
//!
//! Not here: anything that production runs. No other room depends on this one, but for tests and
//! the command that runs seeds.

pub mod checker;
pub mod clock;
pub mod contract;
pub mod dice;
pub mod explore;
pub mod kernel;
pub mod life;
pub mod load;
pub mod machine;
pub mod model;
pub mod pool_world;
mod sample;
pub mod scenario;
pub mod service;
pub mod stage;
pub mod wire;
pub mod world;
