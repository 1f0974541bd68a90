//! Tests of the proxy over real sockets.
//!
//! Not here: tests without sockets (beside the code).

mod counting;
mod emulators;
mod faults;
mod support;
