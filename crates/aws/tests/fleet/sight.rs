//! What EC2 does not show yet, and what it does not show at all.
//!
//! Not here: launches that are not visible (`lost`).

use std::time::Duration;

use aws_sdk_ec2::types::{ResourceType, Tag as Ec2Tag, TagSpecification};
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Fleet as _, MachineState, StartOutcome, Tag};
use bullpen_faulty::ec2::Delays;

use crate::stage::{IMAGE, World, ids, real, request, set};

#[test]
fn what_is_not_visible_yet_is_no_error_and_is_seen_later() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let seen = fleet.launch(&request("n-1", 1)).await.expect("there is room").machines;
        let minute = Duration::from_secs(60);
        world.admin().set_delays(Delays { visible: minute, ..Delays::default() });
        let unseen = fleet.launch(&request("n-2", 2)).await.expect("there is room").machines;
        let (seen, unseen) = (ids(&seen), ids(&unseen));
        let all = [&seen[..], &unseen].concat();
        let described = fleet.describe(&all).await.expect("no error");
        assert_eq!(ids(&described), seen, "the others are left out");
        assert_eq!(fleet.describe(&unseen).await, Ok(Vec::new()));
        assert_eq!(ids(&fleet.list().await.expect("no error")), seen);
        fleet.tag(&all, Tag::JobStarted).await.expect("no error");
        fleet.terminate(&unseen).await.expect("no error");
        fleet.stop(&world.orders(&unseen)).await.expect("no error");
        let started = fleet.start(&all).await.expect("no error");
        for (id, answer) in &started {
            assert_eq!(seen.contains(id), *answer == StartOutcome::Starting, "{id}: {answer:?}");
        }
        world.pass(minute);
        let described = fleet.describe(&all).await.expect("an answer");
        assert_eq!(set(&ids(&described)), set(&all));
        assert!(described.iter().all(|machine| machine.state != MachineState::Gone));
        let tagged = described.iter().find(|machine| machine.id == seen[0]).expect("it is there");
        assert!(tagged.tags.job_started, "what could be tagged was");
        fleet.terminate(&unseen).await.expect("no error");
        assert_eq!(world.are(&unseen, "terminated").await, 2);
    });
}

#[test]
fn machines_of_others_are_not_seen() {
    real(async {
        let world = World::new().await;
        let mut other = world.settings.clone();
        other.stack = bullpen_aws::StackName::new("another").expect("it is plain");
        let theirs =
            world.fleet_with(other).launch(&request("n-1", 1)).await.expect("there is room");
        let theirs = ids(&theirs.machines).remove(0);
        let tag = Ec2Tag::builder().key("bullpen:stack").value("contract").build();
        let tags = TagSpecification::builder().resource_type(ResourceType::Instance).tags(tag);
        let strange = world.client.run_instances().image_id(IMAGE).min_count(1).max_count(1);
        let strange = strange.instance_type("m5.large".into());
        // Tagged by somebody's hand: it says whose it is, and nothing of how it was launched.
        let strange = strange.tag_specifications(tags.build()).send().await.expect("there is room");
        let strange =
            strange.instances()[0].instance_id().map(InstanceId::new).expect("it has an id");
        let fleet = world.fleet();
        let ours = ids(&fleet.launch(&request("n-1", 1)).await.expect("there is room").machines);
        assert_ne!(ours[0], theirs, "an intent is a stack's own");
        assert_eq!(ids(&fleet.list().await.expect("an answer")), ours);
        let all = [ours[0].clone(), theirs, strange];
        assert_eq!(ids(&fleet.describe(&all).await.expect("an answer")), ours);
    });
}
