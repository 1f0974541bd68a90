//! The house of a command: every part of an engine and a fleet, built from inputs and put together.
//!
//! Stores of the embedded engine are here, those of AWS in `aws`; machines that are processes in
//! `process`, those of EC2 in `ec2`.
//!
//! Not here: what is done with it (`workflow`), or reading inputs (`inputs`).

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bullpen_agent::machine::{MailboxPlace, Numbers, RunnerProgram, UserData, WarmUpScripts};
use bullpen_core::class::RunnerClass;
use bullpen_core::config::{Config, Stack as StackFile};
use bullpen_core::creation::{Ceiling, Scope as CeilingScope};
use bullpen_core::ids::{ClassName, Repository, SpecHash};
use bullpen_core::limits::Limits;
use bullpen_core::parameters::{COLLECTION, Kept, KeptTokens, LaunchSite, Parameters, decode};
use bullpen_core::pool::StackBase;
use bullpen_core::ports::{Clock as _, Document, Fault, Fleet, Ledger, Mailbox, Ports, Queues};
use bullpen_core::spec_hash::{HashedRunner, MachineSpec, spec_hash};
use bullpen_embedded::fleet::{FleetError, ProcessFleet};
use bullpen_embedded::system::{SystemClock, SystemIds};
use bullpen_embedded::{OpenError, SqliteLedger, SqliteMailbox, SqliteQueues, check_private};
use bullpen_engine::Stack;
use bullpen_github::{BadKey, BadSettings};

#[cfg(feature = "aws")]
use crate::inputs::Fleet as Machines;
use crate::inputs::{
    CommonInputs, Engine, Environment, GithubInputs, Scope, StackInputs, UsageError,
};

#[cfg(feature = "aws")]
pub(crate) mod aws;
#[cfg(feature = "aws")]
pub(crate) mod ec2;
#[cfg(feature = "aws")]
pub(crate) mod first_refresh;
mod github_access;
mod process;

pub(crate) use github_access::GithubAccess;
pub(crate) use process::isolated;

/// The waits between tries at the first read of all, in milliseconds.
const WAITS_MS: [u64; 5] = [50, 100, 200, 400, 800];

/// Everything the engine needs: stores of one engine, and machines of one fleet.
pub(crate) struct RuntimePorts<L, Q, M, F> {
    ledger: L,
    queues: Q,
    mailbox: M,
    fleet: F,
    forge: GithubAccess,
    clock: Arc<SystemClock>,
    ids: SystemIds,
}

/// The ports of the embedded engine.
pub(crate) type EmbeddedPorts = RuntimePorts<
    SqliteLedger<SystemClock>,
    SqliteQueues<SystemClock>,
    SqliteMailbox<SystemClock>,
    ProcessFleet<SystemClock>,
>;

impl<L: Ledger, Q: Queues, M: Mailbox, F: Fleet> Ports for RuntimePorts<L, Q, M, F> {
    type Ledger = L;
    type Queues = Q;
    type Mailbox = M;
    type Fleet = F;
    type Forge = GithubAccess;
    type Clock = SystemClock;
    type Ids = SystemIds;

    fn ledger(&self) -> &L {
        &self.ledger
    }
    fn queues(&self) -> &Q {
        &self.queues
    }
    fn mailbox(&self) -> &M {
        &self.mailbox
    }
    fn fleet(&self) -> &F {
        &self.fleet
    }
    fn forge(&self) -> &GithubAccess {
        &self.forge
    }
    fn clock(&self) -> &SystemClock {
        &self.clock
    }
    fn ids(&self) -> &SystemIds {
        &self.ids
    }
}

/// A built house.
pub(crate) struct Runtime<P = EmbeddedPorts> {
    /// The engine's.
    pub(crate) stack: Stack<P>,
    /// The named classes.
    pub(crate) classes: Vec<RunnerClass>,
    /// What the ledger keeps of them.
    pub(crate) parameters: Parameters,
    /// What every machine is built from.
    pub(crate) foundation: StackBase,
    /// Whose workflow this is, where it is one.
    pub(crate) repository: Option<Repository>,
    /// The region of its machines, if they have one.
    pub(crate) region: Option<String>,
    /// Whether it is known already where they may be launched.
    pub(crate) has_ground: bool,
    /// What had to be made of its stores, in words.
    pub(crate) made: Vec<String>,
}

