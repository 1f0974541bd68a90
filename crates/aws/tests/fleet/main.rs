//! Tests of `Ec2Fleet` on the test EC2 (`tests/ec2`): the contract suite of the `Fleet` port, and
//! the fleet's calls when EC2 lacks capacity, is slow, throttles, loses answers or refuses
//! settings.
//!
//! Every test has an empty server of its own, with a proxy before it ([`world`]).
//!
//! Not here: behaviour that only EC2 itself can show.

mod batches;
mod calls;
mod contract;
mod faults;
mod labelled;
mod launches;
mod lost;
mod refusals;
mod visibility;
mod world;
