//! The schema types of `bullpen.toml`, for editors.
//!
//! Not here: rules that a schema cannot express (`bullpen_core::config`).
#![expect(dead_code, reason = "these types only describe a schema and have no values")]

use std::collections::BTreeMap;

use schemars::JsonSchema;

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

/// The limits of the stack.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct Limits {
    /// How long a released machine waits for its next owner.
    idle_released: Option<Duration>,
    /// How long a stopped machine may stay stopped before it is replaced.
    idle_stopped: Option<Duration>,
    /// When the replacement of a hot machine begins, so that it never drifts far from its image.
    hot_lifetime: Option<Duration>,
    /// How much longer an expiring hot machine may live while its replacement boots.
    hot_hard_end: Option<Duration>,
    /// No claim takes an idle machine this close to its deadline: it would race the reaper.
    not_claimable_before_deadline: Option<Duration>,
    /// How long a claim lives without renewal.
    claim_lease: Option<Duration>,
    /// How often a live request renews its claims.
    claim_renew: Option<Duration>,
    /// How long an agent may take to acknowledge an assignment.
    assignment_acknowledged: Option<Duration>,
    /// How long registration may take after the acknowledgement.
    registration: Option<Duration>,
    /// How long registration may take on a machine that was stopped: its caches are cold.
    registration_stopped: Option<Duration>,
    /// How long a started machine may take until its first heartbeat.
    first_beat_stopped: Option<Duration>,
    /// How often an agent sends a heartbeat.
    heartbeat: Option<Duration>,
    /// When a heartbeat is stale: after three missed ones. Two are too few, because reads may lag.
    heartbeat_stale: Option<Duration>,
    /// How long a created machine may take until it can serve.
    warm_up: Option<Duration>,
    /// How long an owner in workflow mode may keep a machine unless a job extends it.
    max_runtime_workflow: Option<Duration>,
    /// How long an owner in service mode may keep a machine unless a job extends it.
    max_runtime_service: Option<Duration>,
    /// The longest runtime that an extension can reach.
    hard_cap: Option<Duration>,
    /// How long an agent may take to acknowledge `stop`.
    release_acknowledgement: Option<Duration>,
    /// How often GitHub is asked again to delete a busy runner.
    release_retry: Option<Duration>,
    /// How long the control plane repeats a call to GitHub without which a request cannot begin.
    forge_patience: Option<Duration>,
    /// How long created machines may take to report and register.
    fleet_validation: Option<Duration>,
    /// How long a message that does not fit stays hidden from all receivers.
    requeue_delay: Option<Duration>,
    /// A stop call must not be sent later than this after its intent.
    stop_fence: Option<Duration>,
    /// How long after the intent the sender may still send a stop call.
    stop_send_within: Option<Duration>,
    /// The stop call's own timeout.
    stop_call_timeout: Option<Duration>,
    /// If a request sees one id more often than this in one attempt, the pool is exhausted for it.
    #[schemars(range(min = 1))]
    sightings_max: Option<u32>,
    /// How long a pool lease lives without renewal.
    pool_lease: Option<Duration>,
    /// How often a pool lease is renewed.
    pool_lease_renew: Option<Duration>,
    /// A machine younger than this, or under a live intent, never counts as an orphan.
    reconcile_grace: Option<Duration>,
    /// How long a tombstone is kept.
    tombstone_ttl: Option<Duration>,
    /// How long a finished job row is kept.
    job_row_ttl: Option<Duration>,
    /// How long a mailbox item is kept after its last write.
    mailbox_ttl: Option<Duration>,
    /// How long a pool queue message is kept.
    pool_queue_retention: Option<Duration>,
    /// How long a queued job may wait for a runner before it visibly fails.
    job_deadline: Option<Duration>,
    /// The maximum of launch attempts per job.
    #[schemars(range(min = 1))]
    launch_attempts_max: Option<u32>,
    /// The first wait between launch attempts; doubles, with jitter.
    launch_backoff: Option<Duration>,
    /// When the service examines a job row again on which no worker works.
    row_look_again: Option<Duration>,
    /// How long a worker may hold a row in `assigning`.
    row_lease: Option<Duration>,
    /// How often the worker renews that lease.
    row_lease_renew: Option<Duration>,
    /// How many owners one machine may serve.
    #[schemars(range(min = 1))]
    uses_max: Option<u32>,
    /// The maximum age of a machine.
    age_max: Option<Duration>,
    /// The clock difference between two machines up to which nothing but time is lost.
    clock_skew: Option<Duration>,
    /// How long `provision` tries to get its machines.
    request_deadline: Option<Duration>,
    /// The watchdog of a machine, armed first at boot; the agent may only shorten it.
    watchdog: Option<Duration>,
    /// How long a capacity shortage is remembered.
    shortage_memory: Option<Duration>,
    /// How long a batched call waits for more calls to join it.
    coalesce_idle: Option<Duration>,
    /// The maximum wait of a batched call.
    coalesce_max: Option<Duration>,
    /// How often the planner of a pool runs.
    converge: Option<Duration>,
    /// How soon a record may be advertised again; doubles.
    readvertise: Option<Duration>,
    /// How often the service looks for job rows that are due.
    sweep: Option<Duration>,
    /// How often the service asks GitHub for jobs that no webhook announced.
    find: Option<Duration>,
    /// How often the service reaps, reconciles and advertises again.
    upkeep: Option<Duration>,
    /// How often the service checks whether the configuration has changed.
    configuration: Option<Duration>,
    /// How long a process that must end continues the work that it has begun.
    drain: Option<Duration>,
}
