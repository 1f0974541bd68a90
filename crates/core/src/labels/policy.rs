//! The policy: which keys labels may use, how much they may ask for, and the operator's other
//! labels.
//!
//! A rule that the operator does not set has a safe and cheap default. Rules for one repository
//! replace those for all, rule by rule. The policy judges the label's own settings and those of
//! built-in runners; it does not judge runners that the operator configured. It always allows
//! `runner`, and keys that only distinguish labels or stacks.
//!
//! Not here: bounds without exception (`value`), or which labels a runner may have (`ownership`).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::value::AmountRange;
use super::{LabelKey, LabelSpec};
use crate::ids::{ClassName, PoolName, Repository, RunnerGroup};
use crate::request::{TypePattern, glob};
use crate::sabotage;

/// The keys that a label may use unless the operator sets others. Not among them: `ami` (an unknown
/// image would boot with the stack's role and network), `ssh` (a login), `debug` (a machine that
/// stays), `sticky` (a volume that outlives its job), `nested-virt` (whole metal machines).
pub const KEYS_DEFAULT: &[LabelKey] = &[
    LabelKey::Cpu,
    LabelKey::Ram,
    LabelKey::Family,
    LabelKey::Image,
    LabelKey::Spot,
    LabelKey::Volume,
    LabelKey::Disk,
    LabelKey::Hdd,
    LabelKey::Retry,
    LabelKey::Extras,
    LabelKey::Private,
    LabelKey::Pool,
    LabelKey::Fleet,
];
/// In vCPUs: the largest of RunsOn's usual runners.
pub const CPU_MAX_DEFAULT: u32 = 64;
/// In GiB: four for each vCPU of the maximum.
pub const RAM_MAX_DEFAULT: u32 = 256;
/// In GB: about ten times a full image.
pub const VOLUME_GB_MAX_DEFAULT: u32 = 500;
/// In MiB a second: the maximum of a `gp3` volume.
pub const VOLUME_MIBPS_MAX_DEFAULT: u32 = 1_000;
/// In operations a second: the maximum of a `gp3` volume.
pub const VOLUME_IOPS_MAX_DEFAULT: u32 = 16_000;
/// Burstable, compute, general and memory types; no accelerators and no giants. Metal hosts of
/// these families need another rule ([`Family`]).
pub const FAMILIES_DEFAULT: &[&str] = &["a", "c", "m", "r", "t"];
/// The part of a size's name that marks a metal host.
const METAL: &str = "metal";

/// The rules of a policy; an absent rule has a default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The keys that may be used.
    pub allow: Option<BTreeSet<LabelKey>>,
    /// The machine families that `family` may name.
    pub families: Option<Vec<Family>>,
    /// The maximum of vCPUs, in thousandths.
    pub cpu_milli_max: Option<u32>,
    /// The maximum of memory, in thousandths of a GiB.
    pub ram_milli_max: Option<u32>,
    /// The maximum size of a volume, in GB; applies to `volume` and to `sticky` each.
    pub volume_gb_max: Option<u32>,
    /// The maximum throughput of a volume, in MiB a second.
    pub volume_mibps_max: Option<u32>,
    /// The maximum operations of a volume a second.
    pub volume_iops_max: Option<u32>,
}

/// Machine families by the beginning of their names: `c` covers `c7a` and `c*` but not `cat1`, `c7`
/// covers `c7a.large`, `*` covers everything. A metal host costs as much as its family's largest
/// machine, so only a family that names it, such as `c7g.metal`, or the key `nested-virt` allows
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family(String);

impl Family {
    /// The families whose names begin with `text`.
    pub fn new(text: &str) -> Self {
        Self(text.to_lowercase())
    }

    /// The beginning of the names, as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn covers(&self, pattern: &TypePattern) -> bool {
        let Some(rest) = pattern.as_str().strip_prefix(self.0.as_str()) else {
            return self.0 == "*";
        };
        let is_series = self.0.bytes().all(|byte| byte.is_ascii_alphabetic());
        !(is_series && rest.starts_with(|c: char| c.is_ascii_alphabetic()))
    }

    fn names_metal(&self) -> bool {
        self.0.contains(METAL)
    }
}

