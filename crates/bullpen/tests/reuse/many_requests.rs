//! Many requests at once: no machine twice, no more than a ceiling allows.
//!
//! Not here: one request alone (`warm`).

use std::collections::BTreeSet;

use crate::world::{Provisioned, World};

/// D5, D13: no request creates a machine that it could have reused, with many requests at once.
#[tokio::test]
async fn twelve_requests_share_twenty_four_warm_machines_and_create_the_rest() {
    let world = World::new().await;
    let warm = world.provision(24, "warm").await;
    world.release("warm").await;
    let calls = (0..12).map(|number| format!("provision --count 4 --name many{number} --json"));
    let calls: Vec<_> = calls.map(|line| world.bullpen(&line).start()).collect();
    let (mut reused, mut created, mut ids) = (0, 0, BTreeSet::new());
    for call in calls {
        let provisioned = Provisioned(call.ends().await.json());
        let counts = provisioned.counts();
        (reused, created) = (reused + counts.0, created + counts.1);
        for id in provisioned.ids() {
            assert!(ids.insert(id.clone()), "{id} was handed out twice");
        }
    }
    assert_eq!((reused, created, ids.len()), (24, 24, 48));
    assert!(ids.is_superset(&warm.ids()));
    world.verify().await;
}

/// D26, D30: all requests together keep a ceiling, and a request that finds no place says so and
/// leaves no machine.
#[tokio::test]
async fn under_a_ceiling_of_twenty_five_of_ten_requests_for_four_succeed() {
    let world = World::new().await;
    let call = |number: u32| {
        let line = format!("provision --count 4 --name many{number} --deadline 8s --json");
        world.bullpen(&line).with("BULLPEN_CEILINGS_STACK", "20").start()
    };
    let calls: Vec<_> = (0..10).map(call).collect();
    let mut ids = BTreeSet::new();
    let mut refused = 0;
    for call in calls {
        let ran = call.ends().await;
        if ran.code == Some(0) {
            ids.extend(Provisioned(ran.json()).ids());
        } else {
            ran.exits(75).says("missing 4 of 4").says("holds 20 of at most 20");
            refused += 1;
        }
    }
    assert_eq!((ids.len(), refused), (20, 5));
    let states = world.states().await;
    let owned: BTreeSet<String> = states.keys().cloned().collect();
    assert_eq!(owned, ids, "nothing is there but what was handed out: {states:?}");
    let verified = world.bullpen("ledger verify").with("BULLPEN_CEILINGS_STACK", "20");
    verified.run().await.exits(0);
}

/// D27: the same request, made twice at once, is one request.
#[tokio::test]
async fn the_same_request_twice_at_once_never_doubles() {
    let world = World::new().await;
    for round in 0..4 {
        let line = format!("provision --count 3 --request 9.1.round{round} --json");
        let both = [(); 2].map(|()| world.bullpen(&line).start());
        let mut fulfilled = BTreeSet::new();
        for call in both {
            let ran = call.ends().await;
            if ran.code == Some(0) {
                fulfilled.insert(Provisioned(ran.json()).ids());
            } else {
                ran.exits(1).says("another process works on this request");
            }
        }
        assert_eq!(fulfilled.len(), 1, "one and the same answer, of one of them or of both");
        let status = world.status().await;
        let all = status["instances"].as_array().expect("a list").iter();
        let owner = format!("9.1.round{round}");
        assert_eq!(all.filter(|one| one["owner"] == owner.as_str()).count(), 3, "{status}");
        world.bullpen(&format!("release --request {owner}")).run().await.exits(0);
    }
    assert_eq!(world.states().await.len(), 3, "nothing was created beside");
    world.verify().await;
}

/// D26: a fleet without capacity for all gives what it has, and the failed request gives it back.
#[tokio::test]
async fn a_fleet_without_room_for_all_is_told_as_that() {
    let world = World::new().await;
    let warm = world.provision(1, "warm").await;
    world.release("warm").await;
    let call = world.bullpen("provision --count 4 --name more");
    let failed = call.with("BULLPEN_PROCESS_FLEET_CAPACITY", "3").run().await;
    failed.exits(75).says("missing 1 of 4 runners: no capacity");
    let idle = world.settles().await;
    assert!(idle.is_superset(&warm.ids()), "what was warm before is not lost");
    world.reuses(&idle).await;
}
