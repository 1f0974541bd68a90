//! Sets up the agent on a machine from the machine's directory, and runs it.
//!
//! A machine has one agent at a time: it holds a lock while its process lives.
//!
//! Not here: constructing the clock (the binary).

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use bullpen_core::ports::{Clock, Mailbox};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::signal::unix::{SignalKind, signal};

use super::host::{MachineHost, MachineScripts, home_step, install_step};
use super::user_data::{BadUserData, MailboxPlace, UserData};
use super::watchdog::FileWatchdog;
use super::{Isolation, Layout, RunnerProgram, download, guard, mark};
use crate::host::Watchdog;
use crate::notes::FileNotebook;
use crate::runner::confine::{Confinement, own_groups};
use crate::runner::process::{EndGrace, ProcessRunner, RunnerPaths};
use crate::runner::tree;
use crate::runner::user::User;
use crate::scripts::ProcessScripts;
use crate::warm_up::{Frequency, Step};
use crate::{Agent, AgentTask, SelfEndReason};

/// How often an agent on a host that it shares looks for its machine's directory.
const LOOK_FOR_DIRECTORY: Duration = Duration::from_secs(2);
/// Rounds of searching and killing: a process may fork while it is killed.
const KILL_ROUNDS_MAX: u32 = 100;

/// Why an agent could not run. Starting it again may help.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A file or directory of the machine failed.
    #[error("could not use {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The user data is unreadable.
    #[error(transparent)]
    UserData(#[from] BadUserData),
    /// This program has no code for the place of the mailboxes.
    #[error("the mailboxes are in {place}, which is not in this build")]
    NoWay {
        /// Where the mailboxes are.
        place: &'static str,
    },
    /// The configuration of the mailboxes is unusable.
    #[error("the mailboxes cannot be used")]
    Unusable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Another agent runs on this machine.
    #[error("another agent runs in {}", dir.display())]
    Taken {
        /// The machine's directory.
        dir: PathBuf,
    },
}

impl LiveError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

/// Opens the mailboxes. It retries until it succeeds: an agent can do nothing without them, and the
/// watchdog bounds the wait.
pub trait MailboxConnector<C>: Send + Sync {
    /// The mailboxes.
    type Mailbox: Mailbox;

    /// Opens the mailboxes at `place`.
    fn open(
        &self,
        place: &MailboxPlace,
        clock: &C,
    ) -> impl Future<Output = Result<Self::Mailbox, LiveError>> + Send;

    /// Waits until only another process can use the mailboxes.
    fn lost(&self, mailbox: &Self::Mailbox) -> impl Future<Output = LiveError> + Send + 'static;
}

/// The place of the mailboxes of the machine in `dir`, by which a binary chooses its
/// [`MailboxConnector`].
pub fn mailbox_place(dir: &Path) -> Result<MailboxPlace, LiveError> {
    let path = Layout::of(dir).user_data();
    let text = fs::read_to_string(&path).map_err(LiveError::io(&path))?;
    Ok(UserData::from_text(&text)?.mailbox)
}

/// The machine that an agent runs on.
#[derive(Clone, Copy, Debug)]
pub struct MachineBearings<'a> {
    /// Its directory.
    pub dir: &'a Path,
    /// The id of its current boot.
    pub boot: &'a str,
    /// Its instance id; absent, the directory's name.
    pub instance: Option<&'a str>,
}

/// Runs the agent until the machine must end; it reports each of `interruptions` at once. Dropping
/// the future kills the agent and leaves its listener running. Call it on a runtime.
pub async fn live<C: Clock + Clone>(
    bearings: MachineBearings<'_>,
    clock: &C,
    connector: &impl MailboxConnector<C>,
    watchdog: impl Watchdog,
    interruptions: impl Stream<Item = String> + Send,
) -> Result<SelfEndReason, LiveError> {
    let MachineBearings { dir, boot, instance } = bearings;
    // Use the canonical path everywhere: in the mark, the key and every path.
    let mark = mark(dir).map_err(LiveError::io(dir))?;
    let layout = Layout::of(Path::new(&mark));
    let text = fs::read_to_string(layout.user_data());
    let data = UserData::from_text(&text.map_err(LiveError::io(&layout.user_data()))?)?;
    for directory in [layout.temp(), layout.state(), layout.logs(), layout.scripts_home()] {
        fs::create_dir_all(&directory).map_err(LiveError::io(&directory))?;
    }
    let _lock = lock(&layout)?;
    let user = data.user.as_deref().map(|name| user(name, &layout)).transpose()?;
    let is_guarded = instance.is_some() && !data.metadata_open;
    let steps = steps((&data, is_guarded), &layout, user.as_ref())?;
    let isolation = data.isolation.clone().filter(Isolation::holds);
    let user = match &isolation {
        Some(isolation) => own_user(isolation, &layout)?,
        None => user,
    };
    let confinement = isolation.map(|isolation| confinement(isolation, &data.runner, &layout));
    let name = layout.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let task = AgentTask {
        key: data.mailbox.key(instance.unwrap_or(&name)),
        boot: boot.to_owned(),
        steps,
        limits: data.limits(),
    };
    let mailbox = connector.open(&data.mailbox, clock).await?;
    let mut lost = pin!(connector.lost(&mailbox));
    let host = host((data, user, confinement), layout, mark, boot, (clock, watchdog));
    let (agent, interrupter) = Agent::new(mailbox, clock.clone(), host, task);
    let (mut living, mut interruptions) = (pin!(agent.live()), pin!(interruptions));
    loop {
        tokio::select! {
            biased;
            Some(reason) = interruptions.next() => interrupter.interrupted(&reason),
            error = &mut lost => return Err(error),
            ending = &mut living => return Ok(ending),
        }
    }
}