/// A list of labels without a head that the operator lets jobs carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainLabels {
    /// The labels, in lower case; `*` stands for any characters.
    pub labels: Vec<String>,
    /// The pool or runner that serves jobs with these labels alone; `None` if the labels are
    /// allowed only beside ours.
    pub serves: Option<ServedBy>,
    /// The repositories whose jobs may carry them, in lower case; every repository if absent.
    pub repositories: Option<BTreeSet<Repository>>,
    /// The stack that serves them.
    pub env: String,
}

/// The pool or runner that serves the jobs of plain labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServedBy {
    /// A standby pool.
    Pool(PoolName),
    /// Machines of a named runner.
    Runner(ClassName),
}

impl PlainLabels {
    /// Whether the list contains this label.
    pub fn has(&self, label: &str) -> bool {
        let label = label.trim().to_lowercase();
        self.labels.iter().any(|pattern| glob(pattern.as_bytes(), label.as_bytes()))
    }
}

/// The operator's rules for labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The rules for all repositories.
    pub all: Rules,
    /// Rules of single repositories, which replace those for all. Names in lower case.
    pub repositories: BTreeMap<Repository, Rules>,
    /// The lists of labels without a head.
    pub plain: Vec<PlainLabels>,
    /// The runner groups that runners join at GitHub.
    pub groups: Groups,
}

/// Runner groups by name. A repository's group wins over that of its pool or class, and the group
/// for all repositories comes last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The group for all repositories.
    pub all: Option<RunnerGroup>,
    /// The groups of single repositories. Names in lower case.
    pub repositories: BTreeMap<Repository, RunnerGroup>,
}

impl Groups {
    /// The group of a runner for a job of this repository.
    pub fn of<'g>(
        &'g self,
        repository: &Repository,
        of_pool: Option<&'g RunnerGroup>,
        of_class: Option<&'g RunnerGroup>,
    ) -> Option<&'g RunnerGroup> {
        let own = self.repositories.get(&folded(repository));
        own.or(of_pool).or(of_class).or(self.all.as_ref())
    }
}

/// Folds the case, because GitHub ignores the case of names.
fn folded(repository: &Repository) -> Repository {
    Repository::new(repository.as_str().to_lowercase())
}

/// Why the policy refuses a job's labels. The text is for the job's author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefusal {
    /// The label may not use this key.
    #[error("the key {key} may not be used by {repository}{}", instead(*.key))]
    LabelKey {
        /// The key.
        key: LabelKey,
        /// The job's repository.
        repository: Repository,
    },
    /// The label may not ask for this machine family.
    #[error("family: {family} may not be asked for by {repository}; allowed are {allowed}")]
    Family {
        /// The family or type in the label.
        family: String,
        /// The allowed families.
        allowed: String,
        /// The job's repository.
        repository: Repository,
    },
    /// The label names a type with more vCPUs than allowed.
    #[error(
        "family: {family} has {vcpus} vCPUs, more than {repository} may ask for; the most is {most}"
    )]
    Size {
        /// The family or type in the label.
        family: String,
        /// The type's vCPUs, by its size.
        vcpus: u32,
        /// The maximum.
        most: String,
        /// The job's repository.
        repository: Repository,
    },
    /// The label asks for a metal host, which its family's rule alone does not allow.
    #[error(
        "family: {family} is a metal host, which {repository} may not ask for; ask for another size"
    )]
    Metal {
        /// The family or type in the label.
        family: String,
        /// The job's repository.
        repository: Repository,
    },
    /// The label asks for more than allowed.
    #[error("{key}: {asked} is more than {repository} may ask for; the most is {most}")]
    TooMuch {
        /// The key.
        key: LabelKey,
        /// The amount that the label asks for.
        asked: String,
        /// The maximum.
        most: String,
        /// The job's repository.
        repository: Repository,
    },
}

