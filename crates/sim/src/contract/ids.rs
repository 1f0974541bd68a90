//! The contract of the `Ids` port.
//!
//! Not here: the form of an id.

use std::collections::BTreeSet;

use bullpen_core::ports::Ids;

use super::Harness;

/// One test per case of the ids' contract.
#[macro_export]
macro_rules! ids_contract {
    ($harness:ty) => {
        $crate::contract_cases!(
            $harness,
            ids,
            [no_id_is_given_twice, a_process_is_one_holder, jitter_stays_below_its_bound]
        );
    };
}

/// No two processes ever get the same claim id, stop operation or label bits.
#[expect(clippy::unused_async, reason = "the suite's macro awaits every case")]
pub async fn no_id_is_given_twice<H: Harness<Port: Ids>>(harness: H) {
    const EACH: usize = 1_000;
    let other = harness.another_process();
    let (mut claims, mut stops) = (BTreeSet::new(), BTreeSet::new());
    let mut labels = BTreeSet::new();
    for ids in [harness.port(), &other] {
        claims.extend((0..EACH).map(|_| ids.claim()));
        stops.extend((0..EACH).map(|_| ids.stop_op()));
        labels.extend((0..EACH).map(|_| ids.label_bits()));
    }
    let each = [claims.len(), stops.len(), labels.len()];
    assert_eq!(each, [2 * EACH; 3]);
}

/// A process always has the same holder id, and no other process has it.
#[expect(clippy::unused_async, reason = "the suite's macro awaits every case")]
pub async fn a_process_is_one_holder<H: Harness<Port: Ids>>(harness: H) {
    let other = harness.another_process();
    assert_eq!(harness.port().holder(), harness.port().holder());
    assert_ne!(harness.port().holder(), other.holder());
}

/// Jitter stays below its bound, and varies.
#[expect(clippy::unused_async, reason = "the suite's macro awaits every case")]
pub async fn jitter_stays_below_its_bound<H: Harness<Port: Ids>>(harness: H) {
    let ids = harness.port();
    let drawn: BTreeSet<u64> = (0..1_000).map(|_| ids.jitter(10)).collect();
    assert!(drawn.iter().all(|jitter| *jitter < 10), "{drawn:?}");
    assert!(drawn.len() > 1, "the jitter is constant");
    assert_eq!(ids.jitter(1), 0);
}