/// Runs [`live`] in its own process on a machine of the process fleet: SIGTERM interrupts it, and
/// the supervisor ends it.
pub fn run<C: Clock + Clone>(
    dir: &Path,
    boot: &str,
    clock: &C,
    connector: &impl MailboxConnector<C>,
) -> Result<SelfEndReason, LiveError> {
    let bearings = MachineBearings { dir, boot, instance: None };
    let watchdog = FileWatchdog::new(Layout::of(dir).ends_by());
    on_a_runtime(dir, async || {
        let mark = mark(dir).map_err(LiveError::io(dir))?;
        let life = live(bearings, clock, connector, watchdog, terminations(dir)?);
        tokio::select! {
            biased;
            ended = life => ended,
            () = deleted(Path::new(&mark), clock) => {
                tracing::error!(dir = mark, "the machine ends without its directory");
                end_processes(&mark);
                Err(LiveError::Io { path: mark.into(), source: io::ErrorKind::NotFound.into() })
            }
        }
    })
}

/// Waits until the machine's directory is deleted. Its supervisor looks as well, but may be dead.
async fn deleted(dir: &Path, clock: &impl Clock) {
    let is_gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
    while !fs::symlink_metadata(dir).is_err_and(is_gone) {
        clock.sleep(LOOK_FOR_DIRECTORY).await;
    }
}

/// Kills all processes of the machine but this one.
fn end_processes(mark: &str) {
    for _ in 0..KILL_ROUNDS_MAX {
        match tree::under(&BTreeSet::from([mark.to_owned()])) {
            Ok(found) if found.is_empty() => return,
            Ok(found) => {
                for process in found {
                    // A process that has ended meanwhile needs no end.
                    let _ = process.kill();
                }
            }
            Err(error) => tracing::warn!(%error, "could not list processes"),
        }
    }
}

/// Runs `life` as the whole work of the agent's process on the machine in `dir`.
pub fn on_a_runtime<T>(
    dir: &Path,
    life: impl AsyncFnOnce() -> Result<T, LiveError>,
) -> Result<T, LiveError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(LiveError::io(dir))?;
    let outcome = runtime.block_on(life());
    // A running copy or removal of a directory must not delay the machine's end.
    runtime.shutdown_background();
    outcome
}

/// Every SIGTERM, as an interruption. Call it on a runtime.
pub fn terminations(dir: &Path) -> Result<impl Stream<Item = String> + Send + use<>, LiveError> {
    let terminations = signal(SignalKind::terminate()).map_err(LiveError::io(dir))?;
    Ok(stream::unfold(terminations, async |mut terminations| {
        terminations.recv().await?;
        Some((String::from("SIGTERM"), terminations))
    }))
}

/// Takes the machine's lock. The agent holds it until it drops the file or its process ends; the
/// processes that it starts do not hold it.
fn lock(layout: &Layout) -> Result<File, LiveError> {
    let path = layout.agent("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(LiveError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LiveError::Taken { dir: layout.dir.clone() }),
        Err(TryLockError::Error(source)) => Err(LiveError::Io { path, source }),
    }
}

/// Finds the jobs' own user, and opens its directories to it but not the agent's own.
fn user(name: &str, layout: &Layout) -> Result<User, LiveError> {
    let user = User::find(name).map_err(LiveError::io(Path::new("/etc/passwd")))?;
    for (directory, mode) in [
        (&layout.dir, 0o711),
        (&layout.agent(""), 0o711),
        (&layout.state(), 0o700),
        (&layout.logs(), 0o700),
    ] {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(directory, permissions).map_err(LiveError::io(directory))?;
    }
    user.own(&layout.temp()).map_err(LiveError::io(&layout.temp()))?;
    Ok(user)
}

