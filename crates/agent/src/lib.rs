//! The agent: the process on a machine that runs the warm-up, sends heartbeats, and starts a listener
//! for the machine's current owner.
//!
//! It talks to the control plane through its mailbox only. [`agent_life`] decides, as a state machine
//! without I/O; [`agent`] carries the decisions out over the mailbox and clock ports and a [`host`];
//! [`runner`] and [`scripts`] run the runner program and the warm-up scripts as processes; [`machine`]
//! puts all of it together in a machine's directory.
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
#[cfg(test)]
mod test_program;
pub mod warm_up;

pub use agent::{Agent, AgentTask, Interrupter};
pub use agent_life::SelfEndReason;
