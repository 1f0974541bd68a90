//! `runners:` of `runs-on.yml`: machine shapes by name.
//!
//! Not here: our own keys for a runner (`extension`), or which machines match a class (`class`).

use std::collections::BTreeSet;
use std::time::Duration;

use super::finding::Findings;
use super::forms;
use super::image;
use super::node::{Node, Scalar};
use super::read::{
    Fields, MappingShape, boolean, ignored, items, mapping, scalar, shown, text, used,
};
use super::script;
use crate::class::{Usage, VcpuRange};
use crate::ids::{ImageName, RunnerGroup, TrustGroup};
use crate::labels::LabelSpec;
use crate::labels::value::{AmountRange, Spot, parse_families};
use crate::labels::volume::Volume;
use crate::request::TypePattern;

/// The keys of a runner.
pub const RUNNER: MappingShape = MappingShape {
    name: "a runner",
    keys: &[
        used("cpu"),
        used("ram"),
        used("family"),
        used("image"),
        used("volume"),
        used("spot"),
        used("preinstall"),
        used("prerun"),
        ignored("id", "a runner is known by its name"),
        ignored("tags", "machines carry the stack's own tags"),
        ignored("extras", "the image provides caches and file systems"),
        ignored("sticky", "no disk follows a job to its next machine"),
        ignored("disk", "use `volume`"),
        ignored("ssh", "no machine has an inbound path"),
        ignored("private", "the subnets of `bullpen.toml` decide"),
        ignored("debug", "machines are not kept for debugging"),
        ignored("nested-virt", "choose a `family` that has it"),
        ignored("retry", "a runner does not decide whether a job is retried"),
    ],
};

/// A range of memory, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The minimum, in MiB.
    pub min_mib: u32,
    /// The maximum, in MiB.
    pub max_mib: u32,
}

/// How often and how long a machine may be reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// How many owners one machine may serve; the stack's limit if absent.
    pub max_uses: Option<u32>,
    /// The oldest age at which it is still reused; the stack's limit if absent.
    pub max_age: Option<Duration>,
}

/// An entry of `runners:`. Absent keys get their defaults elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerConfig {
    /// How many vCPUs.
    pub cpu: Option<VcpuRange>,
    /// How much memory.
    pub ram: Option<MemoryRange>,
    /// Which machine types; any if empty.
    pub family: Vec<TypePattern>,
    /// The name of its image.
    pub image: Option<ImageName>,
    /// Its disk.
    pub volume: Option<Volume>,
    /// Whether to use spot instances.
    pub spot: Option<Spot>,
    /// A script that runs once per machine.
    pub preinstall: Option<String>,
    /// A script that runs at each boot.
    pub prerun: Option<String>,
    /// Whether and how often a machine is reused (`x-bullpen`).
    pub reuse: Option<Reuse>,
    /// The trust group, within which owners may reuse each other's machines (`x-bullpen`).
    pub trust: Option<TrustGroup>,
    /// Spot or on demand; overrides `spot` (`x-bullpen`).
    pub usage: Option<Usage>,
    /// How long an owner may keep a machine (`x-bullpen`).
    pub max_runtime: Option<Duration>,
    /// The runner group at GitHub (`x-bullpen`).
    pub group: Option<RunnerGroup>,
}

impl RunnerConfig {
    /// The runner's values in the form of a label.
    pub fn as_label(&self) -> LabelSpec {
        let milli = |count: u32| count.saturating_mul(1_000);
        let gib_milli =
            |mib: u32| u32::try_from(u64::from(mib) * 1_000 / 1_024).unwrap_or(u32::MAX);
        LabelSpec {
            cpu: self
                .cpu
                .map(|cpu| AmountRange { min_milli: milli(cpu.min), max_milli: milli(cpu.max) }),
            ram: self.ram.map(|ram| AmountRange {
                min_milli: gib_milli(ram.min_mib),
                max_milli: gib_milli(ram.max_mib),
            }),
            families: self.family.clone(),
            image: self.image.as_ref().map(ToString::to_string),
            spot: self.spot,
            volume: self.volume,
            ..LabelSpec::default()
        }
    }
}

