//! The same cases with the ledger, the queues and the mailboxes on an emulator of DynamoDB and SQS,
//! and agents that find their mailboxes there; all of AWS but EC2.
//!
//! Not here: the adapters alone (`bullpen-aws` has its contract suites).
#![expect(clippy::print_stdout, reason = "the counts are reported in docs/benchmarks.md")]

use std::collections::BTreeSet;

use bullpen_faulty::{Fault, Plan, Proxy};
use futures_util::future::join_all;
use rustix::process::Signal;

use crate::call::Call;
use crate::emulator::EMULATOR;
use crate::world::{HASTY, World};

/// Whether every world of this test program uses AWS's storage.
#[expect(clippy::disallowed_methods, reason = "the environment says how tests run")]
pub(crate) fn is_wanted() -> bool {
    std::env::var("BULLPEN_TEST_ENGINE").is_ok_and(|engine| engine == "aws")
}

/// A world on AWS's storage, with its tables made.
async fn world(limits: &[(&str, &str)]) -> World {
    World::on_aws(limits).await
}

#[tokio::test]
async fn three_are_created_then_reused_then_made_up_to_five() {
    let world = world(&[]).await;
    let first = world.provision(3, "one").await;
    assert_eq!(first.counts(), (0, 3));
    world.runs_job(first.label(), "true").await;
    world.release("one").await;
    let second = world.provision(3, "two").await;
    assert_eq!((second.counts(), second.ids()), ((3, 0), first.ids()));
    world.release("two").await;
    let third = world.provision(5, "three").await;
    assert_eq!(third.counts(), (3, 2));
    world.runs_job(third.label(), "true").await;
    world.verify().await;
}

/// Four requests of three at once, six idle machines: six are reused, six created, none is twice.
#[tokio::test]
async fn requests_at_once_share_what_is_idle() {
    let world = world(&[]).await;
    let warm = world.provision(6, "warm").await;
    world.release("warm").await;
    let names: Vec<String> = (0..4).map(|number| format!("crowd-{number}")).collect();
    let all = join_all(names.iter().map(|name| world.provision(3, name))).await;
    let (reused, created) = all.iter().fold((0, 0), |(reused, created), one| {
        let counts = one.counts();
        (reused + counts.0, created + counts.1)
    });
    assert_eq!((reused, created), (6, 6));
    let ids: BTreeSet<String> = all.iter().flat_map(crate::world::Provisioned::ids).collect();
    assert_eq!(ids.len(), 12, "nothing has two owners");
    assert!(ids.is_superset(&warm.ids()));
    world.verify().await;
}

/// A provision that was killed is resumed by the next, with exactly the runners it wants.
#[tokio::test]
async fn a_killed_provision_is_resumed() {
    let world = world(HASTY).await;
    let mut killed = world.bullpen("provision --count 3 --name one --json").start();
    killed.tells("launching").await;
    killed.signal(Signal::KILL);
    killed.ends().await;
    let resumed = world.provision(3, "one").await;
    assert_eq!(resumed.ids().len(), 3);
    world.release("one").await;
    world.verify().await;
}

/// Answers that are lost after the write landed, throttles, resets, conflicts: the request is still
/// fulfilled, with no machine twice.
#[tokio::test]
async fn a_bad_wire_costs_time_and_nothing_else() {
    let world = world(&[]).await;
    let warm = world.provision(4, "warm").await;
    world.release("warm").await;
    let plan = [Fault::Throttled, Fault::InternalError, Fault::ResetBefore, Fault::AnswerLost]
        .into_iter()
        .chain([Fault::Conflict])
        .fold(Plan::seeded(7), |plan, fault| plan.with(fault, 30));
    let proxy = Proxy::start(EMULATOR.address(), plan).await.expect("some port is free");
    let through = |call: Call| call.with("AWS_ENDPOINT_URL", &proxy.url());
    for round in 0..2 {
        let line = format!("provision --count 4 --name bad-{round} --json");
        let told = through(world.bullpen(&line)).run().await.json();
        let provisioned = crate::world::Provisioned(told);
        assert_eq!(provisioned.ids().len(), 4, "round {round}");
        through(world.bullpen(&format!("release --name bad-{round}"))).run().await.exits(0);
        world.refresh().await;
    }
    let faults: u64 = Fault::ALL.iter().map(|fault| proxy.counts().total().of(*fault)).sum();
    assert!(faults > 5, "only {faults} faults: the wire was not bad");
    proxy.stop().await;
    world.verify().await;
    assert!(warm.ids().len() == 4);
}

/// The calls of a warm request, without its agents' calls, which bypass the proxy.
#[tokio::test]
async fn calls_of_a_warm_request() {
    let world = world(&[]).await;
    world.provision(50, "warm").await;
    world.release("warm").await;
    for count in [1_u64, 10, 50] {
        let proxy = Proxy::start(EMULATOR.address(), Plan::calm()).await.expect("a free port");
        let line = format!("provision --count {count} --name warm-{count} --json");
        let call = world.bullpen(&line).with("AWS_ENDPOINT_URL", &proxy.url());
        let told = crate::world::Provisioned(call.run().await.json());
        assert_eq!(told.counts(), (count, 0));
        let counts = proxy.counts();
        let mut calls: Vec<(String, u64)> = Vec::new();
        for (_, operation, tally) in counts.each() {
            calls.push((operation.to_owned(), tally.arrived));
        }
        println!("{count} warm runners: {} calls {calls:?}", counts.total().arrived);
        proxy.stop().await;
        world.release(&format!("warm-{count}")).await;
        if count == 50 {
            assert!(counts.total().arrived <= 2 * count, "{calls:?}");
        }
    }
}

/// Missing credentials, no region, no tables: one line that says what to do, and no table is
/// created.
#[tokio::test]
async fn missing_settings_are_named_in_one_line() {
    let world = World::on_files(&[]).await;
    let engine = |call: Call| {
        call.with("INPUT_ENGINE", "aws")
            .with("INPUT_FLEET", "process")
            .with("AWS_ENDPOINT_URL", &EMULATOR.url())
            .with("AWS_EC2_METADATA_DISABLED", "true")
    };
    let call = engine(world.bullpen("provision --name one"));
    call.run().await.exits(1).says("set AWS_REGION");
    let call = engine(world.bullpen("provision --name one")).with("AWS_REGION", "eu-west-1");
    call.run().await.exits(1).says("no AWS credentials were found");
    let call = engine(world.bullpen("provision --name one"))
        .with("AWS_REGION", "eu-west-1")
        .with("AWS_ACCESS_KEY_ID", "999999999999")
        .with("AWS_SECRET_ACCESS_KEY", "not a secret");
    call.run().await.exits(1).says("run `bullpen refresh`");
}
