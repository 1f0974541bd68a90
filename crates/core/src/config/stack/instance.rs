//! `[instance]` of `bullpen.toml`: the settings of every EC2 instance.
//!
//! Not here: regions and subnets (`[aws]`), AMIs (`[images]`), or the boot script (`bullpen-aws`).

use std::collections::BTreeMap;

use super::super::finding::Findings;
use super::super::node::Node;
use super::super::read::{
    Fields, MappingShape, boolean, choice, count, positive, scalar, shown, text, used, wrong,
};
use super::Instance;
use crate::class::Architecture;
use crate::download::{self, Download};

/// The keys of `[instance]`.
pub const INSTANCE: MappingShape = MappingShape {
    name: "`[instance]`",
    keys: &[
        used("agent-x64"),
        used("agent-x64-sha256"),
        used("agent-arm64"),
        used("agent-arm64-sha256"),
        used("runner-dir"),
        used("runner-x64"),
        used("runner-x64-sha256"),
        used("runner-arm64"),
        used("runner-arm64-sha256"),
        used("user"),
        used("sudo"),
        used("docker"),
        used("metadata"),
        used("metadata-hops"),
        used("price-protection"),
    ],
};

/// The usual place of the runner program in images for GitHub's runners.
const RUNNER_DIR_DEFAULT: &str = "/opt/actions-runner";
/// The usual user of images for GitHub's runners.
const USER_DEFAULT: &str = "runner";
/// The longest user name that Linux allows.
const USER_CHARS_MAX: usize = 32;
/// Metadata does not leave the instance.
const HOPS_DEFAULT: u8 = 1;
/// Twice the price of the cheapest: spot prices of matching types differ by less on most days, and
/// types that cost more were usually made for another purpose.
const PRICE_PROTECTION_DEFAULT: u32 = 100;
/// The values of `metadata`.
const METADATA: [(&str, bool); 2] = [("closed", false), ("open", true)];

impl Default for Instance {
    fn default() -> Self {
        Self {
            agents: BTreeMap::new(),
            runner_dir: RUNNER_DIR_DEFAULT.to_owned(),
            runners: BTreeMap::new(),
            user: USER_DEFAULT.to_owned(),
            sudo: true,
            docker: true,
            metadata_open: false,
            metadata_hops: HOPS_DEFAULT,
            price_protection: PRICE_PROTECTION_DEFAULT,
        }
    }
}

pub(super) fn read(fields: &Fields<'_>, findings: &mut Findings) -> Instance {
    let default = Instance::default();
    let (agents, runners) =
        (downloads(fields, "agent", findings), downloads(fields, "runner", findings));
    let dir = fields.get("runner-dir").and_then(|node| directory(node, findings));
    let user = fields.get("user").and_then(|node| user(node, findings));
    let sudo = fields.get("sudo").and_then(|node| boolean(node, "sudo", findings));
    let sudo = sudo.unwrap_or(default.sudo);
    let docker = fields.get("docker").and_then(|node| boolean(node, "docker", findings));
    let metadata =
        fields.get("metadata").and_then(|node| choice(node, "metadata", &METADATA, findings));
    let hops = fields.get("metadata-hops").and_then(|node| hops(node, findings));
    let protection = fields.get("price-protection");
    let protection = protection.and_then(|node| positive(node, "price-protection", findings));
    Instance {
        agents,
        runner_dir: dir.unwrap_or(default.runner_dir),
        runners,
        user: user.unwrap_or(default.user),
        sudo,
        // A user with sudo is root already; without sudo, docker would be a way to become root.
        docker: docker.unwrap_or(sudo),
        metadata_open: metadata.unwrap_or(default.metadata_open),
        metadata_hops: hops.unwrap_or(default.metadata_hops),
        price_protection: protection.unwrap_or(default.price_protection),
    }
}

