//! Faults on the wire between an AWS client and an emulator, for tests and benchmarks.
//!
//! Emulators answer at once, always and truly. AWS throttles, fails, is slow, and loses answers to
//! writes that took place. [`Proxy`] stands between the two and does that, as its [`Plan`] says; it
//! also counts the calls and keeps their order, so that a test can say how many round trips
//! something costs. [`Ministack`], [`Ec2`] and [`DynamoDbLocal`] run the emulators themselves.
//!
//! The proxy has a host and port of its own, and a client signs its requests for those; the
//! target sees a signature for another host. Emulators do not check signatures. AWS does, so the
//! proxy cannot stand before it.
//!
//! Not here: the AWS SDK (`bullpen-aws`), what the test EC2 does (a package beside `bullpen-aws`'s
//! tests), and models of AWS for simulation (`bullpen-sim`). Nothing that ships links this room.

mod answers;
mod book;
mod call;
mod dice;
pub mod ec2;
mod emulator;
mod fault;
mod form;
mod levers;
mod plan;
mod proxy;
mod real;
mod wire;

pub use book::{Call, Counts, Tally, longest_chain};
pub use ec2::Ec2;
pub use emulator::{DynamoDbLocal, Ministack, find as tool};
pub use fault::Fault;
pub use plan::Plan;
pub use proxy::Proxy;
