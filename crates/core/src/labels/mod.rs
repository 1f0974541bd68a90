//! Labels: what a job asks for, in RunsOn's grammar.
//!
//! A job speaks to us if one of its labels has a *head* (`runs-on` or `bullpen`, with an optional
//! `=id`), or is `dependabot`. Everything else is pairs: `cpu=4`, `family=c7a+m7a`, `pool=small`. With
//! `pool=` the pool decides, and every other key but `env` and `region` is ignored, whatever it says.
//! A label `warm-<request>` is nobody's to claim: only that request's own runners have it.
//!
//! Labels are written by strangers. Their number, length and lists are bounded, a key that there is
//! not is an error rather than ignored (`cpus=32` would silently be a small machine), and what is
//! shown of them is shortened and escaped.
//!
//! Not here: where a job goes (`route`), what an operator allows ([`policy`]), or which labels a runner
//! may have ([`ownership`]).

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

/// More labels than this are not read: a runner cannot be registered with more.
pub const LABELS_MAX: usize = 100;
/// Longer labels are not read, in bytes; the longest sensible one is about half of it.
pub const LABEL_BYTES_MAX: usize = 256;
/// More pairs than this, over all labels, are not read; there are not half as many keys.
pub const PAIRS_MAX: usize = 64;
const _: () = assert!(PAIRS_MAX > 2 * LabelKey::ALL.len());

/// What a job's labels say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Whether they speak to us. `dependabot` does only if there is a pool of that name.
    pub ours: bool,
    /// Whether one of them has a head, so that they speak to us whatever pools there are.
    pub has_head: bool,
    /// What they ask for; empty if they do not.
    pub spec: LabelSpec,
    /// What is wrong with them, or worth saying.
    pub findings: Vec<LabelFinding>,
}

impl Parsed {
    /// What makes them unusable.
    pub fn errors(&self) -> impl Iterator<Item = &LabelFinding> {
        self.findings.iter().filter(|finding| finding.severity() == Severity::Error)
    }
}

/// What a label asks for, or a named runner is: everything that was said, and nothing that was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSpec {
    /// The id of the head, which only keeps one job's labels from another's.
    pub id: Option<String>,
    /// Whether `dependabot` is among the labels.
    pub dependabot: bool,
    /// Which keys were given and are heeded.
    pub given: BTreeSet<LabelKey>,
    /// The pool that is to serve the job.
    pub pool: Option<PoolName>,
    /// Which stack is meant.
    pub env: Option<String>,
    /// Which region is meant.
    pub region: Option<String>,
    /// The named runner that the rest modifies.
    pub runner: Option<ClassName>,
    /// vCPUs.
    pub cpu: Option<AmountRange>,
    /// Memory in GiB.
    pub ram: Option<AmountRange>,
    /// Which machine types will do; any, if empty.
    pub families: Vec<TypePattern>,
    /// Not a key: known of classes and of runners whose name says it.
    pub architecture: Option<Architecture>,
    /// A named image.
    pub image: Option<String>,
    /// An image by its id.
    pub ami: Option<String>,
    /// How the machine is paid for.
    pub spot: Option<Spot>,
    /// The machine's volume.
    pub volume: Option<Volume>,
    /// A volume that outlives the machine.
    pub sticky: Option<StickyVolume>,
    /// When a lost job is tried again.
    pub retry: Option<Retry>,
    /// Additions.
    pub extras: BTreeSet<Extra>,
    /// Whether people may log in.
    pub ssh: Option<bool>,
    /// Whether the machine has no public address.
    pub private: Option<bool>,
    /// Whether the machine is kept after a failure.
    pub debug: Option<bool>,
    /// Whether the machine can run virtual machines.
    pub nested_virt: Option<bool>,
}

/// The request whose label a job carries: only that request's runners have it.
pub fn request_of<S: AsRef<str>>(labels: &[S]) -> Option<RequestId> {
    labels.iter().find_map(|label| split::request_of(label.as_ref())).map(RequestId::new)
}

/// Reads a job's labels. Never fails: what cannot be read is among the findings.
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
                findings.say(label, Some(key), Problem::PoolDecides);
            }
            continue;
        }
        let Some(known) = known else {
            let suggestions = LabelKey::suggestions(key);
            findings.say(label, Some(key), Problem::UnknownKey { suggestions });
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
            findings.say(label, Some(key), problem);
        }
    }
}

impl LabelKey {
    const fn is_marker(self) -> bool {
        matches!(self, Self::Tag | Self::RunId | Self::Comment)
    }
}

impl LabelSpec {
    /// Takes one value, written as in a label.
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

    /// This, and what a named runner says where this says nothing.
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
            // One replaces the other: both together would be two images.
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

    /// Whether it says anything about a machine, or names one.
    pub fn asks_for_a_machine(&self) -> bool {
        self.given.iter().any(|key| !key.asks_for_nothing() && *key != LabelKey::Pool)
    }

    /// Whether the key is given, and only to say that what it stands for is not wanted.
    pub fn declines(&self, key: LabelKey) -> bool {
        let value = match key {
            LabelKey::Ssh => self.ssh,
            LabelKey::Debug => self.debug,
            LabelKey::NestedVirt => self.nested_virt,
            _ => None,
        };
        value == Some(false)
    }

    /// What it says about a machine, as pairs in one fixed order; without head, pool, env, region.
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

    /// The whole as one packed label, in the plainest spelling. It reads back as this.
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
