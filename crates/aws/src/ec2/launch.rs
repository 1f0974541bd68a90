//! Launches: an instant fleet, from a request to an answer.
//!
//! EC2 is told what would do (vCPUs, memory, patterns over types, one override for each subnet) and
//! chooses. What it was short of lately is left out: a type in one zone, so that each override has its
//! own list.
//!
//! Not here: sending it ([`super`]), or what is tried next (`core::creation`).

use std::collections::BTreeSet;

use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use aws_sdk_ec2::operation::create_fleet::builders::CreateFleetInputBuilder;
use aws_sdk_ec2::types::{
    AcceleratorCountRequest, BareMetal, BurstablePerformance, CreateFleetError,
    CreateFleetInstance, DefaultTargetCapacityType, FleetLaunchTemplateConfigRequest,
    FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest,
    FleetOnDemandAllocationStrategy, FleetType, InstanceLifecycle, InstanceRequirementsRequest,
    LaunchTemplateAndOverridesResponse, MemoryMiBRequest, OnDemandOptionsRequest,
    SpotAllocationStrategy, SpotInstanceInterruptionBehavior, SpotOptionsRequest,
    TargetCapacitySpecificationRequest, VCpuCountRangeRequest,
};
use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::{InstanceId, InstanceType, Zone};
use bullpen_core::parameters::LaunchSite;
use bullpen_core::ports::Fault;
use bullpen_core::request::TypePattern;
use bullpen_core::spec_hash::digest_hex;

use super::settings::Ec2Settings;
use super::template::VERSION;
use super::{answers, tags};
use crate::fault::{PLACES, by_code};

/// What turns EC2's price protection off, as its documentation says.
const NO_PRICE_PROTECTION: i32 = 999_999;
/// The most vCPUs that are asked for where a class wants fewer at least: the largest types that are not
/// made for memory alone.
const VCPU_MAX: u32 = 192;
/// The most memory for each vCPU where any type would do, as types for memory have it.
const ANY_MIB_PER_VCPU_MAX: u32 = 8 * 1_024;
/// The same where families are named, as the types with the most have it.
const NAMED_MIB_PER_VCPU_MAX: u32 = 32 * 1_024;
/// How much more memory than a class wants at least may always come.
const MEMORY_FACTOR: u32 = 2;
/// As many types as EC2 takes in one list.
const TYPES_MAX: usize = 400;
/// Families whose speed is rationed. A job on one runs fast for a while.
const BURSTABLE: [&str; 1] = ["t"];
/// Families that cost as much as they do for what most jobs have no use for.
const ACCELERATED: [&str; 8] = ["dl", "f", "g", "gr", "inf", "p", "trn", "vt"];
/// What a type without a hypervisor has in its name.
const METAL: &str = ".metal";
/// The pattern of any type.
const ANY: &str = "*";

/// What is left out in a subnet's zone, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Types {
    /// Patterns; none for any type.
    Allowed(Vec<String>),
    /// Any type but these.
    AllBut(Vec<String>),
}

/// The call's token: the same launch of the same stack is made once. A stack that was destroyed and
/// made again counts its launches anew, so it is part of it when the stack was made.
pub(super) fn token(
    settings: &Ec2Settings,
    ground: &LaunchSite,
    request: &LaunchRequest,
) -> String {
    let text = format!("{}\n{}\n{}", settings.stack, ground.born, request.intent);
    digest_hex(text.as_bytes())
}

/// Everything but the token. Nothing if nothing can be asked for: every type that would do is short,
/// in every subnet that is known.
/// `fitting`: the types of the class's size.
pub(super) fn call(
    template: &str,
    settings: &Ec2Settings,
    ground: &LaunchSite,
    request: &LaunchRequest,
    fitting: &[InstanceType],
) -> Option<CreateFleetInputBuilder> {
    let overrides: Vec<_> = ground
        .subnets
        .iter()
        .filter(|(subnet, _)| settings.subnets.contains(subnet))
        .filter_map(|(subnet, zone)| {
            let requirements = requirements(settings, request, types(request, zone, fitting)?);
            let of_subnet = FleetLaunchTemplateOverridesRequest::builder().subnet_id(subnet);
            Some(of_subnet.instance_requirements(requirements).build())
        })
        .collect();
    if overrides.is_empty() {
        return None;
    }
    let template = FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(template)
        .version(VERSION)
        .build();
    let config = FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template)
        .set_overrides(Some(overrides))
        .build();
    let fleet = CreateFleetInputBuilder::default()
        .r#type(FleetType::Instant)
        .launch_template_configs(config)
        .target_capacity_specification(capacity(request))
        .tag_specifications(tags::of_launch(&settings.stack, request));
    Some(paid_for(fleet, request.usage))
}

