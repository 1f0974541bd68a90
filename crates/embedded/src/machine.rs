//! Connects an agent to mailboxes in a file on this host.
//!
//! Not here: the agent's machine (`bullpen_agent::machine`).

use std::sync::Arc;
use std::time::Duration;

use bullpen_agent::machine::{LiveError, MailboxConnector, MailboxPlace};
use bullpen_core::ports::Clock;

use crate::SqliteMailbox;

/// The wait before the next attempt to open a mailbox.
const RETRY: Duration = Duration::from_secs(1);

/// Opens mailboxes in a file.
#[derive(Clone, Copy, Debug)]
pub struct InFile;

impl<C: Clock + Clone> MailboxConnector<C> for InFile {
    type Mailbox = SqliteMailbox<C>;

    async fn open(&self, place: &MailboxPlace, clock: &C) -> Result<SqliteMailbox<C>, LiveError> {
        let MailboxPlace::File(path) = place else {
            return Err(LiveError::NoWay { place: "DynamoDB" });
        };
        loop {
            match SqliteMailbox::open(path, Arc::new(clock.clone())) {
                Ok(mailbox) => return Ok(mailbox),
                Err(error) => tracing::warn!(%error, "could not open the mailbox; retrying"),
            }
            clock.sleep(RETRY).await;
        }
    }

    fn lost(&self, mailbox: &Self::Mailbox) -> impl Future<Output = LiveError> + Send + 'static {
        let watch = mailbox.watch();
        async move { LiveError::Unusable(Box::new(watch.lost().await)) }
    }
}
