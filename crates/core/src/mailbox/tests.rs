//! Tests of the mailbox: its ranks and fences, exposure, freshness, the agent's reactions, and the
//! protocol of all of them together.
//!
//! Not here: the stored text, whose tests hold it against checked-in files.

mod exploration;
mod exposure;
mod hostile;
mod orders;
mod reactions;
mod scenarios;
