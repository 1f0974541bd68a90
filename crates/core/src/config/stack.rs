//! `bullpen.toml`: where machines live, what they may cost, and the numbers everything runs on.
//!
//! Every key has a default or may be absent; [`DEFAULTS`] is the reference, and a test reads it. The
//! environment has the last word: `BULLPEN_<SECTION>_<KEY>`, such as `BULLPEN_AWS_REGION`, replaces
//! what the file says, with commas between the items of a list. Secrets are named, never written.
//!
//! Not here: opening the file, looking at the environment or fetching a secret (`bullpen`).

mod instance;
mod limits;
mod network;
mod process_fleet;
mod secret;
mod sections;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::finding::{ConfigRead, Findings, TextPosition};
use super::node::{MappingEntry, Node, Style, Value};
use super::read::{MappingShape, mapping, used};
use super::toml;
use crate::class::Architecture;
use crate::creation::Offering;
use crate::download::Download;
use crate::ids::{ClassName, ImageName, PoolName};
use crate::isolation::{IsolationMode, UserRange};
use crate::limits::Limits;

pub use instance::INSTANCE;
pub use limits::LIMITS;
pub use network::{Network, NoNetwork};
pub use process_fleet::PROCESS_FLEET;
pub use secret::SecretRef;
pub use sections::{AWS, CEILINGS, GITHUB, LISTENERS, STACK};

/// The shipped defaults, which are the documentation of every key.
pub const DEFAULTS: &str = include_str!("../../config.default.toml");

/// The sections of the file.
pub const FILE: MappingShape = MappingShape {
    name: "the file",
    keys: &[
        used("stack"),
        used("aws"),
        used("instance"),
        used("process-fleet"),
        used("images"),
        used("ceilings"),
        used("github"),
        used("listeners"),
        used("limits"),
    ],
};

/// The sections whose keys are fixed, by name; these the environment can reach.
pub const SECTIONS: &[(&str, &MappingShape)] = &[
    ("stack", &STACK),
    ("aws", &AWS),
    ("instance", &INSTANCE),
    ("process-fleet", &PROCESS_FLEET),
    ("ceilings", &CEILINGS),
    ("github", &GITHUB),
    ("listeners", &LISTENERS),
    ("limits", &LIMITS),
];

/// What precedes a section's name in the environment.
const PREFIX: &str = "BULLPEN_";

/// What `bullpen.toml` and the environment say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Its name: in tags, queue names and runner names.
    pub name: String,
    /// The environment it serves, as in `env=` of a label.
    pub env: String,
    /// Where machines live.
    pub aws: Aws,
    /// What they start with there.
    pub instance: Instance,
    /// The same when machines are processes of this host.
    pub process_fleet: ProcessFleet,
    /// Which AMI an image name stands for.
    pub images: BTreeMap<ImageName, String>,
    /// How many machines there may be.
    pub ceilings: Ceilings,
    /// How GitHub is spoken to.
    pub github: Github,
    /// Where the service listens.
    pub listeners: Listeners,
    /// The numbers.
    pub limits: Limits,
}

/// Where machines live. Nothing of it is needed by the embedded engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aws {
    /// The region.
    pub region: Option<String>,
    /// The subnets, one override each.
    pub subnets: Vec<String>,
    /// The security groups of every machine.
    pub security_groups: Vec<String>,
    /// The instance profile of every machine: a name or an ARN.
    pub instance_profile: Option<String>,
}

/// What an EC2 instance starts with, whatever its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Where the agent is fetched from, for images that do not have it.
    pub agents: BTreeMap<Architecture, Download>,
    /// Where the image has GitHub's runner.
    pub runner_dir: String,
    /// Where that is fetched from, for images that do not have it.
    pub runners: BTreeMap<Architecture, Download>,
    /// The user that jobs run as.
    pub user: String,
    /// Whether that user may become root.
    pub sudo: bool,
    /// Whether it may use the image's container engine, which is another way to become root; as `sudo`
    /// where nothing is said.
    pub docker: bool,
    /// Whether users other than root may read the machine's metadata, its credentials among them.
    pub metadata_open: bool,
    /// How far metadata may travel: 1 is the machine itself, 2 its containers.
    pub metadata_hops: u8,
    /// The most that a type may cost above the cheapest that would do, in percent.
    pub price_protection: u32,
}

/// Machines as processes of one host. Nothing of it is needed on AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFleet {
    /// How long a boot takes before the agent is started.
    pub boot_delay: Duration,
    /// The most machines that may be up at once.
    pub capacity: u32,
    /// What cannot be had at all.
    pub out_of: BTreeSet<Offering>,
    /// How much jobs are to be kept from the service.
    pub isolation: IsolationMode,
    /// The ids that machines' own users have, where the service is root.
    pub users: UserRange,
    /// What jobs see of directories that are hidden from them.
    pub visible: Vec<PathBuf>,
    /// Whether jobs are held to their machine type's processors and memory, where there is a cgroup.
    pub limits: bool,
    /// The most processes and threads of one machine, likewise.
    pub processes_max: u32,
    /// The cgroup to keep machines' own in; absent, the service's own if it was delegated.
    pub cgroup: Option<PathBuf>,
}

/// The most machines, launches in flight included. What is absent has no ceiling of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// Of the whole stack.
    pub stack: Option<u32>,
    /// Of a class.
    pub classes: BTreeMap<ClassName, u32>,
    /// Of a pool.
    pub pools: BTreeMap<PoolName, u32>,
}

