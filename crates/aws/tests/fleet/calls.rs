//! How many calls a fleet's deeds take, exactly. `docs/benchmarks.md` has the table.
//!
//! Not here: how long they take.

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::InstanceId;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::parameters::LaunchSite;
use bullpen_core::ports::{Fleet as _, Launched, Tag};
use bullpen_faulty::{Fault, Plan, longest_chain};

use crate::stage::{Fleet, HOUR, World, class, every, ids, real, request};

/// Calls since the last look, by action.
struct Looks<'a> {
    world: &'a World,
    before: BTreeMap<String, u64>,
}

impl<'a> Looks<'a> {
    fn new(world: &'a World) -> Self {
        Self { world, before: made(world) }
    }

    fn since(&mut self) -> Vec<(String, u64)> {
        let now = made(self.world);
        let new = |(name, count): (&String, &u64)| {
            let new = count - self.before.get(name).copied().unwrap_or_default();
            (new > 0).then(|| (name.clone(), new))
        };
        let since = now.iter().filter_map(new).collect();
        self.before = now;
        since
    }

    #[track_caller]
    fn were(&mut self, wanted: &[(&str, u64)], what: &str) {
        let wanted: Vec<(String, u64)> =
            wanted.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!(self.since(), wanted, "{what}");
    }
}

fn made(world: &World) -> BTreeMap<String, u64> {
    let counts = world.proxy.counts();
    counts.each().map(|(_, name, tally)| (name.to_owned(), tally.arrived)).collect()
}

/// As many as fit into so many calls.
fn batches(machines: u32) -> u64 {
    u64::from(machines).div_ceil(u64::try_from(IDS_PER_CALL_MAX).expect("a small number"))
}

/// As many values as EC2 takes in a filter, but for the stack's own.
const DESCRIBED_PER_CALL: u64 = 199;

#[test]
fn a_deed_for_many_takes_a_call_for_each_batch() {
    real(async {
        for machines in [1, 50, 500] {
            let world = World::new().await;
            let fleet = world.fleet();
            // What types are is asked once in a process's life.
            hear_of_types(&fleet).await;
            let mut looks = Looks::new(&world);
            let what = format!("{machines} machines");
            let launched = fleet.launch(&request("n-1", machines)).await.expect("there is room");
            looks.were(&[("CreateFleet", 1)], &what);
            let all = ids(&launched.machines);
            assert_eq!(all.len(), usize::try_from(machines).expect("a small number"));
            world.pass(HOUR);
            let each = batches(machines);
            fleet.describe(&all).await.expect("an answer");
            let pages = u64::from(machines).div_ceil(DESCRIBED_PER_CALL);
            looks.were(&[("DescribeInstances", pages)], &what);
            fleet.list().await.expect("an answer");
            looks.were(&[("DescribeInstances", 1)], &what);
            for some in all.chunks(IDS_PER_CALL_MAX) {
                fleet.tag(some, Tag::JobStarted).await.expect("they are ours");
            }
            looks.were(&[("CreateTags", each)], &what);
            for some in all.chunks(IDS_PER_CALL_MAX) {
                fleet.stop(&world.orders(some)).await.expect("they run");
            }
            looks.were(&[("StopInstances", each)], &what);
            world.pass(HOUR);
            for some in all.chunks(IDS_PER_CALL_MAX) {
                fleet.start(some).await.expect("they are stopped");
            }
            looks.were(&[("StartInstances", each)], &what);
            fleet.terminate(&all).await.expect("they are ours");
            looks.were(&[("TerminateInstances", each)], &what);
            assert_eq!(world.are(&all, "terminated").await, all.len());
        }
    });
}

/// A launch of nothing: all that would do is short.
async fn hear_of_types(fleet: &Fleet) {
    let avoid = every(Usage::OnDemand);
    let nothing = LaunchRequest { avoid, ..request("n-0", 1) };
    assert_eq!(fleet.launch(&nothing).await, Ok(Launched::default()));
}

