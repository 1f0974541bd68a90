//! The runtime of a command: the ports of one engine and one fleet, built from inputs.
//!
//! The embedded engine's stores are here, those of AWS in `aws`; machines that are processes in
//! `process`, those of EC2 in `ec2`.
//!
//! Not here: the commands (`workflow`), or reading inputs (`inputs`).

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::future::pending;
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
use bullpen_core::parameters::{COLLECTION, Kept, KeptTokens, Parameters, decode};
use bullpen_core::pool::StackBase;
use bullpen_core::ports::{
    Clock as _, Document, Fault, Fleet, Ledger, Mailbox, Ports, Queues, Site,
};
use bullpen_core::site::SiteDocument;
use bullpen_core::spec_hash::{HashedRunner, MachineSpec, spec_hash};
use bullpen_embedded::fleet::{FleetError, ProcessFleet};
use bullpen_embedded::system::{SystemClock, SystemIds};
use bullpen_embedded::{
    OpenError, SqliteLedger, SqliteMailbox, SqliteQueues, StoreLost, StoreWatch, check_private,
};
use bullpen_engine::Stack;
use bullpen_github::{BadKey, BadSettings};
use futures_util::future::select_all;

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

/// The waits between attempts to read the stack's documents, in milliseconds.
const WAITS_MS: [u64; 5] = [50, 100, 200, 400, 800];

/// The engine's ports: stores of one engine, machines of one fleet, GitHub, clock and ids.
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

