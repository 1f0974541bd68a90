//! Leases: one holder, and a fencing token that only rises.
//!
//! Not here: when a holder renews its lease.

use bullpen_core::ids::{HolderId, LeaseName};
use bullpen_core::lease::Lease;
use bullpen_core::ports::Ledger;
use futures_util::future::join_all;

use super::fixtures::winners;
use crate::contract::{Harness, answered, landed, lost, won};

fn name() -> LeaseName {
    LeaseName::new("pool/linux")
}

fn holder(number: usize) -> HolderId {
    HolderId::new(format!("holder-{number}"))
}

/// Of many processes that take a free or an expired lease at once, one gets it.
pub async fn a_lease_has_one_holder<H: Harness<Port: Ledger>>(harness: H) {
    const TAKERS: usize = 16;
    let takers: Vec<_> = (0..TAKERS).map(|_| harness.another_process()).collect();
    assert_eq!(answered(harness.port().lease(&name()).await), None);
    let mut seen: Option<Lease> = None;
    for round in 0..20 {
        let nexts: Vec<Lease> = (0..TAKERS)
            .map(|taker| match &seen {
                Some(lease) => lease.taken_by(holder(taker)),
                None => Lease::first(name(), holder(taker)),
            })
            .collect();
        let writes =
            takers.iter().zip(&nexts).map(|(ledger, next)| ledger.write_lease(seen.as_ref(), next));
        let winners = winners(join_all(writes).await);
        assert_eq!(winners.len(), 1, "round {round}");
        let (winner, lease) = &winners[0];
        assert_eq!(*lease, nexts[*winner]);
        assert_eq!(answered(harness.port().lease(&name()).await).as_ref(), Some(lease));
        seen = Some(lease.clone());
    }
}

/// Every new holder has a higher token; a renewal keeps the token.
pub async fn a_fencing_token_rises_with_every_holder<H: Harness<Port: Ledger>>(harness: H) {
    let ledger = harness.port();
    let first = won(ledger.write_lease(None, &Lease::first(name(), holder(1))).await);
    let renewed = won(ledger.write_lease(Some(&first), &first.renewed()).await);
    assert_eq!((renewed.token, &renewed.holder), (first.token, &first.holder));
    assert!(renewed.revision > first.revision, "a renewal raises the revision");
    let taken = won(ledger.write_lease(Some(&renewed), &renewed.taken_by(holder(2))).await);
    assert!(taken.token > renewed.token);
    let back = won(ledger.write_lease(Some(&taken), &taken.taken_by(holder(1))).await);
    assert!(back.token > taken.token, "also when an earlier holder returns");
}

/// A holder that lost its lease can neither renew it nor take it as a first lease.
pub async fn a_stale_renewal_loses<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, other) = (harness.port(), harness.another_process());
    let first = won(ledger.write_lease(None, &Lease::first(name(), holder(1))).await);
    let taken = won(other.write_lease(Some(&first), &first.taken_by(holder(2))).await);
    lost(ledger.write_lease(Some(&first), &first.renewed()).await);
    lost(ledger.write_lease(None, &Lease::first(name(), holder(1))).await);
    let unknown = Lease::first(LeaseName::new("pool/other"), holder(1));
    lost(ledger.write_lease(Some(&unknown), &unknown.renewed()).await);
    assert_eq!(answered(ledger.lease(&name()).await), Some(taken));
    assert_eq!(answered(ledger.lease(&unknown.name).await), None);
}

/// After a write's answer was lost, the stored lease names the holder that won.
pub async fn a_lease_whose_answer_was_lost_is_settled_by_reading<H: Harness<Port: Ledger>>(
    harness: H,
) {
    let ledger = harness.port();
    let mine = Lease::first(name(), holder(1));
    let answer_lost = harness.lose_next_answer();
    landed(ledger.write_lease(None, &mine).await, answer_lost);
    assert_eq!(answered(ledger.lease(&name()).await), Some(mine));
}
