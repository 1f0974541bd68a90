//! Launches: the request for an instant fleet, and its answer.
//!
//! The request describes what would do (vCPUs, memory, type patterns, one override for each subnet)
//! and EC2 chooses. Recent shortages are excluded: a shortage is of one type in one zone, so each
//! override has its own list of types.
//!
//! Not here: sending the request ([`super`]), or what to try next (`core::creation`).

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
use bullpen_core::ports::Fault;
use bullpen_core::request::TypePattern;
use bullpen_core::spec_hash::digest_hex;

use super::settings::Ec2Settings;
use super::site::LaunchSite;
use super::template::VERSION;
use super::{answers, tags};
use crate::fault::{PLACES, by_code};

/// The value that turns EC2's price protection off, by its documentation.
const NO_PRICE_PROTECTION: i32 = 999_999;
/// The upper bound of vCPUs if a class sets none: the largest types that are not memory-optimized.
const VCPU_MAX: u32 = 192;
/// The most memory per vCPU if any type would do: that of memory-optimized types.
const ANY_MIB_PER_VCPU_MAX: u32 = 8 * 1_024;
/// The most memory per vCPU if the class names families: that of the types with the most.
const NAMED_MIB_PER_VCPU_MAX: u32 = 32 * 1_024;
/// The upper bound of memory is at least this multiple of the class's minimum.
const MEMORY_FACTOR: u32 = 2;
/// How many types EC2 accepts in one list.
const TYPES_MAX: usize = 400;
/// Families with CPU credits: a job there runs fast only for a while.
const BURSTABLE: [&str; 1] = ["t"];
/// Families whose price pays for accelerators that most jobs do not use.
const ACCELERATED: [&str; 8] = ["dl", "f", "g", "gr", "inf", "p", "trn", "vt"];
/// The part of the name that bare-metal types share.
const METAL: &str = ".metal";
/// The pattern that matches every type.
const ANY: &str = "*";

/// The types that one override allows or excludes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Types {
    /// These patterns; if empty, any type.
    Allowed(Vec<String>),
    /// All types except these.
    AllBut(Vec<String>),
}

/// The client token: EC2 executes the same launch of the same stack once. It includes when the
/// stack was created, because a stack created again counts its launches from the start.
pub(super) fn token(settings: &Ec2Settings, site: &LaunchSite, request: &LaunchRequest) -> String {
    let text = format!("{}\n{}\n{}", settings.stack, site.born, request.intent);
    digest_hex(text.as_bytes())
}

