//! Tests of launch requests and their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_ec2::types::{
    CreateFleetError, FleetLaunchTemplateOverrides, LaunchTemplateAndOverridesResponse,
};
use bullpen_core::class::VcpuRange;
use bullpen_core::ids::{IntentId, PoolName, SpecHash};

use super::super::site::Facts;
use super::*;
use crate::names::StackName;

fn settings() -> Ec2Settings {
    Ec2Settings {
        stack: StackName::new("acme").unwrap(),
        subnets: ["subnet-a", "subnet-b"].map(String::from).into(),
        security_groups: vec!["sg-1".to_owned()],
        instance_profile: "arn:aws:iam::1:instance-profile/path/runner".to_owned(),
        images: BTreeMap::new(),
        agents: BTreeMap::new(),
        runners: BTreeMap::new(),
        watchdog: Duration::from_secs(1),
        shown_within: super::super::settings::SHOWN_WITHIN,
        user: "runner".to_owned(),
        sudo: true,
        docker: true,
        metadata_hops: 1,
        price_protection: 100,
    }
}

fn site() -> LaunchSite {
    let zones = [("subnet-a", "a"), ("subnet-b", "b"), ("subnet-gone", "a")];
    let subnets = zones.map(|(subnet, zone)| (subnet.to_owned(), Zone::new(zone)));
    let facts = Facts { role_id: "AROA".to_owned(), subnets: subnets.into() };
    LaunchSite { born: "t0".to_owned(), facts }
}

fn request(patterns: &[&str]) -> LaunchRequest {
    LaunchRequest {
        intent: IntentId::new("pool.small.1"),
        class: RunnerClass::defaults().remove(0),
        pool: Some(PoolName::new("small")),
        usage: Usage::Spot,
        allowed_types: patterns.iter().map(|text| TypePattern::new(text)).collect(),
        avoid: BTreeSet::new(),
        spec_hash: SpecHash::new("1:ab"),
        count: 7,
    }
}

fn short(instance_type: &str, zone: &str) -> Offering {
    let (instance_type, zone) = (InstanceType::new(instance_type), Zone::new(zone));
    Offering { usage: Usage::Spot, instance_type, zone }
}

/// The subnets in the request, each with its requirements.
fn asked(request: &LaunchRequest) -> Vec<(String, InstanceRequirementsRequest)> {
    let fitting = ["c5.large", "c6i.large", "m5.large"].map(InstanceType::new);
    let call = call("template", &settings(), &site(), request, &fitting);
    let Some(call) = call.map(|call| call.build().unwrap()) else { return Vec::new() };
    let overrides = call.launch_template_configs()[0].overrides().to_vec();
    let one = |one: FleetLaunchTemplateOverridesRequest| {
        (one.subnet_id().unwrap().to_owned(), one.instance_requirements().unwrap().clone())
    };
    overrides.into_iter().map(one).collect()
}

#[test]
fn every_subnet_is_asked_for_what_would_do_within_bounds() {
    let asked = asked(&request(&["c*", "m*"]));
    let subnets: Vec<&str> = asked.iter().map(|(subnet, _)| subnet.as_str()).collect();
    assert_eq!(subnets, ["subnet-a", "subnet-b"], "a subnet no longer configured is left out");
    for (_, wanted) in &asked {
        assert_eq!(wanted.allowed_instance_types(), ["c*", "m*"]);
        assert_eq!(wanted.v_cpu_count().unwrap(), &{
            VCpuCountRangeRequest::builder().min(2).max(2).build()
        });
        assert_eq!(wanted.memory_mib().unwrap().min(), Some(4_096));
        assert_eq!(wanted.burstable_performance(), Some(&BurstablePerformance::Excluded));
        assert_eq!(wanted.accelerator_count().unwrap().max(), Some(0));
        assert_eq!(wanted.memory_mib().unwrap().max(), Some(2 * 32 * 1_024));
        assert_eq!(wanted.spot_max_price_percentage_over_lowest_price(), Some(100));
        assert_eq!(wanted.on_demand_max_price_percentage_over_lowest_price(), Some(100));
    }
}

