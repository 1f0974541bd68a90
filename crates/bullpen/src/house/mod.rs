//! The house of a command: every part of the embedded engine, built from inputs and put together.
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
use bullpen_core::mailbox::Secret;
use bullpen_core::parameters::{COLLECTION, Kept, KeptTokens, Parameters, decode};
use bullpen_core::pool::Foundation;
use bullpen_core::ports::{Clock as _, Document, Fault, Ids as _, Ledger, Mailbox, Ports, Queues};
use bullpen_core::spec_hash::{MachineSpec, RunnerSpec, spec_hash};
use bullpen_embedded::fleet::{
    Capacity, Catalogue, Entropy, FleetError, FleetSettings, ProcessFleet,
};
use bullpen_embedded::system::{SystemClock, SystemIds};
use bullpen_embedded::{OpenError, SqliteLedger, SqliteMailbox, SqliteQueues};
use bullpen_engine::Stack;
use bullpen_github::{App, AppKey, BadKey, BadSettings, GitHub, Login, Settings};

use crate::inputs::{
    CommonInputs, Credential, Engine, Environment, GithubInputs, Scope, UsageError, files,
};

#[cfg(feature = "aws")]
pub(crate) mod aws;
mod door;

pub(crate) use door::Door;

/// The variables that supervisors, agents and jobs start with, as this command has them.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "USER"];

/// The waits between tries at the first read of all, in milliseconds.
const WAITS_MS: [u64; 5] = [50, 100, 200, 400, 800];

/// Everything the engine needs: stores of one engine, and the process fleet.
pub(crate) struct HousePorts<L, Q, M> {
    ledger: L,
    queues: Q,
    mailbox: M,
    fleet: ProcessFleet<SystemClock>,
    forge: Door,
    clock: Arc<SystemClock>,
    ids: SystemIds,
}

/// The ports of the embedded engine.
pub(crate) type EmbeddedPorts =
    HousePorts<SqliteLedger<SystemClock>, SqliteQueues<SystemClock>, SqliteMailbox<SystemClock>>;

