//! The inputs of every workflow command: the state directory, the configuration files, the engine
//! and the fleet.
//!
//! Not here: the inputs about GitHub (`github`), or opening the files (`files`).

use std::path::{Path, PathBuf};

use bullpen_core::spelling;

use super::github::{GithubArgs, GithubInputs};
use super::given::{Given, Reader};
use super::values::{boolean, path};
use super::{Environment, UsageError};

/// The arguments about the stack and the output.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StackArgs {
    /// The directory of the ledger, queues and machines [env: `BULLPEN_STATE`] [default: bullpen in
    /// the user's data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<String>,
    /// The runs-on.yml that names runners and pools
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<String>,
    /// The bullpen.toml with the stack's name and numbers
    #[arg(long, value_name = "FILE")]
    pub(crate) stack: Option<String>,
    /// The store of the ledger: embedded or aws [default: embedded]
    #[arg(long, value_name = "ENGINE")]
    pub(crate) engine: Option<String>,
    /// The kind of machines: process or ec2 [default: process; with --engine aws: ec2]
    #[arg(long, value_name = "FLEET")]
    pub(crate) fleet: Option<String>,
    /// Print the result as JSON
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) json: Option<String>,
}

/// The arguments about the stack and GitHub.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) stack: StackArgs,
    #[command(flatten)]
    pub(crate) github: GithubArgs,
}

/// The store of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Files of this machine.
    Embedded,
    /// DynamoDB and SQS.
    #[cfg(feature = "aws")]
    Aws,
}

impl Engine {
    /// The engines in this build, by name.
    const BUILT: &[(&str, Self)] = &[
        ("embedded", Self::Embedded),
        #[cfg(feature = "aws")]
        ("aws", Self::Aws),
    ];
    /// The names of all engines.
    const ALL: [&str; 2] = ["embedded", "aws"];
}

/// The kind of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fleet {
    /// Process trees of this machine.
    Process,
    /// EC2 instances.
    #[cfg(feature = "aws")]
    Ec2,
}

impl Fleet {
    /// The fleets in this build, by name.
    const BUILT: &[(&str, Self)] = &[
        ("process", Self::Process),
        #[cfg(feature = "aws")]
        ("ec2", Self::Ec2),
    ];
    /// The names of all fleets.
    const ALL: [&str; 2] = ["process", "ec2"];

    /// The default fleet of an engine.
    const fn default_of(engine: Engine) -> Self {
        match engine {
            Engine::Embedded => Self::Process,
            #[cfg(feature = "aws")]
            Engine::Aws => Self::Ec2,
        }
    }

    /// The given fleet, if its machines can reach the engine's store.
    fn of(given: Option<&Given>, engine: Engine) -> Result<Self, UsageError> {
        let Some(given) = given else { return Ok(Self::default_of(engine)) };
        let fleet = built(Some(given), Self::BUILT, &Self::ALL)?;
        match (engine, fleet) {
            #[cfg(feature = "aws")]
            (Engine::Embedded, Self::Ec2) => Err(UsageError::new(format!(
                "{}: \"ec2\" needs --engine aws: instances cannot reach the files of this machine",
                given.place
            ))),
            _ => Ok(fleet),
        }
    }
}

/// The checked inputs about the stack and the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StackInputs {
    /// The directory of the ledger, queues and machines.
    pub(crate) state: PathBuf,
    /// The `runs-on.yml`.
    pub(crate) config: Option<PathBuf>,
    /// The `bullpen.toml`.
    pub(crate) stack: Option<PathBuf>,
    /// The store of the ledger.
    pub(crate) engine: Engine,
    /// The kind of machines.
    pub(crate) fleet: Fleet,
    /// Whether to print the result as JSON.
    pub(crate) json: bool,
}

/// The checked inputs of every command that changes the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommonInputs {
    /// The inputs about the stack and the output.
    pub(crate) stack: StackInputs,
    /// The inputs about GitHub.
    pub(crate) github: GithubInputs,
}

impl StackInputs {
    /// Whether the machines are in the state directory.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        self.fleet == Fleet::Process
    }

    /// Reads the inputs; `status` and `ledger verify` have no others.
    pub(crate) fn read(args: &StackArgs, environment: &Environment) -> Result<Self, UsageError> {
        let reader = Reader::new(environment);
        let path_of = |name: &str, flag: &Option<String>| {
            reader.input(name, flag.as_ref()).map(|given| path(&given)).transpose()
        };
        let engine = reader.input("engine", args.engine.as_ref());
        let engine = built(engine.as_ref(), Engine::BUILT, &Engine::ALL)?;
        let fleet = reader.input("fleet", args.fleet.as_ref());
        let json = reader.input("json", args.json.as_ref());
        Ok(Self {
            state: state(reader, args.state.as_ref())?,
            config: path_of("config", &args.config)?,
            stack: path_of("stack", &args.stack)?,
            engine,
            fleet: Fleet::of(fleet.as_ref(), engine)?,
            json: json.map_or(Ok(false), |given| boolean(&given))?,
        })
    }
}

impl CommonInputs {
    /// Reads the inputs; `destroy` has only `--yes` besides.
    pub(crate) fn read(args: &CommonArgs, environment: &Environment) -> Result<Self, UsageError> {
        Ok(Self {
            stack: StackInputs::read(&args.stack, environment)?,
            github: GithubInputs::read(&args.github, Reader::new(environment))?,
        })
    }
}

fn state(reader: Reader<'_>, flag: Option<&String>) -> Result<PathBuf, UsageError> {
    if let Some(given) = reader.input_or("state", flag, "BULLPEN_STATE") {
        return path(&given);
    }
    // XDG's rule: a relative path counts as absent.
    let absolute = |name: &str| {
        let given = reader.variable(name)?;
        Some(PathBuf::from(given.text)).filter(|path| path.is_absolute())
    };
    let data = absolute("XDG_DATA_HOME")
        .or_else(|| Some(absolute("HOME")?.join(Path::new(".local/share"))));
    data.map(|data| data.join("bullpen")).ok_or_else(|| {
        UsageError::new(
            "--state: not given, and neither XDG_DATA_HOME nor HOME is an absolute path; give a \
             directory",
        )
    })
}

/// The given value, or by default the first value of this build. A value that only other builds
/// have gets an error of its own.
fn built<T: Copy>(
    given: Option<&Given>,
    built: &[(&str, T)],
    all: &[&str],
) -> Result<T, UsageError> {
    let words: Vec<&str> = built.iter().map(|(word, _)| *word).collect();
    let Some(given) = given else {
        return built.first().map(|(_, value)| *value).ok_or_else(|| UsageError::new("none built"));
    };
    if let Some((_, value)) = built.iter().find(|(word, _)| *word == given.word()) {
        return Ok(*value);
    }
    let words = words.join(" or ");
    if all.contains(&given.word()) {
        let line =
            format!("{}: \"{}\" is not in this build; use {words}", given.place, given.word());
        return Err(UsageError::new(line));
    }
    let hint = spelling::hint(&spelling::nearest(given.word(), all.iter().copied()));
    let only = if built.len() == 1 { ", the only one in this build" } else { "" };
    Err(given.refuse(format!("{words}{only}{hint}")))
}