#[test]
fn prices_are_protected_unless_the_types_were_chosen() {
    for (patterns, percent) in [
        (&["*"][..], 100),
        (&["c*", "m7i.large"], 100),
        (&["c7i.48xlarge", "m7i.48xlarge"], 999_999),
        (&["g5*"], 999_999),
        (&["m7i.metal*"], 999_999),
        (&["m7i.metal*", "g5*", "c7i.large"], 999_999),
        (&["c*", "r*", "c7g.metal"], 100),
        (&["c*", "g5*"], 100),
    ] {
        let wanted = asked(&request(patterns)).remove(0).1;
        let (spot, on_demand) = (
            wanted.spot_max_price_percentage_over_lowest_price(),
            wanted.on_demand_max_price_percentage_over_lowest_price(),
        );
        assert_eq!((spot, on_demand), (Some(percent), Some(percent)), "{patterns:?}");
    }
}

/// One pattern that names metal must not allow metal for the others.
#[test]
fn metal_comes_only_where_nothing_else_is_left_open() {
    for (patterns, metal) in [
        (&["c*"][..], false),
        (&["m7i.metal*"], true),
        (&["m7i.metal-24xl", "m7i.24xlarge"], true),
        (&["c*", "r*", "c7g.metal"], false),
    ] {
        let wanted = asked(&request(patterns)).remove(0).1;
        let is_included = wanted.bare_metal() == Some(&BareMetal::Included);
        assert_eq!(is_included, metal, "{patterns:?}");
    }
}

/// EC2 may choose any type within the bounds that a class leaves open.
#[test]
fn nothing_is_asked_for_without_a_bound() {
    let bounds = |patterns: &[&str], vcpu: VcpuRange, memory: u32| {
        let mut request = request(patterns);
        request.class.vcpu = vcpu;
        request.class.memory_mib_min = memory;
        let wanted = asked(&request).remove(0).1;
        let (vcpu, memory) = (wanted.v_cpu_count().unwrap(), wanted.memory_mib().unwrap());
        (vcpu.max().unwrap(), memory.max().unwrap())
    };
    let gib = |count: i32| count * 1_024;
    assert_eq!(bounds(&["*"], VcpuRange::exactly(2), 0), (2, gib(16)));
    assert_eq!(bounds(&["x2*"], VcpuRange::exactly(2), 0), (2, gib(64)));
    assert_eq!(bounds(&["*"], VcpuRange::exactly(2), 65_536), (2, gib(128)));
    assert_eq!(bounds(&["*"], VcpuRange { min: 2, max: 65_536 }, 0), (192, gib(192 * 8)));
    assert_eq!(bounds(&["u*"], VcpuRange::exactly(448), 0).0, 448, "the minimum of the class");
    let whole = bounds(&["c7i.large"], VcpuRange { min: 1, max: 65_536 }, 0);
    assert_eq!(whole.0, 65_536, "the type is the bound");
}

#[test]
fn rationed_and_accelerated_machines_come_only_where_they_are_named() {
    for (pattern, burstable) in [("t3*", true), ("T4g.large", true), ("*", false), ("trn1*", false)]
    {
        let asked = asked(&request(&[pattern]));
        let is = asked[0].1.burstable_performance() == Some(&BurstablePerformance::Included);
        assert_eq!(is, burstable, "{pattern}");
    }
    assert!(asked(&request(&["g4dn*"]))[0].1.accelerator_count().is_none());
    assert!(asked(&request(&["*"]))[0].1.accelerator_count().is_some());
}

