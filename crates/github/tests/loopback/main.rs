//! Tests of the client against the stand-in, over loopback, on a clock that the tests advance.
//!
//! Not here: calls to github.com.

mod client;
mod contract;
mod jobs;
mod levers;
mod protocol;
mod receiver;
mod tls;
mod webhooks;
mod world;