/// Why there is no house.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeError {
    /// An input, or a file that one names, is wrong.
    #[error("{0}")]
    Usage(UsageError),
    /// The state directory cannot be used.
    #[error("could not use the state directory {}", path.display())]
    State {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The fleet cannot be opened.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// GitHub cannot be spoken to as told.
    #[error("GitHub cannot be spoken to")]
    Github(#[from] BadSettings),
    /// The App's key is none.
    #[error("the App's key cannot be used")]
    Key(#[from] BadKey),
    /// AWS cannot be used as it is configured, or its tables cannot.
    #[cfg(feature = "aws")]
    #[error("the AWS engine cannot be used")]
    Aws(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The stack's parameters cannot be read.
    #[error("could not read what refresh stored")]
    Parameters(#[source] Fault),
}

impl RuntimeError {
    /// What to do about it, where that is known.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => Some(error.hint()),
            Self::Fleet(error) => Some(error.hint().to_owned()),
            Self::State { .. } => {
                Some("give a directory that this user may write in as --state".to_owned())
            }
            #[cfg(feature = "aws")]
            Self::Aws(_) => None,
            Self::Usage(_) | Self::Github(_) | Self::Key(_) | Self::Parameters(_) => None,
        }
    }
}

impl From<UsageError> for RuntimeError {
    fn from(error: UsageError) -> Self {
        Self::Usage(error)
    }
}

/// What a house is built from.
pub(crate) struct RuntimePlan<'a> {
    /// The inputs.
    pub(crate) common: &'a CommonInputs,
    /// What `runs-on.yml` says.
    pub(crate) config: Option<&'a Config>,
    /// What `bullpen.toml` says.
    pub(crate) file: &'a StackFile,
    /// The environment.
    pub(crate) environment: &'a Environment,
}

/// The stores of one engine, and where its agents find their mailboxes.
pub(crate) struct Stores<L, Q, M> {
    pub(crate) ledger: L,
    pub(crate) queues: Q,
    pub(crate) mailbox: M,
    pub(crate) place: MailboxPlace,
}

/// What a fleet's machines are built from, whatever their class.
struct MachineBase {
    /// What there is on them before anything of a class is.
    image: String,
    /// Where their runner program is, where its version is not known.
    program: Option<String>,
}

/// What becomes of stores at AWS that are not there.
#[cfg(feature = "aws")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMissing {
    /// The errand does not run.
    Refuse,
    /// They are made first.
    Make,
    /// The errand runs without: nothing is read of a ledger that is known not to be there.
    GoWithout,
}

/// Something that is done in a house, whichever engine it is of.
pub(crate) trait Command {
    /// What comes of it.
    type Outcome;

    /// What becomes of stores that are not there; files are always made.
    #[cfg(feature = "aws")]
    fn if_missing(&self) -> IfMissing {
        IfMissing::Refuse
    }

    /// Does it.
    async fn run<P: Ports<Forge = GithubAccess>>(self, house: Runtime<P>) -> Self::Outcome;
}

/// Builds the house of the engine that the inputs name, and runs an errand in it.
pub(crate) async fn visit<E: Command>(
    plans: &RuntimePlan<'_>,
    errand: E,
) -> Result<E::Outcome, RuntimeError> {
    match plans.common.stack.engine {
        Engine::Embedded => Ok(Box::pin(errand.run(build(plans).await?)).await),
        #[cfg(feature = "aws")]
        Engine::Aws => match plans.common.stack.fleet {
            Machines::Process => {
                let house = aws::build(plans, errand.if_missing()).await?;
                Ok(Box::pin(errand.run(house)).await)
            }
            Machines::Ec2 => {
                let house = ec2::build(plans, errand.if_missing()).await?;
                Ok(Box::pin(errand.run(house)).await)
            }
        },
    }
}

/// Builds the embedded engine. Nothing of it speaks to anyone yet.
pub(crate) async fn build(plans: &RuntimePlan<'_>) -> Result<Runtime, RuntimeError> {
    let state = make_state(&plans.common.stack.state)?;
    let clock = Arc::new(SystemClock::new());
    let ledger = SqliteLedger::open(&state.join("ledger.db"), Arc::clone(&clock))?;
    let queues = SqliteQueues::beside(&ledger)?;
    let path = state.join("mailbox.db");
    let mailbox = SqliteMailbox::open(&path, Arc::clone(&clock))?;
    let stores = Stores { ledger, queues, mailbox, place: MailboxPlace::File(path) };
    let base = process::base(&plans.common.github, plans.file);
    let own = Arc::clone(&clock);
    let fleet = |told: Told<'_>| process::fleet(plans, &state, &told, BTreeMap::new(), own);
    put_together(plans, stores, clock, (base, Reading::Kept), fleet).await
}

/// What is read of a ledger before anything is built around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// What the stack keeps there.
    Kept,
    /// Nothing: it is not there.
    #[cfg(feature = "aws")]
    Nothing,
}

#[cfg(feature = "aws")]
impl From<IfMissing> for Reading {
    fn from(missing: IfMissing) -> Self {
        match missing {
            IfMissing::Refuse | IfMissing::Make => Self::Kept,
            IfMissing::GoWithout => Self::Nothing,
        }
    }
}