impl<L: Ledger, Q: Queues, M: Mailbox, F: Fleet + Site> Ports for RuntimePorts<L, Q, M, F> {
    type Ledger = L;
    type Queues = Q;
    type Mailbox = M;
    type Fleet = F;
    type Site = F;
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
    fn site(&self) -> &F {
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

/// Everything that a command runs with.
pub(crate) struct Runtime<P = EmbeddedPorts> {
    /// The engine's stack.
    pub(crate) stack: Stack<P>,
    /// The named classes.
    pub(crate) classes: Vec<RunnerClass>,
    /// The parameters that `refresh` stored in the ledger.
    pub(crate) parameters: Parameters,
    /// What every machine is built from.
    pub(crate) foundation: StackBase,
    /// The workflow's repository, if the scope is a repository.
    pub(crate) repository: Option<Repository>,
    /// The region of the machines, if they have one.
    pub(crate) region: Option<String>,
    /// Whether the ledger has a site's document.
    pub(crate) has_site: bool,
    /// The stores that building the runtime created, in words.
    pub(crate) created: Vec<String>,
    /// The files that this process has open.
    pub(crate) stores: Vec<StoreWatch>,
}

impl<P> Runtime<P> {
    /// Waits until only another process can use the stores. Those of AWS come back by themselves.
    pub(crate) async fn lost(&self) -> StoreLost {
        if self.stores.is_empty() {
            return pending().await;
        }
        select_all(self.stores.iter().map(|store| Box::pin(store.lost()))).await.0
    }
}

/// Why a runtime could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeError {
    /// An input, or a file that an input names, is wrong.
    #[error("{0}")]
    Usage(UsageError),
    /// The state directory cannot be used.
    #[error("could not use the state directory {}", path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Opening a store failed.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Opening the fleet failed.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The settings for GitHub are wrong.
    #[error("invalid GitHub settings")]
    Github(#[from] BadSettings),
    /// The App's key is not an RSA key in PEM.
    #[error("invalid key of the App")]
    Key(#[from] BadKey),
    /// The AWS configuration is wrong, or the tables are missing.
    #[cfg(feature = "aws")]
    #[error("could not use the AWS engine")]
    Aws(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Reading the stack's parameters failed.
    #[error("could not read what refresh stored")]
    Parameters(#[source] Fault),
}

impl RuntimeError {
    /// Advice for the user, where there is any.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => Some(error.hint()),
            Self::Fleet(error) => Some(error.hint().to_owned()),
            Self::State { .. } => {
                Some("pass a directory that this user may write to as --state".to_owned())
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

/// The inputs of a runtime.
pub(crate) struct RuntimePlan<'a> {
    /// The command's inputs.
    pub(crate) common: &'a CommonInputs,
    /// `runs-on.yml`, if the command reads it.
    pub(crate) config: Option<&'a Config>,
    /// `bullpen.toml`.
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

/// The parts of the spec hash that depend on the fleet and not on the class.
struct MachineBase {
    /// The part of the image that does not depend on the class.
    image: String,
    /// The path of the runner program, which stands for its unknown version.
    program: Option<String>,
}

/// How a command deals with missing stores at AWS.
#[cfg(feature = "aws")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMissing {
    /// The command fails.
    Refuse,
    /// The command creates them first.
    Make,
    /// The command runs without, and reads nothing from the ledger.
    GoWithout,
}

/// A command that runs with any engine's ports.
pub(crate) trait Command {
    /// The command's result.
    type Outcome;

    /// How the command deals with missing stores at AWS; files are always created.
    #[cfg(feature = "aws")]
    fn if_missing(&self) -> IfMissing {
        IfMissing::Refuse
    }

    /// Runs the command.
    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome;
}

/// Builds the runtime of the engine that the inputs select, and runs a command with it.
pub(crate) async fn run<C: Command>(
    plan: &RuntimePlan<'_>,
    command: C,
) -> Result<C::Outcome, RuntimeError> {
    match plan.common.stack.engine {
        Engine::Embedded => Ok(Box::pin(command.run(build(plan).await?)).await),
        #[cfg(feature = "aws")]
        Engine::Aws => match plan.common.stack.fleet {
            Machines::Process => {
                let runtime = aws::build(plan, command.if_missing()).await?;
                Ok(Box::pin(command.run(runtime)).await)
            }
            Machines::Ec2 => {
                let runtime = ec2::build(plan, command.if_missing()).await?;
                Ok(Box::pin(command.run(runtime)).await)
            }
        },
    }
}

/// Builds the runtime of the embedded engine; makes no calls.
pub(crate) async fn build(plan: &RuntimePlan<'_>) -> Result<Runtime, RuntimeError> {
    let state = make_state(&plan.common.stack.state)?;
    require_own_state(&state, &plan.file.name)?;
    let clock = Arc::new(SystemClock::new());
    let ledger = SqliteLedger::open(&state.join("ledger.db"), Arc::clone(&clock))?;
    let queues = SqliteQueues::beside(&ledger)?;
    let path = state.join("mailbox.db");
    let mailbox = SqliteMailbox::open(&path, Arc::clone(&clock))?;
    let watches = vec![ledger.watch(), mailbox.watch()];
    let stores = Stores { ledger, queues, mailbox, place: MailboxPlace::File(path) };
    let base = process::base(&plan.common.github, plan.file);
    let own = Arc::clone(&clock);
    let fleet =
        |machine: MachineSettings<'_>| process::fleet(plan, &state, &machine, BTreeMap::new(), own);
    let runtime = assemble(plan, stores, clock, (base, Reading::Kept), fleet).await?;
    Ok(Runtime { stores: watches, ..runtime })
}

/// The file of a state directory that names its stack.
pub(crate) const OWNER_FILE: &str = "stack";

/// What building a runtime reads from the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// The stack's documents.
    Kept,
    /// Nothing: the ledger does not exist.
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

/// Builds a runtime from an engine's stores and a fleet.
async fn assemble<L: Ledger, Q: Queues, M: Mailbox, F: Fleet + Site>(
    plan: &RuntimePlan<'_>,
    stores: Stores<L, Q, M>,
    clock: Arc<SystemClock>,
    (base, reading): (MachineBase, Reading),
    fleet: impl FnOnce(MachineSettings<'_>) -> Result<F, RuntimeError>,
) -> Result<Runtime<RuntimePorts<L, Q, M, F>>, RuntimeError> {
    let Stores { ledger, queues, mailbox, place } = stores;
    let documents = match reading {
        Reading::Kept => read_documents(&ledger, &clock).await.map_err(RuntimeError::Parameters)?,
        #[cfg(feature = "aws")]
        Reading::Nothing => Vec::new(),
    };
    let parameters = kept::<Parameters>(&documents)?.unwrap_or_default();
    let tokens = match (reading, &plan.common.github.credential) {
        // A command with a credential does not need the tokens, so its AWS role need not read them.
        (Reading::Kept, None) => kept_tokens(&ledger, &documents).await?,
        _ => None,
    };
    let site = kept::<SiteDocument>(&documents)?;
    let mut limits = plan.file.limits.clone();
    parameters.applied_to(&mut limits);
    let github = &plan.common.github;
    let forge = GithubAccess::open(github, &plan.file.name, tokens, &clock)?;
    let foundation = foundation(&parameters, base, plan.file);
    let hash = hash_of(&foundation);
    let fleet = fleet(MachineSettings { place, limits: &limits, parameters: &parameters })?;
    if let Some(site) = &site {
        fleet.recall(site).map_err(RuntimeError::Parameters)?;
    }
    let ids = SystemIds::new();
    let (removal_token, clock_witness) = (forge.removal_token(), forge.clock_witness());
    let ports = RuntimePorts { ledger, queues, mailbox, fleet, forge, clock, ids };
    let mut stack = Stack::new(ports, &plan.file.name, limits, ceilings(plan.file), hash);
    stack.removal_token = removal_token;
    stack.clock = clock_witness;
    stack.images.clone_from(&foundation.images);
    let repository = match &github.scope {
        Some(Scope::Repository(repository)) => Some(repository.clone()),
        Some(Scope::Organisation(_)) | None => None,
    };
    let classes = classes(plan.config, &parameters);
    let (region, created) = (None, Vec::new());
    Ok(Runtime {
        stack,
        classes,
        parameters,
        foundation,
        repository,
        region,
        has_site: site.is_some(),
        created,
        stores: Vec::new(),
    })
}

/// The settings that a fleet needs to launch machines.
struct MachineSettings<'a> {
    place: MailboxPlace,
    limits: &'a Limits,
    parameters: &'a Parameters,
}

/// Creates the state directory if it is missing; for its owner only, because it holds credentials.
fn make_state(path: &Path) -> Result<PathBuf, RuntimeError> {
    let failed = |source| RuntimeError::State { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let path = path.canonicalize().map_err(failed)?;
    check_private(&path)?;
    Ok(path)
}

/// Refuses a state directory of another stack: its machines and runners have that stack's name, and no
/// process of this one would ever find them.
fn require_own_state(state: &Path, stack: &str) -> Result<(), RuntimeError> {
    let path = state.join(OWNER_FILE);
    let failed = |source| RuntimeError::State { path: path.clone(), source };
    let owner = match fs::read_to_string(&path) {
        Ok(owner) => owner,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    match owner.trim() {
        // A crash while the file was written left it empty.
        "" => fs::write(&path, format!("{stack}\n")).map_err(failed),
        owner if owner == stack => Ok(()),
        owner => Err(RuntimeError::Usage(UsageError::new(format!(
            "--state: {} belongs to the stack {owner}, not to {stack}; name another directory, or the \
             stack's own bullpen.toml",
            state.display()
        )))),
    }
}

/// Reads the stack's documents; retries while the store is unavailable.
async fn read_documents(ledger: &impl Ledger, clock: &SystemClock) -> Result<Vec<Document>, Fault> {
    for wait_ms in WAITS_MS {
        match ledger.documents(COLLECTION).await {
            Err(fault) if fault.is_transient() => {
                tracing::debug!(%fault, "reading the documents again");
                clock.sleep(Duration::from_millis(wait_ms)).await;
            }
            answer => return answer?.complete(),
        }
    }
    ledger.documents(COLLECTION).await?.complete()
}

/// The tokens that `refresh` kept; `None` if the role may not read them. Older versions stored them
/// among the parameters.
async fn kept_tokens(
    ledger: &impl Ledger,
    documents: &[Document],
) -> Result<Option<KeptTokens>, RuntimeError> {
    match ledger.document(KeptTokens::COLLECTION, KeptTokens::NAME).await {
        Ok(Some(document)) => kept(&[document]),
        Ok(None) => kept(documents),
        Err(Fault::Denied(why)) => {
            tracing::debug!(why, "kept tokens not readable");
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

/// The error and the advice for a stack in EC2 without a ceiling.
pub(crate) const NO_CEILING: (&str, &str) = (
    "no ceiling for the stack, and each machine costs money",
    "write `stack = 20`, or the number you want to pay for, under [ceilings] of bullpen.toml, or set \
     BULLPEN_CEILINGS_STACK",
);

/// Refuses to launch machines in EC2 without a ceiling.
pub(crate) fn require_ceiling(file: &StackFile, inputs: &StackInputs) -> Result<(), UsageError> {
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

/// The runners of `runs-on.yml` and the classes that `refresh` stored; with neither, the defaults.
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

/// What every machine is built from, for every class.
fn foundation(parameters: &Parameters, base: MachineBase, file: &StackFile) -> StackBase {
    let MachineBase { image, program } = base;
    StackBase {
        image,
        images: file.images.clone(),
        runner_version: parameters.runner_version.clone().or(program).unwrap_or_default(),
        pre_runner: parameters.pre_runner_script.clone(),
    }
}

/// The spec hash of a machine that is launched now without a pool.
fn hash_of(foundation: &StackBase) -> SpecHash {
    spec_hash(&MachineSpec {
        runner: HashedRunner { prerun: foundation.pre_runner.clone(), ..HashedRunner::default() },
        image: foundation.image.clone(),
        runner_version: foundation.runner_version.clone(),
        pool: None,
    })
}

/// The user data of machines; `None` without a scope, and then no machine can be launched.
fn user_data(
    github: &GithubInputs,
    machine: &MachineSettings<'_>,
    runner: RunnerProgram,
    environment: BTreeMap<String, String>,
) -> Option<UserData> {
    let scope = match github.scope.as_ref()? {
        Scope::Repository(repository) => repository.to_string(),
        Scope::Organisation(name) => name.clone(),
    };
    Some(UserData {
        mailbox: machine.place.clone(),
        url: format!("{}/{scope}", server(github)),
        runner,
        scripts: WarmUpScripts {
            pre_runner: machine.parameters.pre_runner_script.clone(),
            ..WarmUpScripts::default()
        },
        numbers: Numbers::from(machine.limits),
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

/// The runner program of machines on this host: the given one, or the stand-in's if GitHub is the
/// stand-in.
pub(crate) fn runner_program(github: &GithubInputs, own: &Path) -> Option<RunnerProgram> {
    match &github.runner_dir {
        Some(directory) => Some(RunnerProgram::Directory(directory.clone())),
        None => stand_in(github, own),
    }
}

/// Refuses inputs without the runner program that machines of this host need.
pub(crate) fn require_runner_program(common: &CommonInputs) -> Result<(), UsageError> {
    let needed = common.stack.is_on_this_machine();
    if needed && runner_program(&common.github, Path::new("")).is_none() {
        let line = "--runner-dir: not given; give the directory of an unpacked actions runner";
        return Err(UsageError::new(line));
    }
    Ok(())
}

/// The stand-in's runner program, if GitHub is the stand-in.
fn stand_in(github: &GithubInputs, own: &Path) -> Option<RunnerProgram> {
    let own = own.to_str().filter(|_| is_stand_in(github))?.to_owned();
    Some(RunnerProgram::StandIn { command: vec![own, "stand-in-runner".to_owned()] })
}

/// The path of this program.
fn own_program() -> Result<PathBuf, RuntimeError> {
    std::env::current_exe()
        .map_err(|source| RuntimeError::State { path: PathBuf::from("this program"), source })
}

/// Whether GitHub is the stand-in: `http` addresses are loopback only, and no real GitHub is there.
pub(crate) fn is_stand_in(github: &GithubInputs) -> bool {
    github.api_url.starts_with("http://")
}

/// GitHub's address. The stand-in's is its API's, unless the inputs name another `http` address.
fn server(github: &GithubInputs) -> &str {
    if is_stand_in(github) && !github.server_url.starts_with("http://") {
        &github.api_url
    } else {
        &github.server_url
    }
}
