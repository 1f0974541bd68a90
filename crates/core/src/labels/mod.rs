//! Labels: the settings that a job asks for, in RunsOn's grammar.
//!
//! A job is for us if one of its labels has a *head* (`runs-on` or `bullpen`, with an optional
//! `=id`), or is `dependabot`; the rest are pairs such as `cpu=4` or `family=c7a+m7a`. With `pool=`
//! the pool decides, and every other key but `env` and `region` is ignored. Only the runners of a
//! request have its label `warm-<request>`. Untrusted authors write labels, so their number, length
//! and lists are bounded, messages show them shortened and escaped, and an unknown key is an error:
//! ignoring `cpus=32` would silently give a small machine.
//!
//! Not here: where a job goes (`route`), what the operator allows ([`policy`]), or which labels a
//! runner may have ([`ownership`]).

mod binding;
pub mod class;
mod finding;
mod key;
pub mod ownership;
pub mod policy;
mod split;
#[cfg(test)]
mod tests;
pub mod value;
pub mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

pub use binding::is_bound_to_run;
pub use finding::{LabelFinding, Problem};
pub use key::LabelKey;

use crate::class::Architecture;
use crate::ids::{ClassName, PoolName, RequestId};
use crate::request::TypePattern;
use crate::severity::Severity;
use finding::LabelFindings;
use split::{LabelPair, Split};
use value::{AmountRange, Extra, Retry, Spot, ValueError, short};
use volume::{StickyVolume, Volume};

/// Labels beyond this number are not read: GitHub registers no runner with more.
pub const LABELS_MAX: usize = 100;
/// Longer labels, in bytes, are not read; the longest sensible label is about half as long.
pub const LABEL_BYTES_MAX: usize = 256;
/// Pairs beyond this number, over all labels, are not read; there are fewer than half as many keys.
pub const PAIRS_MAX: usize = 64;
const _: () = assert!(PAIRS_MAX > 2 * LabelKey::ALL.len());

/// The result of reading a job's labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Whether the job is for us. The label `dependabot` counts only if a pool has that name.
    pub ours: bool,
    /// Whether one label has a head, so that the job is for us regardless of the pools.
    pub has_head: bool,
    /// The settings they ask for; empty if the job is not for us.
    pub spec: LabelSpec,
    /// Errors, warnings and notes about them.
    pub findings: Vec<LabelFinding>,
}

impl Parsed {
    /// The findings that make them unusable.
    pub fn errors(&self) -> impl Iterator<Item = &LabelFinding> {
        self.findings.iter().filter(|finding| finding.severity() == Severity::Error)
    }
}

/// The settings of a label or a named runner, without defaults: an absent setting was not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSpec {
    /// The id of the head, which only distinguishes the labels of one job from those of another.
    pub id: Option<String>,
    /// Whether `dependabot` is among the labels.
    pub dependabot: bool,
    /// The keys that were given and not ignored.
    pub given: BTreeSet<LabelKey>,
    /// The pool that must serve the job.
    pub pool: Option<PoolName>,
    /// The stack that the job is for.
    pub env: Option<String>,
    /// The region of that stack.
    pub region: Option<String>,
    /// The named runner that the other settings modify.
    pub runner: Option<ClassName>,
    /// vCPUs.
    pub cpu: Option<AmountRange>,
    /// Memory in GiB.
    pub ram: Option<AmountRange>,
    /// The machine types it accepts; any, if empty.
    pub families: Vec<TypePattern>,
    /// The architecture; not a key, but known for classes and for runners whose name has it.
    pub architecture: Option<Architecture>,
    /// A named image.
    pub image: Option<String>,
    /// An image by its AMI id.
    pub ami: Option<String>,
    /// Whether, and how, to use spot capacity.
    pub spot: Option<Spot>,
    /// The machine's volume.
    pub volume: Option<Volume>,
    /// A volume that outlives the machine.
    pub sticky: Option<StickyVolume>,
    /// When a lost job is tried again.
    pub retry: Option<Retry>,
    /// Additions.
    pub extras: BTreeSet<Extra>,
    /// Whether people may log in by SSH.
    pub ssh: Option<bool>,
    /// Whether the machine has no public address.
    pub private: Option<bool>,
    /// Whether the machine is kept after a failure.
    pub debug: Option<bool>,
    /// Whether the machine can run virtual machines.
    pub nested_virt: Option<bool>,
}

