//! The inputs of `refresh`: settings to store for later requests, and whether it is a dry run.
//!
//! Not here: the command (`workflow`).

use std::time::Duration;

use bullpen_core::class::RunnerClass;

use super::classes;
use super::common::{CommonArgs, CommonInputs};
use super::given::{Given, Reader};
use super::provision::{RUNTIME_MINUTES_MAX, minutes};
use super::values::{boolean, whole};
use super::{Environment, UsageError};

/// Seven days: after that the service replaces a stopped machine, and keeps no running one.
const IDLE_SECONDS_MAX: u32 = 7 * 24 * 60 * 60;
/// A registration token lives for an hour, so `refresh` must replace it sooner.
const TOKEN_REFRESH_MINUTES_MAX: u32 = 59;
/// EC2's limit for user data.
const SCRIPT_BYTES_MAX: usize = 16 * 1024;

/// Bring the stack to its desired state: reap, reconcile, advertise again, store settings.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RefreshArgs {
    /// Only show the steps, without taking them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) dry_run: Option<String>,
    /// The time that a released machine waits for its next owner, in seconds [default: 420]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub(crate) idle_time_sec: Option<String>,
    /// The longest time that a machine is kept unless a job extends it, in minutes [default: 30]
    #[arg(long, value_name = "MINUTES", allow_hyphen_values = true)]
    pub(crate) max_runtime_min: Option<String>,
    /// A script that a machine runs before its first runner
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) pre_runner_script: Option<String>,
    /// Classes as JSON, beside the runners of --config: {"large":{"cpu":2,"mmem":4096}}
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) resource_class_config: Option<String>,
    /// The version of the runner program, such as 2.325.0
    #[arg(long, value_name = "VERSION", allow_hyphen_values = true)]
    pub(crate) actions_runner_version: Option<String>,
    /// The age at which the registration token is replaced, in minutes, from 1 to 59 [default: 30]
    #[arg(long, value_name = "MINUTES", allow_hyphen_values = true)]
    pub(crate) github_reg_token_refresh_min: Option<String>,
    #[command(flatten)]
    pub(crate) aws: AwsArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Inputs for machines on AWS.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "AWS (accepted, not used by the embedded engine)")]
pub(crate) struct AwsArgs {
    /// The image of machines
    #[arg(long, value_name = "AMI")]
    pub(crate) ami: Option<String>,
    /// The instance profile of machines
    #[arg(long, value_name = "PROFILE")]
    pub(crate) iam_instance_profile: Option<String>,
    /// The security groups of machines
    #[arg(long, value_name = "IDS")]
    pub(crate) security_group_ids: Option<String>,
    /// The subnets of machines
    #[arg(long, value_name = "IDS")]
    pub(crate) subnet_ids: Option<String>,
    /// The region
    #[arg(long, value_name = "REGION")]
    pub(crate) aws_region: Option<String>,
}

/// The checked inputs of `refresh`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefreshInputs {
    /// The common inputs.
    pub(crate) common: CommonInputs,
    /// Whether to change nothing.
    pub(crate) dry_run: bool,
    /// The time that a released machine waits for its next owner.
    pub(crate) idle_time: Option<Duration>,
    /// The longest time that a machine is kept.
    pub(crate) max_runtime: Option<Duration>,
    /// The script that a machine runs before its first runner.
    pub(crate) pre_runner_script: Option<String>,
    /// Classes beside the runners of `runs-on.yml`.
    pub(crate) classes: Option<Vec<RunnerClass>>,
    /// The version of the runner program.
    pub(crate) runner_version: Option<String>,
    /// The age at which the registration token is replaced.
    pub(crate) token_refresh: Option<Duration>,
    /// The names of given inputs that the command does not use.
    pub(crate) unused: Vec<String>,
}

impl RefreshInputs {
    /// Reads the inputs. An absent input leaves its stored value as it is.
    pub(crate) fn read(args: &RefreshArgs, environment: &Environment) -> Result<Self, UsageError> {
        let reader = Reader::new(environment);
        let dry_run = reader.input("dry-run", args.dry_run.as_ref());
        let idle = reader.input("idle-time-sec", args.idle_time_sec.as_ref());
        let runtime = reader.input("max-runtime-min", args.max_runtime_min.as_ref());
        let script = reader.input("pre-runner-script", args.pre_runner_script.as_ref());
        let table = reader.input("resource-class-config", args.resource_class_config.as_ref());
        let version = reader.input("actions-runner-version", args.actions_runner_version.as_ref());
        let name = "github-reg-token-refresh-min";
        let token = reader.input(name, args.github_reg_token_refresh_min.as_ref());
        let seconds = |count: u32| Duration::from_secs(u64::from(count));
        Ok(Self {
            common: CommonInputs::read(&args.common, environment)?,
            dry_run: dry_run.map_or(Ok(false), |given| boolean(&given))?,
            idle_time: number(idle, IDLE_SECONDS_MAX)?.map(seconds),
            max_runtime: number(runtime, RUNTIME_MINUTES_MAX)?.map(minutes),
            pre_runner_script: script.map(|given| script_text(&given)).transpose()?,
            classes: table.map(|given| classes::table(&given)).transpose()?,
            runner_version: version.map(|given| runner_version(&given)).transpose()?,
            token_refresh: number(token, TOKEN_REFRESH_MINUTES_MAX)?.map(minutes),
            unused: unused(&args.aws, reader)?,
        })
    }
}

/// A positive number: older versions read a stored zero as absent (D34).
fn number(given: Option<Given>, most: u32) -> Result<Option<u32>, UsageError> {
    given.map(|given| whole(&given, 1..=most)).transpose()
}

fn script_text(given: &Given) -> Result<String, UsageError> {
    let text = &given.text;
    if text.trim().is_empty() || text.contains('\0') || text.len() > SCRIPT_BYTES_MAX {
        return Err(given.refuse(format!("a script of up to {SCRIPT_BYTES_MAX} bytes")));
    }
    Ok(text.clone())
}

fn runner_version(given: &Given) -> Result<String, UsageError> {
    let word = given.word();
    let plain = |part: &str| {
        (1..=9).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    if word.split('.').count() == 3 && word.split('.').all(plain) {
        return Ok(word.to_owned());
    }
    Err(given.refuse("a version such as 2.325.0"))
}

fn unused(args: &AwsArgs, reader: Reader<'_>) -> Result<Vec<String>, UsageError> {
    let inputs = [
        ("ami", &args.ami),
        ("iam-instance-profile", &args.iam_instance_profile),
        ("security-group-ids", &args.security_group_ids),
        ("subnet-ids", &args.subnet_ids),
        ("aws-region", &args.aws_region),
    ];
    let given = inputs.iter().filter_map(|(name, flag)| reader.input(name, flag.as_ref()));
    // The only check is that they are not blank.
    let place = |given: Given| match given.word() {
        "" => Err(given.refuse("a name or an id")),
        _ => Ok(given.place),
    };
    given.map(place).collect()
}
