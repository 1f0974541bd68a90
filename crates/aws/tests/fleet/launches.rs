//! Launches when EC2 is short of something, and what a launch asks for.
//!
//! Not here: answers that are lost (`lost`), or settings that cannot work (`refusals`).

use std::collections::BTreeSet;

use aws_sdk_ec2::types::{HttpTokensState, SpotInstanceType};
use bullpen_core::class::Usage;
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::InstanceType;
use bullpen_core::ports::{Fleet as _, Launched};
use bullpen_core::request::TypePattern;
use bullpen_faulty::ec2::Rule;

use crate::stage::{HOUR, World, ZONES, class, every, ids, offering, real, request};

fn short(launched: &Launched) -> BTreeSet<Offering> {
    launched.shortages.iter().cloned().collect()
}

#[test]
fn a_partial_launch_keeps_what_came_and_names_what_was_short() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        for usage in [Usage::OnDemand, Usage::Spot] {
            world.admin().set_capacity(&[
                Rule { instance_type: "m5.large", zone: "us-east-1a", ..Rule::of_all(1) },
                Rule { instance_type: "m5.large", zone: "us-east-1b", ..Rule::of_all(0) },
                Rule { instance_type: "c5.large", zone: "us-east-1a", ..Rule::of_all(0) },
                Rule { instance_type: "c5.large", zone: "us-east-1b", ..Rule::of_all(1) },
            ]);
            let wanted = LaunchRequest { usage, ..request(usage.as_str(), 3) };
            let launched = fleet.launch(&wanted).await.expect("some of it");
            let came: BTreeSet<Offering> = launched
                .machines
                .iter()
                .map(|one| offering(one.usage, one.instance_type.as_str(), one.zone.as_str()))
                .collect();
            let there = [("c5.large", "us-east-1b"), ("m5.large", "us-east-1a")];
            let there = there.map(|(name, zone)| offering(usage, name, zone));
            assert_eq!(came, BTreeSet::from(there), "{usage:?}");
            // What came is short of a third.
            assert_eq!(short(&launched), every(usage), "{usage:?}");
            fleet.terminate(&ids(&launched.machines)).await.expect("they are ours");
            world.pass(HOUR);
        }
    });
}

#[test]
fn a_total_shortage_brings_nothing_and_is_no_error() {
    real(async {
        let world = World::new().await;
        world.admin().set_capacity(&[Rule::of_all(0)]);
        for usage in [Usage::OnDemand, Usage::Spot] {
            let wanted = LaunchRequest { usage, ..request(usage.as_str(), 2) };
            let launched = world.fleet().launch(&wanted).await.expect("EC2 answered");
            assert_eq!((launched.machines.len(), short(&launched)), (0, every(usage)));
        }
        assert!(world.instances().await.is_empty());
    });
}

#[test]
fn a_quota_that_is_used_up_is_a_shortage() {
    real(async {
        let world = World::new().await;
        // Two machines of two vCPUs.
        world.admin().set_quotas(Some(5), Some(0));
        let launched = world.fleet().launch(&request("n-1", 3)).await.expect("some of it");
        assert_eq!((launched.machines.len(), short(&launched)), (2, every(Usage::OnDemand)));
        let wanted = LaunchRequest { usage: Usage::Spot, ..request("n-2", 1) };
        let launched = world.fleet().launch(&wanted).await.expect("EC2 answered");
        assert_eq!((launched.machines.len(), short(&launched)), (0, every(Usage::Spot)));
        let said = launched.said.expect("it says what to do");
        assert!(said.contains("Spot") && said.contains("quota"), "{said}");
    });
}

#[test]
fn what_is_known_to_be_short_is_not_asked_for() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let mut avoid = every(Usage::OnDemand);
        let left = offering(Usage::OnDemand, "c5.large", "us-east-1b");
        avoid.remove(&left);
        let wanted = LaunchRequest { avoid: avoid.clone(), ..request("n-1", 2) };
        let launched = fleet.launch(&wanted).await.expect("there is room");
        for one in &launched.machines {
            let came = offering(one.usage, one.instance_type.as_str(), one.zone.as_str());
            assert_eq!(came, left);
        }
        assert_eq!(launched.machines.len(), 2);
        avoid.insert(left);
        let wanted = LaunchRequest { avoid: avoid.clone(), ..request("n-2", 2) };
        assert_eq!(fleet.launch(&wanted).await, Ok(Launched::default()));
        assert_eq!(world.made("CreateFleet"), 1, "there was nothing left to ask for");
        // A shortage of one usage is none of the other.
        let wanted = LaunchRequest { avoid, usage: Usage::Spot, ..request("n-3", 1) };
        assert_eq!(fleet.launch(&wanted).await.expect("there is room").machines.len(), 1);
    });
}

#[test]
fn what_is_short_is_left_out_of_any_type() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let any = LaunchRequest { allowed_types: vec![TypePattern::new("*")], ..request("n-1", 1) };
        let first = fleet.launch(&any).await.expect("there is room").machines.remove(0);
        let of = |zone| offering(Usage::OnDemand, first.instance_type.as_str(), zone);
        let avoid = BTreeSet::from(ZONES.map(of));
        let wanted = LaunchRequest { avoid, ..LaunchRequest { intent: "n-2".into(), ..any } };
        let second = fleet.launch(&wanted).await.expect("there is room").machines.remove(0);
        assert_ne!(first.instance_type, second.instance_type);
        assert!(class().vcpu.contains(second.vcpu), "{second:?}");
    });
}

