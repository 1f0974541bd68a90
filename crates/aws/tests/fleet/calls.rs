//! The exact number of calls for each action of a fleet. `docs/benchmarks.md` has the table.
//!
//! Not here: durations.

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_aws::LaunchSite;
use bullpen_core::class::Usage;
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::InstanceId;
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::ports::{Fleet as _, Launched, Site as _, Tag};
use bullpen_core::site::SiteDocument;
use bullpen_faulty::{Fault, Plan, longest_chain};

use crate::world::{Fleet, HOUR, World, block_on, class, every, ids, request};

/// Counts a fleet's calls since the last assertion, by action.
struct CallCounter<'a> {
    world: &'a World,
    before: BTreeMap<String, u64>,
}

impl<'a> CallCounter<'a> {
    fn new(world: &'a World) -> Self {
        Self { world, before: counted(world) }
    }

    fn since(&mut self) -> Vec<(String, u64)> {
        let now = counted(self.world);
        let new = |(name, count): (&String, &u64)| {
            let new = count - self.before.get(name).copied().unwrap_or_default();
            (new > 0).then(|| (name.clone(), new))
        };
        let since = now.iter().filter_map(new).collect();
        self.before = now;
        since
    }

    #[track_caller]
    fn assert_calls(&mut self, wanted: &[(&str, u64)], what: &str) {
        let wanted: Vec<(String, u64)> =
            wanted.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!(self.since(), wanted, "{what}");
    }
}

fn counted(world: &World) -> BTreeMap<String, u64> {
    let counts = world.proxy.counts();
    counts.each().map(|(_, name, tally)| (name.to_owned(), tally.arrived)).collect()
}

/// How many calls so many machines take, in full batches.
fn batches(machines: u32) -> u64 {
    u64::from(machines).div_ceil(u64::try_from(IDS_PER_CALL_MAX).expect("a small number"))
}

/// The most values that EC2 accepts in filters, without the stack's own.
const DESCRIBED_PER_CALL: u64 = 199;

#[test]
fn an_action_takes_one_call_for_each_batch() {
    block_on(async {
        for machines in [1, 50, 500] {
            let world = World::new().await;
            let fleet = world.fleet();
            // A process looks its types up once.
            look_up_types(&fleet).await;
            let mut counter = CallCounter::new(&world);
            let what = format!("{machines} machines");
            let launched = fleet.launch(&request("n-1", machines)).await.expect("EC2 has capacity");
            counter.assert_calls(&[("CreateFleet", 1)], &what);
            let all = ids(&launched.machines);
            assert_eq!(all.len(), usize::try_from(machines).expect("a small number"));
            world.advance(HOUR);
            let each = batches(machines);
            drop(fleet.describe(&all).await.expect("an answer"));
            let pages = u64::from(machines).div_ceil(DESCRIBED_PER_CALL);
            counter.assert_calls(&[("DescribeInstances", pages)], &what);
            drop(fleet.list(None).await.expect("an answer"));
            counter.assert_calls(&[("DescribeInstances", 1)], &what);
            for some in all.chunks(IDS_PER_CALL_MAX) {
                fleet.tag(some, Tag::JobStarted).await.expect("the machines are ours");
            }
            counter.assert_calls(&[("CreateTags", each)], &what);
            for some in all.chunks(IDS_PER_CALL_MAX) {
                fleet.stop(&world.orders(some)).await.expect("the machines run");
            }
            counter.assert_calls(&[("StopInstances", each)], &what);
            world.advance(HOUR);
            for some in all.chunks(IDS_PER_CALL_MAX) {
                fleet.start(some).await.expect("the machines are stopped");
            }
            counter.assert_calls(&[("StartInstances", each)], &what);
            fleet.terminate(&all).await.expect("the machines are ours");
            counter.assert_calls(&[("TerminateInstances", each)], &what);
            assert_eq!(world.count_in_state(&all, "terminated").await, all.len());
        }
    });
}

/// Makes the fleet look up its types, by a launch that must avoid every offering.
async fn look_up_types(fleet: &Fleet) {
    let avoid = every(Usage::OnDemand);
    let nothing = LaunchRequest { avoid, ..request("n-0", 1) };
    assert_eq!(fleet.launch(&nothing).await, Ok(Launched::default()));
}

