//! The machine's side of its agent: the runner as processes, the warm-up, notes, the watchdog.
//!
//! Not here: when any of it is used (`crate::agent`).

use crate::host::{Host, Scripts, Watchdog};
use crate::notes::FileNotebook;
use crate::runner::process::ProcessRunner;
use crate::scripts::ProcessScripts;
use crate::warm_up::{Often, Step, StepFailed};
use bullpen_core::ports::Clock;

use super::Layout;
use super::install::install;
use super::user_data::RunnerProgram;

/// The warm-up's first step, which is no script: the runner's directory. As a step it is done once,
/// counts towards the time, and is reported if it fails.
const INSTALL: &str = "runner";

/// The step that makes the runner's directory.
pub(super) fn install_step() -> Step {
    Step {
        name: String::from(INSTALL),
        program: std::path::PathBuf::new(),
        arguments: Vec::new(),
        often: Often::OncePerMachine,
    }
}

/// The warm-up: the runner's directory, then scripts.
#[derive(Debug)]
pub(super) struct MachineScripts<C> {
    pub(super) layout: Layout,
    pub(super) program: RunnerProgram,
    pub(super) scripts: ProcessScripts<C>,
}

impl<C: Clock> Scripts for MachineScripts<C> {
    async fn run(&self, step: &Step) -> Result<(), StepFailed> {
        if step.name != INSTALL {
            return self.scripts.run(step).await;
        }
        let (program, layout) = (self.program.clone(), self.layout.clone());
        // A directory may have to be copied, and the beat must not wait for it.
        let installed = tokio::task::spawn_blocking(move || install(&program, &layout)).await;
        installed.map_err(std::io::Error::other).flatten().map_err(|error| StepFailed {
            how: format!("the runner's directory could not be made: {error}"),
            tail: String::new(),
        })
    }

    async fn end(&self, step: &Step) -> String {
        if step.name == INSTALL { String::new() } else { self.scripts.end(step).await }
    }
}

/// All of it.
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
