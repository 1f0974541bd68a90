//! Changing a document: read, decide, write over what was read, until it is settled.
//!
//! A write without an answer is settled by reading: if it landed, the decision on what is stored then
//! is that nothing is left to do.
//!
//! Not here: what documents hold, or writing one blindly first (`provision::entry`).

use bullpen_core::ports::{Document, Fault, Ledger, Ports, Written};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::retry::{Backoff, retry_until};

/// Stores what `change` makes of the document of this name, if it makes anything of it; returns
/// whether something was stored. The document's revision is the ledger's, whatever `change` says.
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
            // Somebody wrote meanwhile, perhaps we did: look again.
            Ok(Written::Lost | Written::Unknown) => {}
            Err(fault) if fault.is_transient() => {}
            Err(fault) => return Err(fault),
        }
        backoff.wait_until(stack, until).await?;
    }
}