/// Builds everything around the stores of an engine, with this fleet.
async fn put_together<L: Ledger, Q: Queues, M: Mailbox, F: Fleet>(
    plans: &RuntimePlan<'_>,
    stores: Stores<L, Q, M>,
    clock: Arc<SystemClock>,
    (base, reading): (MachineBase, Reading),
    fleet: impl FnOnce(Told<'_>) -> Result<F, RuntimeError>,
) -> Result<Runtime<RuntimePorts<L, Q, M, F>>, RuntimeError> {
    let Stores { ledger, queues, mailbox, place } = stores;
    let documents = match reading {
        Reading::Kept => patient(&ledger, &clock).await.map_err(RuntimeError::Parameters)?,
        #[cfg(feature = "aws")]
        Reading::Nothing => Vec::new(),
    };
    let parameters = kept::<Parameters>(&documents)?.unwrap_or_default();
    let tokens = match (reading, &plans.common.github.credential) {
        // What a command does not need, its role need not be allowed to read.
        (Reading::Kept, None) => kept_tokens(&ledger, &documents).await?,
        _ => None,
    };
    let ground = kept::<LaunchSite>(&documents)?;
    let has_ground = ground.is_some();
    let mut limits = plans.file.limits.clone();
    parameters.applied_to(&mut limits);
    let github = &plans.common.github;
    let forge = GithubAccess::open(github, &plans.file.name, tokens, &clock)?;
    let foundation = foundation(&parameters, base, plans.file);
    let hash = hash_of(&foundation);
    let fleet = fleet(Told { place, limits: &limits, parameters: &parameters, ground })?;
    let ids = SystemIds::new();
    let removal_token = forge.removal_token();
    let ports = RuntimePorts { ledger, queues, mailbox, fleet, forge, clock, ids };
    let mut stack = Stack::new(ports, &plans.file.name, limits, ceilings(plans.file), hash);
    stack.removal_token = removal_token;
    stack.images.clone_from(&foundation.images);
    let repository = match &github.scope {
        Some(Scope::Repository(repository)) => Some(repository.clone()),
        Some(Scope::Organisation(_)) | None => None,
    };
    let classes = classes(plans.config, &parameters);
    let (region, made) = (None, Vec::new());
    Ok(Runtime { stack, classes, parameters, foundation, repository, region, has_ground, made })
}

/// What machines and their agents are told, and what was learned of where they are.
struct Told<'a> {
    place: MailboxPlace,
    limits: &'a Limits,
    parameters: &'a Parameters,
    #[cfg_attr(not(feature = "aws"), expect(dead_code, reason = "processes stand on none"))]
    ground: Option<LaunchSite>,
}

