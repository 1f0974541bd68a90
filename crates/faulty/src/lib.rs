//! Faults on the wire between an AWS client and an emulator, for tests and benchmarks.
//!
//! [`Proxy`] stands before an emulator and puts faults on the wire as its [`Plan`] says; it logs
//! all calls, so that a test can count round trips. [`Ministack`], [`Ec2`] and [`DynamoDbLocal`]
//! run emulators.
//!
//! Not here: the AWS SDK (`bullpen-aws`), the test EC2 itself (`crates/aws/tests/ec2`), and models
//! of AWS for simulation (`bullpen-sim`). No shipped crate links this one.

mod answers;
mod call;
mod counts;
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

pub use counts::{Call, Counts, Tally, longest_chain};
pub use ec2::Ec2;
pub use emulator::{DynamoDbLocal, Ministack, find as tool};
pub use fault::Fault;
pub use plan::Plan;
pub use proxy::Proxy;
