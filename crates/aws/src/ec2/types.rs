//! The facts of machine types (vCPUs, memory, architecture), asked from EC2 once and cached for
//! good, because a type never changes.
//!
//! Not here: which types a launch allows ([`super::launch`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{ArchitectureType, InstanceTypeInfo};
use bullpen_core::class::{Architecture, RunnerClass, VcpuRange};
use bullpen_core::ids::InstanceType;
use bullpen_core::ports::Fault;

use super::image::ec2_name;
use super::{FILTER_VALUES_MAX, answers, filter, lock};

/// How many types EC2 describes in one page.
const PAGE: i32 = 100;

/// A type's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypeFacts {
    pub(super) vcpu: u32,
    pub(super) memory_mib: u32,
    pub(super) architecture: Architecture,
}

/// The cache.
#[derive(Debug, Default)]
struct Known {
    types: BTreeMap<InstanceType, TypeFacts>,
    /// Sizes (least and most vCPUs, architecture) of which every type is known.
    shapes: BTreeSet<(u32, u32, Architecture)>,
}

/// The types that this process knows.
#[derive(Debug, Default)]
pub(super) struct Types(Mutex<Known>);

impl Types {
    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }

    /// The facts of a type, if they are loaded.
    pub(super) fn get(&self, name: &InstanceType) -> Option<TypeFacts> {
        self.known().types.get(name).copied()
    }

    /// The known types that fit a class's size.
    pub(super) fn of(&self, class: &RunnerClass) -> Vec<InstanceType> {
        let fits = |facts: &TypeFacts| {
            class.vcpu.contains(facts.vcpu)
                && facts.memory_mib >= class.memory_mib_min
                && facts.architecture == class.architecture
        };
        let known = self.known();
        let fitting = known.types.iter().filter(|(_, facts)| fits(facts));
        fitting.map(|(name, _)| name.clone()).collect()
    }

    /// Loads every type of a class's size, unless loaded.
    pub(super) async fn load_class(
        &self,
        client: &Client,
        class: &RunnerClass,
    ) -> Result<(), Fault> {
        let shape = (class.vcpu.min, class.vcpu.max, class.architecture);
        if self.known().shapes.contains(&shape) {
            return Ok(());
        }
        let call = client.describe_instance_types().max_results(PAGE);
        let call = call.filters(filter(
            "processor-info.supported-architecture",
            [ec2_name(class.architecture).as_str()],
        ));
        let call = match counts(class.vcpu) {
            Some(counts) => call.filters(filter("vcpu-info.default-vcpus", counts)),
            None => call,
        };
        self.remember(call.into_paginator().items().send().collect().await)?;
        self.known().shapes.insert(shape);
        Ok(())
    }

    /// Loads these types, unless loaded.
    pub(super) async fn load(
        &self,
        client: &Client,
        names: impl IntoIterator<Item = InstanceType>,
    ) -> Result<(), Fault> {
        let names: BTreeSet<InstanceType> = names.into_iter().collect();
        let unknown: Vec<_> = names.into_iter().filter(|name| self.get(name).is_none()).collect();
        for batch in unknown.chunks(usize::try_from(PAGE).unwrap_or(1)) {
            let types = batch.iter().map(|name| name.as_str().into()).collect();
            let call = client.describe_instance_types().set_instance_types(Some(types));
            self.remember(call.into_paginator().items().send().collect().await)?;
        }
        Ok(())
    }

    fn remember<E>(
        &self,
        found: Result<
            Vec<InstanceTypeInfo>,
            aws_smithy_runtime_api::client::result::SdkError<
                E,
                aws_smithy_runtime_api::client::orchestrator::HttpResponse,
            >,
        >,
    ) -> Result<(), Fault>
    where
        E: aws_sdk_ec2::error::ProvideErrorMetadata + std::error::Error + 'static,
    {
        let found = found.map_err(|error| answers::fault(&error))?;
        let mut known = self.known();
        known.types.extend(found.iter().filter_map(facts));
        Ok(())
    }
}

/// Every vCPU count of a range; none if they are too many for a filter, and then all types are
/// loaded.
fn counts(range: VcpuRange) -> Option<Vec<String>> {
    let count = usize::try_from(range.max.checked_sub(range.min)?).ok()? + 1;
    (count < FILTER_VALUES_MAX).then(|| (range.min..=range.max).map(|n| n.to_string()).collect())
}

fn facts(info: &InstanceTypeInfo) -> Option<(InstanceType, TypeFacts)> {
    let architectures = info.processor_info()?.supported_architectures();
    let architecture = if architectures.contains(&ArchitectureType::Arm64) {
        Architecture::Arm64
    } else if architectures.contains(&ArchitectureType::X8664) {
        Architecture::X64
    } else {
        return None;
    };
    let facts = TypeFacts {
        vcpu: u32::try_from(info.v_cpu_info()?.default_v_cpus()?).ok()?,
        memory_mib: u32::try_from(info.memory_info()?.size_in_mib()?).ok()?,
        architecture,
    };
    Some((InstanceType::new(info.instance_type()?.as_str()), facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_asked_for_by_its_counts_unless_they_are_too_many() {
        assert_eq!(counts(VcpuRange { min: 2, max: 4 }).unwrap(), ["2", "3", "4"]);
        assert_eq!(counts(VcpuRange::exactly(8)).unwrap(), ["8"]);
        assert_eq!(counts(VcpuRange { min: 1, max: 4_096 }), None);
        assert_eq!(counts(VcpuRange { min: 4, max: 2 }), None);
    }
}
