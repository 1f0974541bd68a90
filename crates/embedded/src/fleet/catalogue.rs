//! The catalogue of machine types, and choosing offerings for a launch.
//!
//! An *offering* is a type in a zone under a usage. The built-in catalogue has the shapes of
//! well-known EC2 families, so that classes, patterns and shortages mean the same on one host as in
//! a cloud. The fleet does not limit processes to their type's vCPUs and memory.
//!
//! Not here: existing machines, except their number per offering.

use std::collections::{BTreeMap, BTreeSet};

use bullpen_core::class::{Architecture, RunnerClass};
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::{InstanceType, Zone};
use bullpen_core::request::TypePattern;

/// One machine type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineType {
    /// The type's name, such as `c6i.large`.
    pub name: InstanceType,
    /// The type's vCPUs.
    pub vcpu: u32,
    /// The type's memory.
    pub memory_mib: u32,
    /// The type's architecture.
    pub architecture: Architecture,
}

/// Machine types and zones; every zone offers every type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    /// The types.
    pub types: Vec<MachineType>,
    /// The zones.
    pub zones: Vec<Zone>,
}

/// Families of the built-in catalogue: name, MiB per vCPU, architecture, their largest vCPU count.
const FAMILIES: [(&str, u32, Architecture, u32); 8] = [
    ("c6i", 2_048, Architecture::X64, 64),
    ("m6i", 4_096, Architecture::X64, 64),
    ("r6i", 8_192, Architecture::X64, 64),
    ("c7g", 2_048, Architecture::Arm64, 64),
    ("m7g", 4_096, Architecture::Arm64, 64),
    ("r7g", 8_192, Architecture::Arm64, 64),
    ("t3", 4_096, Architecture::X64, 8),
    ("t4g", 4_096, Architecture::Arm64, 8),
];
/// Sizes of the built-in catalogue: name, vCPU.
const SIZES: [(&str, u32); 7] = [
    ("large", 2),
    ("xlarge", 4),
    ("2xlarge", 8),
    ("4xlarge", 16),
    ("8xlarge", 32),
    ("12xlarge", 48),
    ("16xlarge", 64),
];
const ZONES: [&str; 2] = ["local-a", "local-b"];

impl Catalogue {
    /// Compute, balanced, memory and burstable families of both architectures, in two zones.
    pub fn built_in() -> Self {
        let mut types = Vec::new();
        for (family, mib_per_vcpu, architecture, vcpu_max) in FAMILIES {
            for (size, vcpu) in SIZES.into_iter().filter(|(_, vcpu)| *vcpu <= vcpu_max) {
                types.push(MachineType {
                    name: InstanceType::new(format!("{family}.{size}")),
                    vcpu,
                    memory_mib: vcpu * mib_per_vcpu,
                    architecture,
                });
            }
        }
        Self { types, zones: ZONES.map(Zone::new).into() }
    }

    /// The types that fit a request, with or without capacity.
    fn fitting(&self, class: &RunnerClass, allowed: &[TypePattern]) -> Vec<&MachineType> {
        let fits = |one: &&MachineType| {
            class.vcpu.contains(one.vcpu)
                && one.memory_mib >= class.memory_mib_min
                && one.architecture == class.architecture
                && allowed.iter().any(|pattern| {
                    // `*` excludes burstable types: they are slow once their credits are used up.
                    pattern.matches(&one.name)
                        && (!is_burstable(&one.name) || pattern.as_str().starts_with('t'))
                })
        };
        self.types.iter().filter(fits).collect()
    }

    /// Chooses up to `count` offerings: the fewest vCPUs first, then the least used offering.
    pub(super) fn choose(
        &self,
        request: &LaunchRequest,
        count: u32,
        out_of: &BTreeSet<Offering>,
        mut in_use: BTreeMap<Offering, u32>,
    ) -> Result<Choice<'_>, NothingFits> {
        let fitting = self.fitting(&request.class, &request.allowed_types);
        if fitting.is_empty() || self.zones.is_empty() {
            return Err(NothingFits);
        }
        let (mut open, mut shortages) = (Vec::new(), Vec::new());
        for (machine_type, zone) in
            fitting.into_iter().flat_map(|one| self.zones.iter().map(move |zone| (one, zone)))
        {
            let offering = Offering {
                usage: request.usage,
                instance_type: machine_type.name.clone(),
                zone: zone.clone(),
            };
            if request.avoid.contains(&offering) {
                continue;
            }
            if out_of.contains(&offering) {
                shortages.push(offering);
            } else {
                open.push((machine_type, offering));
            }
        }
        let mut taken = Vec::new();
        for _ in 0..count {
            let least = open.iter().min_by_key(|(machine_type, offering)| {
                let used = in_use.get(offering).copied().unwrap_or(0);
                (machine_type.vcpu, used, machine_type.memory_mib, offering)
            });
            let Some((machine_type, offering)) = least else { break };
            *in_use.entry(offering.clone()).or_default() += 1;
            taken.push((*machine_type, offering.clone()));
        }
        Ok(Choice { taken, shortages })
    }
}

