//! The policy: which keys strangers may use, and how much they may ask for.
//!
//! A rule that is not set allows everything. Rules for one repository replace those for all, rule by
//! rule. Only what a label says itself is judged: a runner that the operator defined is the
//! operator's own word, a built-in one is not. Keys that only tell labels or stacks apart ask for
//! nothing and are always allowed; so is `runner`, which the operator or the amounts bound.
//!
//! A maximum bounds what is asked for, not what comes: a class has a most of vCPUs and no most of
//! memory, so a whole type with few vCPUs and much memory passes. Who minds leaves `family` out of
//! the allowed keys.
//!
//! Not here: bounds that hold for everyone (`value`).

use std::collections::{BTreeMap, BTreeSet};

use super::value::Amounts;
use super::{Key, LabelSpec};
use crate::ids::Repository;

/// Rules, each of which may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The keys that may be used.
    pub allow: Option<BTreeSet<Key>>,
    /// The most vCPUs, in thousandths.
    pub cpu_milli_max: Option<u32>,
    /// The most memory, in thousandths of a GiB.
    pub ram_milli_max: Option<u32>,
    /// The largest volume, in GB; one that outlives the machine counts alone.
    pub volume_gb_max: Option<u32>,
    /// The most throughput of a volume, in MiB a second.
    pub volume_mibps_max: Option<u32>,
    /// The most operations of a volume a second.
    pub volume_iops_max: Option<u32>,
}

/// What an operator allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// For everyone.
    pub all: Rules,
    /// For some repositories, in place of what is set for everyone. Names in lower case.
    pub repositories: BTreeMap<Repository, Rules>,
}

/// Why a job's labels are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefusal {
    /// A key that may not be used.
    #[error("the key {key} may not be used by {repository}")]
    Key {
        /// Which.
        key: Key,
        /// By whom.
        repository: Repository,
    },
    /// More than may be asked for.
    #[error("{key}: {asked} is more than {repository} may ask for; the most is {most}")]
    TooMuch {
        /// Of what.
        key: Key,
        /// How much.
        asked: String,
        /// The maximum.
        most: String,
        /// Who asked.
        repository: Repository,
    },
}

impl Policy {
    /// The rules for one repository; its name's case does not matter, as it does not to GitHub.
    pub fn rules(&self, repository: &Repository) -> Rules {
        let key = Repository::new(repository.as_str().to_lowercase());
        let Some(own) = self.repositories.get(&key) else { return self.all.clone() };
        let all = &self.all;
        Rules {
            allow: own.allow.clone().or_else(|| all.allow.clone()),
            cpu_milli_max: own.cpu_milli_max.or(all.cpu_milli_max),
            ram_milli_max: own.ram_milli_max.or(all.ram_milli_max),
            volume_gb_max: own.volume_gb_max.or(all.volume_gb_max),
            volume_mibps_max: own.volume_mibps_max.or(all.volume_mibps_max),
            volume_iops_max: own.volume_iops_max.or(all.volume_iops_max),
        }
    }

    /// Everything that is refused; nothing if the labels are allowed. `cpu` is what they ask for in
    /// vCPUs, by a key or by a built-in runner's name.
    pub fn refusals(
        &self,
        repository: &Repository,
        spec: &LabelSpec,
        cpu: Option<Amounts>,
    ) -> Vec<PolicyRefusal> {
        let rules = self.rules(repository);
        let mut found = Vec::new();
        if let Some(allow) = &rules.allow {
            let free = |key: Key| key.asks_for_nothing() || key == Key::Runner;
            let refused = spec.given.iter().filter(|key| !free(**key) && !allow.contains(key));
            found.extend(
                refused.map(|&key| PolicyRefusal::Key { key, repository: repository.clone() }),
            );
        }
        for (key, asked, most) in amounts(spec, cpu, &rules) {
            if let Some((asked, most)) = asked.zip(most).filter(|(asked, most)| asked > most) {
                let text = |milli| Amounts { min_milli: milli, max_milli: milli }.to_string();
                let (asked, most) = (text(asked), text(most));
                let repository = repository.clone();
                found.push(PolicyRefusal::TooMuch { key, asked, most, repository });
            }
        }
        found
    }
}

/// What is asked for and what may be, in thousandths.
fn amounts(
    spec: &LabelSpec,
    cpu: Option<Amounts>,
    rules: &Rules,
) -> [(Key, Option<u32>, Option<u32>); 8] {
    let milli = |whole: Option<u32>| whole.map(|whole| whole.saturating_mul(1_000));
    let volume = spec.volume.unwrap_or_default();
    let sticky = spec.sticky.as_ref().map(|sticky| sticky.volume).unwrap_or_default();
    let size = milli(rules.volume_gb_max);
    let rate = milli(rules.volume_mibps_max);
    let iops = milli(rules.volume_iops_max);
    [
        (Key::Cpu, cpu.map(|cpu| cpu.max_milli), rules.cpu_milli_max),
        (Key::Ram, spec.ram.map(|ram| ram.max_milli), rules.ram_milli_max),
        (Key::Volume, milli(volume.size_gb), size),
        (Key::Volume, milli(volume.throughput_mibps), rate),
        (Key::Volume, milli(volume.iops), iops),
        (Key::Sticky, milli(sticky.size_gb), size),
        (Key::Sticky, milli(sticky.throughput_mibps), rate),
        (Key::Sticky, milli(sticky.iops), iops),
    ]
}
