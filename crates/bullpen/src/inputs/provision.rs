//! The inputs of `provision`: how many machines of which kind, for whom, until when.
//!
//! Not here: getting them (`workflow`).

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

/// Machines in one request. A slip of a digit must not cost a fortune; the stack's ceilings are
/// for the rest.
const COUNT_MAX: u32 = 1_000;
/// GitHub ends a run after 35 days, so no machine is of use for longer.
pub(crate) const RUNTIME_MINUTES_MAX: u32 = 35 * 24 * 60;
/// A job that waits longer for its machines is not helped by waiting.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Get machines, and the label that jobs are to name.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ProvisionArgs {
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
    /// How many machines, from 1 to 1000 [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, conflicts_with = "count")]
    pub(crate) instance_count: Option<String>,
    /// The same as --instance-count
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) count: Option<String>,
    /// How machines are paid for: spot or on-demand [default: what the class says, or on-demand]
    #[arg(long, value_name = "USAGE", allow_hyphen_values = true)]
    pub(crate) usage_class: Option<String>,
    /// Machine types that will do, with * for anything [default: what the class says, or c* m* r*]
    #[arg(long, value_name = "TYPES", allow_hyphen_values = true)]
    pub(crate) allowed_instance_types: Option<String>,
    /// The class of machine [default: large]
    #[arg(long, value_name = "CLASS", allow_hyphen_values = true)]
    pub(crate) resource_class: Option<String>,
    /// Classes as JSON, beside the runners of --config: {"large":{"cpu":2,"mmem":4096}}
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) resource_class_config: Option<String>,
    /// How long the machines may be kept without a job extending it, in minutes [default: what
    /// refresh stored]
    #[arg(long, value_name = "MINUTES", allow_hyphen_values = true)]
    pub(crate) max_runtime_min: Option<String>,
    /// When to give up, such as 90s or 1h30m [default: request-deadline of --stack, 10m]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) deadline: Option<String>,
    /// What to do with less than all machines: top-up or fail [default: top-up]
    #[arg(long, value_name = "WHAT", allow_hyphen_values = true)]
    pub(crate) on_partial: Option<String>,
    /// Take on-demand machines when there is no spot [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) on_demand_fallback: Option<String>,
    /// One job a runner: it takes no second one; needs a credential that outlives this command
    /// [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ephemeral: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What `provision` is told; checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProvisionInputs {
    /// What every command is told.
    pub(crate) common: CommonInputs,
    /// Which request.
    pub(crate) request: RequestId,
    /// How many machines.
    pub(crate) count: u32,
    /// Which machines; needs `runs-on.yml` to become one.
    pub(crate) machine: MachineChoice,
    /// How long they may be kept; as stored if absent.
    pub(crate) max_runtime: Option<Duration>,
    /// How long to try; the stack's limit if absent.
    pub(crate) deadline: Option<Duration>,
    /// What to do with less than all.
    pub(crate) on_partial: OnPartial,
    /// Whether spot may become on-demand.
    pub(crate) on_demand_fallback: bool,
    /// Whether each runner serves one job only.
    pub(crate) ephemeral: bool,
}

impl ProvisionInputs {
    /// Reads them. `fresh` is the request's name where neither the user nor a workflow gives one.
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
    let said = Identity::read(args, reader)?;
    if let Some(request) = said.request {
        return Ok(request);
    }
    let run = said.run.map_or_else(|| identity::current_run(reader), Ok)?;
    let name = match said.name {
        Some(name) => name,
        None => identity::step_name(reader)?.unwrap_or_else(|| identity::mapped(fresh)),
    };
    Ok(run.request(&name))
}

fn count(args: &ProvisionArgs, reader: Reader<'_>) -> Result<u32, UsageError> {
    // Both flags before both variables: a flag wins, whichever of its two names it has.
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
