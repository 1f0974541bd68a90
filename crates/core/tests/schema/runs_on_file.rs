//! The schema types of `runs-on.yml`, for editors.
//!
//! Not here: rules that a schema cannot express (`bullpen_core::config`).
#![expect(
    dead_code,
    clippy::zero_sized_map_values,
    reason = "these types only describe a schema and have no values"
)]

use std::borrow::Cow;
use std::collections::BTreeMap;

use bullpen_core::config::pool_keys::{KeyForm, POOL_KEYS, PoolKey};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

/// RunsOn's configuration as Bullpen reads it. It ignores other top-level keys; `x-*` is yours.
#[derive(JsonSchema)]
pub(crate) struct RunsOnFile {
    /// Machine shapes, by name.
    runners: Option<BTreeMap<String, Runner>>,
    /// Images beside the built-in ones, by name.
    images: Option<BTreeMap<String, Image>>,
    /// Standby pools, by name (`a-z`, `0-9`, `_`, `-`).
    pools: Option<BTreeMap<String, Pool>>,
    /// Bullpen's own keys.
    #[schemars(rename = "x-bullpen")]
    x_bullpen: Option<Extension>,
    /// Accepted and not acted on: only this file is read.
    #[schemars(rename = "_extends")]
    extends: Option<String>,
    /// Accepted and not acted on: no machine has an inbound path.
    admins: Option<Vec<String>>,
}

/// A number, a range such as `2+4`, or a list of numbers.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Range {
    Number(f64),
    Text(#[schemars(regex(pattern = r"^[0-9.]+(\+[0-9.]+)*$"))] String),
    List(Vec<NumberOrText>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum NumberOrText {
    Number(f64),
    Text(String),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// `true` or `false`, also as text.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Truth {
    Bool(bool),
    Text(#[schemars(regex(pattern = "^(true|false)$"))] String),
}

/// `true`, `false`, or how spot capacity is chosen.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Spot {
    Bool(bool),
    Text(
        #[schemars(regex(
            pattern = "^(true|false|never|pco|price-capacity-optimized|lp|lowest-price|co|capacity-optimized)$"
        ))]
        String,
    ),
}

/// A machine shape.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct Runner {
    /// How many vCPUs.
    cpu: Option<Range>,
    /// How much memory, in GiB.
    ram: Option<Range>,
    /// The machine types: `c7` stands for `c7*`.
    family: Option<OneOrMany>,
    /// A built-in image, or one of `images`.
    image: Option<String>,
    /// The disk, such as `80gb:gp3:125mibps:3000iops`.
    volume: Option<String>,
    /// Whether to use spot capacity.
    spot: Option<Spot>,
    /// A script that runs once per machine.
    preinstall: Option<String>,
    /// A script that runs at each boot.
    prerun: Option<String>,
    /// Accepted and not acted on.
    id: Option<serde_json::Value>,
    /// Accepted and not acted on.
    tags: Option<serde_json::Value>,
    /// Accepted and not acted on.
    extras: Option<serde_json::Value>,
    /// Accepted and not acted on.
    sticky: Option<serde_json::Value>,
    /// Accepted and not acted on; use `volume`.
    disk: Option<serde_json::Value>,
    /// Accepted and not acted on.
    ssh: Option<Truth>,
    /// Accepted and not acted on.
    private: Option<Truth>,
    /// Accepted and not acted on.
    debug: Option<Truth>,
    /// Accepted and not acted on.
    nested_virt: Option<Truth>,
    /// Accepted and not acted on.
    retry: Option<serde_json::Value>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Platform {
    Linux,
    Windows,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Arch {
    X64,
    Arm64,
}

/// An image: a fixed `ami`, or the newest AMI that `name` and `owner` match.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Image {
    /// The AMI's id.
    #[schemars(regex(pattern = "^ami-([0-9a-f]{8}|[0-9a-f]{17})$"))]
    ami: Option<String>,
    /// The operating system; Linux if absent.
    platform: Option<Platform>,
    /// The processor architecture; x64 if absent.
    arch: Option<Arch>,
    /// The AMI's name, with `*`.
    name: Option<String>,
    /// The account that owns the AMI; in quotes.
    owner: Option<String>,
    /// A script that runs once per machine.
    preinstall: Option<String>,
    /// A script that runs at each boot.
    prerun: Option<String>,
    /// The minimum size of its disk, in GiB.
    main_disk_size: Option<u32>,
    /// The device name of its first disk.
    root_device_name: Option<String>,
    /// Accepted and not acted on.
    id: Option<serde_json::Value>,
    /// Accepted and not acted on.
    tags: Option<serde_json::Value>,
}

/// A standby pool: machines that are ready before jobs ask for them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Pool {
    /// A name from `runners`.
    runner: String,
    /// The stack it belongs to; `production` if absent.
    env: Option<String>,
    /// The deprecated spelling of `env`.
    #[schemars(extend("deprecated" = true))]
    environment: Option<String>,
    /// An IANA time zone; `UTC` if absent.
    timezone: Option<String>,
    /// Any text; a change of it replaces the machines.
    version: Option<NumberOrText>,
    /// How many machines, and when. The last entry that matches wins.
    schedule: Option<Vec<Entry>>,
}

/// One line of a schedule. Without `match` it is the fallback.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Entry {
    /// Its name.
    name: String,
    /// How many machines to keep running and idle.
    hot: u32,
    /// How many machines to keep prepared and stopped.
    stopped: u32,
    /// When it applies.
    #[schemars(rename = "match")]
    when: Option<Match>,
}

/// When an entry applies.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Match {
    /// The days on which it applies.
    #[schemars(length(min = 1))]
    day: Option<Vec<Day>>,
    /// The times from which and until which it applies; the window may cross midnight.
    time: Option<[Time; 2]>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// A time of day, `00:00` to `23:59`.