/// The request without its token; none if every type that would do is short in every known subnet.
/// `fitting`: the types of the class's size.
pub(super) fn call(
    template: &str,
    settings: &Ec2Settings,
    site: &LaunchSite,
    request: &LaunchRequest,
    fitting: &[InstanceType],
) -> Option<CreateFleetInputBuilder> {
    let overrides: Vec<_> = site
        .facts
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
    Some(with_purchase(fleet, request.usage))
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

/// A spot machine that EC2 interrupts is not replaced: an instant fleet asks once.
fn with_purchase(fleet: CreateFleetInputBuilder, usage: Usage) -> CreateFleetInputBuilder {
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
    let (vcpu_max, memory_max) = upper_bounds(class, patterns);
    let vcpu =
        VCpuCountRangeRequest::builder().min(number(class.vcpu.min)).max(number(vcpu_max)).build();
    // EC2 requires a minimum; 0 is none.
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

/// The upper bounds of vCPUs and of memory in MiB; every request has both.
fn upper_bounds(class: &RunnerClass, patterns: &[TypePattern]) -> (u32, u32) {
    // Types named in full have the vCPUs they have: no cap.
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

/// Whether to allow bare metal. Allowing it applies to every pattern of the list, so each pattern
/// must name metal or a full type.
fn is_metal_meant(patterns: &[TypePattern]) -> bool {
    patterns.iter().any(is_metal) && patterns.iter().all(|one| is_metal(one) || is_whole(one))
}

/// Whether every pattern names its types deliberately, without regard to their price. EC2 compares
/// with the cheapest machine of the size, so price protection would exclude them all.
fn are_chosen(patterns: &[TypePattern]) -> bool {
    let is_chosen = |one| is_whole(one) || is_metal(one) || is_of(one, &ACCELERATED);
    patterns.iter().all(is_chosen)
}

/// Whether a pattern names one of these families, not merely matches it.
fn names(patterns: &[TypePattern], families: &[&str]) -> bool {
    patterns.iter().any(|pattern| is_of(pattern, families))
}

fn is_of(pattern: &TypePattern, families: &[&str]) -> bool {
    let letters = pattern.as_str().chars().take_while(char::is_ascii_alphabetic);
    let letters: String = letters.collect();
    families.contains(&letters.as_str())
}

/// The types to launch in a zone; none if all are short there.
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
    // EC2 accepts allowed or excluded types, never both.
    let allowed = |name: &&InstanceType| {
        !short.contains(name) && request.allowed_types.iter().any(|pattern| pattern.matches(name))
    };
    let left = fitting.iter().filter(allowed).take(TYPES_MAX);
    let left: Vec<String> = left.map(ToString::to_string).collect();
    (!left.is_empty()).then_some(Types::Allowed(left))
}

/// One machine that EC2 launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaunchedInstance {
    pub(super) id: InstanceId,
    pub(super) instance_type: InstanceType,
    pub(super) zone: Zone,
    pub(super) usage: Usage,
}

/// The machines in EC2's answer.
pub(super) fn launched(answer: &CreateFleetOutput, site: &LaunchSite) -> Vec<LaunchedInstance> {
    let of_group = |group: &CreateFleetInstance| -> Vec<LaunchedInstance> {
        let zone = group.availability_zone().map(Zone::new);
        let subnet = group.subnet_id().and_then(|subnet| site.facts.subnets.get(subnet).cloned());
        let place = place(group.launch_template_and_overrides(), site);
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

fn place(of: Option<&LaunchTemplateAndOverridesResponse>, site: &LaunchSite) -> Option<Place> {
    let overrides = of?.overrides()?;
    let subnet = overrides.subnet_id().and_then(|subnet| site.facts.subnets.get(subnet).cloned());
    let zone = overrides.availability_zone().map(Zone::new).or(subnet);
    Some((zone, overrides.instance_type().map(|name| InstanceType::new(name.as_str()))))
}

/// The errors in EC2's answer to a launch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LaunchRefusals {
    /// The shortages that name a type and a zone.
    pub(super) shortages: Vec<Offering>,
    /// The first shortage in words: EC2's code and what to do.
    pub(super) explanation: Option<String>,
    /// The first error that is not a shortage.
    pub(super) refusal: Option<Fault>,
}

pub(super) fn refusals(answer: &CreateFleetOutput, site: &LaunchSite) -> LaunchRefusals {
    let mut refusals = LaunchRefusals::default();
    let mut shortages = BTreeSet::new();
    for error in answer.errors() {
        let code = error.error_code().unwrap_or_default();
        tracing::debug!(code, message = error.error_message(), "error in launch answer of EC2");
        if !answers::is_short(code) {
            refusals.refusal = refusals.refusal.or_else(|| Some(refusal_fault(error)));
            continue;
        }
        refusals.explanation = refusals.explanation.or_else(|| answers::short_for(code));
        let place = place(error.launch_template_and_overrides(), site);
        if let Some((Some(zone), Some(instance_type))) = place {
            shortages.insert(Offering { usage: usage(error.lifecycle()), instance_type, zone });
        }
    }
    refusals.shortages = shortages.into_iter().collect();
    refusals
}

fn refusal_fault(error: &CreateFleetError) -> Fault {
    const CLIENT_ERROR: u16 = 400;
    let code = error.error_code().unwrap_or_default();
    let message = error.error_message().unwrap_or_default();
    // The code stands for any invalid parameter; only the message identifies this error.
    if message.contains("different networks") {
        return Fault::Denied(format!("{code}: {message} ({PLACES})"));
    }
    by_code(code, message, CLIENT_ERROR).fault()
}

#[cfg(test)]
mod tests;
