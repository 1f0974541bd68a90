//! The built command in its roles on a host: the stand-in GitHub, its runner program, the agent of
//! a machine, the fleet that starts machines. Processes, sockets, files and time are real; every
//! wait is for a condition.
//!
//! Not here: the stores, and the control plane.

mod agent;
mod fleet;
#[path = "../tools/fleet.rs"]
mod fleets;
mod github;
mod machine;
mod program;
mod runner;
mod stand_in;
#[path = "../tools/act.rs"]
mod tool;
#[path = "../tools/waiting.rs"]
mod waiting;
mod warm_up;