/// The directory, made if it is not there; for its owner only, because credentials pass through it.
fn make_state(path: &Path) -> Result<PathBuf, RuntimeError> {
    let failed = |source| RuntimeError::State { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let path = path.canonicalize().map_err(failed)?;
    check_private(&path)?;
    Ok(path)
}

/// What the stack keeps; a store that is away for a moment is asked again.
async fn patient(ledger: &impl Ledger, clock: &SystemClock) -> Result<Vec<Document>, Fault> {
    for wait_ms in WAITS_MS {
        match ledger.documents(COLLECTION).await {
            Err(fault) if fault.is_transient() => {
                tracing::debug!(%fault, "asking again");
                clock.sleep(Duration::from_millis(wait_ms)).await;
            }
            answer => return answer,
        }
    }
    ledger.documents(COLLECTION).await
}

/// The tokens that `refresh` kept; nothing for a role that may not read them. They were among the
/// parameters before.
async fn kept_tokens(
    ledger: &impl Ledger,
    documents: &[Document],
) -> Result<Option<KeptTokens>, RuntimeError> {
    match ledger.document(KeptTokens::COLLECTION, KeptTokens::NAME).await {
        Ok(Some(document)) => kept(&[document]),
        Ok(None) => kept(documents),
        Err(Fault::Denied(why)) => {
            tracing::debug!(why, "the tokens that refresh kept may not be read");
            Ok(None)
        }
        Err(fault) => Err(RuntimeError::Parameters(fault)),
    }
}

fn kept<T: Kept>(documents: &[Document]) -> Result<Option<T>, RuntimeError> {
    let Some(stored) = documents.iter().find(|document| document.name == T::NAME) else {
        return Ok(None);
    };
    decode(&stored.body)
        .map(Some)
        .map_err(|error| RuntimeError::Parameters(Fault::Unreadable(error.to_string())))
}

/// What is wrong with a stack that would launch in EC2 without a bound, and what to write.
pub(crate) const NO_CEILING: (&str, &str) = (
    "nothing says how many machines there may be at most, and each of them costs money",
    "write `stack = 20`, or as many as may be paid for, under [ceilings] of bullpen.toml, or set \
     BULLPEN_CEILINGS_STACK",
);

/// A command that launches machines in EC2 does not begin without a ceiling.
pub(crate) fn is_bounded(file: &StackFile, inputs: &StackInputs) -> Result<(), UsageError> {
    if inputs.is_on_this_machine() {
        return Ok(());
    }
    #[cfg(feature = "aws")]
    ec2::configured(file, inputs)?;
    if file.ceilings.stack.is_some() {
        return Ok(());
    }
    let (what, then) = NO_CEILING;
    Err(UsageError::new(format!("[ceilings]: {what}; {then}")))
}

fn ceilings(file: &StackFile) -> Vec<Ceiling> {
    let stack = file.ceilings.stack.map(|max| Ceiling { scope: CeilingScope::Stack, max });
    let classes = file.ceilings.classes.iter();
    let classes =
        classes.map(|(name, max)| Ceiling { scope: CeilingScope::Class(name.clone()), max: *max });
    let pools = file.ceilings.pools.iter();
    let pools =
        pools.map(|(name, max)| Ceiling { scope: CeilingScope::Pool(name.clone()), max: *max });
    stack.into_iter().chain(classes).chain(pools).collect()
}

/// The runners of the file and the classes that refresh stored; with neither, the defaults.
pub(crate) fn classes(config: Option<&Config>, parameters: &Parameters) -> Vec<RunnerClass> {
    let mut named: BTreeMap<ClassName, RunnerClass> = BTreeMap::new();
    for class in parameters.classes.iter().flatten() {
        named.insert(class.name.clone(), class.clone());
    }
    if let Some(config) = config {
        named.extend(crate::inputs::runner_classes(config));
    }
    if named.is_empty() { RunnerClass::defaults() } else { named.into_values().collect() }
}

/// What every machine is built from, whatever its class.
fn foundation(parameters: &Parameters, base: MachineBase, file: &StackFile) -> StackBase {
    let MachineBase { image, program } = base;
    StackBase {
        image,
        images: file.images.clone(),
        runner_version: parameters.runner_version.clone().or(program).unwrap_or_default(),
        pre_runner: parameters.pre_runner_script.clone(),
    }
}

/// What a machine that is launched now for no pool is built from.
fn hash_of(foundation: &StackBase) -> SpecHash {
    spec_hash(&MachineSpec {
        runner: HashedRunner { prerun: foundation.pre_runner.clone(), ..HashedRunner::default() },
        image: foundation.image.clone(),
        runner_version: foundation.runner_version.clone(),
        pool: None,
    })
}

/// What machines are told; nothing if nobody says whose runners they have, and then none can be launched.
fn user_data(
    github: &GithubInputs,
    told: &Told<'_>,
    runner: RunnerProgram,
    environment: BTreeMap<String, String>,
) -> Option<UserData> {
    let scope = match github.scope.as_ref()? {
        Scope::Repository(repository) => repository.to_string(),
        Scope::Organisation(name) => name.clone(),
    };
    Some(UserData {
        mailbox: told.place.clone(),
        url: format!("{}/{scope}", server(github)),
        runner,
        scripts: WarmUpScripts {
            pre_runner: told.parameters.pre_runner_script.clone(),
            ..WarmUpScripts::default()
        },
        numbers: Numbers::from(told.limits),
        environment,
        user: None,
        sudo: false,
        metadata_open: false,
        isolation: None,
    })
}

fn own_pair((name, value): (&String, &String)) -> (String, String) {
    (name.clone(), value.clone())
}

/// The runner program of machines on this host: the one that is given, or the stand-in's, for a GitHub on
/// this machine.
pub(crate) fn runner_program(github: &GithubInputs, own: &Path) -> Option<RunnerProgram> {
    match &github.runner_dir {
        Some(directory) => Some(RunnerProgram::Directory(directory.clone())),
        None => stand_in(github, own),
    }
}

/// The stand-in's own runner, for a GitHub on this machine.
fn stand_in(github: &GithubInputs, own: &Path) -> Option<RunnerProgram> {
    let own = own.to_str().filter(|_| is_stand_in(github))?.to_owned();
    Some(RunnerProgram::StandIn { command: vec![own, "stand-in-runner".to_owned()] })
}

/// This program.
fn own_program() -> Result<PathBuf, RuntimeError> {
    std::env::current_exe()
        .map_err(|source| RuntimeError::State { path: PathBuf::from("this program"), source })
}

/// Plain http is legal for this machine only, and no real GitHub is there.
pub(crate) fn is_stand_in(github: &GithubInputs) -> bool {
    github.api_url.starts_with("http://")
}

/// A stand-in's pages are where its API is, unless somebody says otherwise.
fn server(github: &GithubInputs) -> &str {
    if is_stand_in(github) && !github.server_url.starts_with("http://") {
        &github.api_url
    } else {
        &github.server_url
    }
}
