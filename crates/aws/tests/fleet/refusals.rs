//! Wrong settings: the fleet names the setting and what to do, if possible before it launches.
//!
//! Not here: permissions, which the test EC2 does not know.

use bullpen_aws::LaunchSite;
use bullpen_core::class::RunnerClass;
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ports::{Fault, Fleet as _, Site as _};
use bullpen_core::site::SiteDocument;

use crate::world::{IMAGE, World, block_on, class, denial, request};

fn booting_from(ami: &str) -> RunnerClass {
    let mut class = class();
    class.base.ami = Some(ami.to_owned());
    class
}

#[test]
fn a_missing_image_is_named() {
    block_on(async {
        let world = World::new().await;
        let (fleet, missing) = (world.fleet(), "ami-0123456789abcdef0");
        let class = booting_from(missing);
        let why = denial(fleet.prepare(std::slice::from_ref(&class), true).await);
        for word in [missing, "large", "[images]"] {
            assert!(why.contains(word), "{word}: {why}");
        }
        let why = denial(fleet.launch(&LaunchRequest { class, ..request("n-1", 1) }).await);
        assert!(why.contains(missing) && why.contains("[images]"), "{why}");
        assert!(world.instances().await.is_empty());
    });
}

#[test]
fn an_image_that_was_deregistered_is_named() {
    block_on(async {
        let world = World::new().await;
        world.client.deregister_image().image_id(IMAGE).send().await.expect("the image");
        let why = denial(world.fleet().launch(&request("n-1", 1)).await);
        assert!(why.contains("InvalidAMIID") && why.contains("[images]"), "{why}");
    });
}

#[test]
fn an_image_of_another_architecture_is_named() {
    block_on(async {
        let world = World::new().await;
        let arm = "ami-0000000000000a64a";
        let why = denial(world.fleet().prepare(&[booting_from(arm)], true).await);
        for word in [arm, "large", "x64", "arm64"] {
            assert!(why.contains(word), "{word}: {why}");
        }
    });
}

#[test]
fn an_image_without_an_ami_in_the_settings_is_named() {
    block_on(async {
        let mut world = World::new().await;
        world.settings.images.clear();
        let why = denial(world.fleet().launch(&request("n-1", 1)).await);
        assert!(why.contains("ubuntu24-full-x64") && why.contains("[images]"), "{why}");
        assert_eq!(world.calls("CreateFleet"), 0);
    });
}

/// A subnet of another network than the stack's security groups.
async fn foreign_subnet(world: &World) -> String {
    let network = world.client.create_vpc().cidr_block("10.7.0.0/16").send().await.expect("a VPC");
    let network = network.vpc().and_then(|vpc| vpc.vpc_id()).expect("an id");
    let subnet = world.client.create_subnet().vpc_id(network).cidr_block("10.7.1.0/24");
    let subnet = subnet.availability_zone("us-east-1c").send().await.expect("a subnet");
    subnet.subnet().and_then(|subnet| subnet.subnet_id()).expect("an id").to_owned()
}

#[test]
fn a_subnet_of_another_network_is_named_before_a_launch() {
    block_on(async {
        let mut world = World::bare().await;
        let other = foreign_subnet(&world).await;
        world.settings.subnets.push(other.clone());
        let why = denial(world.fleet().learn("2026-01-05", None).await);
        assert!(why.contains(&other) && why.contains("[aws]"), "{why}");
        assert!(why.contains("vpc-"), "{why}");
    });
}

#[test]
fn a_subnet_of_another_network_is_named_by_a_launch() {
    block_on(async {
        let mut world = World::new().await;
        let other = foreign_subnet(&world).await;
        world.settings.subnets = vec![other.clone()];
        let site = world.site.take().expect("a launch site");
        let mut facts = LaunchSite::read(&site).expect("EC2's own").facts;
        facts.subnets.insert(other.clone(), "us-east-1c".into());
        world.site = Some(SiteDocument::new(&site.born, &facts));
        let why = denial(world.fleet().launch(&request("n-1", 1)).await);
        assert!(why.contains(&other) && why.contains("[aws]"), "{why}");
        assert!(world.instances().await.is_empty());
    });
}

#[test]
fn missing_subnets_groups_and_profiles_are_named_before_a_launch() {
    block_on(async {
        let mut world = World::bare().await;
        let good = world.settings.clone();
        // A single subnet, because moto names any one of several.
        world.settings.subnets = vec!["subnet-0123456789abcdef0".to_owned()];
        let why = denial(world.fleet().learn("2026-01-05", None).await);
        assert!(why.contains("subnet-0123456789abcdef0") && why.contains("`subnets`"), "{why}");
        world.settings = good.clone();
        world.settings.security_groups = vec!["sg-0123456789abcdef0".to_owned()];
        let why = denial(world.fleet().learn("2026-01-05", None).await);
        assert!(why.contains("sg-0123456789abcdef0") && why.contains("`security-groups`"), "{why}");
        world.settings = good;
        world.settings.instance_profile = "missing-profile".to_owned();
        let why = denial(world.fleet().learn("2026-01-05", None).await);
        assert!(why.contains("missing-profile") && why.contains("`instance-profile`"), "{why}");
    });
}

#[test]
fn a_fleet_without_a_launch_site_launches_nothing() {
    block_on(async {
        let world = World::bare().await;
        let answer = world.fleet().launch(&request("n-1", 1)).await;
        let Err(Fault::Denied(why)) = answer else { panic!("not denied: {answer:?}") };
        assert!(why.contains("bullpen refresh"), "{why}");
        assert_eq!(world.proxy.counts().total().arrived, 0);
    });
}

#[test]
fn subnets_outside_the_launch_site_are_named_and_are_no_shortage() {
    block_on(async {
        let world = World::new().await;
        let mut other = world.settings.clone();
        other.subnets = vec!["subnet-0fedcba9876543210".to_owned()];
        let why = denial(world.fleet_with(other).launch(&request("n-1", 1)).await);
        assert!(why.contains("`subnets`") && why.contains("bullpen refresh"), "{why}");
        assert_eq!(world.calls("CreateFleet"), 0);
    });
}
