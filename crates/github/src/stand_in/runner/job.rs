//! One job as a process: its script in bash, or `act` with its workflow, in the work directory, in a
//! process group of its own.
//!
//! Its output goes to a file under `_diag`, as the official program's does, so that a job cannot
//! print what only the program may say.
//!
//! Not here: how `act` is told (`act`), telling the server (`listen`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use bullpen_core::ports::Clock;
use futures_util::future::{Either, select};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::act;
use super::files::RunnerSettings;
use super::inputs::Inputs;
use crate::stand_in::protocol::{Conclusion, JobMessage};

/// What a cancelled job is sent, and how long it gets to end: as the official program does it.
const GENTLY: &[(Signal, Duration)] =
    &[(Signal::INT, Duration::from_millis(7_500)), (Signal::TERM, Duration::from_millis(2_500))];

/// What names the hook.
const HOOK: &str = "ACTIONS_RUNNER_HOOK_JOB_STARTED";
/// How the script of a job begins whose step runs even after a hook that failed.
const ALWAYS: &str = "# if: always()";

/// Whether the official program would run the job's step after its hook failed.
pub(super) fn runs_always(job: &JobMessage) -> bool {
    job.script.starts_with(ALWAYS)
}

/// A job that runs.
pub(super) struct Running {
    child: Child,
    group: Option<Pid>,
}

impl Running {
    pub(super) fn start(
        job: &JobMessage,
        settings: &RunnerSettings,
        inputs: &Inputs,
    ) -> io::Result<Self> {
        let diag = inputs.root.join("_diag");
        fs::create_dir_all(&diag)?;
        let command = match &job.workflow {
            Some(workflow) => act::command(workflow, job, &inputs.environment, &diag)?,
            None => script(job, &diag)?,
        };
        Self::spawn(command, "Job", &job.env, (job, settings, inputs))
    }

    /// The hook that runs before the job's first step, if there is one. As with the official program
    /// it sees what GitHub says of the job, and nothing that the job's workflow sets.
    pub(super) fn hook(
        job: &JobMessage,
        settings: &RunnerSettings,
        inputs: &Inputs,
    ) -> io::Result<Option<Self>> {
        let Some(path) = inputs.environment.get(HOOK) else { return Ok(None) };
        let mut command = Command::new("bash");
        command.arg("-e").arg(path);
        Self::spawn(command, "Hook", &BTreeMap::new(), (job, settings, inputs)).map(Some)
    }

    fn spawn(
        mut command: Command,
        what: &str,
        set: &BTreeMap<String, String>,
        (job, settings, inputs): (&JobMessage, &RunnerSettings, &Inputs),
    ) -> io::Result<Self> {
        let (work, diag) = (inputs.root.join(&settings.work), inputs.root.join("_diag"));
        fs::create_dir_all(&work)?;
        fs::create_dir_all(&diag)?;
        let output = File::create(diag.join(format!("{what}_{}.log", job.job)))?;
        let child = command
            .current_dir(&work)
            .env_clear()
            .envs(&inputs.environment)
            .envs(variables(job, settings, &work))
            .envs(set)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        Ok(Self { child, group: pid.and_then(Pid::from_raw) })
    }

    /// How it ended, once it has. May be dropped and called again.
    pub(super) async fn ended(&mut self) -> Conclusion {
        let status = self.child.wait().await;
        // Ends what the job left in its group. No other group has this number: no process id comes
        // round again this soon.
        self.signal(Signal::KILL);
        match status {
            Ok(status) if status.success() => Conclusion::Success,
            Ok(_) | Err(_) => Conclusion::Failure,
        }
    }

    /// Ends it and all of its group, first gently.
    pub(super) async fn end(&mut self, clock: &impl Clock) {
        for (signal, wait) in GENTLY {
            self.signal(*signal);
            match select(pin!(self.ended()), pin!(clock.sleep(*wait))).await {
                Either::Left(_) => return,
                Either::Right(_) => {}
            }
        }
        self.signal(Signal::KILL);
        self.ended().await;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // A group that is gone is what is wanted.
            let _ = kill_process_group(group, signal);
        }
    }
}

fn script(job: &JobMessage, diag: &Path) -> io::Result<Command> {
    let script = diag.join(format!("Job_{}.sh", job.job));
    fs::write(&script, &job.script)?;
    let mut command = Command::new("bash");
    command.arg("-e").arg(script);
    Ok(command)
}

/// What every job finds in its environment.
fn variables(
    job: &JobMessage,
    settings: &RunnerSettings,
    work: &Path,
) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("CI", String::from("true")),
        ("GITHUB_ACTIONS", String::from("true")),
        ("GITHUB_EVENT_NAME", job.event.clone()),
        ("GITHUB_JOB", job.name.clone()),
        ("GITHUB_REPOSITORY", job.repository.clone()),
        ("GITHUB_RUN_ATTEMPT", job.run_attempt.to_string()),
        ("GITHUB_RUN_ID", job.run_id.to_string()),
        ("GITHUB_WORKSPACE", work.to_string_lossy().into_owned()),
        ("RUNNER_NAME", settings.name.clone()),
        ("RUNNER_OS", String::from("Linux")),
    ])
}
