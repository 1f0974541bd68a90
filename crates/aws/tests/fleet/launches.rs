//! Launches while EC2 lacks capacity, and the parameters of a launch.
//!
//! Not here: lost answers (`lost`), or wrong settings (`refusals`).

use std::collections::BTreeSet;

use aws_sdk_ec2::types::{HttpTokensState, SpotInstanceType};
use bullpen_core::class::Usage;
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::InstanceType;
use bullpen_core::ports::{Fleet as _, Launched, Machine};
use bullpen_core::request::TypePattern;
use bullpen_faulty::ec2::Rule;

use crate::world::{HOUR, World, ZONES, block_on, class, every, ids, offering, request};

fn short(launched: &Launched) -> BTreeSet<Offering> {
    launched.shortages.iter().cloned().collect()
}

fn offering_of(machine: &Machine) -> Offering {
    offering(machine.usage, machine.instance_type.as_str(), machine.zone.as_str())
}

#[test]
fn a_partial_launch_keeps_its_machines_and_names_the_shortages() {
    block_on(async {
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
            let launched = fleet.launch(&wanted).await.expect("a partial launch");
            let found: BTreeSet<Offering> = launched.machines.iter().map(offering_of).collect();
            let available = [("c5.large", "us-east-1b"), ("m5.large", "us-east-1a")];
            let available = available.map(|(name, zone)| offering(usage, name, zone));
            assert_eq!(found, BTreeSet::from(available), "{usage:?}");
            // No offering had capacity for a third machine.
            assert_eq!(short(&launched), every(usage), "{usage:?}");
            fleet.terminate(&ids(&launched.machines)).await.expect("the machines are ours");
            world.advance(HOUR);
        }
    });
}

#[test]
fn a_total_shortage_brings_no_machine_and_is_no_error() {
    block_on(async {
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
    block_on(async {
        let world = World::new().await;
        // The quota fits two machines of two vCPUs.
        world.admin().set_quotas(Some(5), Some(0));
        let launched = world.fleet().launch(&request("n-1", 3)).await.expect("a partial launch");
        assert_eq!((launched.machines.len(), short(&launched)), (2, every(Usage::OnDemand)));
        let wanted = LaunchRequest { usage: Usage::Spot, ..request("n-2", 1) };
        let launched = world.fleet().launch(&wanted).await.expect("EC2 answered");
        assert_eq!((launched.machines.len(), short(&launched)), (0, every(Usage::Spot)));
        let hint = launched.explanation.expect("a hint for the operator");
        assert!(hint.contains("Spot") && hint.contains("quota"), "{hint}");
    });
}

#[test]
fn a_launch_does_not_request_offerings_to_avoid() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let mut avoid = every(Usage::OnDemand);
        let left = offering(Usage::OnDemand, "c5.large", "us-east-1b");
        avoid.remove(&left);
        let wanted = LaunchRequest { avoid: avoid.clone(), ..request("n-1", 2) };
        let launched = fleet.launch(&wanted).await.expect("EC2 has capacity");
        for machine in &launched.machines {
            assert_eq!(offering_of(machine), left);
        }
        assert_eq!(launched.machines.len(), 2);
        avoid.insert(left);
        let wanted = LaunchRequest { avoid: avoid.clone(), ..request("n-2", 2) };
        assert_eq!(fleet.launch(&wanted).await, Ok(Launched::default()));
        assert_eq!(world.calls("CreateFleet"), 1, "no offering was left to request");
        // A shortage of on-demand capacity says nothing about spot capacity.
        let wanted = LaunchRequest { avoid, usage: Usage::Spot, ..request("n-3", 1) };
        assert_eq!(fleet.launch(&wanted).await.expect("EC2 has capacity").machines.len(), 1);
    });
}

#[test]
fn a_launch_of_any_type_avoids_a_type_with_a_shortage() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let any = LaunchRequest { allowed_types: vec![TypePattern::new("*")], ..request("n-1", 1) };
        let first = fleet.launch(&any).await.expect("EC2 has capacity").machines.remove(0);
        let of = |zone| offering(Usage::OnDemand, first.instance_type.as_str(), zone);
        let avoid = BTreeSet::from(ZONES.map(of));
        let wanted = LaunchRequest { avoid, ..LaunchRequest { intent: "n-2".into(), ..any } };
        let second = fleet.launch(&wanted).await.expect("EC2 has capacity").machines.remove(0);
        assert_ne!(first.instance_type, second.instance_type);
        assert!(class().vcpu.contains(second.vcpu), "{second:?}");
    });
}