/// What an author can write instead of a key.
const fn instead(key: LabelKey) -> &'static str {
    match key {
        LabelKey::Ami => "; name an image instead, as image=NAME",
        LabelKey::Sticky => "; ask for a volume instead, as volume=80gb",
        _ => "; leave it out",
    }
}

impl Policy {
    /// The rules for one repository, defaults included; the case of its name does not matter.
    pub fn rules(&self, repository: &Repository) -> Rules {
        let key = folded(repository);
        let unset = Rules::default();
        let own = self.repositories.get(&key).unwrap_or(&unset);
        let all = &self.all;
        let milli = |whole: u32| whole * 1_000;
        let default_keys = || Some(KEYS_DEFAULT.iter().copied().collect());
        let default_families = || Some(FAMILIES_DEFAULT.iter().map(|it| Family::new(it)).collect());
        Rules {
            allow: own.allow.clone().or_else(|| all.allow.clone()).or_else(default_keys),
            families: own
                .families
                .clone()
                .or_else(|| all.families.clone())
                .or_else(default_families),
            cpu_milli_max: own.cpu_milli_max.or(all.cpu_milli_max).or(Some(milli(CPU_MAX_DEFAULT))),
            ram_milli_max: own.ram_milli_max.or(all.ram_milli_max).or(Some(milli(RAM_MAX_DEFAULT))),
            volume_gb_max: own.volume_gb_max.or(all.volume_gb_max).or(Some(VOLUME_GB_MAX_DEFAULT)),
            volume_mibps_max: own
                .volume_mibps_max
                .or(all.volume_mibps_max)
                .or(Some(VOLUME_MIBPS_MAX_DEFAULT)),
            volume_iops_max: own
                .volume_iops_max
                .or(all.volume_iops_max)
                .or(Some(VOLUME_IOPS_MAX_DEFAULT)),
        }
    }

    /// The lists of plain labels that apply to this repository in this stack.
    pub fn plain_for<'p>(
        &'p self,
        repository: &Repository,
        env: &'p str,
    ) -> impl Iterator<Item = &'p PlainLabels> {
        let key = folded(repository);
        self.plain.iter().filter(move |plain| {
            let named = plain.repositories.as_ref();
            plain.env == env && named.is_none_or(|named| named.contains(&key))
        })
    }

    /// All refusals; empty if the labels are allowed. `cpu` is the vCPUs that they ask for, by a
    /// key or by a built-in runner's name.
    pub fn refusals(
        &self,
        repository: &Repository,
        spec: &LabelSpec,
        cpu: Option<AmountRange>,
    ) -> Vec<PolicyRefusal> {
        if sabotage!("label-policy-allows-everything") {
            return Vec::new();
        }
        let rules = self.rules(repository);
        let mut found = refused_keys(&rules, spec, repository);
        let family = refused_families(&rules, spec, repository)
            .or_else(|| refused_metal(&rules, spec, repository))
            .or_else(|| refused_size(&rules, spec, repository));
        found.extend(family);
        for (key, asked, most) in amounts(spec, cpu, &rules) {
            if let Some((asked, most)) = asked.zip(most).filter(|(asked, most)| asked > most) {
                let text = |milli| AmountRange { min_milli: milli, max_milli: milli }.to_string();
                let (asked, most) = (text(asked), text(most));
                let repository = repository.clone();
                found.push(PolicyRefusal::TooMuch { key, asked, most, repository });
            }
        }
        found
    }
}

fn refused_keys(rules: &Rules, spec: &LabelSpec, repository: &Repository) -> Vec<PolicyRefusal> {
    let Some(allow) = &rules.allow else { return Vec::new() };
    let free =
        |key: LabelKey| key.asks_for_nothing() || key == LabelKey::Runner || spec.declines(key);
    let refused = spec.given.iter().filter(|key| !free(**key) && !allow.contains(key));
    refused.map(|&key| PolicyRefusal::LabelKey { key, repository: repository.clone() }).collect()
}

