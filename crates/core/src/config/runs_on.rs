//! `runs-on.yml` as a whole: its top-level keys, and checks across its parts.
//!
//! Not here: the parts (`runner`, `image`, `pool`, `extension`).

use std::collections::{BTreeMap, BTreeSet};

use super::extension::{self, Extension, OnUnfulfillable};
use super::finding::{ConfigRead, Findings, TextPosition};
use super::image::{self, ImageConfig, Platform};
use super::node::{MappingEntry, Node, Value};
use super::pool::{self, PoolConfig};
use super::pool_keys;
use super::read::{KeySupport, MappingShape, entries, ignored, shown, used};
use super::runner::{self, RunnerConfig};
use super::stack::Stack;
use super::{churn, label_policy, timetable, yaml};
use crate::class::{Architecture, RunnerClass, Scripts};
use crate::download::Download;
use crate::ids::{ClassName, ImageName, PoolName};
use crate::job::{CodeRules, wake};
use crate::labels::class::Catalogue;
use crate::labels::policy::Policy;
use crate::spelling::nearest;

/// The keys of the file. Unknown keys are warned about, except those that begin with `x-`.
pub const FILE: MappingShape = MappingShape {
    name: "the file",
    keys: &[
        used("runners"),
        used("images"),
        used("pools"),
        used("x-bullpen"),
        ignored("_extends", "only this file is read"),
        ignored("admins", "no machine has an inbound path"),
    ],
};

/// Every kind of mapping in the file.
pub const SHAPES: &[&MappingShape] = &[
    &FILE,
    &runner::RUNNER,
    &image::IMAGE,
    &pool::POOL,
    &timetable::ENTRY,
    &timetable::MATCH,
    &extension::EXTENSION,
    &extension::RUNNER_EXTENSION,
    &extension::REUSE,
    &pool_keys::POOL_EXTENSION,
    &label_policy::LABELS,
    &label_policy::LABEL_RULES,
    &label_policy::LABEL_MAXIMA,
    &label_policy::PLAIN_LABELS,
];

/// The mappings that a misplaced key may belong to, the likelier first. The file itself is not in
/// the list, because several mappings have keys such as `runners`.
const STRAYS: &[&MappingShape] = &[
    &timetable::ENTRY,
    &timetable::MATCH,
    &pool::POOL,
    &runner::RUNNER,
    &image::IMAGE,
    &pool_keys::POOL_EXTENSION,
    &extension::RUNNER_EXTENSION,
    &extension::EXTENSION,
    &extension::REUSE,
];

/// The contents of `runs-on.yml`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Machine shapes.
    pub runners: BTreeMap<ClassName, RunnerConfig>,
    /// Images beside the built-in ones.
    pub images: BTreeMap<ImageName, ImageConfig>,
    /// Standby pools.
    pub pools: BTreeMap<PoolName, PoolConfig>,
    /// Pools with errors, of any stack. They still exist: their machines stay, and jobs that name
    /// such a pool wait until the operator fixes the file.
    pub broken: BTreeSet<PoolName>,
    /// The pool of jobs that name none.
    pub default_pool: Option<PoolName>,
    /// What the service does about a job for which no runner can ever be started.
    pub on_unfulfillable: OnUnfulfillable,
    /// What labels may ask for.
    pub labels: Policy,
    /// Which code may run on machines that another owner used before.
    pub code: CodeRules,
}

impl Config {
    /// The runners and images that labels can name.
    pub fn catalogue(&self) -> Catalogue {
        let runners = self.runners.iter().map(|(name, runner)| (name.clone(), runner.as_label()));
        let images = self.images.iter();
        let images = images.map(|(name, image)| (name.to_string(), image.architecture));
        let scripts = self.runners.iter();
        let scripts = scripts.map(|(name, runner)| (name.clone(), self.scripts(runner)));
        let named = Catalogue {
            runners: runners.collect(),
            images: images.collect(),
            scripts: scripts.filter(|(_, scripts)| !scripts.is_empty()).collect(),
            bases: self
                .images
                .iter()
                .map(|(name, image)| (name.to_string(), image.base()))
                .collect(),
        };
        if named.runners.is_empty() {
            return Catalogue {
                images: named.images,
                bases: named.bases,
                ..Catalogue::of_classes(&RunnerClass::defaults())
            };
        }
        named
    }

