//! Readers for the smaller sections of `bullpen.toml`.
//!
//! Not here: `[instance]`, `[process-fleet]` and `[limits]`, which have their own modules.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::super::finding::Findings;
use super::super::image::{self, is_ami};
use super::super::node::Node;
use super::super::pool::ENV_DEFAULT;
use super::super::read::{
    Fields, MappingShape, count, entries, items, scalar, shown, text, used, wrong,
};
use super::network::Network;
use super::secret::{self, SecretRef};
use super::{Aws, Ceilings, Github, GithubCredential, Listeners};
use crate::ids::{ClassName, ImageName, PoolName};

/// The keys of `[stack]`.
pub const STACK: MappingShape =
    MappingShape { name: "`[stack]`", keys: &[used("name"), used("env")] };

/// The keys of `[aws]`.
pub const AWS: MappingShape = MappingShape {
    name: "`[aws]`",
    keys: &[used("region"), used("subnets"), used("security-groups"), used("instance-profile")],
};

/// The keys of `[ceilings]`.
pub const CEILINGS: MappingShape =
    MappingShape { name: "`[ceilings]`", keys: &[used("stack"), used("classes"), used("pools")] };

/// The keys of `[github]`.
pub const GITHUB: MappingShape = MappingShape {
    name: "`[github]`",
    keys: &[
        used("url"),
        used("app-id"),
        used("private-key"),
        used("token"),
        used("more-apps"),
        used("webhook-secrets"),
    ],
};

/// The keys of `[listeners]`.
pub const LISTENERS: MappingShape = MappingShape {
    name: "`[listeners]`",
    keys: &[used("webhook"), used("admin"), used("admin-token"), used("proxies")],
};

/// The stack's name if the file sets none.
const NAME_DEFAULT: &str = "bullpen";
/// Queue names begin with the stack's name, and SQS allows 80 characters.
const NAME_MAX: usize = 24;
/// The public GitHub.
const URL_DEFAULT: &str = "https://github.com";
/// The current secret, and the next one while the operator rotates them.
const WEBHOOK_SECRETS_MAX: usize = 2;
/// Loopback only: the operator exposes it with a proxy or with this setting.
const WEBHOOK_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
/// Loopback only.
const ADMIN_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8081);

/// The stack's name and environment.
pub(super) fn stack(fields: Option<&Fields<'_>>, findings: &mut Findings) -> (String, String) {
    let name = fields.and_then(|fields| fields.get("name")).and_then(|node| {
        let name = text(node, "name", findings)?;
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.len() > NAME_MAX || !name.chars().all(legal) {
            let message = format!(
                "the stack name {} is not 1 to {NAME_MAX} of `a-z`, `0-9`, `-`",
                shown(name)
            );
            findings.error(node.mark, "bad-name", message);
            return None;
        }
        Some(name.to_owned())
    });
    let env =
        fields.and_then(|fields| fields.get("env")).and_then(|node| text(node, "env", findings));
    (name.unwrap_or_else(|| NAME_DEFAULT.to_owned()), env.unwrap_or(ENV_DEFAULT).to_owned())
}

pub(super) fn aws(fields: &Fields<'_>, findings: &mut Findings) -> Aws {
    let region = fields.get("region").and_then(|node| {
        let region = text(node, "region", findings)?;
        let parts: Vec<&str> = region.split('-').collect();
        let is_region = parts.len() >= 3
            && parts.iter().all(|part| !part.is_empty())
            && region.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && region.ends_with(|c: char| c.is_ascii_digit());
        if !is_region {
            let message = format!("{} is no region", shown(region));
            findings.error(node.mark, "bad-region", message).instead("such as `eu-west-1`");
        }
        Some(region.to_owned())
    });
    let profile = fields.get("instance-profile");
    Aws {
        region,
        subnets: prefixed(fields, "subnets", "subnet-", findings),
        security_groups: prefixed(fields, "security-groups", "sg-", findings),
        instance_profile: profile
            .and_then(|node| text(node, "instance-profile", findings))
            .map(str::to_owned),
    }
}

/// A list of EC2 ids of one kind, without duplicates.
fn prefixed(fields: &Fields<'_>, key: &str, prefix: &str, findings: &mut Findings) -> Vec<String> {
    let Some(node) = fields.get(key) else { return Vec::new() };
    let mut ids: Vec<String> = Vec::new();
    for item in items(node, key, "a list of ids", findings).unwrap_or_default() {
        let Some(id) = text(&item, key, findings) else { continue };
        let hex = |rest: &str| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_hexdigit());
        if !id.strip_prefix(prefix).is_some_and(hex) {
            let message = format!("{} is not of the form `{prefix}0123abcd`", shown(id));
            findings.error(item.mark, "bad-id", message);
        } else if ids.iter().any(|known| known == id) {
            findings.error(item.mark, "duplicate-value", format!("{} is there twice", shown(id)));
        }
        ids.push(id.to_owned());
    }
    ids
}

