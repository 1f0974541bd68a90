//! The client and the stand-in against each other, over loopback, on a clock that is turned by hand.
//!
//! Not here: anything that leaves this machine.

mod client;
mod contract;
mod jobs;
mod levers;
mod protocol;
mod receiver;
mod tls;
mod webhooks;
mod world;
