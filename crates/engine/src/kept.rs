//! Reading and writing what a stack keeps between commands.
//!
//! Not here: what it is (`core::parameters`).

use bullpen_core::ids::Revision;
use bullpen_core::parameters::{COLLECTION, Kept, decode, encode};
use bullpen_core::ports::{Document, Fault, Ledger, Ports, Written};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::patience::{Waits, patiently};

/// What is kept, if anything is.
pub async fn load<P: Ports, T: Kept>(
    stack: &Stack<P>,
    until: Timestamp,
) -> Result<Option<T>, Fault> {
    Ok(find::<P, T>(stack, until).await?.map(|(kept, _)| kept))
}

async fn find<P: Ports, T: Kept>(
    stack: &Stack<P>,
    until: Timestamp,
) -> Result<Option<(T, Revision)>, Fault> {
    let ledger = stack.ports.ledger();
    let stored = patiently(stack, until, || ledger.document(COLLECTION, T::NAME)).await?;
    let Some(stored) = stored else { return Ok(None) };
    let kept = decode(&stored.body)
        .map_err(|error| Fault::Unreadable(format!("the stack's {}: {error}", T::NAME)))?;
    Ok(Some((kept, stored.revision)))
}

/// Keeps what `change` makes of what is kept; returns it, and whether anything was different.
pub async fn update<P: Ports, T: Kept + Clone + PartialEq>(
    stack: &Stack<P>,
    until: Timestamp,
    change: impl Fn(Option<T>) -> T,
) -> Result<(T, bool), Fault> {
    let mut waits = Waits::default();
    loop {
        let found = find::<P, T>(stack, until).await?;
        let (before, seen) = found.unzip();
        let next = change(before.clone());
        if before.as_ref() == Some(&next) {
            return Ok((next, false));
        }
        let document = Document {
            collection: COLLECTION.to_owned(),
            name: T::NAME.to_owned(),
            revision: Revision(0),
            body: encode(next.clone()),
            forget_at: None,
        };
        match stack.ports.ledger().write_document(seen, &document).await {
            Ok(Written::Won(_)) => return Ok((next, true)),
            // Somebody else keeps something too; theirs may be the same.
            Ok(Written::Lost | Written::Unknown) => {}
            Err(fault) if fault.is_transient() => {}
            Err(fault) => return Err(fault),
        }
        waits.again(stack, until).await?;
    }
}
