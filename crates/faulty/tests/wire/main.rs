//! The proxy as its users meet it, over real sockets.
//!
//! Not here: what can be said without a socket (beside the code).

mod counting;
mod emulators;
mod faults;
mod support;
