//! Readiness: whether this process can store a fact now. It writes a document of its own, because a
//! store that answers reads may have no room, and no other process may read what it holds.
//!
//! Not here: who asks, and how long that caller waits (the `bullpen` command).

use std::time::Duration;

use bullpen_core::ids::Revision;
use bullpen_core::ports::{Clock, Document, Fault, Ids, Ledger, Ports, Written};
use tokio::sync::Mutex;

use crate::Stack;

/// The documents that processes write for this alone, each under the name of its process.
const COLLECTION: &str = "readiness";
/// A document's body: only its version. That it was written is enough.
const BODY: &str = r#"{"v":1}"#;
/// How long a good answer holds, however many callers ask.
const FRESH: Duration = Duration::from_secs(1);
/// After so long without a write the store may forget a process's document.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);
/// How often a write is tried on the revision that a read has just returned. No other process writes
/// this document, so a second race is an answer that came late.
const TRIES_MAX: u32 = 3;

/// What one process remembers between two answers.
#[derive(Debug, Default)]
pub struct Readiness {
    last: Mutex<LastWrite>,
}

#[derive(Debug, Default)]
struct LastWrite {
    revision: Option<Revision>,
    /// By the process's monotonic clock.
    landed_at: Option<Duration>,
}

impl Readiness {
    /// Whether a write lands now. Callers that ask at once share an answer.
    pub async fn check<P: Ports>(&self, stack: &Stack<P>) -> Result<(), Fault> {
        let mut last = self.last.lock().await;
        let now = stack.ports.clock().monotonic();
        if last.landed_at.is_some_and(|at| now.saturating_sub(at) < FRESH) {
            return Ok(());
        }
        last.landed_at = None;
        last.revision = Some(write(stack, last.revision).await?);
        last.landed_at = Some(now);
        Ok(())
    }
}

/// Writes this process's document over the revision that it remembers.
async fn write<P: Ports>(stack: &Stack<P>, known: Option<Revision>) -> Result<Revision, Fault> {
    let (ledger, mut known) = (stack.ports.ledger(), known);
    let document = Document {
        collection: COLLECTION.to_owned(),
        name: stack.ports.ids().holder().to_string(),
        revision: Revision(0),
        body: BODY.to_owned(),
        forget_at: Some(stack.now().after(FORGOTTEN_AFTER)),
    };
    for _ in 0..TRIES_MAX {
        if let Written::Won(stored) = ledger.write_document(known, &document).await? {
            return Ok(stored.revision);
        }
        let stored = ledger.document(COLLECTION, &document.name).await?;
        known = stored.map(|stored| stored.revision);
    }
    Err(Fault::unavailable("it does not keep what is written"))
}