/// The offerings that a launch takes, and the fitting ones that lack capacity.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice<'c> {
    pub(super) taken: Vec<(&'c MachineType, Offering)>,
    pub(super) shortages: Vec<Offering>,
}

/// No type of the catalogue fits the request; waiting does not help.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NothingFits;

/// EC2's burstable families are `t` and a number.
fn is_burstable(name: &InstanceType) -> bool {
    let mut letters = name.as_str().chars();
    letters.next() == Some('t') && letters.next().is_some_and(|second| second.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use bullpen_core::class::{Scripts, Usage, VcpuRange};
    use bullpen_core::ids::{ClassName, IntentId, SpecHash};

    use super::*;

    fn request(vcpu: VcpuRange, allowed: &[&str]) -> LaunchRequest {
        LaunchRequest {
            intent: IntentId::new("intent"),
            class: RunnerClass {
                name: ClassName::new("class"),
                vcpu,
                memory_mib_min: 4_096,
                architecture: Architecture::X64,
                scripts: Scripts::default(),
                base: Box::default(),
            },
            pool: None,
            usage: Usage::Spot,
            allowed_types: allowed.iter().map(|text| TypePattern::new(text)).collect(),
            avoid: BTreeSet::new(),
            spec_hash: SpecHash::new("1-abc"),
            count: 1,
        }
    }

    fn chosen(request: &LaunchRequest, count: u32, out_of: &[Offering]) -> (Vec<String>, usize) {
        let catalogue = Catalogue::built_in();
        let out_of = out_of.iter().cloned().collect();
        let choice = catalogue.choose(request, count, &out_of, BTreeMap::new()).unwrap();
        let taken = choice
            .taken
            .iter()
            .map(|(_, offering)| format!("{}/{}", offering.instance_type, offering.zone.as_str()));
        (taken.collect(), choice.shortages.len())
    }

    fn offering(name: &str, zone: &str) -> Offering {
        Offering {
            usage: Usage::Spot,
            instance_type: InstanceType::new(name),
            zone: Zone::new(zone),
        }
    }

    #[test]
    fn every_default_class_fits_three_families_of_each_architecture() {
        let catalogue = Catalogue::built_in();
        for mut class in RunnerClass::defaults() {
            for architecture in [Architecture::X64, Architecture::Arm64] {
                class.architecture = architecture;
                let fitting = catalogue.fitting(&class, &[TypePattern::new("*")]);
                assert_eq!(fitting.len(), 3, "{class:?}");
                assert!(fitting.iter().all(|one| one.architecture == architecture));
            }
        }
    }

    #[test]
    fn machines_are_spread_over_zones_and_types() {
        let (taken, _) = chosen(&request(VcpuRange::exactly(2), &["c*", "m*"]), 5, &[]);
        let expected = [
            "c6i.large/local-a",
            "c6i.large/local-b",
            "m6i.large/local-a",
            "m6i.large/local-b",
            "c6i.large/local-a",
        ];
        assert_eq!(taken, expected);
        let (taken, _) = chosen(&request(VcpuRange { min: 3, max: 64 }, &["c*"]), 3, &[]);
        assert!(taken.iter().all(|one| one.starts_with("c6i.xlarge/")), "{taken:?}");
    }

    #[test]
    fn burstable_types_are_chosen_only_by_name() {
        let bursts = |allowed: &[&str]| {
            let (taken, _) = chosen(&request(VcpuRange::exactly(2), allowed), 20, &[]);
            taken.iter().any(|one| one.starts_with("t3."))
        };
        assert!(!bursts(&["*"]));
        assert!(!bursts(&["*.large"]));
        assert!(bursts(&["t*"]));
        assert!(bursts(&["*", "t3.large"]));
    }

    #[test]
    fn avoided_offerings_are_skipped_and_missing_capacity_is_a_shortage() {
        let mut request = request(VcpuRange::exactly(2), &["c6i.large"]);
        request.avoid.insert(offering("c6i.large", "local-a"));
        let (taken, shortages) = chosen(&request, 3, &[]);
        assert_eq!((taken, shortages), (vec!["c6i.large/local-b".to_owned(); 3], 0));
        let out = [offering("c6i.large", "local-a"), offering("c6i.large", "local-b")];
        assert_eq!(chosen(&request, 3, &out), (Vec::new(), 1));
        let on_demand = Offering { usage: Usage::OnDemand, ..out[1].clone() };
        assert_eq!(
            chosen(&request, 1, &[on_demand]).0.len(),
            1,
            "another usage is another offering"
        );
    }

    #[test]
    fn a_request_that_no_type_fits_is_refused() {
        let catalogue = Catalogue::built_in();
        for request in
            [request(VcpuRange::exactly(3), &["*"]), request(VcpuRange::exactly(2), &["x*"])]
        {
            let choice = catalogue.choose(&request, 1, &BTreeSet::new(), BTreeMap::new());
            assert_eq!(choice, Err(NothingFits));
        }
    }
}
