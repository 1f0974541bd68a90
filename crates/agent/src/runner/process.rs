//! Runs the official runner program, `bin/Runner.Listener` of its directory, as processes.
//!
//! The agent starts the program in its own process group with its own environment. The output goes
//! to a file: a pipe would break when the agent dies, and end the listener. The agent only reads
//! that file and looks at the process, so it watches a found listener like one it started itself.
//!
//! Not here: what the lines mean (`markers`), finding the instance's processes (`tree`),
//! downloading the program, or what the jobs' own user left elsewhere (`leftovers`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::pending;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::mailbox::{Assignment, Credential, Secret};
use bullpen_core::ports::Clock;
use bullpen_core::request::stranger::RanJob;
use rustix::process::Signal;

use super::confine::{Confinement, remove_left};
use super::hook;
use super::leftovers::{Leftovers, absent_is_fine};
use super::markers::{meaning, refusal};
use super::poll_backoff::PollBackoff;
use super::program;
use super::state::Listener;
use super::tree::{self, Identity, MARK};
use super::user::User;
use super::{EndOutcome, LeftListener, ListenerRefusal, Observed, Runner, UPDATED_WITHIN};
use crate::runner::watch::Watch;
use crate::scripts::tail;

/// How often the agent looks at a listener that listens.
const LOOK: Duration = Duration::from_millis(100);
/// The file that the program leaves in its directory once it has replaced itself.
const UPDATED: &str = "update.finished";
/// How long registering or deregistering may take.
const STEP_WITHIN: Duration = Duration::from_secs(60);
/// How long killed processes may take to be gone.
const SWEEP_WITHIN: Duration = Duration::from_secs(10);
/// The file in the state directory whose time is the end of the warm-up.
const HOME_STAMP: &str = "home.stamp";
/// The file in the state directory that describes the listener until its owner's files are cleaned.
pub(crate) const LISTENER: &str = "listener.json";
/// A registration's files, in the program's directory.
pub(super) const REGISTRATION: &[&str] = &[
    ".runner",
    ".credentials",
    ".credentials_rsaparams",
    ".runner_migrated",
    ".credentials_migrated",
];

/// The paths and settings of one instance's runner.
#[derive(Clone, Debug)]
pub struct RunnerPaths {
    /// The program's directory. Each instance has its own: the program writes its registration
    /// there.
    pub root: PathBuf,
    /// The jobs' work directory.
    pub work: PathBuf,
    /// The jobs' directory for temporary files.
    pub temp: PathBuf,
    /// The agent's directory for its facts about the listener.
    pub state: PathBuf,
    /// The mark of this instance's processes; unique on the machine.
    pub mark: String,
    /// The id of this boot.
    pub boot: String,
    /// The organisation or repository at GitHub to register with by token.
    pub url: String,
    /// The whole environment that the program and its jobs start with.
    pub environment: BTreeMap<String, String>,
    /// The user that only the program and its jobs run as. Absent, they run as the agent's user.
    pub user: Option<User>,
    /// How they are kept from a host that they share with the service. Absent, they are not.
    pub confinement: Option<Confinement>,
}

impl RunnerPaths {
    /// Makes a directory that the program's user owns.
    fn make(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        self.user.as_ref().map_or(Ok(()), |user| user.own(directory))
    }

    /// The cleaner of files that the jobs' own user left outside these paths.
    pub(crate) fn leftovers(&self) -> Option<Leftovers> {
        if self.confinement.is_some() {
            return None;
        }
        let path = self.environment.get("PATH").map_or("", String::as_str);
        let stamp = self.state.join(HOME_STAMP);
        self.user.clone().map(|user| Leftovers::new(user, path, stamp))
    }
}

/// How long the agent waits for a listener to end after each signal.
#[derive(Clone, Copy, Debug)]
pub struct EndGrace {
    /// After SIGINT. The program gives a job 30 s to be cancelled.
    pub interrupt: Duration,
    /// After SIGTERM.
    pub terminate: Duration,
    /// After SIGKILL.
    pub kill: Duration,
}

impl EndGrace {
    /// The default.
    pub const DEFAULT: Self = Self {
        interrupt: Duration::from_secs(35),
        terminate: Duration::from_secs(5),
        kill: Duration::from_secs(5),
    };
}

