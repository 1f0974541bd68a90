//! `bullpen.toml` as an editor sees it.
//!
//! Not here: the keys' rules that a schema cannot say.
#![expect(dead_code, reason = "these types are only described, never filled")]

use std::collections::BTreeMap;

use schemars::JsonSchema;

/// The settings of one stack. `crates/core/config.default.toml` has every default.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct StackFile {
    /// What the stack is called.
    stack: Option<StackSection>,
    /// Where machines live.
    aws: Option<Aws>,
    /// What an EC2 instance starts with.
    instance: Option<Instance>,
    /// The same when machines are processes of this host.
    #[schemars(rename = "process-fleet")]
    process_fleet: Option<ProcessFleet>,
    /// Which AMI each built-in image name stands for.
    images: Option<BTreeMap<String, Ami>>,
    /// The most machines.
    ceilings: Option<Ceilings>,
    /// How GitHub is spoken to.
    github: Option<Github>,
    /// Where the service listens.
    listeners: Option<Listeners>,
    /// The numbers.
    limits: Option<Limits>,
}

/// An AMI's id.
#[derive(JsonSchema)]
struct Ami(#[schemars(regex(pattern = "^ami-([0-9a-f]{8}|[0-9a-f]{17})$"))] String);

/// Where a secret is: `env:NAME`, `file:/path`, or the ARN of a parameter or secret.
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

/// Machines as processes of this host.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct ProcessFleet {
    /// How long a boot takes before the agent is started.
    boot_delay: Option<Duration>,
    /// The most machines that are up at once.
    capacity: Option<u32>,
    /// What cannot be had at all.
    out_of: Option<OneOrMany<Offering>>,
    /// What keeps jobs from the service whose host they share.
    isolation: Option<Wish>,
    /// The ids of the machines' own users, where the service is root.
    #[schemars(regex(pattern = "^[0-9]+ *- *[0-9]+$"))]
    users: Option<String>,
    /// What jobs see of directories that are hidden from them; at most three.
    visible: Option<OneOrMany<String>>,
    /// Whether jobs are held to the processors and the memory of their machine's type.
    limits: Option<bool>,
    /// The most processes and threads of one machine.
    #[schemars(range(min = 1))]
    processes_max: Option<u32>,
    /// The cgroup to keep machines' own in.
    cgroup: Option<String>,
}

/// What the host must allow.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Wish {
    Required,
    Best,
    None,
}

/// What the stack is called.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct StackSection {
    /// In tags, queue names and runner names.
    #[schemars(regex(pattern = "^[a-z0-9-]{1,24}$"))]
    name: Option<String>,
    /// Which jobs are this stack's, as in `env=` of a label.
    env: Option<String>,
}

/// Where machines live.
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

/// An address that instances fetch from.
#[derive(JsonSchema)]
struct Address(
    #[schemars(regex(pattern = "^(https|s3)://[^/?#@\\s]+/[^?#@\\s]+$"))]
    String,
);

/// A SHA-256.
#[derive(JsonSchema)]
struct Sha256(#[schemars(regex(pattern = "^[0-9A-Fa-f]{64}$"))] String);

/// What an EC2 instance starts with. An address needs its checksum beside it.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Instance {
    /// Where the agent is fetched from, for images that do not have it.
    #[schemars(rename = "agent-x64")]
    agent_x64: Option<Address>,
    /// Its checksum.
    #[schemars(rename = "agent-x64-sha256")]
    agent_x64_sha256: Option<Sha256>,
    /// Where the agent is fetched from, for images that do not have it.
    #[schemars(rename = "agent-arm64")]
    agent_arm64: Option<Address>,
    /// Its checksum.
    #[schemars(rename = "agent-arm64-sha256")]
    agent_arm64_sha256: Option<Sha256>,
    /// Where the image has GitHub's runner, unpacked.
    #[schemars(rename = "runner-dir", regex(pattern = "^/[A-Za-z0-9._/-]+$"))]
    runner_dir: Option<String>,
    /// Where its archive is fetched from, if the image has none there.
    #[schemars(rename = "runner-x64")]
    runner_x64: Option<Address>,
    /// Its checksum.
    #[schemars(rename = "runner-x64-sha256")]
    runner_x64_sha256: Option<Sha256>,
    /// Where its archive is fetched from, if the image has none there.
    #[schemars(rename = "runner-arm64")]
    runner_arm64: Option<Address>,
    /// Its checksum.
    #[schemars(rename = "runner-arm64-sha256")]
    runner_arm64_sha256: Option<Sha256>,
    /// The user that jobs run as.
    #[schemars(regex(pattern = "^[a-z_][a-z0-9_-]{0,31}$"))]
    user: Option<String>,
    /// Whether it may become root.
    sudo: Option<bool>,
    /// Whether it may use Docker, which is as good as root.
    docker: Option<bool>,
    /// Who may read the machine's metadata: root, or every job.
    #[schemars(regex(pattern = "^(closed|open)$"))]
    metadata: Option<String>,
    /// How far the machine's metadata may travel.
    #[schemars(rename = "metadata-hops", range(min = 1, max = 2))]
    metadata_hops: Option<u32>,
    /// The most that a type may cost above the cheapest that would do, in percent.
    #[schemars(rename = "price-protection", range(min = 1))]
    price_protection: Option<u32>,
}

/// The most machines, launches in flight included.
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

/// How GitHub is spoken to: as an App, or with a token.
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
    /// More Apps with the same rights, by number, and where their keys are.
    more_apps: Option<BTreeMap<String, SecretRef>>,
    /// What webhook deliveries are signed with; two while one replaces the other.
    webhook_secrets: Option<OneOrMany<SecretRef>>,
}

