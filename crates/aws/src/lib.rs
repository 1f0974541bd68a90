//! The AWS adapters: the ledger and the mailbox in DynamoDB, queues in SQS, machines in EC2.
//!
//! The only crate that uses the AWS SDK. Each port has its own feature, because the agent on an
//! instance links only the mailbox. Every adapter takes an [`SdkConfig`] from [`config`] and the
//! [`StackName`] from which its table and queue names are derived; [`setup`] creates the tables.
//!
//! Not here: decisions (`bullpen-core`), or retries (the engine makes and counts them).

#[cfg(feature = "mailbox")]
mod batch;
#[cfg(feature = "ec2")]
pub mod boot;
pub mod config;
pub mod dated;
#[cfg(feature = "ec2")]
pub mod doctor;
#[cfg(feature = "ec2")]
pub mod ec2;
#[cfg(any(feature = "mailbox", feature = "queues", feature = "ec2"))]
mod fault;
#[cfg(feature = "agent")]
pub mod instance;
#[cfg(feature = "ledger")]
mod ledger;
#[cfg(feature = "mailbox")]
mod mailbox;
mod names;
#[cfg(feature = "ec2")]
pub mod policy;
#[cfg(feature = "queues")]
mod queues;
#[cfg(feature = "ledger")]
pub mod setup;
#[cfg(feature = "mailbox")]
mod table;
#[cfg(feature = "mailbox")]
mod transaction;

pub use aws_config::SdkConfig;
#[cfg(feature = "ec2")]
pub use ec2::Ec2Fleet;
#[cfg(feature = "ec2")]
pub use ec2::settings::{Ec2Settings, SHOWN_WITHIN};
#[cfg(feature = "ec2")]
pub use ec2::site::LaunchSite;
#[cfg(feature = "ledger")]
pub use ledger::DynamoLedger;
#[cfg(feature = "mailbox")]
pub use mailbox::DynamoMailbox;
pub use names::{BadStackName, StackName};
#[cfg(feature = "queues")]
pub use queues::SqsQueues;