    /// Replaces broken pools by their versions from `before`. A pool stays broken if `before` does
    /// not have it, or if its runner no longer exists or cannot be used for pools.
    #[must_use]
    pub fn keeping(mut self, before: &Self) -> Self {
        for name in std::mem::take(&mut self.broken) {
            match before.pools.get(&name).filter(|pool| self.can_be_in_a_pool(&pool.runner)) {
                Some(pool) => {
                    self.pools.insert(name, pool.clone());
                }
                None => {
                    self.broken.insert(name);
                }
            }
        }
        self
    }

    fn can_be_in_a_pool(&self, runner: &ClassName) -> bool {
        self.runners.contains_key(runner) && self.boots(runner) != Some(Platform::Windows)
    }

    /// The platform of a runner's image, if known.
    fn boots(&self, runner: &ClassName) -> Option<Platform> {
        let image = self.runners.get(runner)?.image.as_ref()?;
        self.platform(image).map(|(platform, _)| platform)
    }

    /// The scripts that a runner's machines run before jobs: those of the image and its own.
    fn scripts(&self, runner: &RunnerConfig) -> Scripts {
        let image = runner.image.as_ref().and_then(|name| self.images.get(name));
        Scripts {
            image_preinstall: image.and_then(|image| image.preinstall.clone()),
            preinstall: runner.preinstall.clone(),
            image_prerun: image.and_then(|image| image.prerun.clone()),
            prerun: runner.prerun.clone(),
        }
    }

    /// The scripts that machines download.
    pub fn fetched_scripts(&self) -> impl Iterator<Item = Download> {
        let of_runners = self.runners.values().flat_map(|one| [&one.preinstall, &one.prerun]);
        let of_images = self.images.values().flat_map(|one| [&one.preinstall, &one.prerun]);
        let scripts = of_runners.chain(of_images).flatten();
        scripts.filter_map(|script| Download::named_by(script)?.ok())
    }

    /// The platform and architecture of an image, if known.
    pub fn platform(&self, name: &ImageName) -> Option<(Platform, Architecture)> {
        match self.images.get(name) {
            Some(image) => Some((image.platform, image.architecture)),
            None if image::is_built_in(name.as_str()) => {
                Some(image::built_in_platform(name.as_str()))
            }
            None => None,
        }
    }
}

/// Reads and checks `runs-on.yml` without knowing the stacks.
pub fn read(bytes: &[u8]) -> ConfigRead<Config> {
    read_beside(bytes, &[])
}

/// Reads `runs-on.yml` and checks it against the `bullpen.toml` of these stacks too.
pub fn read_beside(bytes: &[u8], stacks: &[Stack]) -> ConfigRead<Config> {
    let mut findings = Findings::default();
    let config = super::text_of(bytes, super::RUNS_ON_BYTES_MAX, &mut findings)
        .and_then(|text| yaml::read(text, &mut findings).or_else(|| empty(&mut findings)))
        .map(|root| file(&root, stacks, &mut findings));
    ConfigRead::new(config, findings)
}

/// The parser gives no tree for an empty file; without findings, read it as an empty mapping.
fn empty(findings: &mut Findings) -> Option<Node> {
    if findings.any() {
        return None;
    }
    findings.warning(TextPosition::START, super::EMPTY_FILE, "the file says nothing");
    Some(Node::new(TextPosition::START, Value::Map(Vec::new())))
}

