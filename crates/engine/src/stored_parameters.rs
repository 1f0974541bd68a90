//! Reads and writes the values that a stack keeps between commands.
//!
//! Not here: the values themselves (`core::parameters`).

use bullpen_core::ids::Revision;
use bullpen_core::parameters::{COLLECTION, Kept, KeptTokens, decode, encode};
use bullpen_core::ports::{Document, Fault, Ledger, Ports};
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::document;
use crate::retry::retry_until;

/// Reads the kept value, if there is one.
pub async fn load<P: Ports, T: Kept>(
    stack: &Stack<P>,
    until: Timestamp,
) -> Result<Option<T>, Fault> {
    let ledger = stack.ports.ledger();
    let stored = retry_until(stack, until, || ledger.document(T::COLLECTION, T::NAME)).await?;
    stored.as_ref().map(read).transpose()
}

fn read<T: Kept>(stored: &Document) -> Result<T, Fault> {
    decode(&stored.body)
        .map_err(|error| Fault::Unreadable(format!("the stack's {}: {error}", T::NAME)))
}

/// Stores what `change` makes of the kept value; returns whether the value changed.
pub async fn update<P: Ports, T: Kept + Clone + PartialEq>(
    stack: &Stack<P>,
    until: Timestamp,
    change: impl Fn(Option<T>) -> T,
) -> Result<bool, Fault> {
    document::change(stack, (T::COLLECTION, T::NAME), until, |stored| {
        let before = stored.map(read::<T>).transpose()?;
        let next = change(before.clone());
        Ok((before.as_ref() != Some(&next)).then(|| Document {
            collection: T::COLLECTION.to_owned(),
            name: T::NAME.to_owned(),
            revision: Revision(0),
            body: encode(next),
            forget_at: None,
        }))
    })
    .await
}

/// Overwrites tokens in the collection of the stack's parameters, which every command reads: older
/// versions kept the tokens there.
pub(crate) async fn spend_older_tokens<P: Ports>(
    stack: &Stack<P>,
    until: Timestamp,
) -> Result<(), Fault> {
    document::change(stack, (COLLECTION, KeptTokens::NAME), until, |stored| {
        let spent = encode(KeptTokens::spent());
        let stored = stored.filter(|stored| stored.body != spent);
        Ok(stored.map(|stored| Document { body: spent, ..stored.clone() }))
    })
    .await
    .map(|_| ())
}
