//! Reuse-first provisioning, end to end: the built command, its supervisors, agents and runners as
//! processes, and a stand-in GitHub. Every wait is for something that happens.
//!
//! Not here: the same engine under faults that processes cannot be made to have (`bullpen-sim`).

mod call;
mod cancelled;
mod crowd;
mod fitness;
mod killed;
mod order;
mod outage;
mod settled;
mod stage;
mod tokens;
mod trust;
mod warm;
mod watchdog;