fn file(root: &Node, stacks: &[Stack], findings: &mut Findings) -> Config {
    if flawed_outside_pools(root) {
        findings.blame();
    }
    if root.is_nothing() {
        return empty(findings).map(|_| Config::default()).unwrap_or_default();
    }
    let Value::Map(top) = &root.value else {
        let message = "the file must be a mapping with `runners:` and `pools:`";
        findings.error(root.mark, "wrong-type", message);
        return Config::default();
    };
    top_level(top, findings);
    let part = |key: &str| top.iter().find(|entry| entry.key == key && !entry.node.is_nothing());
    let listed = |key: &str, findings: &mut Findings| {
        part(key).map(|entry| entries(&entry.node, key, findings)).unwrap_or_default()
    };
    let parts = Parts {
        images: listed("images", findings),
        runners: listed("runners", findings),
        pools: listed("pools", findings),
        stacks,
    };
    let names = |entries: &'_ [MappingEntry]| -> BTreeSet<String> {
        entries.iter().map(|entry| entry.key.clone()).collect()
    };
    let (runner_names, pool_names) = (names(parts.runners), names(parts.pools));
    let extension = part("x-bullpen").map(|entry| {
        let classes = RunnerClass::defaults();
        let mut known = borrowed(&runner_names);
        if known.is_empty() {
            known.extend(classes.iter().map(|class| class.name.as_str()));
        }
        extension::read(&entry.node, &known, &borrowed(&pool_names), STRAYS, findings)
    });
    assemble(&parts, extension.unwrap_or_default(), findings)
}

/// The parts that a [`Config`] is assembled from.
struct Parts<'a> {
    images: &'a [MappingEntry],
    runners: &'a [MappingEntry],
    pools: &'a [MappingEntry],
    /// The known stacks that the file is for.
    stacks: &'a [Stack],
}

fn borrowed(names: &BTreeSet<String>) -> BTreeSet<&str> {
    names.iter().map(String::as_str).collect()
}

fn assemble(parts: &Parts<'_>, extension: Extension, findings: &mut Findings) -> Config {
    let &Parts { images, runners, pools, stacks } = parts;
    let mut config = Config {
        default_pool: extension.default_pool,
        on_unfulfillable: extension.on_unfulfillable,
        labels: extension.labels,
        code: extension.code,
        ..Config::default()
    };
    for entry in images {
        if !is_named(entry, &image::IMAGE, findings) {
            continue;
        }
        check_name(entry, "image", findings);
        if let Some(read) = image::read(&entry.node, STRAYS, findings) {
            config.images.insert(ImageName::new(&entry.key), read);
        }
    }
    let image_names = images.iter().map(|entry| entry.key.as_str()).collect();
    for entry in runners {
        if !is_named(entry, &runner::RUNNER, findings) {
            continue;
        }
        check_name(entry, "runner", findings);
        check_free(entry, findings);
        let Some(mut read) = runner::read(&entry.node, &image_names, STRAYS, findings) else {
            continue;
        };
        if let Some(ours) = extension.runners.get(&entry.key) {
            let ours = ours.clone();
            (read.reuse, read.group) = (ours.reuse, ours.group);
            (read.trust, read.usage, read.max_runtime) = (ours.trust, ours.usage, ours.max_runtime);
        }
        config.runners.insert(ClassName::new(&entry.key), read);
    }
    let platforms = platforms(runners, &config);
    let zones = if pools.is_empty() { BTreeSet::new() } else { zones() };
    let around = pool::PoolContext {
        runners: &platforms,
        zones: &zones,
        extensions: &extension.pools,
        stacks,
        others: STRAYS,
    };
    for entry in pools {
        let name = PoolName::new(&entry.key);
        if is_named(entry, &pool::POOL, findings)
            && let Some(read) =
                findings.inside(&name, |findings| pool::read(entry, &around, findings))
        {
            config.pools.insert(name, read);
        }
    }
    config.broken.clone_from(findings.broken());
    config.pools.retain(|name, _| !config.broken.contains(name));
    churn::check(pools, config.pools.iter(), findings);
    config
}

/// Whether the tree has an error outside of single pools.
fn flawed_outside_pools(root: &Node) -> bool {
    let of_extension = |entry: &MappingEntry| match entry.key.as_str() {
        "pools" => entry.node.flawed,
        _ => entry.node.extent().flawed,
    };
    let of_file = |entry: &MappingEntry| match entry.key.as_str() {
        "pools" => entry.node.flawed,
        "x-bullpen" => entry.node.flawed || entry.node.entries().iter().any(of_extension),
        _ => entry.node.extent().flawed,
    };
    root.flawed || root.entries().iter().any(of_file)
}