#[test]
fn a_launch_says_what_must_not_be_guessed() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let any = vec![TypePattern::new("*")];
        let cases = [
            LaunchRequest { allowed_types: any, usage: Usage::Spot, ..request("n-1", 1) },
            LaunchRequest { pool: Some("linux".into()), ..request("n-2", 2) },
        ];
        for wanted in &cases {
            fleet.launch(wanted).await.expect("there is room");
        }
        let forms = world.proxy.counts().forms("CreateFleet");
        assert_eq!(forms.len(), cases.len());
        let mut tokens = BTreeSet::new();
        for (form, wanted) in forms.iter().zip(&cases) {
            let of = |name: &str| form.get(name).map(String::as_str);
            assert_eq!(of("Type"), Some("instant"));
            assert_eq!(
                of("TargetCapacitySpecification.DefaultTargetCapacityType"),
                Some(wanted.usage.as_str())
            );
            tokens.insert(of("ClientToken").expect("there is a token").to_owned());
            let of_override = |name: &str| {
                of(&format!("LaunchTemplateConfigs.1.Overrides.2.InstanceRequirements.{name}"))
            };
            for usage in ["Spot", "OnDemand"] {
                let name = format!("{usage}MaxPricePercentageOverLowestPrice");
                let protected = if wanted.usage == Usage::Spot { "100" } else { "999999" };
                assert_eq!(of_override(&name), Some(protected), "whole types cost what they cost");
            }
            assert_eq!(of_override("BurstablePerformance"), Some("excluded"));
            assert_eq!(of_override("BareMetal"), Some("excluded"));
            assert_eq!(
                (of_override("VCpuCount.Min"), of_override("VCpuCount.Max")),
                (Some("2"), Some("2"))
            );
            assert_eq!(of_override("MemoryMiB.Min"), Some("4096"));
            assert!(of_override("MemoryMiB.Max").is_some(), "nothing without a bound");
            assert_eq!(of("TagSpecification.1.ResourceType"), Some("instance"));
            // Nothing that would ask again by itself.
            assert_eq!(of("ReplaceUnhealthyInstances"), None);
            let interruption = of("SpotOptions.InstanceInterruptionBehavior");
            assert!(matches!(interruption, None | Some("terminate")), "{interruption:?}");
        }
        assert_eq!(tokens.len(), cases.len(), "one for each intent");
        assert!(tokens.iter().all(|token| token.len() <= 64), "as long as EC2 takes them");
    });
}

#[test]
fn burstable_machines_come_only_if_they_are_named() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let of = |intent, pattern| LaunchRequest {
            allowed_types: vec![TypePattern::new(pattern)],
            ..request(intent, 1)
        };
        let named = fleet.launch(&of("n-1", "t3.*")).await.expect("there is room");
        assert_eq!(named.machines[0].instance_type, InstanceType::new("t3.medium"));
        // Only the smallest are looked at, and a burstable one is the smallest of all.
        let any = fleet.launch(&of("n-2", "*")).await.expect("there is room");
        assert!(!any.machines[0].instance_type.as_str().starts_with('t'), "{any:?}");
    });
}

#[test]
fn a_spot_machine_is_asked_for_once_and_cannot_be_stopped() {
    real(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let wanted = LaunchRequest { usage: Usage::Spot, ..request("n-1", 2) };
        let machines = fleet.launch(&wanted).await.expect("there is room").machines;
        assert!(machines.iter().all(|machine| machine.usage == Usage::Spot));
        world.pass(HOUR);
        let all = ids(&machines);
        fleet.stop(&world.orders(&all)).await.expect_err("EC2 cannot stop it");
        assert_eq!(world.made("StopInstances"), 1);
        assert_eq!(world.are(&all, "running").await, 2, "it goes on as it was");
        fleet.terminate(&all).await.expect("they are ours");
        let requests =
            world.client.describe_spot_instance_requests().send().await.expect("an answer");
        assert_eq!(requests.spot_instance_requests().len(), 2);
        for request in requests.spot_instance_requests() {
            assert_eq!(request.r#type().map(SpotInstanceType::as_str), Some("one-time"));
        }
    });
}

#[test]
fn machines_have_what_their_template_says() {
    real(async {
        let world = World::new().await;
        let pool = Some("linux".into());
        let wanted = LaunchRequest { pool, ..request("n-1", 1) };
        world.fleet().launch(&wanted).await.expect("there is room");
        let all = world.all().await;
        let [instance] = &all[..] else { panic!("one was launched: {all:?}") };
        let tags: Vec<_> =
            instance.tags().iter().filter_map(|tag| Some((tag.key()?, tag.value()?))).collect();
        for wanted in [
            ("bullpen:stack", "contract"),
            ("bullpen:intent", "n-1"),
            ("bullpen:class", "large"),
            ("bullpen:pool", "linux"),
        ] {
            assert!(tags.contains(&wanted), "{wanted:?} is not in {tags:?}");
        }
        let metadata = instance.metadata_options().expect("it says so");
        assert_eq!(metadata.http_tokens().map(HttpTokensState::as_str), Some("required"));
        let profile = instance.iam_instance_profile().and_then(|profile| profile.arn());
        assert!(profile.is_some_and(|arn| arn.ends_with("/bullpen-agent")), "{profile:?}");
        let volumes = world.client.describe_volumes().send().await.expect("an answer");
        for volume in volumes.volumes() {
            let tags = volume.tags().iter();
            assert!(tags.clone().any(|tag| tag.key() == Some("bullpen:stack")), "{volume:?}");
        }
        assert!(!volumes.volumes().is_empty());
    });
}