impl<L: Ledger, Q: Queues, M: Mailbox> Ports for HousePorts<L, Q, M> {
    type Ledger = L;
    type Queues = Q;
    type Mailbox = M;
    type Fleet = ProcessFleet<SystemClock>;
    type Forge = Door;
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
    fn fleet(&self) -> &Self::Fleet {
        &self.fleet
    }
    fn forge(&self) -> &Door {
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
pub(crate) struct House<P = EmbeddedPorts> {
    /// The engine's.
    pub(crate) stack: Stack<P>,
    /// The named classes.
    pub(crate) classes: Vec<RunnerClass>,
    /// What the ledger keeps of them.
    pub(crate) parameters: Parameters,
    /// What every machine is built from.
    pub(crate) foundation: Foundation,
    /// Whose workflow this is, where it is one.
    pub(crate) repository: Option<Repository>,
}

/// Why there is no house.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoHouse {
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

impl NoHouse {
    /// What to do about it, where that is known.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => Some(error.hint().to_owned()),
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

impl From<UsageError> for NoHouse {
    fn from(error: UsageError) -> Self {
        Self::Usage(error)
    }
}

/// What a house is built from.
pub(crate) struct Plans<'a> {
    /// The inputs.
    pub(crate) common: &'a CommonInputs,
    /// What `runs-on.yml` says.
    pub(crate) config: Option<&'a Config>,
    /// What `bullpen.toml` says.
    pub(crate) file: &'a StackFile,
    /// The environment.
    pub(crate) environment: &'a Environment,
}

/// The stores of one engine, and what its agents need to find their mailboxes.
pub(crate) struct Stores<L, Q, M> {
    pub(crate) ledger: L,
    pub(crate) queues: Q,
    pub(crate) mailbox: M,
    pub(crate) place: MailboxPlace,
    /// Variables that agents have besides, and jobs have not.
    pub(crate) agents_have: BTreeMap<String, String>,
}

/// Something that is done in a house, whichever engine it is of.
pub(crate) trait Errand {
    /// What comes of it.
    type Outcome;

    /// Whether stores that are not there are made first; files always are.
    #[cfg(feature = "aws")]
    fn makes_stores(&self) -> bool {
        false
    }

    /// Does it.
    async fn run<P: Ports<Forge = Door>>(self, house: House<P>) -> Self::Outcome;
}

/// Builds the house of the engine that the inputs name, and runs an errand in it.
pub(crate) async fn visit<E: Errand>(plans: &Plans<'_>, errand: E) -> Result<E::Outcome, NoHouse> {
    match plans.common.stack.engine {
        Engine::Embedded => Ok(Box::pin(errand.run(build(plans).await?)).await),
        #[cfg(feature = "aws")]
        Engine::Aws => {
            let house = aws::build(plans, errand.makes_stores()).await?;
            Ok(Box::pin(errand.run(house)).await)
        }
    }
}

/// Builds the embedded engine. Nothing of it speaks to anyone yet.
pub(crate) async fn build(plans: &Plans<'_>) -> Result<House, NoHouse> {
    let state = make_state(&plans.common.stack.state)?;
    let clock = Arc::new(SystemClock::new());
    let ledger = SqliteLedger::open(&state.join("ledger.db"), Arc::clone(&clock))?;
    let queues = SqliteQueues::beside(&ledger)?;
    let path = state.join("mailbox.db");
    let mailbox = SqliteMailbox::open(&path, Arc::clone(&clock))?;
    let (place, agents_have) = (MailboxPlace::File(path), BTreeMap::new());
    let stores = Stores { ledger, queues, mailbox, place, agents_have };
    put_together(plans, &state, stores, clock).await
}

/// Builds everything around the stores of an engine.
async fn put_together<L: Ledger, Q: Queues, M: Mailbox>(
    plans: &Plans<'_>,
    state: &Path,
    stores: Stores<L, Q, M>,
    clock: Arc<SystemClock>,
) -> Result<House<HousePorts<L, Q, M>>, NoHouse> {
    let Stores { ledger, queues, mailbox, place, agents_have } = stores;
    let documents = patient(&ledger, &clock).await.map_err(NoHouse::Parameters)?;
    let parameters = kept::<Parameters>(&documents)?.unwrap_or_default();
    let tokens = kept::<KeptTokens>(&documents)?;
    let mut limits = plans.file.limits.clone();
    parameters.applied_to(&mut limits);
    let github = &plans.common.github;
    let forge = door(github, &plans.file.name, tokens, &clock)?;
    let foundation = foundation(&parameters, github, plans.file);
    let hash = hash_of(&foundation);
    let told = Told { place, agents_have, limits: &limits, parameters: &parameters };
    let fleet = fleet(plans, state, told, &clock)?;
    let ids = SystemIds::new();
    let removal_token = forge.removal_token();
    let ports = HousePorts { ledger, queues, mailbox, fleet, forge, clock, ids };
    let mut stack = Stack::new(ports, &plans.file.name, limits, ceilings(plans.file), hash);
    stack.removal_token = removal_token;
    let repository = match &github.scope {
        Some(Scope::Repository(repository)) => Some(repository.clone()),
        Some(Scope::Organisation(_)) | None => None,
    };
    let classes = classes(plans.config, &parameters);
    Ok(House { stack, classes, parameters, foundation, repository })
}

/// What machines and their agents are told.
struct Told<'a> {
    place: MailboxPlace,
    agents_have: BTreeMap<String, String>,
    limits: &'a Limits,
    parameters: &'a Parameters,
}

/// The directory, made if it is not there; for its owner only, because credentials pass through it.
fn make_state(path: &Path) -> Result<PathBuf, NoHouse> {
    let failed = |source| NoHouse::State { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    path.canonicalize().map_err(failed)
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

fn kept<T: Kept>(documents: &[Document]) -> Result<Option<T>, NoHouse> {
    let Some(stored) = documents.iter().find(|document| document.name == T::NAME) else {
        return Ok(None);
    };
    decode(&stored.body)
        .map(Some)
        .map_err(|error| NoHouse::Parameters(Fault::Unreadable(error.to_string())))
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

fn door(
    inputs: &GithubInputs,
    stack: &str,
    kept: Option<KeptTokens>,
    clock: &Arc<SystemClock>,
) -> Result<Door, NoHouse> {
    let app = |id: u64, key: &Secret| -> Result<App, NoHouse> {
        let key = AppKey::from_pem(key.reveal())?;
        Ok(App { id: id.to_string(), key, installation: None })
    };
    let client = |login: Login, more: Vec<App>| -> Result<Option<GitHub<SystemClock>>, NoHouse> {
        let Some(scope) = &inputs.scope else { return Ok(None) };
        let scope = match scope {
            Scope::Repository(repository) => bullpen_github::Scope::parse(repository.as_str())?,
            Scope::Organisation(name) => bullpen_github::Scope::parse(name)?,
        };
        // Runners are `<stack>-<instance>-<generation>`; another stack may begin with our name.
        let mut settings = Settings::new(scope, login, &format!("{stack}-"));
        settings.base_url.clone_from(&inputs.api_url);
        settings.more_apps = more;
        Ok(Some(GitHub::new(&settings, Arc::clone(clock))?))
    };
    let manager = match &inputs.credential {
        None => None,
        Some(Credential::Token(token)) => client(Login::Token(token.clone()), Vec::new())?,
        Some(Credential::App { id, key }) => {
            let more = inputs.more_apps.iter().map(|(id, key)| app(*id, key));
            let more = more.collect::<Result<_, _>>()?;
            client(Login::App(app(*id, &files::app_key(key)?)?), more)?
        }
    };
    let reader = match &inputs.run_reader {
        Some(token) => client(Login::Token(token.clone()), Vec::new())?,
        None => None,
    };
    Ok(Door::new(manager, reader, kept, Arc::clone(clock)))
}

/// What every machine is built from, whatever its class.
fn foundation(parameters: &Parameters, github: &GithubInputs, file: &StackFile) -> Foundation {
    let program = github.runner_dir.as_ref().map(|path| path.display().to_string());
    Foundation {
        image: "process".to_owned(),
        images: file.images.clone(),
        runner_version: parameters.runner_version.clone().or(program).unwrap_or_default(),
        pre_runner: parameters.pre_runner_script.clone(),
    }
}

/// What a machine that is launched now for no pool is built from.
fn hash_of(foundation: &Foundation) -> SpecHash {
    spec_hash(&MachineSpec {
        runner: RunnerSpec { prerun: foundation.pre_runner.clone(), ..RunnerSpec::default() },
        image: foundation.image.clone(),
        runner_version: foundation.runner_version.clone(),
        pool: None,
    })
}

fn fleet(
    plans: &Plans<'_>,
    state: &Path,
    told: Told<'_>,
    clock: &Arc<SystemClock>,
) -> Result<ProcessFleet<SystemClock>, NoHouse> {
    let own = std::env::current_exe()
        .map_err(|source| NoHouse::State { path: PathBuf::from("this program"), source })?;
    let command = |name: &str| vec![own.clone().into_os_string(), name.into()];
    let environment: BTreeMap<String, String> = INHERITED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), plans.environment.get(*name)?.clone())))
        .collect();
    let user_data = user_data(plans, &told, &own, &environment);
    let process = &plans.file.process_fleet;
    let ids = SystemIds::new();
    let settings = FleetSettings {
        directory: state.join("machines"),
        supervisor: command("supervise"),
        agent: command("agent"),
        environment: environment.into_iter().chain(told.agents_have).collect(),
        user_data: user_data.map(|data| data.to_text()).unwrap_or_default(),
        watchdog: told.limits.watchdog,
        boot_delay: process.boot_delay,
        capacity: Capacity { machines_max: Some(process.capacity), out_of: process.out_of.clone() },
        catalogue: Catalogue::built_in(),
        entropy: Entropy::new(move || ids.jitter(u64::MAX)),
    };
    Ok(ProcessFleet::open(settings, Arc::clone(clock))?)
}

