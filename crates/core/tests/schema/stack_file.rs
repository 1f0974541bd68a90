//! The schema types of `bullpen.toml`, for editors.
//!
//! Not here: rules that a schema cannot express (`bullpen_core::config`).
#![expect(dead_code, reason = "these types only describe a schema and have no values")]

use std::borrow::Cow;
use std::collections::BTreeMap;

use bullpen_core::limits::{self, Limit, LimitField};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The settings of one stack. `crates/core/config.default.toml` has every default.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct StackFile {
    /// The stack's name.
    stack: Option<StackSection>,
    /// Where in AWS machines are launched.
    aws: Option<Aws>,
    /// The programs and settings of a new EC2 instance.
    instance: Option<Instance>,
    /// The settings of machines that are processes of this host.
    #[schemars(rename = "process-fleet")]
    process_fleet: Option<ProcessFleet>,
    /// The AMI that each built-in image name stands for.
    images: Option<BTreeMap<String, Ami>>,
    /// The maximum numbers of machines.
    ceilings: Option<Ceilings>,
    /// The access to GitHub.
    github: Option<Github>,
    /// The addresses on which the service listens.
    listeners: Option<Listeners>,
    /// The limits.
    limits: Option<Limits>,
}

/// An AMI's id.
#[derive(JsonSchema)]
struct Ami(#[schemars(regex(pattern = "^ami-([0-9a-f]{8}|[0-9a-f]{17})$"))] String);

/// The place of a secret: `env:NAME`, `file:/path`, or the ARN of a parameter or secret.
#[derive(JsonSchema)]
struct SecretRef(
    #[schemars(regex(
        pattern = "^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.*|arn:aws[a-z-]*:(ssm|secretsmanager):.*)$"
    ))]
    String,
);

/// A length of time such as `35ms`, `90s`, `7m`, `1h30m` or `14d`.
#[derive(JsonSchema)]
struct Duration(#[schemars(regex(pattern = "^([0-9]+(ms|s|m|h|d))+$"))] String);

#[derive(JsonSchema)]
#[schemars(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// An offering: usage, type and zone.
#[derive(JsonSchema)]
struct Offering(#[schemars(regex(pattern = "^(spot|on-demand)/[^/]+/[^/]+$"))] String);

/// Machines that are processes of this host.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct ProcessFleet {
    /// How long a simulated boot takes before the agent starts.
    boot_delay: Option<Duration>,
    /// The maximum of machines that run at once.
    capacity: Option<u32>,
    /// Offerings that are never available.
    out_of: Option<OneOrMany<Offering>>,
    /// How jobs are isolated from the service on the same host.
    isolation: Option<Wish>,
    /// The user ids for machines, if the service runs as root.
    #[schemars(regex(pattern = "^[0-9]+ *- *[0-9]+$"))]
    users: Option<String>,
    /// Parts of hidden directories that jobs may see; at most three.
    visible: Option<OneOrMany<String>>,
    /// Whether jobs are limited to the processors and the memory of their machine's type.
    limits: Option<bool>,
    /// The maximum of processes and threads of one machine.
    #[schemars(range(min = 1))]
    processes_max: Option<u32>,
    /// The cgroup that contains the machines' cgroups.
    cgroup: Option<String>,
}

/// How much isolation the host must allow.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Wish {
    Required,
    Best,
    None,
}

/// The stack's name.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct StackSection {
    /// The name in tags, queue names and runner names.
    #[schemars(regex(pattern = "^[a-z0-9-]{1,24}$"))]
    name: Option<String>,
    /// The value of `env=` in the labels of this stack's jobs.
    env: Option<String>,
}

/// Where in AWS machines are launched.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct Aws {
    /// The region, such as `eu-west-1`.
    region: Option<String>,
    /// The subnets.
    subnets: Option<OneOrMany<String>>,
    /// The security groups of every machine.
    security_groups: Option<OneOrMany<String>>,
    /// The instance profile of every machine: a name or an ARN.
    instance_profile: Option<String>,
}

/// An address from which instances download.
#[derive(JsonSchema)]
struct Address(
    #[schemars(regex(pattern = "^(https|s3)://[^/?#@\\s]+/[^?#@\\s]+$"))]
    String,
);

