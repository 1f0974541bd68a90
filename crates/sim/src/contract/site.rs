//! The contract of the `Site` port, for adapters that are a fleet and its site.
//!
//! Not here: what a site learns or prepares, which is its own.

use bullpen_core::class::RunnerClass;
use bullpen_core::ports::{LearnedSite, Site};

use super::{Harness, answered};

/// One test per case of the site's contract.
#[macro_export]
macro_rules! site_contract {
    ($harness:ty) => {
        $crate::contract_cases!(
            $harness,
            site,
            [
                learning_again_learns_the_same,
                another_process_recalls_what_was_learned,
                a_preview_changes_nothing_and_preparing_twice_neither,
                dismantling_twice_is_no_error,
            ]
        );
    };
}

const BORN: &str = "2026-01-05T00:00:00Z";

fn classes() -> Vec<RunnerClass> {
    RunnerClass::defaults().into_iter().take(1).collect()
}

/// What is learned contains the birth that it is given, and does not change by being asked again.
pub async fn learning_again_learns_the_same<H: Harness<Port: Site>>(harness: H) {
    let Some(first) = answered(harness.port().learn(BORN, None).await) else { return };
    assert_eq!(first.document.born, BORN);
    assert!(!first.what.is_empty(), "people are told what was learned");
    let again = harness.port().learn(BORN, Some(&first.document)).await;
    assert_eq!(answered(again).as_ref(), Some(&first));
    let another = harness.another_process().learn(BORN, None).await;
    assert_eq!(answered(another), Some(first));
}

/// A process that only recalls what another learned can prepare as that one can.
pub async fn another_process_recalls_what_was_learned<H: Harness<Port: Site>>(harness: H) {
    let Some(LearnedSite { document, .. }) = answered(harness.port().learn(BORN, None).await)
    else {
        return;
    };
    let other = harness.another_process();
    answered(other.recall(&document));
    let by_both = [
        answered(harness.port().prepare(&classes(), false).await),
        answered(other.prepare(&classes(), false).await),
    ];
    assert_eq!(by_both[0], by_both[1]);
}

/// A preview says what preparing then does; after that there is nothing left to do.
pub async fn a_preview_changes_nothing_and_preparing_twice_neither<H: Harness<Port: Site>>(
    harness: H,
) {
    answered(harness.port().learn(BORN, None).await);
    answered(harness.port().dismantle().await);
    let process = async || {
        let process = harness.another_process();
        answered(process.learn(BORN, None).await);
        process
    };
    let preview = answered(process().await.prepare(&classes(), false).await);
    assert_eq!(answered(process().await.prepare(&classes(), false).await), preview);
    assert_eq!(answered(process().await.prepare(&classes(), true).await), preview);
    assert!(answered(process().await.prepare(&classes(), true).await).is_empty());
}

/// Everything that was prepared can be removed, and then nothing is left to remove.
pub async fn dismantling_twice_is_no_error<H: Harness<Port: Site>>(harness: H) {
    answered(harness.port().learn(BORN, None).await);
    let prepared = answered(harness.port().prepare(&classes(), true).await);
    let removed = answered(harness.port().dismantle().await);
    assert!(removed.len() >= prepared.len(), "prepared {prepared:?}, removed {removed:?}");
    assert!(answered(harness.port().dismantle().await).is_empty());
}
