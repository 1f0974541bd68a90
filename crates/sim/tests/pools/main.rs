//! Standby pools kept by the production engine, against models on virtual time.
//!
//! Not here: what a plan says (`core::pool`), or seeds' worlds (`bullpen_sim::kernel`).

mod converging;
mod yard;
