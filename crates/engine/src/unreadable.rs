//! The stored items that this process could not read: counted, and logged once each.
//!
//! An unreadable item stops nothing around it. Most callers go on with the rest of a listing
//! ([`Stack::readable`]); a decision that must miss nothing takes [`Listing::complete`].
//!
//! Not here: agents' reports, which an agent may write as it likes ([`crate::reports`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bullpen_core::ids::{InstanceId, MailboxKey};
use bullpen_core::instance::Record;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::mailbox::ReportRead;
use bullpen_core::ports::{Fault, ItemKind, Ledger, Listing, Mailbox, Page, Ports, Unreadable};

use crate::Stack;
use crate::jobs::rows::SeenRow;
use crate::pools;
use crate::reconcile;

/// Pages of rows that [`find`] reads at most, so that it ends however much the store holds.
const PAGES_MAX: usize = 1_000;
/// How many items the process remembers that it logged; beyond that it may log one twice.
const LOGGED_MAX: usize = 1_024;

/// The items that one process could not read.
#[derive(Debug, Default)]
pub struct UnreadableItems {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    reads: BTreeMap<ItemKind, u64>,
    logged: BTreeSet<(ItemKind, String, Option<String>)>,
}

impl UnreadableItems {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many reads found an unreadable item, by its kind.
    pub fn reads(&self) -> BTreeMap<ItemKind, u64> {
        self.seen().reads.clone()
    }

    /// Counts one item, and logs it if this process has not done so.
    pub fn note(&self, item: &Unreadable) {
        let Unreadable { kind, key, version, why } = item;
        let mut seen = self.seen();
        *seen.reads.entry(*kind).or_default() += 1;
        if seen.logged.len() >= LOGGED_MAX {
            seen.logged.clear();
        }
        if seen.logged.insert((*kind, key.clone(), version.clone())) {
            tracing::warn!(%kind, key, version, why, "left unreadable item as it is");
        }
    }
}

impl<P: Ports> Stack<P> {
    /// The items of a listing that this program can read; notes the others.
    pub fn readable<T>(&self, listing: Listing<T>) -> Vec<T> {
        for item in &listing.unreadable {
            self.unreadable_items.note(item);
        }
        listing.items
    }

    /// The same for one page, with the token of the next page.
    pub fn readable_page<T>(&self, page: Page<T>) -> (Vec<T>, Option<String>) {
        let (listing, next) = page.split();
        (self.readable(listing), next)
    }
}

/// Looks for the items that this program cannot read: live records and their reports, open intents,
/// the pools' journals, rows that are still looked at, and machines.
pub async fn find<P: Ports>(stack: &Stack<P>) -> Result<Vec<Unreadable>, Fault> {
    let ledger = stack.ports.ledger();
    let records = reconcile::live(stack).await?;
    let mut found = records.unreadable;
    let keys: Vec<MailboxKey> =
        records.items.iter().map(|record| record.facts.mailbox.clone()).collect();
    for (key, read) in keys.iter().zip(stack.ports.mailbox().reports(&keys).await?) {
        if let ReportRead::Unreadable(why) = read {
            found.push(Unreadable::of(ItemKind::Report, key, "", why));
        }
    }
    let mut after: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let page = ledger.intents(after.as_deref()).await?;
        found.extend(page.unreadable);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    found.extend(pools::unreadable_journals(stack).await?);
    // Every row that is still looked at has a next look before this.
    let ever = stack.now().after(stack.limits.tombstone_ttl);
    for _ in 0..PAGES_MAX {
        let page = ledger.rows_due(ever, after.as_deref()).await?;
        found.extend(page.unreadable);
        found.extend(page.items.iter().filter_map(|row| SeenRow::of(row).err()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    found.extend(machines(stack, &records.items).await?);
    Ok(found)
}

/// The machines that cannot be read: those that the list names, and those of these records that it
/// misses, because their tags are gone.
async fn machines<P: Ports>(
    stack: &Stack<P>,
    records: &[Record],
) -> Result<Vec<Unreadable>, Fault> {
    let Listing { items, unreadable: mut found } = stack.fleet().list().await?;
    let listed: BTreeSet<&str> = items.iter().map(|machine| machine.id.as_str()).collect();
    let named: BTreeSet<String> = found.iter().map(|item| item.key.clone()).collect();
    let missed = records.iter().map(|record| record.id.clone());
    let missed: Vec<InstanceId> =
        missed.filter(|id| !listed.contains(id.as_str()) && !named.contains(id.as_str())).collect();
    for batch in missed.chunks(IDS_PER_CALL_MAX) {
        found.extend(stack.fleet().describe(batch).await?.unreadable);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_logged_once_for_each_version_and_counted_each_time() {
        let items = UnreadableItems::default();
        let one = Unreadable::of(ItemKind::Row, 7, r#"{"v":"9"}"#, "too new");
        let newer = Unreadable { version: Some("10".to_owned()), ..one.clone() };
        for item in [&one, &one, &newer] {
            items.note(item);
        }
        assert_eq!(items.reads(), BTreeMap::from([(ItemKind::Row, 3)]));
        assert_eq!(items.seen().logged.len(), 2);
    }
}