#[derive(JsonSchema)]
struct Time(#[schemars(regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))] String);

/// A length of time such as `90s`, `7m` or `1h30m`.
#[derive(JsonSchema)]
struct Duration(#[schemars(regex(pattern = "^([0-9]+(ms|s|m|h|d))+$"))] String);

/// Bullpen's own keys.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct Extension {
    /// Bullpen's keys for runners, by name.
    runners: Option<BTreeMap<String, RunnerExtension>>,
    /// Bullpen's keys for pools, by name.
    pools: Option<BTreeMap<String, PoolExtension>>,
    /// The pool of jobs that name none.
    default_pool: Option<String>,
    /// What happens to a job that cannot get a runner.
    on_unfulfillable: Option<OnUnfulfillable>,
    /// What labels may ask for.
    labels: Option<Labels>,
    /// The authors whose code gets only unused machines; forks and Dependabot always do.
    untrusted: Option<UntrustedCode>,
    /// Where used machines are offered to jobs whose labels do not name their run.
    reuse_under_shared_labels: Option<ReuseUnderSharedLabels>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum UntrustedCode {
    One(Untrusted),
    Many(Vec<Untrusted>),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Untrusted {
    Forks,
    Dependabot,
    PullRequests,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum ReuseUnderSharedLabels {
    All(SharedLabels),
    /// By `owner/repository`.
    Repositories(BTreeMap<String, SharedLabels>),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum SharedLabels {
    Private,
    Always,
    Never,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum OnUnfulfillable {
    Annotate,
    Cancel,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Usage {
    Spot,
    OnDemand,
}

/// Bullpen's keys for a runner.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct RunnerExtension {
    /// Whether and how often a machine serves again.
    reuse: Option<Reuse>,
    /// Which jobs may share a machine one after the other.
    trust: Option<String>,
    /// Spot or on-demand.
    usage: Option<Usage>,
    /// How long an owner may keep a machine.
    max_runtime: Option<Duration>,
    /// The runner group that its runners join at GitHub.
    group: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Reuse {
    Whether(Truth),
    Bounds(ReuseBounds),
}

/// How often and how long a machine serves.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "kebab-case")]
struct ReuseBounds {
    /// How many owners one machine may serve.
    #[schemars(range(min = 1))]
    max_uses: Option<u32>,
    /// The maximum age of a machine.
    max_age: Option<Duration>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Rollout {
    Immediate,
    Rolling,
}

/// Bullpen's keys for a pool, from their table.
struct PoolExtension;

impl JsonSchema for PoolExtension {
    fn schema_name() -> Cow<'static, str> {
        "PoolExtension".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = serde_json::Map::new();
        for PoolKey { key, doc, form } in POOL_KEYS {
            let mut schema = match form {
                KeyForm::Rollout => generator.subschema_for::<Option<Rollout>>(),
                KeyForm::Duration => generator.subschema_for::<Option<Duration>>(),
                KeyForm::Count => generator.subschema_for::<Option<u32>>(),
                KeyForm::Flag => generator.subschema_for::<Option<Truth>>(),
                KeyForm::Group => generator.subschema_for::<Option<String>>(),
            };
            schema.insert("description".to_owned(), doc.trim_start().into());
            properties.insert((*key).to_owned(), schema.into());
        }
        properties.insert("slo".to_owned(), json!({"description": "Accepted and not acted on."}));
        json_schema!({
            "description": "Bullpen's keys for a pool.",
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}

/// What labels may ask for.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Labels {
    /// The keys that labels may use; if absent, the safe and cheap keys.
    allow: Option<OneOrMany>,
    /// Machine families that labels may ask for, by their first letters; if absent a, c, m, r, t.
    families: Option<OneOrMany>,
    /// The most that labels may ask for.
    max: Option<LabelMaxima>,
    /// The runner group of all runners without a group from another key.
    group: Option<String>,
    /// Labels that jobs may carry beside or instead of ours.
    plain: Option<Vec<PlainLabels>>,
    /// Other rules for single repositories, by `owner/repository`.
    repositories: Option<BTreeMap<String, LabelRules>>,
}

/// What one repository's labels may ask for.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct LabelRules {
    /// The keys that labels may use; as for all repositories if absent.
    allow: Option<OneOrMany>,
    /// The machine families that labels may ask for; as for all repositories if absent.
    families: Option<OneOrMany>,
    /// The most that labels may ask for.
    max: Option<LabelMaxima>,
    /// The runner group of the repository's runners; wins over any other.
    group: Option<String>,
}

/// A list of labels without a head that jobs may carry.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PlainLabels {
    /// The labels; `*` stands for any characters.
    labels: OneOrMany,
    /// The pool that serves jobs with these labels and no others.
    pool: Option<String>,
    /// The runner whose machines serve jobs with these labels and no others.
    runner: Option<String>,
    /// The repositories whose jobs may carry them; every repository if absent.
    repositories: Option<OneOrMany>,
    /// The stack that serves them.
    env: Option<String>,
}

/// The most that labels may ask for.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct LabelMaxima {
    /// vCPUs.
    #[schemars(range(min = 1))]
    cpu: Option<u32>,
    /// Memory, in GiB.
    #[schemars(range(min = 1))]
    ram: Option<u32>,
    /// Disk, in GiB.
    #[schemars(range(min = 1))]
    volume: Option<u32>,
    /// Throughput of a disk, in MiB a second.
    #[schemars(range(min = 1))]
    throughput: Option<u32>,
    /// Operations of a disk a second.
    #[schemars(range(min = 1))]
    iops: Option<u32>,
}