/// The download of each architecture that configures one.
fn downloads(
    fields: &Fields<'_>,
    what: &str,
    findings: &mut Findings,
) -> BTreeMap<Architecture, Download> {
    let mut all = BTreeMap::new();
    for architecture in [Architecture::X64, Architecture::Arm64] {
        let key = format!("{what}-{}", architecture.as_str());
        if let Some(download) = download(fields, &key, findings) {
            all.insert(architecture, download);
        }
    }
    all
}

/// An address and its checksum: the file has both or neither.
fn download(fields: &Fields<'_>, key: &str, findings: &mut Findings) -> Option<Download> {
    let sum_key = format!("{key}-sha256");
    let (url, sum) = (fields.entry(key), fields.entry(&sum_key));
    let (here, missing) = match (url, sum) {
        (Some(url), None) => (Some(url.mark), &*sum_key),
        (None, Some(sum)) => (Some(sum.mark), key),
        _ => (None, ""),
    };
    if let Some(mark) = here.filter(|_| fields.lacks(missing)) {
        let has = if missing == key { &sum_key } else { key };
        findings.error(mark, "missing-key", format!("`{has}` needs `{missing}` beside it"));
    }
    let url = url.and_then(|entry| address(&entry.node, key, findings));
    let sum = sum.and_then(|entry| sha256(&entry.node, &sum_key, findings));
    Some(Download { url: url?, sha256: sum? })
}

fn address(node: &Node, key: &str, findings: &mut Findings) -> Option<String> {
    let written = text(node, key, findings)?;
    if !download::is_address(written) {
        let message = format!(
            "`{key}` must be `https://host/path` or `s3://bucket/key`, without a user, a query or \
             white space, not {}",
            shown(written)
        );
        let finding = findings.error(node.mark, "bad-url", message);
        if let Some(rest) = written.strip_prefix("http://") {
            finding.instead(format!("write {}", shown(&format!("https://{rest}"))));
        }
        return None;
    }
    Some(written.to_owned())
}

fn sha256(node: &Node, key: &str, findings: &mut Findings) -> Option<String> {
    let must_be = "the SHA-256, 64 hexadecimal digits";
    let written = scalar(node, key, must_be, findings)?;
    let sum = download::sha256(&written.text);
    if sum.is_none() {
        wrong(node, key, must_be, findings).instead("`sha256sum FILE` prints it");
    }
    sum
}

fn directory(node: &Node, findings: &mut Findings) -> Option<String> {
    let written = text(node, "runner-dir", findings)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
    let has_parent_part = written.split('/').any(|part| part == "..");
    if !written.starts_with('/')
        || written.len() < 2
        || has_parent_part
        || !written.chars().all(plain)
    {
        let message = format!("{} is no absolute path of a directory", shown(written));
        let finding = findings.error(node.mark, "bad-path", message);
        finding.instead(format!("such as `{RUNNER_DIR_DEFAULT}`"));
        return None;
    }
    Some(written.trim_end_matches('/').to_owned())
}

fn user(node: &Node, findings: &mut Findings) -> Option<String> {
    let written = text(node, "user", findings)?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    let begins = |c: char| c.is_ascii_lowercase() || c == '_';
    let legal = written.len() <= USER_CHARS_MAX
        && written.starts_with(begins)
        && written.chars().all(plain);
    let message = match written {
        "root" => {
            "jobs do not run as `root`: the agent does, and must be able to end them".to_owned()
        }
        _ if !legal => format!("{} is no name of a user", shown(written)),
        _ => return Some(written.to_owned()),
    };
    let finding = findings.error(node.mark, "bad-name", message);
    finding.instead(format!("such as `{USER_DEFAULT}`; `sudo` decides what it may do"));
    None
}

fn hops(node: &Node, findings: &mut Findings) -> Option<u8> {
    let written = count(node, "metadata-hops", findings)?;
    let hops = u8::try_from(written).ok().filter(|hops| (1..=2).contains(hops));
    if hops.is_none() {
        let message = "`metadata-hops` must be 1 or 2";
        let finding = findings.error(node.mark, "out-of-range", message);
        finding.instead("1 keeps metadata from containers, 2 lets them have it");
    }
    hops
}
