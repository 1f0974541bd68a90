//! The agent: what lives on a machine, warms it up, beats, and runs a listener for whoever owns the
//! machine at the moment.
//!
//! It sees nothing but its mailbox. [`agent_life`] decides, as a state machine without I/O; [`agent`] does
//! it, over the mailbox and clock ports and a [`host`]; [`runner`] is the runner program, [`scripts`]
//! the warm-up's programs, both as processes; [`machine`] puts them together in a directory.
//!
//! Not here: a mailbox, reading spot notices, and the binary that chooses both.

pub mod agent;
pub mod agent_life;
pub mod host;
pub mod log;
pub mod machine;
pub mod notes;
mod outbox;
pub mod runner;
pub mod scripts;
pub mod system;
pub mod warm_up;

pub use agent::{Agent, AgentTask, Interrupter};
pub use agent_life::SelfEndReason;