#[test]
fn what_is_short_is_left_out_where_it_is_short() {
    let mut any = request(&["*"]);
    any.avoid = [short("c5.large", "a")].into();
    let of = |asked: &[(String, InstanceRequirementsRequest)], at: usize| {
        let wanted = &asked[at].1;
        (wanted.allowed_instance_types().to_vec(), wanted.excluded_instance_types().to_vec())
    };
    let all = asked(&any);
    assert_eq!(of(&all, 0), (vec![], vec!["c5.large".to_owned()]));
    assert_eq!(of(&all, 1), (vec![], vec![]));
    let mut some = request(&["c*"]);
    some.avoid = [short("c5.large", "a")].into();
    let all = asked(&some);
    assert_eq!(of(&all, 0), (vec!["c6i.large".to_owned()], vec![]), "never both lists");
    assert_eq!(of(&all, 1), (vec!["c*".to_owned()], vec![]));
    some.avoid.insert(short("c6i.large", "a"));
    assert_eq!(asked(&some).len(), 1, "nothing is left in that zone");
    some.avoid.extend([short("c5.large", "b"), short("c6i.large", "b")]);
    assert_eq!(asked(&some).len(), 0);
    some.usage = Usage::OnDemand;
    assert_eq!(asked(&some).len(), 2, "a spot shortage does not exclude on-demand");
    assert_eq!(asked(&request(&[])).len(), 0, "no pattern matches nothing");
}

#[test]
fn a_spot_fleet_is_asked_for_once_and_never_again() {
    let call = call("template", &settings(), &site(), &request(&["*"]), &[]).unwrap();
    let call = call.build().unwrap();
    assert_eq!(call.r#type(), Some(&FleetType::Instant));
    let spot = call.spot_options().unwrap();
    let terminate = SpotInstanceInterruptionBehavior::Terminate;
    assert_eq!(spot.instance_interruption_behavior(), Some(&terminate));
    let strategy = SpotAllocationStrategy::PriceCapacityOptimized;
    assert_eq!(spot.allocation_strategy(), Some(&strategy));
    let capacity = call.target_capacity_specification().unwrap();
    assert_eq!(capacity.total_target_capacity(), Some(7));
    assert!(call.replace_unhealthy_instances().is_none() && call.valid_until().is_none());
}

#[test]
fn a_token_is_of_one_launch_of_one_stack_of_one_life() {
    let token = |change: &dyn Fn(&mut Ec2Settings, &mut LaunchSite, &mut LaunchRequest)| {
        let (mut settings, mut site, mut request) = (settings(), site(), request(&["*"]));
        change(&mut settings, &mut site, &mut request);
        token(&settings, &site, &request)
    };
    let usual = token(&|_, _, _| {});
    assert_eq!(usual.len(), 64, "the longest token that EC2 accepts");
    assert_eq!(token(&|settings, _, _| settings.metadata_hops = 2), usual);
    let others = [
        token(&|settings, _, _| settings.stack = StackName::new("other").unwrap()),
        token(&|_, site, _| site.born = "t1".to_owned()),
        token(&|_, _, request| request.intent = IntentId::new("pool.small.2")),
    ];
    assert_eq!(BTreeSet::from(others).len(), 3);
}

#[test]
fn an_answer_says_what_is_short_and_what_is_wrong() {
    let error = |code: &str, instance_type: Option<&str>| {
        let place = FleetLaunchTemplateOverrides::builder()
            .subnet_id("subnet-b")
            .set_instance_type(instance_type.map(Into::into))
            .build();
        let place = LaunchTemplateAndOverridesResponse::builder().overrides(place).build();
        CreateFleetError::builder()
            .error_code(code)
            .error_message("said EC2")
            .lifecycle(InstanceLifecycle::Spot)
            .launch_template_and_overrides(place)
            .build()
    };
    let refusals = |errors: Vec<CreateFleetError>| {
        refusals(&CreateFleetOutput::builder().set_errors(Some(errors)).build(), &site())
    };
    let unfulfilled = || error("UnfulfillableCapacity", Some("c5.large"));
    let said = refusals(vec![unfulfilled(), unfulfilled()]);
    assert_eq!((said.shortages, said.refusal), (vec![short("c5.large", "b")], None));
    let said = refusals(vec![error("VcpuLimitExceeded", None)]);
    assert_eq!((said.shortages.len(), said.refusal), (0, None));
    assert!(said.explanation.unwrap().contains("quota"), "the text says what to do");
    let said = refusals(vec![error("InvalidAMIID.NotFound", None)]);
    let said = said.refusal.unwrap().to_string();
    assert!(said.contains("InvalidAMIID.NotFound") && said.contains("[images]"), "{said}");
}
