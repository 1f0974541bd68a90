//! Tests of the client and the stand-in against GitHub's own schemas, examples and signatures.
//!
//! They use npm packages at locked versions, which are tools of the gate. `BULLPEN_CONFORMANCE`,
//! which the gate sets, names their directory; without it the tests look in the cache. Nothing
//! leaves this machine.
//!
//! Not here: tests of behaviour (`tests/loopback`).

mod examples;
mod openapi;
mod prism;
mod signatures;
mod tools;
mod webhooks;