pub(super) fn images(node: &Node, findings: &mut Findings) -> BTreeMap<ImageName, String> {
    let mut images = BTreeMap::new();
    for entry in entries(node, "images", findings) {
        if !image::is_built_in(&entry.key) {
            let message = format!("there is no built-in image {}", shown(&entry.key));
            let meant = findings.did_you_mean(&entry.key, image::BUILT_IN);
            let finding = findings.error(entry.mark, "unknown-image", message);
            finding.instead =
                meant.or_else(|| Some("describe it under `images:` of `runs-on.yml`".to_owned()));
        }
        let Some(ami) = text(&entry.node, &entry.key, findings) else { continue };
        if !is_ami(ami) {
            let message = format!("{} is no AMI id", shown(ami));
            findings
                .error(entry.node.mark, "bad-ami", message)
                .instead("write it as `ami-0123456789abcdef0`");
        }
        images.insert(ImageName::new(&entry.key), ami.to_owned());
    }
    images
}

pub(super) fn ceilings(fields: &Fields<'_>, findings: &mut Findings) -> Ceilings {
    let mut each = |key: &str| {
        let mut each = Vec::new();
        let node = fields.get(key);
        for entry in node.map(|node| entries(node, key, findings)).unwrap_or_default() {
            if let Some(most) = count(&entry.node, &entry.key, findings) {
                each.push((entry.key.clone(), most));
            }
        }
        each
    };
    let (classes, pools) = (each("classes"), each("pools"));
    Ceilings {
        stack: fields.get("stack").and_then(|node| count(node, "stack", findings)),
        classes: classes.into_iter().map(|(name, most)| (ClassName::new(name), most)).collect(),
        pools: pools.into_iter().map(|(name, most)| (PoolName::new(name), most)).collect(),
    }
}

pub(super) fn github(fields: Option<&Fields<'_>>, findings: &mut Findings) -> Github {
    let Some(fields) = fields else {
        return Github {
            url: URL_DEFAULT.to_owned(),
            credential: None,
            more_apps: BTreeMap::new(),
            webhook_secrets: Vec::new(),
        };
    };
    let url = fields.get("url").and_then(|node| {
        let url = text(node, "url", findings)?;
        let host = url.strip_prefix("https://").unwrap_or_default();
        if host.is_empty() || host.contains(['@', '?', '#', ' ']) {
            let message = "`url` must start with `https://` and have no user or query in it";
            findings
                .error(node.mark, "bad-url", message)
                .instead(format!("such as `{URL_DEFAULT}`"));
        }
        Some(url.trim_end_matches('/').to_owned())
    });
    let credential = credential(fields, findings);
    let more_apps = more_apps(fields, credential.as_ref(), findings);
    Github {
        url: url.unwrap_or_else(|| URL_DEFAULT.to_owned()),
        credential,
        more_apps,
        webhook_secrets: webhook_secrets(fields, findings),
    }
}

fn credential(fields: &Fields<'_>, findings: &mut Findings) -> Option<GithubCredential> {
    let mut secret_of =
        |key: &str| fields.get(key).map(|node| (node.mark, secret::read(node, key, findings)));
    let (private_key, token) = (secret_of("private-key"), secret_of("token"));
    let id = fields.get("app-id").map(|node| (node.mark, app_id(node, findings)));
    match (id, private_key, token) {
        (None, None, None) => None,
        (None, None, Some((_, token))) => token.map(GithubCredential::Token),
        (Some((_, id)), Some((_, key)), None) => {
            Some(GithubCredential::App { id: id?, private_key: key? })
        }
        (Some((mark, _)), _, Some(_)) | (None, Some((mark, _)), Some(_)) => {
            let message = "`[github]` takes either an App or a token, not both";
            findings.error(mark, "two-credentials", message).instead("remove one of them");
            None
        }
        (Some((mark, _)), None, None) => {
            findings.error(mark, "missing-key", "`app-id` needs `private-key` beside it");
            None
        }
        (None, Some((mark, _)), None) => {
            findings.error(mark, "missing-key", "`private-key` needs `app-id` beside it");
            None
        }
    }
}

