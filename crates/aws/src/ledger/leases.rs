//! Leases by name, compared by revision.
//!
//! Not here: when a lease has expired; that is for whoever watches it to say.

use bullpen_core::ids::{LeaseName, Revision};
use bullpen_core::lease::Lease;
use bullpen_core::ports::{Fault, Written};

use super::keys;
use super::write::{item_of, landed, put};
use crate::table::{ITEM_VERSION, Table, json, n};

pub(super) async fn load(table: &Table, name: &LeaseName) -> Result<Option<Lease>, Fault> {
    let stored = table.get(&keys::lease(name), true).await?;
    stored.as_ref().map(|stored| stored.document("lease_doc")).transpose()
}

/// Stores `next` as it is if the stored lease is still the one that was seen, or still absent.
pub(super) async fn write(
    table: &Table,
    seen: Option<Revision>,
    next: &Lease,
) -> Result<Written<Lease>, Fault> {
    let item = item_of(
        &keys::lease(&next.name),
        [
            ("v", Some(n(ITEM_VERSION))),
            ("rev", Some(n(next.revision))),
            ("lease_doc", Some(json(next))),
        ],
    );
    Ok(landed(&put(table, item, seen).await?, next.clone()))
}