#[test]
fn five_hundred_that_nobody_knows_take_a_call_for_each_batch() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let mut looks = Looks::new(&world);
        let all: Vec<InstanceId> =
            (0..500).map(|number| InstanceId::new(format!("i-{number:017x}"))).collect();
        assert_eq!(fleet.describe(&all).await, Ok(Vec::new()));
        looks.were(&[("DescribeInstances", 3)], "describe");
        // EC2 names all that it does not know, and then nothing is left to ask for.
        fleet.terminate(&all).await.expect("no error");
        looks.were(&[("TerminateInstances", 10)], "terminate");
        fleet.stop(&world.orders(&all)).await.expect("no error");
        looks.were(&[("StopInstances", 10)], "stop");
        assert_eq!(fleet.start(&all).await.expect("no error").len(), 500);
        looks.were(&[("StartInstances", 10)], "start");
        fleet.tag(&all, Tag::JobStarted).await.expect("no error");
        looks.were(&[("CreateTags", 10)], "tag");
    });
}

/// How many calls of a launch wait for one another, where every answer takes its time.
async fn round_trips(world: &World, fleet: &Fleet, intent: &str) -> usize {
    let (late, before) = (Duration::from_millis(200), world.proxy.counts().log().len());
    world.proxy.set(Plan::calm().with(Fault::SlowAnswer, 1_000).slow_between(late, late));
    fleet.launch(&request(intent, 1)).await.expect("there is room");
    world.proxy.set(Plan::calm());
    longest_chain(&world.proxy.counts().log()[before..])
}

#[test]
fn a_cold_start_waits_for_as_few_answers_as_can_be() {
    real(async {
        let world = World::new().await;
        let mut looks = Looks::new(&world);
        // A process that has just begun: it does not know what machine types are.
        let fleet = world.fleet();
        assert_eq!(round_trips(&world, &fleet, "n-1").await, 1);
        looks.were(&[("CreateFleet", 1), ("DescribeInstanceTypes", 1)], "the first launch");
        assert_eq!(round_trips(&world, &fleet, "n-2").await, 1);
        looks.were(&[("CreateFleet", 1)], "the second launch");
        // Settings that changed since `refresh`: the template has to be made.
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        assert_eq!(round_trips(&world, &world.fleet_with(other), "n-3").await, 4);
        let wanted = [
            ("CreateFleet", 2),
            ("CreateLaunchTemplate", 1),
            ("DescribeImages", 1),
            ("DescribeInstanceTypes", 1),
        ];
        looks.were(&wanted, "a launch without its template");
    });
}

/// A service refreshes twice a minute; what hardly ever changes is asked for now and then.
#[test]
fn one_process_asks_for_its_ground_and_its_templates_now_and_then() {
    real(async {
        let world = World::bare().await;
        let (fleet, mut looks) = (world.fleet(), Looks::new(&world));
        let refresh = async |kept: Option<&LaunchSite>| {
            let ground = fleet.learn("2026-01-05", kept).await.expect("it is there");
            let made = fleet.prepare(&[class()], true).await.expect("it can be made").len();
            (ground.expect("there is one"), made)
        };
        let (ground, made) = refresh(None).await;
        assert_eq!(made, 1);
        assert!(looks.since().iter().any(|(name, _)| name == "CreateLaunchTemplate"));
        assert_eq!(refresh(Some(&ground)).await, (ground.clone(), 0));
        looks.were(&[], "asked a moment ago");
        let other = LaunchSite { role_id: "AROAOTHER".to_owned(), ..ground.clone() };
        assert_eq!(refresh(Some(&other)).await, (ground.clone(), 0), "what is kept is not so");
        assert_eq!(looks.since().len(), 3, "the role, the subnets, the groups");
        world.pass(HOUR);
        assert_eq!(refresh(Some(&ground)).await, (ground, 0));
        looks.were(
            &[
                ("DescribeLaunchTemplateVersions", 1),
                ("DescribeLaunchTemplates", 1),
                ("DescribeSecurityGroups", 1),
                ("DescribeSubnets", 1),
                ("GetInstanceProfile", 1),
            ],
            "an hour later",
        );
    });
}
