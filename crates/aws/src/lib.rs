//! AWS behind the ports: the ledger and the mailbox in DynamoDB, queues in SQS.
//!
//! The only room that names the AWS SDK. One feature per port, because the agent on an instance
//! links the mailbox and nothing else. Everything takes an [`SdkConfig`] from [`config`] and the
//! [`StackName`] that its tables and queues are named after; [`setup`] makes the tables.
//!
//! Not here: deciding anything (`bullpen-core` does), or trying again: the engine does that, and
//! counts it.

#[cfg(feature = "mailbox")]
mod batch;
pub mod config;
#[cfg(any(feature = "mailbox", feature = "queues"))]
mod fault;
#[cfg(feature = "ledger")]
mod ledger;
#[cfg(feature = "mailbox")]
mod mailbox;
mod names;
#[cfg(feature = "queues")]
mod queues;
#[cfg(feature = "ledger")]
pub mod setup;
#[cfg(feature = "mailbox")]
mod table;
#[cfg(feature = "mailbox")]
mod transaction;

pub use aws_config::SdkConfig;
#[cfg(feature = "ledger")]
pub use ledger::DynamoLedger;
#[cfg(feature = "mailbox")]
pub use mailbox::DynamoMailbox;
pub use names::{BadStackName, StackName};
#[cfg(feature = "queues")]
pub use queues::SqsQueues;
