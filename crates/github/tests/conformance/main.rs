//! Whether we speak as GitHub does, by GitHub's own schemas, examples and signatures.
//!
//! Everything that is asked is an npm package at a locked version, and a tool of the gate: it is
//! found by `BULLPEN_CONFORMANCE`, which the gate sets, or in the cache. Nothing leaves this machine.
//!
//! Not here: what the client and the stand-in do (`tests/loopback`).

mod examples;
mod openapi;
mod prism;
mod signatures;
mod tools;
mod webhooks;
