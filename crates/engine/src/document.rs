//! Changing a document: read it, decide, write over the revision that was read, until one write
//! wins.
//!
//! After a write without an answer the loop reads again: if the write landed, the decision on the
//! reloaded document is that nothing is left to do.
//!
//! Not here: what documents hold, or writing before the first read (`provision::entry`).

use bullpen_core::ports::{Document, Fault, Ledger, Ports, Written};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::retry::{Backoff, retry_until};

/// Stores the document that `change` returns, if it returns one, and returns whether it stored it.
/// The ledger sets the revision and ignores the one in the returned document.
pub(crate) async fn change<P: Ports>(
    stack: &Stack<P>,
    (collection, name): (&str, &str),
    until: Timestamp,
    mut change: impl FnMut(Option<&Document>) -> Result<Option<Document>, Fault>,
) -> Result<bool, Fault> {
    let ledger = stack.ports.ledger();
    let mut backoff = Backoff::default();
    loop {
        let stored = retry_until(stack, until, || ledger.document(collection, name)).await?;
        let Some(next) = change(stored.as_ref())? else { return Ok(false) };
        let seen = stored.map(|stored| stored.revision);
        match ledger.write_document(seen, &next).await {
            Ok(Written::Won(_)) => return Ok(true),
            // Another process wrote meanwhile, or our own write landed: read again.
            Ok(Written::Lost | Written::Unknown) => {}
            Err(fault) if fault.is_transient() => {}
            Err(fault) => return Err(fault),
        }
        backoff.wait_until(stack, until).await?;
    }
}
