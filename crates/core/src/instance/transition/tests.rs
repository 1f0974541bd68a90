//! Tests of the transitions: each rule, each refusal, random lives, and the table in the documents.
//!
//! Not here: the checks on a write (`invariants`).

mod properties;
mod refusals;
mod rules;
mod table;
