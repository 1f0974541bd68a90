//! The agent: what lives on a machine, warms it up, beats, and runs a listener for whoever owns the
//! machine at the moment.
//!
//! It sees nothing but its mailbox. [`life`] decides, as a state machine without I/O; [`agent`] does
//! it, over the mailbox and clock ports and a [`host`]; [`runner`] is the runner program, [`scripts`]
//! the warm-up's programs, both as processes.
//!
//! Not here: a mailbox, a clock, a watchdog, reading spot notices or signals, and the binary that
//! puts them together.

pub mod agent;
pub mod host;
pub mod life;
pub mod notes;
mod outbox;
pub mod runner;
pub mod scripts;
pub mod warm_up;

pub use agent::{Agent, Interrupter, Orientation};
pub use life::Ending;