#[test]
fn five_hundred_unknown_machines_take_one_call_for_each_batch() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let mut counter = CallCounter::new(&world);
        let all: Vec<InstanceId> =
            (0..500).map(|number| InstanceId::new(format!("i-{number:017x}"))).collect();
        assert_eq!(fleet.describe(&all).await, Ok(Vec::new().into()));
        counter.assert_calls(&[("DescribeInstances", 3)], "describe");
        // EC2 names every unknown machine, and the fleet has no other machine to repeat the call
        // for.
        fleet.terminate(&all).await.expect("no error");
        counter.assert_calls(&[("TerminateInstances", 10)], "terminate");
        fleet.stop(&world.orders(&all)).await.expect("no error");
        counter.assert_calls(&[("StopInstances", 10)], "stop");
        assert_eq!(fleet.start(&all).await.expect("no error").len(), 500);
        counter.assert_calls(&[("StartInstances", 10)], "start");
        fleet.tag(&all, Tag::JobStarted).await.expect("no error");
        counter.assert_calls(&[("CreateTags", 10)], "tag");
    });
}

/// How many calls of a launch wait for one another, with every answer delayed.
async fn round_trips(world: &World, fleet: &Fleet, intent: &str) -> usize {
    let (late, before) = (Duration::from_millis(200), world.proxy.counts().log().len());
    world.proxy.set(Plan::calm().with(Fault::SlowAnswer, 1_000).slow_between(late, late));
    fleet.launch(&request(intent, 1)).await.expect("EC2 has capacity");
    world.proxy.set(Plan::calm());
    longest_chain(&world.proxy.counts().log()[before..])
}

#[test]
fn a_first_launch_takes_as_few_round_trips_as_possible() {
    block_on(async {
        let world = World::new().await;
        let mut counter = CallCounter::new(&world);
        // A process that has just started and has looked up no types.
        let fleet = world.fleet();
        assert_eq!(round_trips(&world, &fleet, "n-1").await, 1);
        counter
            .assert_calls(&[("CreateFleet", 1), ("DescribeInstanceTypes", 1)], "the first launch");
        assert_eq!(round_trips(&world, &fleet, "n-2").await, 1);
        counter.assert_calls(&[("CreateFleet", 1)], "the second launch");
        // Settings have changed since `refresh`, so the launch creates a template.
        let mut other = world.settings.clone();
        other.watchdog += HOUR;
        assert_eq!(round_trips(&world, &world.fleet_with(other), "n-3").await, 4);
        let wanted = [
            ("CreateFleet", 2),
            ("CreateLaunchTemplate", 1),
            ("DescribeImages", 1),
            ("DescribeInstanceTypes", 1),
        ];
        counter.assert_calls(&wanted, "a launch without its template");
    });
}

/// The service refreshes twice a minute; the fleet looks facts that hardly change up less often.
#[test]
fn a_process_looks_its_launch_site_and_templates_up_once_an_hour() {
    block_on(async {
        let world = World::bare().await;
        let (fleet, mut counter) = (world.fleet(), CallCounter::new(&world));
        let refresh = async |kept: Option<&SiteDocument>| {
            let site = fleet.learn("2026-01-05", kept).await.expect("a valid launch site");
            let changes = fleet.prepare(&[class()], true).await.expect("a template").len();
            (site.expect("a launch site").document, changes)
        };
        let (site, changes) = refresh(None).await;
        assert_eq!(changes, 1);
        assert!(counter.since().iter().any(|(name, _)| name == "CreateLaunchTemplate"));
        assert_eq!(refresh(Some(&site)).await, (site.clone(), 0));
        counter.assert_calls(&[], "looked up a moment ago");
        let mut facts = LaunchSite::read(&site).expect("EC2's own").facts;
        facts.role_id = "AROAOTHER".to_owned();
        let other = SiteDocument::new(&site.born, &facts);
        assert_eq!(refresh(Some(&other)).await, (site.clone(), 0), "the stored site is wrong");
        assert_eq!(counter.since().len(), 3, "the role, the subnets, the groups");
        world.advance(HOUR);
        assert_eq!(refresh(Some(&site)).await, (site, 0));
        counter.assert_calls(
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