/// The platform of each named runner. Runners with errors are included, so that the pools that name
/// them are not reported too.
fn platforms<'n>(
    runners: &'n [MappingEntry],
    config: &Config,
) -> BTreeMap<&'n str, Option<Platform>> {
    let platform = |entry: &MappingEntry| config.boots(&ClassName::new(&entry.key));
    runners.iter().map(|entry| (entry.key.as_str(), platform(entry))).collect()
}

/// Every IANA time zone of the bundled database.
fn zones() -> BTreeSet<String> {
    let bundled = jiff::tz::TimeZoneDatabase::bundled();
    bundled.available().map(|name| name.as_str().to_owned()).collect()
}

fn top_level(top: &[MappingEntry], findings: &mut Findings) {
    for entry in top {
        let known = FILE.keys.iter().find(|key| key.name == entry.key);
        match known.map(|key| &key.fate) {
            Some(KeySupport::Ignored(why)) => {
                let message = format!("`{}` is accepted and not acted on: {why}", entry.key);
                findings.warning(entry.mark, "not-acted-on", message);
            }
            Some(KeySupport::Used | KeySupport::Renamed(_)) if entry.node.is_nothing() => {
                let message = format!("`{}` has no value and is taken as absent", entry.key);
                findings.warning(entry.mark, "empty-value", message);
            }
            Some(_) => {}
            None => unknown_top_level(entry, findings),
        }
    }
}

/// Warns about an unknown top-level key, which is legal in RunsOn's file but may be a mistake.
fn unknown_top_level(entry: &MappingEntry, findings: &mut Findings) {
    if entry.key.starts_with("x-") {
        if !nearest(&entry.key, ["x-bullpen"]).is_empty() {
            let message = format!("{} is not read", shown(&entry.key));
            let finding = findings.warning(entry.mark, "unknown-key", message);
            finding.instead("did you mean `x-bullpen`?");
        }
        return;
    }
    let message = format!("unknown key {} in the file; it is not read", shown(&entry.key));
    let meant = findings.did_you_mean(&entry.key, FILE.keys.iter().map(|key| key.name));
    let finding = findings.warning(entry.mark, "unknown-key", message);
    let strayed = STRAYS.iter().find(|shape| shape.has(&entry.key));
    finding.instead = meant
        .or_else(|| strayed.map(|shape| format!("it belongs in {}", shape.name)))
        .or_else(|| Some("start its name with `x-` if it is yours".to_owned()));
}

/// Whether an entry is a name with a mapping. If its key is a key of that mapping, the name is
/// missing.
fn is_named(entry: &MappingEntry, shape: &MappingShape, findings: &mut Findings) -> bool {
    let nameless = shape.has(&entry.key) && !matches!(entry.node.value, Value::Map(_));
    if nameless {
        let message =
            format!("`{}` is a key of {}, but stands where a name should", entry.key, shape.name);
        findings
            .error(entry.mark, "wrong-nesting", message)
            .instead("put the name on a line of its own above it, and indent the keys below");
    }
    !nameless
}

/// A runner must not have the name of one of the service's own queues.
fn check_free(entry: &MappingEntry, findings: &mut Findings) {
    if wake::QUEUES.contains(&&*entry.key) {
        let message = format!("a runner cannot be called `{}`: a queue of ours is", entry.key);
        findings.error(entry.mark, "reserved-name", message).instead("give it another name");
    }
}

/// Labels must be able to name it.
fn check_name(entry: &MappingEntry, noun: &str, findings: &mut Findings) {
    let legal = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
    if entry.key.is_empty() || !entry.key.chars().all(legal) {
        let name = shown(&entry.key);
        let message =
            format!("the {noun} name {name} is not made of letters, digits, `.`, `_`, `-`");
        findings.error(entry.mark, "bad-name", message).instead("no label could name it");
    }
}

#[cfg(test)]
mod tests;
