//! EC2 as the test EC2 plays it (`tests/ec2`): the contract suite of the `Fleet` port, and what becomes
//! of a fleet's calls when EC2 is short, slow, throttles, forgets to answer, or is asked for what cannot
//! be.
//!
//! Every test has a server for itself, with nothing in it, and a proxy before it ([`stage`]).
//!
//! Not here: what only EC2 itself can show.

mod batches;
mod calls;
mod contract;
mod labelled;
mod launches;
mod lost;
mod refusals;
mod sight;
mod stage;
mod weather;
