//! An agent's life on a machine, from its directory to its end.
//!
//! There is one agent per machine: it holds a lock for as long as its process lives.
//!
//! Not here: constructing the clock, which is the binary's.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;

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
use crate::runner::user::User;
use crate::scripts::ProcessScripts;
use crate::warm_up::{Frequency, Step};
use crate::{Agent, AgentTask, SelfEndReason};

/// Why an agent could not live. Starting it again may help.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A file or directory of the machine's.
    #[error("could not use {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What the fleet wrote.
    #[error(transparent)]
    UserData(#[from] BadUserData),
    /// The mailboxes are somewhere that this program has no way to.
    #[error("the mailboxes are in {place}, which is not in this build")]
    NoWay {
        /// Where.
        place: &'static str,
    },
    /// The mailboxes cannot be used as they are configured.
    #[error("the mailboxes cannot be used")]
    Unusable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Another agent lives on this machine.
    #[error("another agent lives in {}", dir.display())]
    Taken {
        /// The machine.
        dir: PathBuf,
    },
}

impl LiveError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

/// A way to the mailboxes: tried until they are open, because an agent can do nothing without, and
/// the watchdog is the bound.
pub trait MailboxConnector<C>: Send + Sync {
    /// The mailboxes.
    type Mailbox: Mailbox;

    /// Opens those at `place`.
    fn open(
        &self,
        place: &MailboxPlace,
        clock: &C,
    ) -> impl Future<Output = Result<Self::Mailbox, LiveError>> + Send;
}

/// Where the mailboxes of the machine in `dir` are: what a binary chooses its [`MailboxConnector`] by.
pub fn mailbox_place(dir: &Path) -> Result<MailboxPlace, LiveError> {
    let path = Layout::of(dir).user_data();
    let text = fs::read_to_string(&path).map_err(LiveError::io(&path))?;
    Ok(UserData::from_text(&text)?.mailbox)
}

/// Which machine an agent lives on.
#[derive(Clone, Copy, Debug)]
pub struct MachineBearings<'a> {
    /// Its directory.
    pub dir: &'a Path,
    /// Which of its boots this is.
    pub boot: &'a str,
    /// Its id; absent, the directory's name.
    pub instance: Option<&'a str>,
}

/// Lives until the machine is to end; each of `interruptions` is reported at once. Dropping the
/// future is the agent's death, and leaves its listener alive. Must be called on a runtime.
pub async fn live<C: Clock + Clone>(
    bearings: MachineBearings<'_>,
    clock: &C,
    postbox: &impl MailboxConnector<C>,
    watchdog: impl Watchdog,
    interruptions: impl Stream<Item = String> + Send,
) -> Result<SelfEndReason, LiveError> {
    let MachineBearings { dir, boot, instance } = bearings;
    // The mark, the key and every path are of one and the same spelling of the directory.
    let mark = mark(dir).map_err(LiveError::io(dir))?;
    let layout = Layout::of(Path::new(&mark));
    let text = fs::read_to_string(layout.user_data());
    let data = UserData::from_text(&text.map_err(LiveError::io(&layout.user_data()))?)?;
    for directory in [layout.temp(), layout.state(), layout.logs(), layout.scripts_home()] {
        fs::create_dir_all(&directory).map_err(LiveError::io(&directory))?;
    }
    let _alone = alone(&layout)?;
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
    let orientation = AgentTask {
        key: data.mailbox.key(instance.unwrap_or(&name)),
        boot: boot.to_owned(),
        steps,
        limits: data.limits(),
    };
    let mailbox = postbox.open(&data.mailbox, clock).await?;
    let host = host((data, user, confinement), layout, mark, boot, (clock, watchdog));
    let (agent, interrupter) = Agent::new(mailbox, clock.clone(), host, orientation);
    let (mut living, mut interruptions) = (pin!(agent.live()), pin!(interruptions));
    loop {
        tokio::select! {
            biased;
            Some(reason) = interruptions.next() => interrupter.interrupted(&reason),
            ending = &mut living => return Ok(ending),
        }
    }
}

/// [`live`] as all that a process does on a machine of the process fleet: interrupted by SIGTERM,
/// and ended by the supervisor.
pub fn run<C: Clock + Clone>(
    dir: &Path,
    boot: &str,
    clock: &C,
    postbox: &impl MailboxConnector<C>,
) -> Result<SelfEndReason, LiveError> {
    let bearings = MachineBearings { dir, boot, instance: None };
    let watchdog = FileWatchdog::new(Layout::of(dir).ends_by());
    on_a_runtime(dir, async || live(bearings, clock, postbox, watchdog, terminations(dir)?).await)
}

/// Does this as all that the agent's process on the machine in `dir` does.
pub fn on_a_runtime<T>(
    dir: &Path,
    life: impl AsyncFnOnce() -> Result<T, LiveError>,
) -> Result<T, LiveError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(LiveError::io(dir))?;
    let outcome = runtime.block_on(life());
    // A directory that is still being copied or deleted must not keep a machine that is to end.
    runtime.shutdown_background();
    outcome
}

/// Every SIGTERM, as an interruption. Must be called on a runtime.
pub fn terminations(dir: &Path) -> Result<impl Stream<Item = String> + Send + use<>, LiveError> {
    let terminations = signal(SignalKind::terminate()).map_err(LiveError::io(dir))?;
    Ok(stream::unfold(terminations, async |mut terminations| {
        terminations.recv().await?;
        Some((String::from("SIGTERM"), terminations))
    }))
}

/// The lock is held until the file is dropped, or the process ends. What it starts does not hold it.
fn alone(layout: &Layout) -> Result<File, LiveError> {
    let path = layout.agent("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(LiveError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LiveError::Taken { dir: layout.dir.clone() }),
        Err(TryLockError::Error(source)) => Err(LiveError::Io { path, source }),
    }
}

/// Jobs' own user, with the way to its directories open and the agent's own closed.
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

/// The user that only this machine's jobs are, on a host that they share.
fn own_user(isolation: &Isolation, layout: &Layout) -> Result<Option<User>, LiveError> {
    let Some(id) = isolation.user else { return Ok(None) };
    let name = format!("bullpen-{id}");
    let user = User { name, uid: id, gid: id, groups: Vec::new(), home: layout.temp() };
    // The way to its directories, where no namespace has another one.
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

/// What keeps jobs from the host.
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

/// The warm-up. A script is a file of its own and is never part of another one's text.
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
    // What scripts prepare in a home is root's where jobs have their own.
    let (home, scripts_home) = match (&confinement, &user) {
        // What a job left in its own home is nothing for a script that is not held.
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
