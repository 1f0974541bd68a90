//! `bullpen.toml`: where machines are launched, the ceilings, GitHub, and the limits.
//!
//! Every key has a default or may be absent; [`DEFAULTS`] documents them all, and a test reads it.
//! Environment variables override the file: `BULLPEN_<SECTION>_<KEY>`, such as
//! `BULLPEN_AWS_REGION`, with commas between the items of a list. The file refers to secrets and
//! never holds them.
//!
//! Not here: opening the file, reading the environment or fetching a secret (`bullpen`).

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

/// The sections with fixed keys, which environment variables can override.
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

/// The prefix of our environment variables.
const PREFIX: &str = "BULLPEN_";

/// What `bullpen.toml` and the environment say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Its name: in tags, queue names and runner names.
    pub name: String,
    /// The environment it serves: the `env=` of a label.
    pub env: String,
    /// Where machines are launched.
    pub aws: Aws,
    /// The settings of each EC2 instance.
    pub instance: Instance,
    /// The settings for machines that are processes of this host.
    pub process_fleet: ProcessFleet,
    /// The AMI of each built-in image name.
    pub images: BTreeMap<ImageName, String>,
    /// The maximum numbers of machines.
    pub ceilings: Ceilings,
    /// The address and credentials of GitHub.
    pub github: Github,
    /// Where the service listens.
    pub listeners: Listeners,
    /// Timeouts and other limits.
    pub limits: Limits,
}

/// Where machines are launched. The embedded engine needs none of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aws {
    /// The region.
    pub region: Option<String>,
    /// The subnets; a launch has one override for each.
    pub subnets: Vec<String>,
    /// The security groups of every machine.
    pub security_groups: Vec<String>,
    /// The instance profile of every machine: a name or an ARN.
    pub instance_profile: Option<String>,
}

/// The settings of an EC2 instance, the same for every class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Where instances download the agent, for images without one.
    pub agents: BTreeMap<Architecture, Download>,
    /// The directory of GitHub's runner program in the image.
    pub runner_dir: String,
    /// Where instances download the runner program, for images without one.
    pub runners: BTreeMap<Architecture, Download>,
    /// The user that jobs run as.
    pub user: String,
    /// Whether that user may become root.
    pub sudo: bool,
    /// Whether it may use the image's container engine, which is another way to become root. The
    /// default is the value of `sudo`.
    pub docker: bool,
    /// Whether users other than root may read the instance's metadata, including its credentials.
    pub metadata_open: bool,
    /// The hop limit of metadata: 1 is the instance itself, 2 its containers.
    pub metadata_hops: u8,
    /// The most that a type may cost above the cheapest matching type, in percent.
    pub price_protection: u32,
}

/// Machines as processes of one host. The AWS engine needs none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFleet {
    /// How long a boot takes before the agent is started.
    pub boot_delay: Duration,
    /// The most machines that may run at once.
    pub capacity: u32,
    /// Offerings that always fail to launch.
    pub out_of: BTreeSet<Offering>,
    /// How strongly jobs are isolated from the service.
    pub isolation: IsolationMode,
    /// The user ids for machines' own users, if the service runs as root.
    pub users: UserRange,
    /// Directories that jobs can see although their parents are hidden.
    pub visible: Vec<PathBuf>,
    /// Whether jobs are limited to their machine type's processors and memory, where cgroups exist.
    pub limits: bool,
    /// The most processes and threads of one machine, where cgroups exist.
    pub processes_max: u32,
    /// The parent cgroup of the machines; by default the service's own, if it was delegated.
    pub cgroup: Option<PathBuf>,
}

/// The most machines, launches in flight included. An absent value means no ceiling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// Of the whole stack.
    pub stack: Option<u32>,
    /// Of a class.
    pub classes: BTreeMap<ClassName, u32>,
    /// Of a pool.
    pub pools: BTreeMap<PoolName, u32>,
}

/// The address and credentials of GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Github {
    /// The address of GitHub or of an Enterprise Server.
    pub url: String,
    /// The service's credential.
    pub credential: Option<GithubCredential>,
    /// Further GitHub Apps by id, with the places of their keys.
    pub more_apps: BTreeMap<u64, SecretRef>,
    /// The secrets that sign deliveries; two while the operator replaces one.
    pub webhook_secrets: Vec<SecretRef>,
}

/// The credential that the service uses at GitHub.
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
    /// The token of the admin listener; required if it listens beyond loopback.
    pub admin_token: Option<SecretRef>,
    /// Proxies in front of the listener: requests from them are not limited per address.
    pub proxies: Vec<Network>,
}

/// Reads `bullpen.toml` and overrides its values by environment variables. Variables for other
/// programs are ignored.
pub fn read(bytes: &[u8], environment: &BTreeMap<String, String>) -> ConfigRead<Stack> {
    let mut findings = Findings::default();
    let mut variables = Vec::new();
    let stack = super::text_of(bytes, super::STACK_BYTES_MAX, &mut findings)
        .and_then(|text| toml::read(text, &mut findings))
        .map(|mut root| {
            variables = overlay(&mut root, environment, &mut findings);
            file(&root, &mut findings)
        });
    findings.name_variables(|number| {
        variables.get(usize::try_from(number).ok()?.checked_sub(1)?).cloned()
    });
    ConfigRead::new(stack.flatten(), findings)
}

/// A position for the n-th variable: line 0, and its number as the column until
/// [`Findings::name_variables`] names it.
fn variable_position(number: usize) -> TextPosition {
    TextPosition { line: 0, column: u32::try_from(number).unwrap_or(u32::MAX) }
}

/// Writes the variables into the tree; returns their names, in the order of their numbers.
fn overlay(
    root: &mut Node,
    environment: &BTreeMap<String, String>,
    findings: &mut Findings,
) -> Vec<String> {
    let mut names = Vec::new();
    for (name, text) in environment {
        let Some((section, shape, key)) = addressed(name) else { continue };
        names.push(name.clone());
        let mark = variable_position(names.len());
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

/// The spelling of a section or key in environment variables.
fn spelling(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

/// The section and key that a variable sets, if it is ours.
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