/// How GitHub is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Github {
    /// GitHub's address, or that of an Enterprise Server.
    pub url: String,
    /// As whom.
    pub credential: Option<GithubCredential>,
    /// More Apps that may do the same, by number, and where their keys are.
    pub more_apps: BTreeMap<u64, SecretRef>,
    /// What deliveries are signed with; two while one replaces the other.
    pub webhook_secrets: Vec<SecretRef>,
}

/// As whom GitHub is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GithubCredential {
    /// As a GitHub App.
    App {
        /// The App's id.
        id: u64,
        /// Its private key.
        private_key: SecretRef,
    },
    /// With a personal access token.
    Token(SecretRef),
}

/// Where the service listens: two addresses, never one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listeners {
    /// GitHub's deliveries.
    pub webhook: SocketAddr,
    /// Dashboard, metrics, health, API.
    pub admin: SocketAddr,
    /// What the admin listener asks for; needed beyond loopback.
    pub admin_token: Option<SecretRef>,
    /// Proxies that many clients come through: the limit for one address is not theirs.
    pub proxies: Vec<Network>,
}

/// Reads `bullpen.toml`, with the variables of the environment laid over it. Variables that are not
/// of this file are left alone.
pub fn read(bytes: &[u8], environment: &BTreeMap<String, String>) -> ConfigRead<Stack> {
    let mut findings = Findings::default();
    let mut variables = Vec::new();
    let stack = super::text_of(bytes, super::STACK_BYTES_MAX, &mut findings)
        .and_then(|text| toml::read(text, &mut findings))
        .map(|mut root| {
            variables = overlay(&mut root, environment, &mut findings);
            file(&root, &mut findings)
        });
    findings.name_the_placeless(|number| {
        variables.get(usize::try_from(number).ok()?.checked_sub(1)?).cloned()
    });
    ConfigRead::new(stack.flatten(), findings)
}

/// The place of the n-th variable: no line, and its number for a column, until findings are named.
fn placeless(number: usize) -> TextPosition {
    TextPosition { line: 0, column: u32::try_from(number).unwrap_or(u32::MAX) }
}

/// Lays variables over the tree; returns their names, in the order of their numbers.
fn overlay(
    root: &mut Node,
    environment: &BTreeMap<String, String>,
    findings: &mut Findings,
) -> Vec<String> {
    let mut names = Vec::new();
    for (name, text) in environment {
        let Some((section, shape, key)) = addressed(name) else { continue };
        names.push(name.clone());
        let mark = placeless(names.len());
        let Some(known) = shape.keys.iter().find(|known| spelling(known.name) == key) else {
            let known: Vec<String> = shape.keys.iter().map(|known| spelling(known.name)).collect();
            let message = format!("there is no such key in `[{section}]`");
            let meant = findings.did_you_mean(key, known.iter().map(String::as_str));
            let finding = findings.error(mark, "unknown-key", message);
            finding.instead = meant;
            continue;
        };
        let node = Node::scalar(mark, text.as_str(), Style::Bare);
        put(root, section, MappingEntry { key: known.name.to_owned(), mark, node });
    }
    names
}

/// How a section or key is spelt in the environment.
fn spelling(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

/// Which section and key a variable is for, if it is for one.
fn addressed(name: &str) -> Option<(&'static str, &'static MappingShape, &str)> {
    let rest = name.strip_prefix(PREFIX)?;
    SECTIONS.iter().find_map(|(section, shape)| {
        let key = rest.strip_prefix(&spelling(section))?.strip_prefix('_')?;
        Some((*section, *shape, key))
    })
}

fn put(root: &mut Node, section: &str, entry: MappingEntry) {
    let Value::Map(sections) = &mut root.value else { return };
    if !sections.iter().any(|known| known.key == section) {
        let node = Node::new(entry.mark, Value::Map(Vec::new()));
        sections.push(MappingEntry { key: section.to_owned(), mark: entry.mark, node });
    }
    let found = sections.iter_mut().find(|known| known.key == section);
    if let Some(Value::Map(entries)) = found.map(|section| &mut section.node.value) {
        entries.retain(|known| known.key != entry.key);
        entries.push(entry);
    }
}

fn file(root: &Node, findings: &mut Findings) -> Option<Stack> {
    let others = SECTIONS.iter().map(|(_, shape)| *shape).collect::<Vec<_>>();
    let fields = mapping(root, &FILE, &others, findings)?;
    let mut section = |name: &str, shape: &'static MappingShape| {
        mapping(fields.get(name)?, shape, &others, findings)
    };
    let (stack, aws) = (section("stack", &STACK), section("aws", &AWS));
    let (instance, processes) =
        (section("instance", &INSTANCE), section("process-fleet", &PROCESS_FLEET));
    let (ceilings, github) = (section("ceilings", &CEILINGS), section("github", &GITHUB));
    let (listeners, limits) = (section("listeners", &LISTENERS), section("limits", &LIMITS));
    let (name, env) = sections::stack(stack.as_ref(), findings);
    Some(Stack {
        name,
        env,
        aws: aws.map(|fields| sections::aws(&fields, findings)).unwrap_or_default(),
        instance: instance.map(|fields| instance::read(&fields, findings)).unwrap_or_default(),
        process_fleet: process_fleet::read(processes.as_ref(), findings),
        images: fields
            .get("images")
            .map(|node| sections::images(node, findings))
            .unwrap_or_default(),
        ceilings: ceilings.map(|fields| sections::ceilings(&fields, findings)).unwrap_or_default(),
        github: sections::github(github.as_ref(), findings),
        listeners: sections::listeners(listeners.as_ref(), findings),
        limits: limits.map_or(Limits::DEFAULT, |fields| limits::read(&fields, findings)),
    })
}

#[cfg(test)]
mod tests;
