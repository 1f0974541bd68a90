//! An operator's orders for a pool. The pool's journal keeps an order until the operator replaces
//! it.
//!
//! Not here: what follows from an order (`core::pool`).

use bullpen_core::ids::{PoolName, Revision};
use bullpen_core::parameters::{decode, encode};
use bullpen_core::pool::journal::{COLLECTION, Journal, OperatorOrder};
use bullpen_core::ports::{Document, Fault, Ports};

use crate::Stack;
use crate::document;

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// It holds from now on.
    Now,
    /// It held already.
    Already,
}

/// Stores an operator's order for a pool; `None` takes the last order back. The replica that keeps
/// the pool sees it in its next cycle.
pub async fn order<P: Ports>(
    stack: &Stack<P>,
    pool: &PoolName,
    order: Option<OperatorOrder>,
) -> Result<Ordered, Fault> {
    let until = stack.now().after(stack.limits.release_retry);
    let changed = document::change(stack, (COLLECTION, pool.as_str()), until, |stored| {
        let unreadable = |error| Fault::Unreadable(format!("the journal of pool {pool}: {error}"));
        let before: Option<Journal> =
            stored.map(|stored| decode(&stored.body)).transpose().map_err(unreadable)?;
        let before = before.unwrap_or_default();
        if before.order == order {
            return Ok(None);
        }
        Ok(Some(Document {
            collection: COLLECTION.to_owned(),
            name: pool.to_string(),
            revision: Revision(0),
            body: encode(Journal { order, ..before }),
            forget_at: None,
        }))
    });
    Ok(if changed.await? { Ordered::Now } else { Ordered::Already })
}
