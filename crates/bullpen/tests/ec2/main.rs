//! The product on EC2, end to end: the command and the service as processes, DynamoDB and SQS on
//! one emulator and EC2 on another, whose instances boot the script of their user data in a root of
//! their own and run the production agent. Every wait is for a condition.
//!
//! Not here: the same cases with machines that are processes (`reuse`, `service`, `pools`), and the
//! adapter alone (`bullpen-aws`).
#![cfg(feature = "aws")]

mod cloud;
#[path = "../tools/ministack.rs"]
mod emulator;
mod policies;
mod pools;
#[expect(dead_code, reason = "programs share it, and each needs its part")]
#[path = "../tools/process.rs"]
mod process;
mod service;
#[path = "../tools/shared.rs"]
mod shared;
mod steps;
#[path = "../tools/waiting.rs"]
mod waiting;
#[path = "../tools/wire.rs"]
mod wire;
#[expect(dead_code, reason = "programs share it, and each needs its part")]
#[path = "../tools/world.rs"]
mod world;
