//! Leases by name, compared by revision.
//!
//! Not here: when a lease expires (`bullpen_core::lease`).

use bullpen_core::ids::{LeaseName, Revision};
use bullpen_core::lease::Lease;
use bullpen_core::ports::{Fault, ItemKind, Written};

use super::keys;
use super::write::{item_of, landed, put};
use crate::table::{Item, Stored, Table, json, n};

pub(super) async fn load(table: &Table, name: &LeaseName) -> Result<Option<Lease>, Fault> {
    let stored = table.get(ItemKind::Lease, &keys::lease(name), true).await?;
    stored.as_ref().map(decode).transpose()
}

/// Stores `next` unchanged if the stored lease still has revision `seen`, or is still absent.
pub(super) async fn write(
    table: &Table,
    seen: Option<Revision>,
    next: &Lease,
) -> Result<Written<Lease>, Fault> {
    Ok(landed(&put(table, item(next), seen).await?, next.clone()))
}

fn item(lease: &Lease) -> Item {
    item_of(
        &keys::lease(&lease.name),
        [
            ("v", Some(n(ItemKind::Lease.version()))),
            ("rev", Some(n(lease.revision))),
            ("lease_doc", Some(json(lease))),
        ],
    )
}

fn decode(stored: &Stored) -> Result<Lease, Fault> {
    stored.document("lease_doc")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::fixture::{is_written_as, stored};

    #[test]
    fn a_lease_matches_its_fixture() {
        let file = include_str!("../../fixtures/v1/lease.json");
        let lease = Lease::first("pool/linux".into(), "holder-1".into()).renewed();
        is_written_as(&item(&lease), file);
        assert_eq!(decode(&stored(ItemKind::Lease, file)).unwrap(), lease);
    }
}