/// Further Apps: each has its own rate limit at GitHub.
fn more_apps(
    fields: &Fields<'_>,
    first: Option<&GithubCredential>,
    findings: &mut Findings,
) -> BTreeMap<u64, SecretRef> {
    let key = "more-apps";
    let mut apps = BTreeMap::new();
    let Some(node) = fields.get(key) else { return apps };
    let of_first = match first {
        Some(GithubCredential::App { id, .. }) => Some(*id),
        Some(GithubCredential::Token(_)) | None => {
            let message = "`more-apps` needs `app-id` and `private-key` beside it";
            findings.error(node.mark, "missing-key", message);
            None
        }
    };
    for entry in entries(node, key, findings) {
        match entry.key.parse().ok().filter(|id: &u64| *id > 0) {
            Some(id) if Some(id) == of_first => {
                let message = format!("App {id} is there twice");
                findings.error(entry.mark, "duplicate-value", message);
            }
            Some(id) => {
                if let Some(place) = secret::read(&entry.node, key, findings) {
                    apps.insert(id, place);
                }
            }
            None => {
                let message = format!("{} is not the number of an App", shown(&entry.key));
                findings.error(entry.mark, "bad-id", message);
            }
        }
    }
    apps
}

fn app_id(node: &Node, findings: &mut Findings) -> Option<u64> {
    let must_be = "the App's number";
    let written = scalar(node, "app-id", must_be, findings)?;
    let id = written.text.parse().ok().filter(|id| *id > 0);
    if id.is_none() {
        wrong(node, "app-id", must_be, findings);
    }
    id
}

fn webhook_secrets(fields: &Fields<'_>, findings: &mut Findings) -> Vec<SecretRef> {
    let key = "webhook-secrets";
    let Some(node) = fields.get(key) else { return Vec::new() };
    let Some(all) = items(node, key, "a list of references", findings) else { return Vec::new() };
    if all.len() > WEBHOOK_SECRETS_MAX {
        let message = format!("`{key}` holds more than {WEBHOOK_SECRETS_MAX}");
        findings
            .error(node.mark, "too-many-values", message)
            .instead("an old and a new one suffice");
    }
    all.iter().filter_map(|item| secret::read(item, key, findings)).collect()
}

pub(super) fn listeners(fields: Option<&Fields<'_>>, findings: &mut Findings) -> Listeners {
    let mut address = |key: &str, default: SocketAddr| {
        let Some(node) = fields.and_then(|fields| fields.get(key)) else { return default };
        let Some(written) = text(node, key, findings) else { return default };
        written.parse().unwrap_or_else(|_| {
            let message = format!("{} is no address with a port", shown(written));
            findings
                .error(node.mark, "bad-address", message)
                .instead(format!("such as `{default}`"));
            default
        })
    };
    let (webhook, admin) = (address("webhook", WEBHOOK_DEFAULT), address("admin", ADMIN_DEFAULT));
    let token_node = fields.and_then(|fields| fields.get("admin-token"));
    let admin_token = token_node.and_then(|node| secret::read(node, "admin-token", findings));
    let at = |key: &str| {
        let node = fields.and_then(|fields| fields.get(key));
        node.or(fields.and_then(|fields| fields.get("webhook"))).map(|node| node.mark)
    };
    if webhook.port() == admin.port()
        && let Some(mark) = at("admin")
    {
        let message = "webhooks and admin must not share a port: one is public";
        findings.error(mark, "one-port", message).instead("give each its own");
    }
    if !admin.ip().is_loopback()
        && token_node.is_none()
        && let Some(mark) = at("admin")
    {
        let message = "the admin listener is reachable from outside without `admin-token`";
        findings
            .error(mark, "open-admin", message)
            .instead("listen on 127.0.0.1, or set the token");
    }
    Listeners { webhook, admin, admin_token, proxies: proxies(fields, findings) }
}

/// By default, connections from this machine come from a proxy on it.
fn proxies(fields: Option<&Fields<'_>>, findings: &mut Findings) -> Vec<Network> {
    let key = "proxies";
    let Some(node) = fields.and_then(|fields| fields.get(key)) else {
        return Network::LOOPBACK.to_vec();
    };
    let Some(all) = items(node, key, "a list of addresses", findings) else { return Vec::new() };
    let mut read = |item: &Node| {
        let written = text(item, key, findings)?;
        let network = written.parse().ok();
        if network.is_none() {
            let message = format!("{} is no address and no network", shown(written));
            let instead = "such as `10.0.0.1` or `10.0.0.0/8`";
            findings.error(item.mark, "bad-address", message).instead(instead);
        }
        network
    };
    all.iter().filter_map(|item| read(item)).collect()
}