/// Where the service listens: two addresses, never one port.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct Listeners {
    /// GitHub's deliveries.
    webhook: Option<String>,
    /// Dashboard, metrics, health, API.
    admin: Option<String>,
    /// Needed when `admin` is not a loopback address.
    admin_token: Option<SecretRef>,
    /// Proxies in front of `webhook`, as addresses or networks.
    proxies: Option<OneOrMany<String>>,
}

/// The numbers that everything runs on.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct Limits {
    /// How long a released machine waits for its next owner.
    idle_released: Option<Duration>,
    /// How long a stopped machine may stay stopped before it is replaced.
    idle_stopped: Option<Duration>,
    /// When a hot machine starts to be replaced, so that it never drifts far from its image.
    hot_lifetime: Option<Duration>,
    /// How much longer an expiring hot machine may live while its replacement boots.
    hot_hard_end: Option<Duration>,
    /// An idle machine this close to its deadline is not claimable: the claim would race the reaper.
    not_claimable_before_deadline: Option<Duration>,
    /// How long a claim lives without renewal.
    claim_lease: Option<Duration>,
    /// How often a live request renews its claims.
    claim_renew: Option<Duration>,
    /// How long an agent may take to acknowledge an assignment.
    assignment_acknowledged: Option<Duration>,
    /// How long registration may take after the acknowledgement.
    registration: Option<Duration>,
    /// The same for a machine that was stopped: its runner program is cold.
    registration_stopped: Option<Duration>,
    /// How long a started machine may take to its first beat.
    first_beat_stopped: Option<Duration>,
    /// How often an agent beats.
    heartbeat: Option<Duration>,
    /// When a beat is stale: three missed. Two is too few while reads may lag.
    heartbeat_stale: Option<Duration>,
    /// How long a created machine may take until it is of use.
    warm_up: Option<Duration>,
    /// How long an owner in workflow mode may keep a machine without a job extending it.
    max_runtime_workflow: Option<Duration>,
    /// The same in the service.
    max_runtime_service: Option<Duration>,
    /// The end of every extension.
    hard_cap: Option<Duration>,
    /// How long an agent may take to acknowledge `stop`.
    release_acknowledgement: Option<Duration>,
    /// How often GitHub is asked again whether a busy runner can be deleted.
    release_retry: Option<Duration>,
    /// How long GitHub is asked again for what a request cannot begin without.
    forge_patience: Option<Duration>,
    /// How long created machines may take to report and register.
    fleet_validation: Option<Duration>,
    /// How long a mismatched message stays hidden from everyone.
    requeue_delay: Option<Duration>,
    /// A stop call that has not been made by this long after its intent must not be made.
    stop_fence: Option<Duration>,
    /// How late after the intent the sender may still send.
    stop_send_within: Option<Duration>,
    /// The stop call's own timeout.
    stop_call_timeout: Option<Duration>,
    /// One id seen more often than this in one attempt: the pool is exhausted for the request.
    #[schemars(range(min = 1))]
    sightings_max: Option<u32>,
    /// How long a pool lease lives without renewal.
    pool_lease: Option<Duration>,
    /// How often a pool lease is renewed.
    pool_lease_renew: Option<Duration>,
    /// A machine younger than this, or under a live intent, is never called an orphan.
    reconcile_grace: Option<Duration>,
    /// How long a tombstone is kept.
    tombstone_ttl: Option<Duration>,
    /// How long a finished job row is kept.
    job_row_ttl: Option<Duration>,
    /// How long a mailbox item is kept after its last write.
    mailbox_ttl: Option<Duration>,
    /// How long a pool queue message is kept.
    pool_queue_retention: Option<Duration>,
    /// When a queued job must have a runner or a visible failure.
    job_deadline: Option<Duration>,
    /// Launch attempts per job.
    #[schemars(range(min = 1))]
    launch_attempts_max: Option<u32>,
    /// First backoff between them; doubles, jittered.
    launch_backoff: Option<Duration>,
    /// When a job row that nobody works on is looked at again.
    row_look_again: Option<Duration>,
    /// How long a worker may hold a row in `assigning`.
    row_lease: Option<Duration>,
    /// How often it renews that.
    row_lease_renew: Option<Duration>,
    /// Owners one machine may serve.
    #[schemars(range(min = 1))]
    uses_max: Option<u32>,
    /// How old a machine may grow.
    age_max: Option<Duration>,
    /// How far two clocks may differ before anything but time is lost.
    clock_skew: Option<Duration>,
    /// How long `provision` tries.
    request_deadline: Option<Duration>,
    /// Armed at boot before everything else; the agent may only shorten it.
    watchdog: Option<Duration>,
    /// How long a capacity shortage is remembered.
    shortage_memory: Option<Duration>,
    /// How long a coalescer waits for company.
    coalesce_idle: Option<Duration>,
    /// How long it waits at most.
    coalesce_max: Option<Duration>,
    /// How often a pool converges.
    converge: Option<Duration>,
    /// How soon one record may be advertised again; doubles.
    readvertise: Option<Duration>,
    /// How often the service looks for job rows that are due.
    sweep: Option<Duration>,
    /// How often it asks GitHub for what no webhook said.
    find: Option<Duration>,
    /// How often it reaps, reconciles and advertises again.
    upkeep: Option<Duration>,
    /// How often it looks whether the configuration is another one.
    configuration: Option<Duration>,
    /// How long a process that is told to end goes on with what it has begun.
    drain: Option<Duration>,
}