/// The runner program on this machine.
#[derive(Debug)]
pub struct ProcessRunner<C> {
    clock: C,
    place: RunnerPaths,
    patience: EndGrace,
    watch: Mutex<Option<Watch>>,
    /// The last job that an earlier agent recorded, until `observe` has returned it.
    recalled: Mutex<Option<RanJob>>,
}

impl<C: Clock> ProcessRunner<C> {
    /// The runner program at this place.
    pub fn new(clock: C, place: RunnerPaths, patience: EndGrace) -> Self {
        Self { clock, place, patience, watch: Mutex::new(None), recalled: Mutex::new(None) }
    }

    fn watch(&self) -> MutexGuard<'_, Option<Watch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recalled(&self) -> MutexGuard<'_, Option<RanJob>> {
        self.recalled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_file(&self) -> PathBuf {
        self.place.state.join(LISTENER)
    }

    fn log(&self) -> PathBuf {
        self.place.state.join("listener.log")
    }

    fn command(&self, arguments: &[&str], output: File) -> io::Result<Command> {
        if self.place.confinement.is_some() && self.place.user.is_none() {
            program::note(&self.place.root, &self.place.state)?;
        }
        let program = self.place.root.join("bin/Runner.Listener");
        let user = self.place.user.as_ref();
        let mut command = match (&self.place.confinement, user) {
            (Some(confinement), _) => confinement.command(&program)?,
            (None, Some(user)) => user.command(&program),
            (None, None) => Command::new(&program),
        };
        command
            .args(arguments)
            .current_dir(&self.place.root)
            .env_clear()
            .envs(user.iter().flat_map(|user| user.variables()))
            .envs(&self.place.environment)
            .env(MARK, &self.place.mark)
            .env("TMPDIR", &self.place.temp)
            .env("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "1")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        Ok(command)
    }

    /// Runs one of the program's commands until it ends.
    async fn run(&self, arguments: &[&str], input: &[(&str, &str)]) -> Result<(), ListenerRefusal> {
        let path = self.place.state.join("command.log");
        let start = || -> io::Result<Child> {
            let mut command = self.command(arguments, File::create(&path)?)?;
            for (name, value) in input {
                command.env(format!("ACTIONS_RUNNER_INPUT_{name}"), value);
            }
            command.spawn()
        };
        let mut child = start().map_err(|error| cannot_start(&error))?;
        let until = self.clock.monotonic() + STEP_WITHIN;
        let mut looks = PollBackoff::new();
        while self.clock.monotonic() < until {
            match child.try_wait() {
                Ok(None) => self.clock.sleep(looks.wait()).await,
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(why(&tail(&path), status.code())),
                Err(error) => return Err(cannot_start(&error)),
            }
        }
        let detail = format!("{} took too long: {}", arguments[0], tail(&path));
        // A program that prints nothing may not have reached GitHub at all; blame the machine.
        Err(refusal(&detail).unwrap_or_else(|| ListenerRefusal::here(detail)))
    }

    fn start(&self, to: &Assignment) -> io::Result<Watch> {
        self.place.make(&self.place.work)?;
        self.place.make(&self.place.temp)?;
        let mut listener = Listener::starting(&self.place.boot, to);
        listener.save(&self.state_file())?;
        let hook = hook::install(&self.place, to)?;
        let mut command = self.command(&["run"], File::create(self.log())?)?;
        command.env(hook::VARIABLE, hook);
        if let Some(Credential::Jit(config)) = &to.credential {
            command.env("ACTIONS_RUNNER_INPUT_JITCONFIG", config.reveal());
        }
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        // The agent has not waited for it yet, so it exists, dead or alive.
        let process = Identity::of(pid).ok_or_else(|| io::Error::other("it has no identity"))?;
        listener.process = Some(process);
        listener.save(&self.state_file())?;
        Ok(Watch::new(listener, process, Some(child), self.log(), self.place.root.clone()))
    }

    /// Whether the listener ends within this time.
    async fn gone_within(&self, wait: Duration) -> bool {
        let until = self.clock.monotonic() + wait;
        let mut looks = PollBackoff::new();
        loop {
            if self.watch().as_mut().is_none_or(Watch::look) {
                return true;
            }
            if self.clock.monotonic() >= until {
                return false;
            }
            self.clock.sleep(looks.wait()).await;
        }
    }

    /// Returns when the program has replaced itself, which it does after its listener has ended.
    async fn updated(&self) {
        let finished = self.place.root.join(UPDATED);
        let until = self.clock.monotonic() + UPDATED_WITHIN;
        let mut looks = PollBackoff::new();
        while fs::remove_file(&finished).is_err() && self.clock.monotonic() < until {
            self.clock.sleep(looks.wait()).await;
        }
    }

    /// Kills this instance's remaining processes.
    async fn sweep(&self) -> io::Result<()> {
        let until = self.clock.monotonic() + SWEEP_WITHIN;
        let mut looks = PollBackoff::new();
        let kill_of_user = |user: &User| tree::kill_of_user(user.uid);
        while tree::kill_marked(&self.place.mark)?
            + self.place.user.as_ref().map_or(Ok(0), kill_of_user)?
            > 0
        {
            if self.clock.monotonic() >= until {
                return Err(io::Error::other("a killed process does not end"));
            }
            self.clock.sleep(looks.wait()).await;
        }
        Ok(())
    }

    /// Removes a registration's files; the runner stays registered at GitHub.
    fn forget(&self) -> io::Result<()> {
        for file in REGISTRATION {
            absent_is_fine(fs::remove_file(self.place.root.join(file)))?;
        }
        Ok(())
    }

    fn living(&self, listener: &Listener) -> io::Result<Option<Identity>> {
        if listener.boot != self.place.boot {
            return Ok(None);
        }
        let process = match listener.process {
            Some(process) => Some(process),
            None => tree::leader(&self.place.mark)?,
        };
        Ok(process.filter(|process| process.is_alive()))
    }
}

impl<C: Clock> Runner for ProcessRunner<C> {
    async fn find(&self) -> io::Result<LeftListener> {
        fs::create_dir_all(&self.place.state)?;
        let Some(mut listener) = Listener::load(&self.state_file())? else {
            self.sweep().await?;
            return Ok(LeftListener::Nothing);
        };
        let assignment = listener.assignment.clone();
        // The hook may have written its report while no agent ran.
        listener.ran = hook::read_report(&self.place.root).or(listener.ran);
        listener.save(&self.state_file())?;
        hook::remove_report(&self.place.root);
        self.recalled().clone_from(&listener.ran);
        let Some(process) = self.living(&listener)? else {
            self.sweep().await?;
            return Ok(LeftListener::Dead { assignment });
        };
        listener.process = Some(process);
        listener.save(&self.state_file())?;
        let root = self.place.root.clone();
        let mut watch = Watch::new(listener, process, None, self.log(), root);
        let (listening, job) = watch.catch_up();
        *self.watch() = Some(watch);
        Ok(LeftListener::Alive { assignment, listening, job })
    }

    async fn register(&self, to: &Assignment) -> Result<(), ListenerRefusal> {
        let token = match &to.credential {
            Some(Credential::RegistrationToken(token)) => token,
            Some(Credential::Jit(_)) => return Ok(()),
            None => return Err(ListenerRefusal::here("the assignment has no credential")),
        };
        // An earlier agent may have died right after registering; the program would refuse then.
        self.forget().map_err(|error| cannot_start(&error))?;
        let work = self.place.work.to_string_lossy();
        let mut flags = vec![
            "configure",
            "--unattended",
            "--replace",
            "--disableupdate",
            "--no-default-labels",
        ];
        if to.ephemeral {
            flags.push("--ephemeral");
        }
        let input = [
            ("URL", self.place.url.as_str()),
            ("NAME", to.runner.as_str()),
            ("LABELS", to.label.as_str()),
            ("WORK", &*work),
            ("TOKEN", token.reveal()),
        ];
        let group = to.group.as_ref().map(|group| ("RUNNERGROUP", group.as_str()));
        let input: Vec<_> = input.into_iter().chain(group).collect();
        self.run(&flags, &input).await
    }

    async fn listen(&self, to: &Assignment) -> Result<(), ListenerRefusal> {
        let updates = self.watch().as_ref().is_some_and(Watch::ended_for_an_update);
        if updates {
            self.updated().await;
        }
        let watch = self.start(to).map_err(|error| cannot_start(&error))?;
        *self.watch() = Some(watch);
        Ok(())
    }

    async fn adopt(&self, to: &Assignment) -> io::Result<()> {
        match &mut *self.watch() {
            Some(watch) => watch.serve(to).save(&self.state_file()),
            None => Ok(()),
        }
    }

    async fn observe(&self) -> Observed {
        if let Some(ran) = self.recalled().take() {
            return Observed::JobOf(ran);
        }
        loop {
            let wait = match &mut *self.watch() {
                Some(watch) => match watch.next() {
                    Some(seen) => return seen,
                    None if watch.is_over() => None,
                    None if watch.is_listening() => Some(LOOK),
                    None => Some(watch.look_again_after()),
                },
                None => None,
            };
            match wait {
                Some(wait) => self.clock.sleep(wait).await,
                // The next effect starts a listener; the agent calls `observe` again after it.
                None => pending().await,
            }
        }
    }

    async fn end(&self, unless_busy: bool) -> io::Result<EndOutcome> {
        let process = match &mut *self.watch() {
            Some(watch) => {
                let over = watch.look();
                if unless_busy && !over && watch.is_busy() {
                    return Ok(EndOutcome::Busy);
                }
                Some(watch.process()).filter(|_| !over)
            }
            None => None,
        };
        if let Some(process) = process {
            let EndGrace { interrupt, terminate, kill } = self.patience;
            for (signal, wait) in
                [(Signal::INT, interrupt), (Signal::TERM, terminate), (Signal::KILL, kill)]
            {
                process.signal_group(signal)?;
                if self.gone_within(wait).await {
                    break;
                }
            }
        }
        self.sweep().await?;
        *self.watch() = None;
        Ok(EndOutcome::Gone)
    }

    async fn kill(&self) -> io::Result<()> {
        let process = self.watch().as_ref().map(Watch::process);
        if let Some(process) = process {
            process.signal_group(Signal::KILL)?;
            self.gone_within(self.patience.kill).await;
        }
        self.sweep().await?;
        *self.watch() = None;
        Ok(())
    }

    async fn deregister(&self, token: &Secret) -> Result<(), ListenerRefusal> {
        if !self.place.root.join(".runner").exists() {
            return Ok(());
        }
        self.run(&["remove"], &[("TOKEN", token.reveal())]).await
    }

    async fn clean(&self) -> io::Result<()> {
        let leftovers = self.place.leftovers();
        if let Some(leftovers) = &leftovers {
            leftovers.stop_what_comes_again()?;
        }
        self.sweep().await?;
        if let Some(confinement) = &self.place.confinement
            && self.state_file().exists()
        {
            confinement.is_cleanable()?;
        }
        self.forget()?;
        let (place, state_file) = (self.place.clone(), self.state_file());
        let work = move || -> io::Result<()> {
            let RunnerPaths { root, work, temp, state, .. } = &place;
            for directory in [work, temp, &root.join("_diag")] {
                absent_is_fine(fs::remove_dir_all(directory))?;
            }
            leftovers.map_or(Ok(()), |leftovers| leftovers.remove(root))?;
            if let Some(confinement) = &place.confinement {
                remove_left(&confinement.isolation, root)?;
            }
            program::restore(root, state)?;
            place.make(work)?;
            place.make(temp)?;
            for log in ["listener.log", "command.log"] {
                absent_is_fine(fs::remove_file(state.join(log)))?;
            }
            // Remove this last: while the file exists, the next agent knows that it must clean.
            absent_is_fine(fs::remove_file(&state_file))
        };
        // A work directory can be large, and heartbeats must not wait for its removal.
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
    }
}

fn cannot_start(error: &io::Error) -> ListenerRefusal {
    ListenerRefusal::here(format!("could not run the runner program: {error}"))
}

/// The reason in the output of a program that ended with an error.
fn why(output: &str, code: Option<i32>) -> ListenerRefusal {
    let exit = code.map_or_else(
        || String::from("ended by a signal"),
        |code| format!("exit {code}, {}", meaning(code)),
    );
    let refused = output.lines().rev().find_map(refusal);
    refused.unwrap_or_else(|| ListenerRefusal::here(format!("{exit}: {}", output.trim())))
}