fn capacity(request: &LaunchRequest) -> TargetCapacitySpecificationRequest {
    TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(i32::try_from(request.count).unwrap_or(i32::MAX))
        .default_target_capacity_type(match request.usage {
            Usage::Spot => DefaultTargetCapacityType::Spot,
            Usage::OnDemand => DefaultTargetCapacityType::OnDemand,
        })
        .build()
}

/// An instant fleet's spot requests are made once; nothing asks again when a machine is taken away.
fn paid_for(fleet: CreateFleetInputBuilder, usage: Usage) -> CreateFleetInputBuilder {
    match usage {
        Usage::Spot => fleet.spot_options(
            SpotOptionsRequest::builder()
                .allocation_strategy(SpotAllocationStrategy::PriceCapacityOptimized)
                .instance_interruption_behavior(SpotInstanceInterruptionBehavior::Terminate)
                .build(),
        ),
        Usage::OnDemand => fleet.on_demand_options(
            OnDemandOptionsRequest::builder()
                .allocation_strategy(FleetOnDemandAllocationStrategy::LowestPrice)
                .build(),
        ),
    }
}

fn requirements(
    settings: &Ec2Settings,
    request: &LaunchRequest,
    types: Types,
) -> InstanceRequirementsRequest {
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let (class, patterns) = (&request.class, &request.allowed_types);
    let percent =
        if are_chosen(patterns) { NO_PRICE_PROTECTION } else { number(settings.price_protection) };
    let (vcpu_max, memory_max) = most(class, patterns);
    let vcpu =
        VCpuCountRangeRequest::builder().min(number(class.vcpu.min)).max(number(vcpu_max)).build();
    // EC2 insists on a least memory; 0 is none.
    let memory = MemoryMiBRequest::builder()
        .min(number(class.memory_mib_min))
        .max(number(memory_max))
        .build();
    let wanted = InstanceRequirementsRequest::builder()
        .v_cpu_count(vcpu)
        .memory_mib(memory)
        .bare_metal(if is_metal_meant(patterns) {
            BareMetal::Included
        } else {
            BareMetal::Excluded
        })
        .spot_max_price_percentage_over_lowest_price(percent)
        .on_demand_max_price_percentage_over_lowest_price(percent)
        .burstable_performance(if names(patterns, &BURSTABLE) {
            BurstablePerformance::Included
        } else {
            BurstablePerformance::Excluded
        });
    let wanted = if names(patterns, &ACCELERATED) {
        wanted
    } else {
        wanted.accelerator_count(AcceleratorCountRequest::builder().max(0).build())
    };
    match types {
        Types::Allowed(patterns) if patterns.is_empty() => wanted,
        Types::Allowed(patterns) => wanted.set_allowed_instance_types(Some(patterns)),
        Types::AllBut(short) => wanted.set_excluded_instance_types(Some(short)),
    }
    .build()
}

/// The most vCPUs and the most memory, in MiB: nothing is asked for without a bound.
fn most(class: &RunnerClass, patterns: &[TypePattern]) -> (u32, u32) {
    // Types that are named as a whole have as much as they have.
    let vcpu = if patterns.iter().all(is_whole) { class.vcpu.max } else { VCPU_MAX };
    let vcpu = class.vcpu.max.min(vcpu).max(class.vcpu.min);
    let is_any = patterns.iter().any(|pattern| pattern.as_str() == ANY);
    let each = if is_any { ANY_MIB_PER_VCPU_MAX } else { NAMED_MIB_PER_VCPU_MAX };
    let memory = vcpu.saturating_mul(each);
    (vcpu, memory.max(class.memory_mib_min.saturating_mul(MEMORY_FACTOR)))
}

fn is_whole(pattern: &TypePattern) -> bool {
    !pattern.as_str().contains('*')
}

fn is_metal(pattern: &TypePattern) -> bool {
    pattern.as_str().contains(METAL)
}

/// Whether a machine without a hypervisor may come: it would for every pattern of the list, so there is
/// none beside those that name metal that could mean another one's.
fn is_metal_meant(patterns: &[TypePattern]) -> bool {
    patterns.iter().any(is_metal) && patterns.iter().all(|one| is_metal(one) || is_whole(one))
}

/// Whether these types, all of them, were chosen for what they are: they cost what they cost. Compared
/// with the cheapest machine of their size they would not come at all.
fn are_chosen(patterns: &[TypePattern]) -> bool {
    let is_chosen = |one| is_whole(one) || is_metal(one) || is_of(one, &ACCELERATED);
    patterns.iter().all(is_chosen)
}

/// Whether a pattern names one of these families, and does not merely allow it.
fn names(patterns: &[TypePattern], families: &[&str]) -> bool {
    patterns.iter().any(|pattern| is_of(pattern, families))
}

fn is_of(pattern: &TypePattern, families: &[&str]) -> bool {
    let letters = pattern.as_str().chars().take_while(char::is_ascii_alphabetic);
    let letters: String = letters.collect();
    families.contains(&letters.as_str())
}

