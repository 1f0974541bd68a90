//! A stack at AWS from nothing to nothing: `refresh`, `doctor`, `destroy`, with DynamoDB and SQS on
//! one emulator and EC2, IAM and STS on the test EC2. None of its machines has an agent.
//!
//! Not here: machines that run jobs (`reuse`, `service`, `pools`).

mod account;
mod destroyed;
mod doctor;
#[expect(dead_code, reason = "programs share it, and each needs its part")]
#[path = "../tools/process.rs"]
mod process;
mod refreshed;
#[path = "../tools/waiting.rs"]
mod waiting;
