//! Cases about a machine that is unlike the others of its call: the cloud denies it, or its tags are
//! gone. Also lists of several pages.
//!
//! Not here: machines as they should be ([`super`]).

use std::collections::BTreeSet;

use bullpen_core::ids::{InstanceId, StopOp};
use bullpen_core::ports::{Fault, Fleet, MachineState, StartOutcome, StopOrder, Tag};

use super::super::answered;
use super::{FleetHarness, PATIENCE, ids, launch, listed, listed_pages, tags_of, until};

/// Pages follow one another; together they show every machine once.
pub async fn a_list_of_several_pages_shows_every_machine_once<H: FleetHarness>(harness: H) {
    if !harness.page_by(2) {
        return;
    }
    let machines = launch(&harness, "intent-1", 5).await;
    harness.settle().await;
    let pages = listed_pages(&harness).await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
    assert_eq!(ids(&pages.concat()), ids(&machines));
}

/// Five running machines; the cloud denies calls about one of them, the third.
async fn one_of_five_denied<H: FleetHarness>(harness: &H) -> Option<(InstanceId, Vec<InstanceId>)> {
    let mut all: Vec<_> =
        launch(harness, "intent-1", 5).await.into_iter().map(|it| it.id).collect();
    for id in &all {
        until(harness, id, MachineState::Running).await;
    }
    let denied = all[2].clone();
    if !harness.deny(&denied).await {
        return None;
    }
    all.sort();
    Some((denied, all))
}

fn named<T: std::fmt::Debug>(answer: Result<T, Fault>, id: &InstanceId) {
    match answer {
        Err(Fault::Denied(why)) => assert!(why.contains(id.as_str()), "{why}"),
        other => panic!("the call was denied for {id}, and answered {other:?}"),
    }
}

/// The others end; the fault names the denied machine, which runs on.
pub async fn a_denied_machine_keeps_no_other_from_ending<H: FleetHarness>(harness: H) {
    let Some((denied, all)) = one_of_five_denied(&harness).await else { return };
    for _ in 0..2 {
        named(harness.port().terminate(&all).await, &denied);
        for id in all.iter().filter(|id| **id != denied) {
            until(&harness, id, MachineState::Gone).await;
        }
    }
    until(&harness, &denied, MachineState::Running).await;
}

/// The others stop and start again.
pub async fn a_denied_machine_keeps_no_other_from_starting_and_stopping<H: FleetHarness>(
    harness: H,
) {
    let Some((denied, all)) = one_of_five_denied(&harness).await else { return };
    let (op, end) = (StopOp::new("op"), harness.now().after(PATIENCE));
    let orders: Vec<_> =
        all.iter().map(|id| StopOrder { id: id.clone(), op: op.clone(), until: end }).collect();
    named(harness.port().stop(&orders).await, &denied);
    let others = all.iter().filter(|id| **id != denied);
    for id in others.clone() {
        until(&harness, id, MachineState::Stopped).await;
    }
    let started = answered(harness.port().start(&all).await);
    assert_eq!(started.len(), all.len());
    for (id, answer) in &started {
        let is_denied = matches!(answer, StartOutcome::Failed(Fault::Denied(_)));
        assert_eq!(is_denied, *id == denied, "{id}: {answer:?}");
    }
    for id in others {
        until(&harness, id, MachineState::Running).await;
    }
}

/// The others are tagged.
pub async fn a_denied_machine_keeps_no_other_from_being_tagged<H: FleetHarness>(harness: H) {
    let Some((denied, all)) = one_of_five_denied(&harness).await else { return };
    named(harness.port().tag(&all, Tag::JobStarted).await, &denied);
    for id in &all {
        assert_eq!(tags_of(&harness, id).await.job_started, *id != denied, "{id}");
    }
}

/// Lists miss a machine without its tags; asked about it by its id, the fleet names it.
pub async fn a_machine_without_its_tags_is_not_gone<H: FleetHarness>(harness: H) {
    let machines = launch(&harness, "intent-1", 2).await;
    let (kept, untagged) = (&machines[0].id, &machines[1].id);
    harness.settle().await;
    if !harness.untag(untagged).await {
        return;
    }
    assert_eq!(ids(&listed(&harness).await), BTreeSet::from([kept.clone()]));
    let described = answered(harness.port().describe(&[kept.clone(), untagged.clone()]).await);
    assert_eq!(ids(&described.items), BTreeSet::from([kept.clone()]));
    let unreadable: Vec<_> = described.unreadable.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(unreadable, [untagged.as_str()]);
}