/// The user that only this machine's jobs run as, on a host that they share with the service.
fn own_user(isolation: &Isolation, layout: &Layout) -> Result<Option<User>, LiveError> {
    let Some(id) = isolation.user else { return Ok(None) };
    let name = format!("bullpen-{id}");
    let user = User { name, uid: id, gid: id, groups: Vec::new(), home: layout.temp() };
    // Let the user reach its directories also without namespaces.
    for directory in [&layout.dir, &layout.agent("")] {
        let permissions = fs::Permissions::from_mode(0o711);
        fs::set_permissions(directory, permissions).map_err(LiveError::io(directory))?;
    }
    for directory in [layout.state(), layout.logs()] {
        let permissions = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&directory, permissions).map_err(LiveError::io(&directory))?;
    }
    user.own(&layout.temp()).map_err(LiveError::io(&layout.temp()))?;
    Ok(Some(user))
}

/// How jobs are kept from the host.
fn confinement(isolation: Isolation, runner: &RunnerProgram, layout: &Layout) -> Confinement {
    let programs = match runner {
        RunnerProgram::StandIn { command } => command.first().map(PathBuf::from),
        RunnerProgram::Directory(_) | RunnerProgram::Image { .. } => None,
    };
    let groups = if isolation.user.is_none() { own_groups() } else { Vec::new() };
    Confinement {
        isolation,
        groups,
        root: layout.runner(),
        temp: layout.temp(),
        state: layout.state(),
        programs: programs.into_iter().collect(),
    }
}

/// The warm-up's steps. Each script is its own file and never part of another script's text.
fn steps(
    (data, is_guarded): (&UserData, bool),
    layout: &Layout,
    user: Option<&User>,
) -> Result<Vec<Step>, LiveError> {
    let scripts = &data.scripts;
    let mut steps = Vec::new();
    if is_guarded {
        let path = layout.state().join("guard.sh");
        let step = guard::step(&path, Path::new(guard::IF_INET6));
        steps.push(step.map_err(LiveError::io(&path))?);
    }
    let path = layout.state().join("download.sh");
    let download = download::program(&data.runner, &path).map_err(LiveError::io(&path))?;
    steps.extend(download.into_iter().chain([install_step()]));
    for (name, script, often) in [
        ("image-preinstall", &scripts.image_preinstall, Frequency::OncePerMachine),
        ("preinstall", &scripts.preinstall, Frequency::OncePerMachine),
        ("image-prerun", &scripts.image_prerun, Frequency::EachBoot),
        ("prerun", &scripts.prerun, Frequency::EachBoot),
        ("pre-runner", &scripts.pre_runner, Frequency::EachBoot),
    ] {
        if let Some(text) = script {
            let path = layout.state().join(format!("{name}.sh"));
            let step = Step::bash(name, &path, often);
            steps.push(download::script(step, text, &path).map_err(LiveError::io(&path))?);
        }
    }
    steps.extend(user.map(|_| home_step()));
    Ok(steps)
}

fn host<C: Clock + Clone, W: Watchdog>(
    (data, user, confinement): (UserData, Option<User>, Option<Confinement>),
    layout: Layout,
    mark: String,
    boot: &str,
    (clock, watchdog): (&C, W),
) -> MachineHost<C, W> {
    // Scripts prepare root's home if jobs have their own user.
    let (home, scripts_home) = match (&confinement, &user) {
        // An unconfined script must not read files that a job left in its home.
        (Some(_), _) => (layout.temp(), layout.scripts_home()),
        (None, Some(user)) => (user.home.clone(), PathBuf::from("/root")),
        (None, None) => (layout.temp(), layout.temp()),
    };
    let scripts_see = data.environment(&scripts_home);
    let scripts = ProcessScripts::new(clock.clone(), layout.logs(), &mark, scripts_see);
    let environment = data.environment(&home);
    let place = RunnerPaths {
        root: layout.runner(),
        work: layout.work(),
        temp: layout.temp(),
        state: layout.state(),
        mark,
        boot: boot.to_owned(),
        url: data.url,
        environment,
        user: user.clone(),
        confinement: confinement.clone(),
    };
    let (leftovers, sudo) = (place.leftovers(), data.sudo);
    MachineHost {
        runner: ProcessRunner::new(clock.clone(), place, EndGrace::DEFAULT),
        watchdog,
        notebook: FileNotebook::new(layout.state().join("notes.json")),
        scripts: MachineScripts {
            layout,
            program: data.runner,
            user,
            confinement,
            sudo,
            leftovers,
            scripts,
        },
    }
}