/// The request whose label a job carries; only that request's runners have it.
pub fn request_of<S: AsRef<str>>(labels: &[S]) -> Option<RequestId> {
    labels.iter().find_map(|label| split::request_of(label.as_ref())).map(RequestId::new)
}

/// Reads a job's labels. Never fails: it reports unreadable labels as findings.
pub fn parse<S: AsRef<str>>(labels: &[S]) -> Parsed {
    let split = split::split(labels.iter().map(AsRef::as_ref));
    let Split { has_head, id, dependabot, of_a_request, pairs, mut findings, .. } = split;
    let ours = (has_head || dependabot) && !of_a_request;
    let mut spec = LabelSpec::default();
    if ours {
        spec.id = id.map(short);
        spec.dependabot = dependabot;
        fill(&mut spec, &pairs, &mut findings);
    }
    Parsed { ours, has_head, spec, findings: findings.0 }
}

fn fill(spec: &mut LabelSpec, pairs: &[LabelPair<'_>], findings: &mut LabelFindings) {
    let pool_decides = pairs.iter().any(|pair| LabelKey::parse(pair.key) == Some(LabelKey::Pool));
    let mut seen = BTreeMap::new();
    for &LabelPair { label, key, value } in pairs {
        let known = LabelKey::parse(key);
        if pool_decides && !matches!(known, Some(LabelKey::Pool | LabelKey::Env | LabelKey::Region))
        {
            if !known.is_some_and(LabelKey::asks_for_nothing) {
                findings.add(label, Some(key), Problem::PoolDecides);
            }
            continue;
        }
        let Some(known) = known else {
            let suggestions = LabelKey::suggestions(key);
            findings.add(label, Some(key), Problem::UnknownKey { suggestions });
            continue;
        };
        let first = *seen.entry(known).or_insert(value);
        let result = if value.is_empty() {
            Err(Problem::Empty)
        } else if first != value && !known.is_marker() {
            Err(Problem::Twice { first: short(first), second: short(value) })
        } else {
            spec.given.insert(known);
            spec.set(known, value)
        };
        if let Err(problem) = result {
            findings.add(label, Some(key), problem);
        }
    }
}

impl LabelKey {
    const fn is_marker(self) -> bool {
        matches!(self, Self::Tag | Self::RunId | Self::Comment)
    }
}

impl LabelSpec {
    /// Sets one value, written as in a label.
    pub fn set(&mut self, key: LabelKey, value: &str) -> Result<(), Problem> {
        self.read(key, value).map_err(Problem::Value)?;
        match key {
            LabelKey::Fleet => Err(Problem::NoFleets),
            LabelKey::Disk | LabelKey::Hdd => Err(Problem::Deprecated),
            _ => Ok(()),
        }
    }

    fn read(&mut self, key: LabelKey, value: &str) -> Result<(), ValueError> {
        match key {
            LabelKey::Pool => self.pool = Some(PoolName::new(value::parse_name(value)?)),
            LabelKey::Env => self.env = Some(value::parse_name(value)?),
            LabelKey::Region => self.region = Some(value::parse_name(value)?),
            LabelKey::Runner => self.runner = Some(ClassName::new(value::parse_name(value)?)),
            LabelKey::Cpu => self.cpu = Some(AmountRange::parse(value)?),
            LabelKey::Ram => self.ram = Some(AmountRange::parse(value)?),
            LabelKey::Family => self.families = value::parse_families(value)?,
            LabelKey::Image => self.image = Some(value::parse_name(value)?),
            LabelKey::Ami => self.ami = Some(value::parse_ami(value)?),
            LabelKey::Spot => self.spot = Some(Spot::parse(value)?),
            LabelKey::Volume => self.volume = Some(Volume::parse(value)?),
            LabelKey::Sticky => self.sticky = Some(StickyVolume::parse(value)?),
            LabelKey::Retry => self.retry = Some(Retry::parse(value)?),
            LabelKey::Extras => self.extras = value::parse_extras(value)?,
            LabelKey::Ssh => self.ssh = Some(value::parse_bool(value)?),
            LabelKey::Private => self.private = Some(value::parse_bool(value)?),
            LabelKey::Debug => self.debug = Some(value::parse_bool(value)?),
            LabelKey::NestedVirt => self.nested_virt = Some(value::parse_bool(value)?),
            LabelKey::Disk
            | LabelKey::Hdd
            | LabelKey::Tag
            | LabelKey::RunId
            | LabelKey::Comment
            | LabelKey::Fleet => {}
        }
        Ok(())
    }

    /// These settings, completed by those of a named runner.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let pick = |own: Option<bool>, base: Option<bool>| own.or(base);
        let own_image = self.image.is_some() || self.ami.is_some();
        Self {
            id: self.id.clone(),
            dependabot: self.dependabot,
            given: self.given.clone(),
            pool: self.pool.clone(),
            env: self.env.clone(),
            region: self.region.clone(),
            runner: self.runner.clone(),
            cpu: self.cpu.or(base.cpu),
            ram: self.ram.or(base.ram),
            families: if self.families.is_empty() { &base.families } else { &self.families }
                .clone(),
            architecture: self.architecture.or(base.architecture),
            // A label's image replaces the runner's `ami` too: both together would be two images.
            image: if own_image { &self.image } else { &base.image }.clone(),
            ami: if own_image { &self.ami } else { &base.ami }.clone(),
            spot: self.spot.or(base.spot),
            volume: self.volume.or(base.volume),
            sticky: self.sticky.clone().or_else(|| base.sticky.clone()),
            retry: self.retry.or(base.retry),
            extras: if self.extras.is_empty() { &base.extras } else { &self.extras }.clone(),
            ssh: pick(self.ssh, base.ssh),
            private: pick(self.private, base.private),
            debug: pick(self.debug, base.debug),
            nested_virt: pick(self.nested_virt, base.nested_virt),
        }
    }

    /// Whether it has a setting of a machine, or names a runner.
    pub fn asks_for_a_machine(&self) -> bool {
        self.given.iter().any(|key| !key.asks_for_nothing() && *key != LabelKey::Pool)
    }

    /// Whether the key is given with the value `false`, to decline a feature.
    pub fn declines(&self, key: LabelKey) -> bool {
        let value = match key {
            LabelKey::Ssh => self.ssh,
            LabelKey::Debug => self.debug,
            LabelKey::NestedVirt => self.nested_virt,
            _ => None,
        };
        value == Some(false)
    }

    /// The settings of the machine, as pairs in one fixed order; without head, pool, env and
    /// region.
    pub fn pairs(&self) -> Vec<(LabelKey, String)> {
        let text = |value: &Option<String>| value.clone();
        let flag = |value: Option<bool>| value.map(|flag| flag.to_string());
        let listed = |items: Vec<&str>| (!items.is_empty()).then(|| items.join("+"));
        let mut families: Vec<&str> = self.families.iter().map(TypePattern::as_str).collect();
        families.sort_unstable();
        let extras = self.extras.iter().map(|extra| extra.as_str()).collect();
        [
            (LabelKey::Runner, self.runner.as_ref().map(ToString::to_string)),
            (LabelKey::Cpu, self.cpu.map(|cpu| cpu.to_string())),
            (LabelKey::Ram, self.ram.map(|ram| ram.to_string())),
            (LabelKey::Family, listed(families)),
            (LabelKey::Image, text(&self.image)),
            (LabelKey::Ami, text(&self.ami)),
            (LabelKey::Spot, self.spot.map(|spot| spot.as_str().to_owned())),
            (LabelKey::Volume, self.volume.map(|volume| volume.to_string())),
            (LabelKey::Sticky, self.sticky.as_ref().map(ToString::to_string)),
            (LabelKey::Retry, self.retry.map(|retry| retry.as_str().to_owned())),
            (LabelKey::Extras, listed(extras)),
            (LabelKey::Ssh, flag(self.ssh)),
            (LabelKey::Private, flag(self.private)),
            (LabelKey::Debug, flag(self.debug)),
            (LabelKey::NestedVirt, flag(self.nested_virt)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
    }

    /// All settings as one packed label, in the plainest spelling. [`parse`] reads them back.
    pub fn packed(&self, head: &str) -> String {
        let mut label = head.to_owned();
        let named = [
            (LabelKey::Pool, self.pool.as_ref().map(ToString::to_string)),
            (LabelKey::Env, self.env.clone()),
            (LabelKey::Region, self.region.clone()),
        ];
        let named = named.into_iter().filter_map(|(key, value)| Some((key, value?)));
        for (key, value) in self.pairs().into_iter().chain(named) {
            let _ = write!(label, "/{key}={value}");
        }
        label
    }
}
