//! The inputs of every workflow command: where the state is, which files say what is wanted, and
//! which engine and fleet.
//!
//! Not here: GitHub's (`github`), or opening the files (`files`).

use std::path::{Path, PathBuf};

use bullpen_core::spelling;

use super::github::{GithubArgs, GithubInputs};
use super::given::{Given, Reader};
use super::values::{boolean, path};
use super::{Environment, UsageError};

/// Where the state is, and how to tell.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StackArgs {
    /// Where the ledger, queues and machines are kept [env: `BULLPEN_STATE`] [default: bullpen in
    /// the user's data directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<String>,
    /// The runs-on.yml that names runners and pools
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<String>,
    /// The bullpen.toml with the stack's name and numbers
    #[arg(long, value_name = "FILE")]
    pub(crate) stack: Option<String>,
    /// Where the ledger lives [default: embedded]
    #[arg(long, value_name = "ENGINE")]
    pub(crate) engine: Option<String>,
    /// What machines are [default: process; with --engine aws: ec2]
    #[arg(long, value_name = "FLEET")]
    pub(crate) fleet: Option<String>,
    /// Print the result as JSON
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) json: Option<String>,
}

/// Where the state is, how to tell, and how GitHub is spoken to.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) stack: StackArgs,
    #[command(flatten)]
    pub(crate) github: GithubArgs,
}

/// Where the ledger lives. Another one is another variant, when it is in the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// In files of this machine.
    Embedded,
    /// In DynamoDB and SQS.
    #[cfg(feature = "aws")]
    Aws,
}

impl Engine {
    /// The ones in this build, by name.
    const HERE: &[(&str, Self)] = &[
        ("embedded", Self::Embedded),
        #[cfg(feature = "aws")]
        ("aws", Self::Aws),
    ];
    /// All there are.
    const ALL: [&str; 2] = ["embedded", "aws"];
}

/// What machines are. Another one is another variant, when it is in the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fleet {
    /// Process trees of this machine.
    Process,
    /// EC2 instances.
    #[cfg(feature = "aws")]
    Ec2,
}

impl Fleet {
    /// The ones in this build, by name.
    const HERE: &[(&str, Self)] = &[
        ("process", Self::Process),
        #[cfg(feature = "aws")]
        ("ec2", Self::Ec2),
    ];
    /// All there are.
    const ALL: [&str; 2] = ["process", "ec2"];

    /// The one that is meant where none is named.
    const fn usual(engine: Engine) -> Self {
        match engine {
            Engine::Embedded => Self::Process,
            #[cfg(feature = "aws")]
            Engine::Aws => Self::Ec2,
        }
    }

    /// The one that is given, if its machines can reach what this engine keeps.
    fn of(given: Option<&Given>, engine: Engine) -> Result<Self, UsageError> {
        let Some(given) = given else { return Ok(Self::usual(engine)) };
        let fleet = built(Some(given), Self::HERE, &Self::ALL)?;
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

/// Where the state is, and how to tell; checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StackInputs {
    /// Where ledger, queues and machines are kept.
    pub(crate) state: PathBuf,
    /// The `runs-on.yml`.
    pub(crate) config: Option<PathBuf>,
    /// The `bullpen.toml`.
    pub(crate) stack: Option<PathBuf>,
    /// Where the ledger lives.
    pub(crate) engine: Engine,
    /// What machines are.
    pub(crate) fleet: Fleet,
    /// Whether the result is told as JSON.
    pub(crate) json: bool,
}

/// What every command that changes something is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommonInputs {
    /// Where the state is.
    pub(crate) stack: StackInputs,
    /// How GitHub is spoken to.
    pub(crate) github: GithubInputs,
}

impl StackInputs {
    /// Whether anything of the stack is in the state directory.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        self.fleet == Fleet::Process
    }

    /// Reads them; these are all the inputs of `status` and `ledger verify`.
    pub(crate) fn read(args: &StackArgs, environment: &Environment) -> Result<Self, UsageError> {
        let reader = Reader::new(environment);
        let path_of = |name: &str, flag: &Option<String>| {
            reader.input(name, flag.as_ref()).map(|given| path(&given)).transpose()
        };
        let engine = reader.input("engine", args.engine.as_ref());
        let engine = built(engine.as_ref(), Engine::HERE, &Engine::ALL)?;
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
    /// Reads them; these are all the inputs of `destroy`.
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
    // The XDG rule: a relative path is as good as none.
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

/// One that is in this build, the first of them if none is given; another one that there is, is named
/// and said to be missing.
fn built<T: Copy>(
    given: Option<&Given>,
    here: &[(&str, T)],
    all: &[&str],
) -> Result<T, UsageError> {
    let words: Vec<&str> = here.iter().map(|(word, _)| *word).collect();
    let Some(given) = given else {
        return here.first().map(|(_, value)| *value).ok_or_else(|| UsageError::new("none built"));
    };
    if let Some((_, value)) = here.iter().find(|(word, _)| *word == given.word()) {
        return Ok(*value);
    }
    let words = words.join(" or ");
    if all.contains(&given.word()) {
        let line =
            format!("{}: \"{}\" is not in this build; use {words}", given.place, given.word());
        return Err(UsageError::new(line));
    }
    let hint = spelling::hint(&spelling::nearest(given.word(), all.iter().copied()));
    let only = if here.len() == 1 { ", the only one in this build" } else { "" };
    Err(given.refuse(format!("{words}{only}{hint}")))
}
