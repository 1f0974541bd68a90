//! The agent's life under virtual time, against the mailbox's model and a runner that does what a
//! test says. The D-numbers are from the proof of concept's list of defects.
//!
//! Not here: real processes (`processes`).

mod crashes;
mod deadlines;
mod orders;
mod stage;
mod strangers;
mod warming_up;