/// What machines are told; nothing if no runner program is known, and then none can be launched.
fn user_data(
    plans: &Plans<'_>,
    told: &Told<'_>,
    own: &Path,
    environment: &BTreeMap<String, String>,
) -> Option<UserData> {
    let github = &plans.common.github;
    let runner = runner_program(github, own)?;
    let scope = match github.scope.as_ref()? {
        Scope::Repository(repository) => repository.to_string(),
        Scope::Organisation(name) => name.clone(),
    };
    // What jobs find in HOME is theirs, and is emptied between owners.
    let environment: BTreeMap<_, _> =
        environment.iter().filter(|(name, _)| *name != "HOME").map(own_pair).collect();
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
    })
}

fn own_pair((name, value): (&String, &String)) -> (String, String) {
    (name.clone(), value.clone())
}

/// The runner program: the one that is given, or the stand-in's, for a GitHub on this machine.
pub(crate) fn runner_program(github: &GithubInputs, own: &Path) -> Option<RunnerProgram> {
    match &github.runner_dir {
        Some(directory) => Some(RunnerProgram::Directory(directory.clone())),
        None if is_stand_in(github) => {
            let own = own.to_str()?.to_owned();
            Some(RunnerProgram::StandIn { command: vec![own, "stand-in-runner".to_owned()] })
        }
        None => None,
    }
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
