//! How an agent on EC2 opens its mailbox in DynamoDB.
//!
//! Not here: the mailbox itself (`mailbox`), or its key (`MailboxPlace::key`).

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bullpen_agent::machine::{LiveError, MailboxConnector, MailboxPlace};
use bullpen_core::ports::Clock;

use crate::config::{self, ConfigError};
use crate::{DynamoMailbox, StackName};

/// The wait between two attempts to get credentials: those of an instance's role may come late.
const RETRY: Duration = Duration::from_secs(1);

/// Opens mailboxes in DynamoDB.
#[derive(Clone, Copy, Debug)]
pub struct InDynamoDb;

impl<C: Clock + Clone> MailboxConnector<C> for InDynamoDb {
    type Mailbox = DynamoMailbox<C>;

    async fn open(&self, place: &MailboxPlace, clock: &C) -> Result<DynamoMailbox<C>, LiveError> {
        let MailboxPlace::DynamoDb { dynamodb, region, .. } = place else {
            return Err(LiveError::NoWay { place: "a file" });
        };
        let name = StackName::new(dynamodb).map_err(|error| LiveError::Unusable(error.into()))?;
        loop {
            match config::load(region.as_deref()).await {
                Ok(config) => {
                    return Ok(DynamoMailbox::new(&config, &name, Arc::new(clock.clone())));
                }
                Err(error @ ConfigError::NoCredentials(_)) => {
                    tracing::warn!(%error, "could not open the mailbox; retrying");
                }
                Err(error) => return Err(LiveError::Unusable(error.into())),
            }
            clock.sleep(RETRY).await;
        }
    }

    /// A table that is deleted may be made again under the same name.
    fn lost(&self, _mailbox: &Self::Mailbox) -> impl Future<Output = LiveError> + Send + 'static {
        pending()
    }
}