/// A SHA-256.
#[derive(JsonSchema)]
struct Sha256(#[schemars(regex(pattern = "^[0-9A-Fa-f]{64}$"))] String);

/// The programs and settings of a new EC2 instance. Each address needs its checksum.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Instance {
    /// The download address of the agent, for images without it.
    #[schemars(rename = "agent-x64")]
    agent_x64: Option<Address>,
    /// The checksum of the file at that address.
    #[schemars(rename = "agent-x64-sha256")]
    agent_x64_sha256: Option<Sha256>,
    /// The download address of the agent, for images without it.
    #[schemars(rename = "agent-arm64")]
    agent_arm64: Option<Address>,
    /// The checksum of the file at that address.
    #[schemars(rename = "agent-arm64-sha256")]
    agent_arm64_sha256: Option<Sha256>,
    /// The directory of the image with GitHub's runner program, unpacked.
    #[schemars(rename = "runner-dir", regex(pattern = "^/[A-Za-z0-9._/-]+$"))]
    runner_dir: Option<String>,
    /// The download address of the runner program, for images without it.
    #[schemars(rename = "runner-x64")]
    runner_x64: Option<Address>,
    /// The checksum of the file at that address.
    #[schemars(rename = "runner-x64-sha256")]
    runner_x64_sha256: Option<Sha256>,
    /// The download address of the runner program, for images without it.
    #[schemars(rename = "runner-arm64")]
    runner_arm64: Option<Address>,
    /// The checksum of the file at that address.
    #[schemars(rename = "runner-arm64-sha256")]
    runner_arm64_sha256: Option<Sha256>,
    /// The user as which jobs run.
    #[schemars(regex(pattern = "^[a-z_][a-z0-9_-]{0,31}$"))]
    user: Option<String>,
    /// Whether that user may become root.
    sudo: Option<bool>,
    /// Whether that user may use Docker, which amounts to root.
    docker: Option<bool>,
    /// Whether only root (`closed`) or every job (`open`) may read the machine's metadata.
    #[schemars(regex(pattern = "^(closed|open)$"))]
    metadata: Option<String>,
    /// The maximum of network hops of the machine's metadata.
    #[schemars(rename = "metadata-hops", range(min = 1, max = 2))]
    metadata_hops: Option<u32>,
    /// The maximum price of a type above the cheapest suitable type, in percent.
    #[schemars(rename = "price-protection", range(min = 1))]
    price_protection: Option<u32>,
}

/// The maximum numbers of machines, launches in flight included.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Ceilings {
    /// Of the whole stack.
    stack: Option<u32>,
    /// Of a class, by name.
    classes: Option<BTreeMap<String, u32>>,
    /// Of a pool, by name.
    pools: Option<BTreeMap<String, u32>>,
}

/// The access to GitHub: as an App, or with a token.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct Github {
    /// GitHub, or an Enterprise Server.
    #[schemars(regex(pattern = "^https://"))]
    url: Option<String>,
    /// The App's id.
    #[schemars(range(min = 1))]
    app_id: Option<u64>,
    /// The App's private key.
    private_key: Option<SecretRef>,
    /// A personal access token.
    token: Option<SecretRef>,
    /// More Apps with the same rights: their ids and the places of their keys.
    more_apps: Option<BTreeMap<String, SecretRef>>,
    /// The secrets that sign webhook deliveries; two while one replaces the other.
    webhook_secrets: Option<OneOrMany<SecretRef>>,
}

/// The two addresses on which the service listens, on different ports.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct Listeners {
    /// The address for GitHub's webhook deliveries.
    webhook: Option<String>,
    /// The address for dashboard, metrics, health and API.
    admin: Option<String>,
    /// The token of the admin API; required unless `admin` is a loopback address.
    admin_token: Option<SecretRef>,
    /// Proxies in front of `webhook`, as addresses or networks.
    proxies: Option<OneOrMany<String>>,
}

/// `[limits]`, from the table of the numbers.
struct Limits;

impl JsonSchema for Limits {
    fn schema_name() -> Cow<'static, str> {
        "Limits".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = serde_json::Map::new();
        for Limit { key, doc, field } in limits::Limits::ALL {
            let mut schema = match field {
                LimitField::Duration(_) => generator.subschema_for::<Option<Duration>>(),
                LimitField::Count(_) => {
                    let mut schema = generator.subschema_for::<Option<u32>>();
                    schema.insert("minimum".to_owned(), 1.into());
                    schema
                }
            };
            schema.insert("description".to_owned(), doc.trim_start().into());
            properties.insert((*key).to_owned(), schema.into());
        }
        json_schema!({
            "description": "The limits of the stack.",
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}
