//! The inputs of `provision`: the number and kind of machines, the request's id, and deadlines.
//!
//! Not here: the command (`workflow`).

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ids::RequestId;
use bullpen_core::request::OnPartial;

use super::classes::{self, MachineChoice};
use super::common::{CommonArgs, CommonInputs};
use super::given::Reader;
use super::identity::{self, Identity, IdentityArgs};
use super::values::{boolean, choice, duration, patterns, whole};
use super::{Environment, UsageError};

/// The most machines in one request, so that a typo does not cost a fortune. Other limits are the
/// stack's ceilings.
const COUNT_MAX: u32 = 1_000;
/// The longest runtime: GitHub ends a run after 35 days, so no run needs a machine for longer.
pub(crate) const RUNTIME_MINUTES_MAX: u32 = 35 * 24 * 60;
/// The longest deadline of a request: a longer wait does not help a job.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Get machines, and the label for jobs.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ProvisionArgs {
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
    /// The number of machines, from 1 to 1000 [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, conflicts_with = "count")]
    pub(crate) instance_count: Option<String>,
    /// The same as --instance-count
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) count: Option<String>,
    /// Whether machines are spot or on-demand [default: the class's usage, or on-demand]
    #[arg(long, value_name = "USAGE", allow_hyphen_values = true)]
    pub(crate) usage_class: Option<String>,
    /// The allowed machine types, with * as a wildcard [default: the class's families, or c* m* r*]
    #[arg(long, value_name = "TYPES", allow_hyphen_values = true)]
    pub(crate) allowed_instance_types: Option<String>,
    /// The class of machine [default: large]
    #[arg(long, value_name = "CLASS", allow_hyphen_values = true)]
    pub(crate) resource_class: Option<String>,
    /// Classes as JSON, beside the runners of --config: {"large":{"cpu":2,"mmem":4096}}
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) resource_class_config: Option<String>,
    /// The longest time that a machine is kept unless a job extends it, in minutes [default: the
    /// value that refresh stored]
    #[arg(long, value_name = "MINUTES", allow_hyphen_values = true)]
    pub(crate) max_runtime_min: Option<String>,
    /// When to give up, such as 90s or 1h30m [default: request-deadline of --stack, 10m]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) deadline: Option<String>,
    /// The reaction to fewer machines than requested: top-up or fail [default: top-up]
    #[arg(long, value_name = "WHAT", allow_hyphen_values = true)]
    pub(crate) on_partial: Option<String>,
    /// Take on-demand machines if there is no spot capacity [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) on_demand_fallback: Option<String>,
    /// Let each runner take one job only; needs a credential that outlives this command [default:
    /// false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ephemeral: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// The checked inputs of `provision`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProvisionInputs {
    /// The common inputs.
    pub(crate) common: CommonInputs,
    /// The request's id.
    pub(crate) request: RequestId,
    /// The number of machines.
    pub(crate) count: u32,
    /// The kind of machines; `runs-on.yml` resolves it.
    pub(crate) machine: MachineChoice,
    /// The longest time that a machine is kept; `None` for the stored value.
    pub(crate) max_runtime: Option<Duration>,
    /// The time limit of the request; `None` for the stack's limit.
    pub(crate) deadline: Option<Duration>,
    /// The reaction to fewer machines than requested.
    pub(crate) on_partial: OnPartial,
    /// Whether on-demand machines may replace spot machines.
    pub(crate) on_demand_fallback: bool,
    /// Whether each runner serves one job only.
    pub(crate) ephemeral: bool,
}

impl ProvisionInputs {
    /// Reads the inputs. `fresh` is the request's name if neither the user nor a workflow gives
    /// one.
    pub(crate) fn read(
        args: &ProvisionArgs,
        environment: &Environment,
        fresh: &str,
    ) -> Result<Self, UsageError> {
        let reader = Reader::new(environment);
        let runtime = reader.input("max-runtime-min", args.max_runtime_min.as_ref());
        let deadline = reader.input("deadline", args.deadline.as_ref());
        let on_partial = reader.input("on-partial", args.on_partial.as_ref());
        let ephemeral = reader.input("ephemeral", args.ephemeral.as_ref());
        let fallback = reader.input("on-demand-fallback", args.on_demand_fallback.as_ref());
        Ok(Self {
            common: CommonInputs::read(&args.common, environment)?,
            request: request(&args.identity, reader, fresh)?,
            count: count(args, reader)?,
            machine: machine(args, reader)?,
            max_runtime: runtime
                .map(|given| whole(&given, 1..=RUNTIME_MINUTES_MAX).map(minutes))
                .transpose()?,
            deadline: deadline.map(|given| duration(&given, DEADLINE_MAX)).transpose()?,
            on_partial: on_partial.map_or(Ok(OnPartial::default()), |given| {
                choice(&given, &[("top-up", OnPartial::TopUp), ("fail", OnPartial::Fail)])
            })?,
            on_demand_fallback: fallback.map_or(Ok(false), |given| boolean(&given))?,
            ephemeral: ephemeral.map_or(Ok(false), |given| boolean(&given))?,
        })
    }
}

/// This many minutes.
pub(crate) fn minutes(count: u32) -> Duration {
    Duration::from_secs(u64::from(count) * 60)
}

fn request(args: &IdentityArgs, reader: Reader<'_>, fresh: &str) -> Result<RequestId, UsageError> {
    let given = Identity::read(args, reader)?;
    if let Some(request) = given.request {
        return Ok(request);
    }
    let run = given.run.map_or_else(|| identity::current_run(reader), Ok)?;
    let name = match given.name {
        Some(name) => name,
        None => identity::step_name(reader)?.unwrap_or_else(|| identity::mapped(fresh)),
    };
    Ok(run.request(&name))
}

fn count(args: &ProvisionArgs, reader: Reader<'_>) -> Result<u32, UsageError> {
    // Both flags before both variables: a flag wins under either of its names.
    let short = args.count.as_ref().and_then(|_| reader.input("count", args.count.as_ref()));
    let given = short
        .or_else(|| reader.input("instance-count", args.instance_count.as_ref()))
        .or_else(|| reader.variable_of("count"));
    given.map_or(Ok(1), |given| whole(&given, 1..=COUNT_MAX))
}

fn machine(args: &ProvisionArgs, reader: Reader<'_>) -> Result<MachineChoice, UsageError> {
    let usage = reader.input("usage-class", args.usage_class.as_ref());
    let types = reader.input("allowed-instance-types", args.allowed_instance_types.as_ref());
    let table = reader.input("resource-class-config", args.resource_class_config.as_ref());
    Ok(MachineChoice {
        class: reader.input("resource-class", args.resource_class.as_ref()),
        table: table.map_or_else(|| Ok(Vec::new()), |given| classes::table(&given))?,
        usage: usage
            .map(|given| {
                let usages = [Usage::Spot, Usage::OnDemand].map(|usage| (usage.as_str(), usage));
                choice(&given, &usages)
            })
            .transpose()?,
        allowed_types: types.map(|given| patterns(&given)).transpose()?,
    })
}