/// What may be launched in a zone; nothing if nothing may.
fn types(request: &LaunchRequest, zone: &Zone, fitting: &[InstanceType]) -> Option<Types> {
    let is_any = request.allowed_types.iter().any(|pattern| pattern.as_str() == ANY);
    let short: BTreeSet<&InstanceType> = request
        .avoid
        .iter()
        .filter(|short| short.usage == request.usage && short.zone == *zone)
        .map(|short| &short.instance_type)
        .collect();
    if short.is_empty() && is_any {
        return Some(Types::Allowed(Vec::new()));
    }
    if short.is_empty() {
        let patterns = request.allowed_types.iter().map(|pattern| pattern.as_str().to_owned());
        return Some(Types::Allowed(patterns.collect()))
            .filter(|_| !request.allowed_types.is_empty());
    }
    if is_any && short.len() <= TYPES_MAX {
        return Some(Types::AllBut(short.iter().map(ToString::to_string).collect()));
    }
    // EC2 takes a list of what is allowed or of what is not, never both.
    let allowed = |name: &&InstanceType| {
        !short.contains(name) && request.allowed_types.iter().any(|pattern| pattern.matches(name))
    };
    let left = fitting.iter().filter(allowed).take(TYPES_MAX);
    let left: Vec<String> = left.map(ToString::to_string).collect();
    (!left.is_empty()).then_some(Types::Allowed(left))
}

/// One machine of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaunchedInstance {
    pub(super) id: InstanceId,
    pub(super) instance_type: InstanceType,
    pub(super) zone: Zone,
    pub(super) usage: Usage,
}

/// The machines of an answer.
pub(super) fn came(answer: &CreateFleetOutput, ground: &LaunchSite) -> Vec<LaunchedInstance> {
    let of_group = |group: &CreateFleetInstance| -> Vec<LaunchedInstance> {
        let zone = group.availability_zone().map(Zone::new);
        let subnet = group.subnet_id().and_then(|subnet| ground.subnets.get(subnet).cloned());
        let place = place(group.launch_template_and_overrides(), ground);
        let zone = zone.or(subnet).or_else(|| place.and_then(|(zone, _)| zone));
        let (Some(zone), Some(instance_type)) = (zone, group.instance_type()) else {
            return Vec::new();
        };
        let usage = usage(group.lifecycle());
        let one = |id: &String| LaunchedInstance {
            id: InstanceId::new(id),
            instance_type: InstanceType::new(instance_type.as_str()),
            zone: zone.clone(),
            usage,
        };
        group.instance_ids().iter().map(one).collect()
    };
    answer.instances().iter().flat_map(of_group).collect()
}

fn usage(lifecycle: Option<&InstanceLifecycle>) -> Usage {
    if lifecycle == Some(&InstanceLifecycle::Spot) { Usage::Spot } else { Usage::OnDemand }
}

type Place = (Option<Zone>, Option<InstanceType>);

fn place(of: Option<&LaunchTemplateAndOverridesResponse>, ground: &LaunchSite) -> Option<Place> {
    let overrides = of?.overrides()?;
    let subnet = overrides.subnet_id().and_then(|subnet| ground.subnets.get(subnet).cloned());
    let zone = overrides.availability_zone().map(Zone::new).or(subnet);
    Some((zone, overrides.instance_type().map(|name| InstanceType::new(name.as_str()))))
}

/// What EC2 said against a launch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LaunchRefusals {
    /// What it was short of, as far as it says which type.
    pub(super) shortages: Vec<Offering>,
    /// The same in its own words, and what to do.
    pub(super) said: Option<String>,
    /// What is wrong with the launch itself.
    pub(super) refusal: Option<Fault>,
}

pub(super) fn against(answer: &CreateFleetOutput, ground: &LaunchSite) -> LaunchRefusals {
    let mut against = LaunchRefusals::default();
    let mut shortages = BTreeSet::new();
    for error in answer.errors() {
        let code = error.error_code().unwrap_or_default();
        tracing::debug!(code, message = error.error_message(), "a fleet was told");
        if !answers::is_short(code) {
            against.refusal = against.refusal.or_else(|| Some(refused(error)));
            continue;
        }
        against.said = against.said.or_else(|| answers::short_for(code));
        let place = place(error.launch_template_and_overrides(), ground);
        if let Some((Some(zone), Some(instance_type))) = place {
            shortages.insert(Offering { usage: usage(error.lifecycle()), instance_type, zone });
        }
    }
    against.shortages = shortages.into_iter().collect();
    against
}

fn refused(error: &CreateFleetError) -> Fault {
    const CLIENT_ERROR: u16 = 400;
    let code = error.error_code().unwrap_or_default();
    let message = error.error_message().unwrap_or_default();
    // The code is that of any parameter; only the message tells of these two.
    if message.contains("different networks") {
        return Fault::Denied(format!("{code}: {message} ({PLACES})"));
    }
    by_code(code, message, CLIENT_ERROR).fault()
}

#[cfg(test)]
mod tests;
