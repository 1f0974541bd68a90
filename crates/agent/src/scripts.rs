//! Runs the warm-up's steps as processes: each in its own process group, with its output in a file.
//!
//! Not here: the order of the steps, or their common time limit (`warm_up`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::limits::SIGNAL_DETAIL_BYTES_MAX;
use bullpen_core::ports::Clock;
use rustix::process::Signal;

use crate::host::Scripts;
use crate::runner::tree::{self, Identity, MARK};
use crate::warm_up::{Step, StepFailed};

/// How often to look at a running step.
const LOOK: Duration = Duration::from_millis(20);
/// The most looks at a killed step until it is gone.
const LOOKS_MAX: u32 = 250;

/// The most bytes of output in a report, which also has other text.
const TAIL_BYTES_MAX: usize = SIGNAL_DETAIL_BYTES_MAX - 512;

/// Runs steps as processes.
#[derive(Debug)]
pub struct ProcessScripts<C> {
    clock: C,
    directory: PathBuf,
    mark: String,
    environment: BTreeMap<String, String>,
    running: Mutex<Option<(Child, Identity)>>,
}

impl<C: Clock> ProcessScripts<C> {
    /// Writes output to files in `directory`, which must exist. `environment` is a step's whole
    /// environment besides the mark.
    pub fn new(
        clock: C,
        directory: PathBuf,
        mark: &str,
        environment: BTreeMap<String, String>,
    ) -> Self {
        let mark = mark.to_owned();
        Self { clock, directory, mark, environment, running: Mutex::new(None) }
    }

    /// The mark of a step's processes. It differs from the runner's mark and from other steps'
    /// marks: a service that a step starts keeps running during the next step and when the agent
    /// cleans.
    fn mark(&self, step: &Step) -> String {
        format!("{}/warm-up/{}", self.mark, step.name)
    }

    /// The end of a step's output.
    pub fn said(&self, step: &Step) -> String {
        tail(&self.output(step))
    }

    fn output(&self, step: &Step) -> PathBuf {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        self.directory
            .join(format!("{}.log", step.name.chars().filter(is_plain).collect::<String>()))
    }

    fn start(&self, step: &Step) -> io::Result<()> {
        let output = File::create(self.output(step))?;
        let child = Command::new(&step.program)
            .args(&step.arguments)
            .env_clear()
            .envs(&self.environment)
            .env(MARK, self.mark(step))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        let identity = Identity::of(pid).ok_or_else(|| io::Error::other("it has no identity"))?;
        *self.running() = Some((child, identity));
        Ok(())
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<(Child, Identity)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The exit status of the running step, once it has ended.
    fn look(&self) -> io::Result<Option<std::process::ExitStatus>> {
        match &mut *self.running() {
            Some((child, _)) => child.try_wait(),
            None => Err(io::Error::other("nothing runs")),
        }
    }
}

impl<C: Clock> Scripts for ProcessScripts<C> {
    async fn run(&self, step: &Step) -> Result<(), StepFailed> {
        let failed = |error: io::Error| StepFailed {
            how: format!("could not run: {error}"),
            tail: String::new(),
        };
        // An agent that died during its warm-up may have left the same step running.
        tree::kill_marked(&self.mark(step)).map_err(failed)?;
        self.start(step).map_err(failed)?;
        loop {
            if let Some(status) = self.look().map_err(failed)? {
                *self.running() = None;
                if status.success() {
                    return Ok(());
                }
                return Err(StepFailed { how: status.to_string(), tail: self.said(step) });
            }
            self.clock.sleep(LOOK).await;
        }
    }

    async fn end(&self, step: &Step) -> String {
        let running = self.running().take();
        if let Some((mut child, identity)) = running {
            for _ in 0..LOOKS_MAX {
                if let Err(error) = identity.signal_group(Signal::KILL) {
                    tracing::warn!(%error, "could not kill a step's process group");
                }
                let left = tree::kill_marked(&self.mark(step)).unwrap_or(1);
                if left == 0 && !matches!(child.try_wait(), Ok(None)) {
                    break;
                }
                self.clock.sleep(LOOK).await;
            }
        }
        self.said(step)
    }
}

/// The end of a file, as text.
pub(crate) fn tail(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = fs::metadata(path)?.len();
        let bytes = u64::try_from(TAIL_BYTES_MAX).unwrap_or(u64::MAX);
        file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
        let mut tail = Vec::new();
        file.take(bytes).read_to_end(&mut tail)?;
        Ok(tail)
    };
    read().map_or_else(|_| String::new(), |tail| String::from_utf8_lossy(&tail).into_owned())
}