#[test]
fn a_launch_sends_every_parameter_that_must_not_be_a_default() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let any = vec![TypePattern::new("*")];
        let cases = [
            LaunchRequest { allowed_types: any, usage: Usage::Spot, ..request("n-1", 1) },
            LaunchRequest { pool: Some("linux".into()), ..request("n-2", 2) },
        ];
        for wanted in &cases {
            fleet.launch(wanted).await.expect("EC2 has capacity");
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
            tokens.insert(of("ClientToken").expect("a client token").to_owned());
            let of_override = |name: &str| {
                of(&format!("LaunchTemplateConfigs.1.Overrides.2.InstanceRequirements.{name}"))
            };
            for usage in ["Spot", "OnDemand"] {
                let name = format!("{usage}MaxPricePercentageOverLowestPrice");
                let protected = if wanted.usage == Usage::Spot { "100" } else { "999999" };
                assert_eq!(
                    of_override(&name),
                    Some(protected),
                    "only spot launches are price-protected"
                );
            }
            assert_eq!(of_override("BurstablePerformance"), Some("excluded"));
            assert_eq!(of_override("BareMetal"), Some("excluded"));
            assert_eq!(
                (of_override("VCpuCount.Min"), of_override("VCpuCount.Max")),
                (Some("2"), Some("2"))
            );
            assert_eq!(of_override("MemoryMiB.Min"), Some("4096"));
            assert!(of_override("MemoryMiB.Max").is_some(), "every requirement has a bound");
            assert_eq!(of("TagSpecification.1.ResourceType"), Some("instance"));
            // EC2 must not replace or restart machines by itself.
            assert_eq!(of("ReplaceUnhealthyInstances"), None);
            let interruption = of("SpotOptions.InstanceInterruptionBehavior");
            assert!(matches!(interruption, None | Some("terminate")), "{interruption:?}");
        }
        assert_eq!(tokens.len(), cases.len(), "each intent has a token of its own");
        assert!(tokens.iter().all(|token| token.len() <= 64), "EC2 accepts 64 characters");
    });
}

#[test]
fn burstable_machines_are_launched_only_if_a_pattern_names_them() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let of = |intent, pattern| LaunchRequest {
            allowed_types: vec![TypePattern::new(pattern)],
            ..request(intent, 1)
        };
        let named = fleet.launch(&of("n-1", "t3.*")).await.expect("EC2 has capacity");
        assert_eq!(named.machines[0].instance_type, InstanceType::new("t3.medium"));
        // The smallest type that fits "*" is a burstable one.
        let any = fleet.launch(&of("n-2", "*")).await.expect("EC2 has capacity");
        assert!(!any.machines[0].instance_type.as_str().starts_with('t'), "{any:?}");
    });
}

#[test]
fn a_spot_request_is_one_time_and_its_machine_cannot_be_stopped() {
    block_on(async {
        let world = World::new().await;
        let fleet = world.fleet();
        let wanted = LaunchRequest { usage: Usage::Spot, ..request("n-1", 2) };
        let machines = fleet.launch(&wanted).await.expect("EC2 has capacity").machines;
        assert!(machines.iter().all(|machine| machine.usage == Usage::Spot));
        world.advance(HOUR);
        let all = ids(&machines);
        fleet.stop(&world.orders(&all)).await.expect_err("EC2 cannot stop it");
        assert_eq!(world.calls("StopInstances"), 1);
        assert_eq!(world.count_in_state(&all, "running").await, 2, "the machines still run");
        fleet.terminate(&all).await.expect("the machines are ours");
        let requests =
            world.client.describe_spot_instance_requests().send().await.expect("an answer");
        assert_eq!(requests.spot_instance_requests().len(), 2);
        for request in requests.spot_instance_requests() {
            assert_eq!(request.r#type().map(SpotInstanceType::as_str), Some("one-time"));
        }
    });
}

#[test]
fn machines_have_the_tags_and_options_of_their_template() {
    block_on(async {
        let world = World::new().await;
        let pool = Some("linux".into());
        let wanted = LaunchRequest { pool, ..request("n-1", 1) };
        world.fleet().launch(&wanted).await.expect("EC2 has capacity");
        let all = world.all().await;
        let [instance] = &all[..] else { panic!("not one machine: {all:?}") };
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
        let metadata = instance.metadata_options().expect("metadata options");
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
