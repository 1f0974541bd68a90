//! Machines that EC2 does not show yet, and machines of other stacks.
//!
//! Not here: repeating a launch whose machines EC2 does not show yet (`lost`).

use std::time::Duration;

use aws_sdk_ec2::types::{ResourceType, Tag as Ec2Tag, TagSpecification};
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Fleet as _, MachineState, StartOutcome, Tag};
use bullpen_faulty::ec2::Delays;

use crate::world::{IMAGE, World, block_on, ids, request, set};

#[test]
fn a_machine_that_ec2_does_not_show_yet_is_no_error_and_appears_later() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let seen = fleet.launch(&request("n-1", 1)).await.expect("EC2 has capacity").machines;
        let minute = Duration::from_secs(60);
        world.admin().set_delays(Delays { visible: minute, ..Delays::default() });
        let unseen = fleet.launch(&request("n-2", 2)).await.expect("EC2 has capacity").machines;
        let (seen, unseen) = (ids(&seen), ids(&unseen));
        let all = [&seen[..], &unseen].concat();
        let described = fleet.describe(&all).await.expect("no error").items;
        assert_eq!(ids(&described), seen, "EC2 does not show the others yet");
        assert_eq!(fleet.describe(&unseen).await, Ok(Vec::new().into()));
        assert_eq!(ids(&fleet.list(None).await.expect("no error").items), seen);
        fleet.tag(&all, Tag::JobStarted).await.expect("no error");
        fleet.terminate(&unseen).await.expect("no error");
        fleet.stop(&world.orders(&unseen)).await.expect("no error");
        let started = fleet.start(&all).await.expect("no error");
        for (id, answer) in &started {
            assert_eq!(seen.contains(id), *answer == StartOutcome::Starting, "{id}: {answer:?}");
        }
        world.advance(minute);
        let described = fleet.describe(&all).await.expect("an answer").items;
        assert_eq!(set(&ids(&described)), set(&all));
        assert!(described.iter().all(|machine| machine.state != MachineState::Gone));
        let tagged =
            described.iter().find(|machine| machine.id == seen[0]).expect("the visible machine");
        assert!(tagged.tags.job_started, "the fleet tagged the visible machine");
        fleet.terminate(&unseen).await.expect("no error");
        assert_eq!(world.count_in_state(&unseen, "terminated").await, 2);
    });
}

#[test]
fn the_fleet_ignores_machines_of_other_stacks_and_without_an_intent() {
    block_on(async {
        let world = World::new().await;
        let mut other = world.settings.clone();
        other.stack = bullpen_aws::StackName::new("another").expect("a valid name");
        let theirs =
            world.fleet_with(other).launch(&request("n-1", 1)).await.expect("EC2 has capacity");
        let theirs = ids(&theirs.machines).remove(0);
        let tag = Ec2Tag::builder().key("bullpen:stack").value("contract").build();
        let tags = TagSpecification::builder().resource_type(ResourceType::Instance).tags(tag);
        let call = world.client.run_instances().image_id(IMAGE).min_count(1).max_count(1);
        let call = call.instance_type("m5.large".into());
        // An operator tagged it by hand: it has the stack's tag, but no intent.
        let by_hand = call.tag_specifications(tags.build()).send().await.expect("EC2 has capacity");
        let by_hand = by_hand.instances()[0].instance_id().map(InstanceId::new).expect("an id");
        let fleet = world.fleet();
        let ours = ids(&fleet.launch(&request("n-1", 1)).await.expect("EC2 has capacity").machines);
        assert_ne!(ours[0], theirs, "two stacks may use the same intent id");
        assert_eq!(ids(&fleet.list(None).await.expect("an answer").items), ours);
        let all = [ours[0].clone(), theirs, by_hand];
        assert_eq!(ids(&fleet.describe(&all).await.expect("an answer").items), ours);
    });
}
