//! Policies allow exactly the calls that are made: the test exercises all of a stack's work, and
//! counts every call of the command and the service on the wire. Agents are not on that wire.
//!
//! Not here: resources and conditions of a policy (`bullpen_aws::policy`), and the agents' calls
//! (`bullpen-aws`, with the production agent).

use std::collections::BTreeSet;
use std::fs;

use bullpen_aws::policy::{Party, Why, allowed};
use bullpen_faulty::{Plan, Proxy};
use bullpen_github::stand_in::protocol::Conclusion;

use crate::cloud::CLOUD;
use crate::emulator::EMULATOR;
use crate::pools::{QUICK, file};
use crate::world::World;

/// A call that needs no permission.
const FREE: &str = "GetCallerIdentity";
/// A worker hides a message that it cannot work on yet. Whether that happens here depends on
/// timing; the queue's contract suite always calls it.
const BY_CHANCE: &str = "ChangeMessageVisibility";

/// The wires to both emulators.
struct Wires {
    storage: Proxy,
    cloud: Proxy,
}

impl Wires {
    /// Routes the calls of the world's commands over these proxies.
    async fn under(world: &mut World) -> Self {
        let start = async |to| Proxy::start(to, Plan::calm()).await.expect("some port is free");
        let (storage, cloud) = (start(EMULATOR.address()).await, start(CLOUD.ec2.address()).await);
        for (name, proxy) in [
            ("AWS_ENDPOINT_URL", &storage),
            ("AWS_ENDPOINT_URL_EC2", &cloud),
            ("AWS_ENDPOINT_URL_IAM", &cloud),
            ("AWS_ENDPOINT_URL_STS", &cloud),
            ("AWS_ENDPOINT_URL_SERVICE_QUOTAS", &cloud),
        ] {
            world.environment.insert(name.to_owned(), proxy.url());
        }
        Self { storage, cloud }
    }

    /// The distinct calls that they counted.
    fn calls(&self) -> BTreeSet<String> {
        let (storage, cloud) = (self.storage.counts(), self.cloud.counts());
        let names = storage.each().chain(cloud.each()).map(|(_, name, _)| name.to_owned());
        names.filter(|name| name != FREE).collect()
    }
}

fn bare(action: &str) -> String {
    action.rsplit(':').next().unwrap_or_default().to_owned()
}

/// The calls that a party's policy is for: our own calls, or the calls that AWS checks on their
/// behalf.
fn meant_for(party: Party) -> BTreeSet<String> {
    let call = |(action, why): (&'static str, Why)| match why {
        Why::Called => action,
        Why::For(call) => call,
    };
    allowed(party).into_iter().map(call).map(bare).collect()
}

/// Every call that a party's policy allows.
fn let_through(party: Party) -> BTreeSet<String> {
    let actions = allowed(party).into_iter().map(|(action, _)| bare(action));
    actions.chain(meant_for(party)).collect()
}

#[tokio::test]
async fn the_control_plane_is_allowed_what_it_calls_and_nothing_more() {
    let mut world = World::unmade(&file(1, 1, 1), QUICK).await;
    let direct = world.environment.clone();
    let wires = Wires::under(&mut world).await;
    world.run("refresh").await.exits(0);
    world.run("doctor").await;
    // An existing queue with other attributes.
    let stack = world.path("bullpen.toml");
    let said = fs::read_to_string(&stack).expect("it is there");
    fs::write(&stack, said + "pool-queue-retention = \"2d\"\n").expect("it can be written");
    world.run("refresh").await.exits(0);
    let served = world.serve().await;
    world.reaches(1, 1).await;
    let held: Vec<u64> = (0..2).map(|_| world.job("runs-on/pool=ci", &world.gated("go"))).collect();
    for job in &held {
        world.started(*job).await;
    }
    world.open("go");
    for job in held {
        assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
        world.ended(job).await;
    }
    drop(served);
    world.run("destroy --yes").await.exits(0);
    world.environment = direct;
    let calls = wires.calls();
    let beyond: Vec<_> = calls.difference(&let_through(Party::ControlPlane)).cloned().collect();
    assert!(beyond.is_empty(), "called and not allowed: {beyond:?}");
    let meant = meant_for(Party::ControlPlane);
    let idle: Vec<_> = meant.difference(&calls).filter(|call| *call != BY_CHANCE).collect();
    assert!(idle.is_empty(), "allowed and never called: {idle:?}");
}

/// A step needs less than its policy allows: few steps create a missing template, or start a pool's
/// stopped machine.
#[tokio::test]
async fn a_workflow_step_calls_nothing_that_it_is_not_allowed() {
    let mut world = World::in_cloud(&file(0, 0, 1), &[]).await;
    let direct = world.environment.clone();
    let wires = Wires::under(&mut world).await;
    for line in [
        "provision --resource-class small --count 2 --name one",
        "release --name one",
        "provision --resource-class small --count 3 --name two",
        "release --name two",
        "refresh",
    ] {
        world.run(line).await.exits(0);
    }
    world.environment = direct;
    let calls = wires.calls();
    let beyond: Vec<_> = calls.difference(&let_through(Party::Workflow)).cloned().collect();
    assert!(beyond.is_empty(), "called and not allowed: {beyond:?}");
    assert!(calls.contains("CreateFleet") && calls.contains("GetItem"), "{calls:?}");
}