fn refused_families(
    rules: &Rules,
    spec: &LabelSpec,
    repository: &Repository,
) -> Option<PolicyRefusal> {
    let allowed = rules.families.as_ref()?;
    let covered = |pattern: &&TypePattern| allowed.iter().any(|family| family.covers(pattern));
    let family = spec.families.iter().find(|pattern| !covered(pattern))?;
    let allowed: Vec<&str> = allowed.iter().map(Family::as_str).collect();
    Some(PolicyRefusal::Family {
        family: family.as_str().to_owned(),
        allowed: allowed.join(", "),
        repository: repository.clone(),
    })
}

/// Refuses a complete type with more vCPUs than allowed: no machine of the type has fewer.
fn refused_size(rules: &Rules, spec: &LabelSpec, repository: &Repository) -> Option<PolicyRefusal> {
    let most = rules.cpu_milli_max?;
    let large = |pattern: &&TypePattern| {
        vcpus(pattern).is_some_and(|count| count.saturating_mul(1_000) > most)
    };
    let family = spec.families.iter().find(large)?;
    Some(PolicyRefusal::Size {
        family: family.as_str().to_owned(),
        vcpus: vcpus(family).unwrap_or_default(),
        most: AmountRange { min_milli: most, max_milli: most }.to_string(),
        repository: repository.clone(),
    })
}

/// The vCPUs of a type by its size: 2 if large, 4 if xlarge, four times N if Nxlarge. `None` if it
/// names no size, or a size that has no number. Some types of old generations have a few more.
fn vcpus(pattern: &TypePattern) -> Option<u32> {
    let (_, size) = pattern.as_str().split_once('.')?;
    let size = size.strip_prefix("metal-").unwrap_or(size);
    match size.strip_suffix("large").or_else(|| size.strip_suffix('l'))? {
        "" => Some(2),
        "x" => Some(4),
        count => Some(4_u32.saturating_mul(count.strip_suffix('x')?.parse().ok()?)),
    }
}

fn refused_metal(
    rules: &Rules,
    spec: &LabelSpec,
    repository: &Repository,
) -> Option<PolicyRefusal> {
    let families = rules.families.as_deref().unwrap_or_default();
    let names = |pattern: &TypePattern| {
        families.iter().any(|family| family.names_metal() && family.covers(pattern))
    };
    let is_metal = |pattern: &&TypePattern| pattern.as_str().contains(METAL);
    let unnamed = spec.families.iter().filter(is_metal).find(|pattern| !names(pattern))?;
    let is_open = rules.allow.as_ref().is_some_and(|allow| allow.contains(&LabelKey::NestedVirt));
    (!is_open).then(|| PolicyRefusal::Metal {
        family: unnamed.as_str().to_owned(),
        repository: repository.clone(),
    })
}

/// The amounts asked for and their maxima, in thousandths.
fn amounts(
    spec: &LabelSpec,
    cpu: Option<AmountRange>,
    rules: &Rules,
) -> [(LabelKey, Option<u32>, Option<u32>); 8] {
    let milli = |whole: Option<u32>| whole.map(|whole| whole.saturating_mul(1_000));
    let volume = spec.volume.unwrap_or_default();
    let sticky = spec.sticky.as_ref().map(|sticky| sticky.volume).unwrap_or_default();
    let size = milli(rules.volume_gb_max);
    let rate = milli(rules.volume_mibps_max);
    let iops = milli(rules.volume_iops_max);
    [
        (LabelKey::Cpu, cpu.map(|cpu| cpu.max_milli), rules.cpu_milli_max),
        (LabelKey::Ram, spec.ram.map(|ram| ram.max_milli), rules.ram_milli_max),
        (LabelKey::Volume, milli(volume.size_gb), size),
        (LabelKey::Volume, milli(volume.throughput_mibps), rate),
        (LabelKey::Volume, milli(volume.iops), iops),
        (LabelKey::Sticky, milli(sticky.size_gb), size),
        (LabelKey::Sticky, milli(sticky.throughput_mibps), rate),
        (LabelKey::Sticky, milli(sticky.iops), iops),
    ]
}
