//! Tests of the agent under virtual time, with the model of the mailbox and a scripted runner. The
//! D-numbers are from the proof of concept's list of defects.
//!
//! Not here: real processes (`processes`).

mod crashes;
mod deadlines;
mod orders;
mod stage;
mod strangers;
mod warming_up;