/// Reads one runner. `images` are the names under `images:`.
pub(super) fn read(
    node: &Node,
    images: &BTreeSet<&str>,
    others: &[&MappingShape],
    findings: &mut Findings,
) -> Option<RunnerConfig> {
    let fields = mapping(node, &RUNNER, others, findings)?;
    for key in ["ssh", "private", "debug", "nested-virt"] {
        if let Some(node) = fields.get(key) {
            boolean(node, key, findings);
        }
    }
    let preinstall = script::read(&fields, "preinstall", findings);
    let prerun = script::read(&fields, "prerun", findings);
    Some(RunnerConfig {
        cpu: fields.get("cpu").and_then(|node| cpu(node, findings)),
        ram: fields.get("ram").and_then(|node| ram(node, findings)),
        family: fields.get("family").map(|node| family(node, findings)).unwrap_or_default(),
        image: fields.get("image").and_then(|node| known_image(node, images, findings)),
        volume: fields.get("volume").and_then(|node| volume(node, findings)),
        spot: spot(&fields, findings),
        preinstall,
        prerun,
        ..RunnerConfig::default()
    })
}

/// The lowest and the highest of `4`, `4+16` or `[4, 16]`, in thousandths.
fn span(node: &Node, key: &str, findings: &mut Findings) -> Option<(u64, u64)> {
    let must_be = "a number, a range such as `2+4`, or a list of numbers";
    let mut span: Option<(u64, u64)> = None;
    let all = items(node, key, must_be, findings)?;
    if all.is_empty() {
        findings.error(node.mark, "empty-value", format!("`{key}` must not be an empty list"));
    }
    for item in &all {
        let Scalar { text, .. } = scalar(item, key, must_be, findings)?;
        let Some((low, high)) = forms::range(text) else {
            let message = format!("`{key}` must be {must_be}, above zero, not {}", shown(text));
            findings.error(item.mark, "bad-range", message);
            return None;
        };
        span = Some(span.map_or((low, high), |(min, max)| (min.min(low), max.max(high))));
    }
    span
}

fn cpu(node: &Node, findings: &mut Findings) -> Option<VcpuRange> {
    let (min, max) = span(node, "cpu", findings)?;
    if min % 1_000 != 0 || max % 1_000 != 0 {
        let message = "EC2 has whole vCPUs; a fraction of `cpu` is rounded up";
        findings.warning(node.mark, "rounded-up", message);
    }
    let whole = |milli: u64| u32::try_from(milli.div_ceil(1_000)).unwrap_or(u32::MAX);
    Some(VcpuRange { min: whole(min), max: whole(max) })
}

fn ram(node: &Node, findings: &mut Findings) -> Option<MemoryRange> {
    let (min, max) = span(node, "ram", findings)?;
    let mib = |milli: u64| u32::try_from((milli * 1_024).div_ceil(1_000)).unwrap_or(u32::MAX);
    Some(MemoryRange { min_mib: mib(min), max_mib: mib(max) })
}

fn family(node: &Node, findings: &mut Findings) -> Vec<TypePattern> {
    let mut patterns = Vec::new();
    let must_be = "text or a list of texts";
    let Some(all) = items(node, "family", must_be, findings) else { return patterns };
    if all.is_empty() {
        let message = "`family` must not be an empty list: nothing would match";
        findings.error(node.mark, "empty-value", message);
    }
    for item in &all {
        let Some(scalar) = scalar(item, "family", "text", findings) else { continue };
        match parse_families(&scalar.text) {
            Ok(more) => patterns.extend(more),
            Err(why) => {
                findings.error(item.mark, "bad-family", why.to_string());
            }
        }
    }
    patterns
}

fn known_image(node: &Node, images: &BTreeSet<&str>, findings: &mut Findings) -> Option<ImageName> {
    let name = text(node, "image", findings)?;
    if images.contains(name) || image::is_built_in(name) {
        return Some(ImageName::new(name));
    }
    let message = format!("there is no image {}", shown(name));
    let known = images.iter().copied().chain(image::BUILT_IN);
    let meant = findings.did_you_mean(name, known);
    findings.error(node.mark, "unknown-image", message).instead =
        meant.or_else(|| Some("describe it under `images:` or use a built-in name".to_owned()));
    None
}

fn volume(node: &Node, findings: &mut Findings) -> Option<Volume> {
    let must_be = "text such as `80gb:gp3`";
    let text = &scalar(node, "volume", must_be, findings)?.text;
    let read = Volume::parse(text);
    if let Err(why) = &read {
        findings.error(node.mark, "bad-volume", why.to_string());
    }
    read.ok()
}

fn spot(fields: &Fields<'_>, findings: &mut Findings) -> Option<Spot> {
    let node = fields.get("spot")?;
    let text = &scalar(node, "spot", "a word or a truth value", findings)?.text;
    let read = Spot::parse(text);
    if let Err(why) = &read {
        findings.error(node.mark, "bad-value", why.to_string());
    }
    read.ok()
}
