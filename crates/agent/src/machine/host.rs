//! The [`Host`] of a machine: the runner as processes, the warm-up's steps, notes, the watchdog.
//!
//! Not here: when the agent uses them (`crate::agent`).

use std::io;
use std::path::Path;

use bullpen_core::ports::Clock;

use super::Layout;
use super::install::{TEST, install, is_reachable};
use super::user_data::RunnerProgram;
use crate::host::{Host, Scripts, Watchdog};
use crate::notes::FileNotebook;
use crate::runner::confine::Confinement;
use crate::runner::leftovers::Leftovers;
use crate::runner::process::{LISTENER, ProcessRunner};
use crate::runner::user::User;
use crate::scripts::ProcessScripts;
use crate::warm_up::{Frequency, Step, StepFailed};

/// The step that makes the runner's directory, without a script. As a step it runs once, counts
/// towards the warm-up's time, and its failure is reported.
const INSTALL: &str = "runner";
/// The last step if jobs have their own user, without a script: every later change on the machine
/// is a job's.
const HOME: &str = "home";

/// The prefix of a line in a step's output that warns although the step succeeds.
const WARNS: &str = "warning: ";

/// The step that makes the runner's directory.
pub(super) fn install_step() -> Step {
    own_step(INSTALL, Frequency::OncePerMachine)
}

/// The step that records the machine's state before the first job.
pub(super) fn home_step() -> Step {
    own_step(HOME, Frequency::EachBoot)
}

fn own_step(name: &str, often: Frequency) -> Step {
    let program = std::path::PathBuf::new();
    Step { name: name.to_owned(), program, arguments: Vec::new(), often }
}

/// Runs the warm-up's steps: the runner's directory, scripts, and the record of the machine's
/// state.
#[derive(Debug)]
pub(super) struct MachineScripts<C> {
    pub(super) layout: Layout,
    pub(super) program: RunnerProgram,
    pub(super) user: Option<User>,
    /// Whether that user may use `sudo`.
    pub(super) sudo: bool,
    /// Cleans between owners, if jobs have their own user.
    pub(super) leftovers: Option<Leftovers>,
    pub(super) confinement: Option<Confinement>,
    pub(super) scripts: ProcessScripts<C>,
}

impl<C: Clock> MachineScripts<C> {
    async fn install(&self) -> io::Result<()> {
        let (program, layout) = (self.program.clone(), self.layout.clone());
        let (user, confinement) = (self.user.clone(), self.confinement.clone());
        // The agent may have to copy a directory, and heartbeats must not wait for that.
        let work = move || {
            install(&program, &layout, user.as_ref())?;
            match (&confinement, &user) {
                (Some(held), _) => is_reachable(&layout, held.command(Path::new(TEST))?, "a job"),
                (None, Some(user)) => {
                    is_reachable(&layout, user.command(Path::new(TEST)), &user.name)
                }
                (None, None) => Ok(()),
            }
        };
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten()
    }

    /// Runs a script, and logs its warnings: the agent does not report a step that succeeds.
    async fn run_script(&self, step: &Step) -> Result<(), StepFailed> {
        self.scripts.run(step).await?;
        for warning in self.scripts.said(step).lines().filter_map(|line| line.strip_prefix(WARNS)) {
            tracing::warn!(step = step.name, warning, "warm-up step printed a warning");
        }
        Ok(())
    }

    /// Records the machine's state. It keeps the record of the earlier boot if the machine went
    /// down during a job: that job's files are still there, and only the old record tells them
    /// apart.
    async fn note_home(&self) -> io::Result<()> {
        let Some(leftovers) = self.leftovers.clone() else { return Ok(()) };
        if self.layout.state().join(LISTENER).exists() {
            return Ok(());
        }
        let sudo = self.sudo;
        // A container engine may be slow, and heartbeats must not wait for it.
        let work = move || leftovers.note(sudo);
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten()
    }
}

impl<C: Clock> Scripts for MachineScripts<C> {
    async fn run(&self, step: &Step) -> Result<(), StepFailed> {
        let (done, what) = match &*step.name {
            INSTALL => (self.install().await, "the runner's directory could not be made"),
            HOME => (self.note_home().await, "the machine's state could not be recorded"),
            _ => return self.run_script(step).await,
        };
        done.map_err(|error| StepFailed { how: format!("{what}: {error}"), tail: String::new() })
    }

    async fn end(&self, step: &Step) -> String {
        match &*step.name {
            INSTALL | HOME => String::new(),
            _ => self.scripts.end(step).await,
        }
    }
}

/// The machine's [`Host`].
#[derive(Debug)]
pub(super) struct MachineHost<C, W> {
    pub(super) runner: ProcessRunner<C>,
    pub(super) watchdog: W,
    pub(super) scripts: MachineScripts<C>,
    pub(super) notebook: FileNotebook,
}

impl<C: Clock, W: Watchdog> Host for MachineHost<C, W> {
    type Runner = ProcessRunner<C>;
    type Watchdog = W;
    type Scripts = MachineScripts<C>;
    type Notebook = FileNotebook;

    fn runner(&self) -> &Self::Runner {
        &self.runner
    }

    fn watchdog(&self) -> &W {
        &self.watchdog
    }

    fn scripts(&self) -> &Self::Scripts {
        &self.scripts
    }

    fn notebook(&self) -> &FileNotebook {
        &self.notebook
    }
}
