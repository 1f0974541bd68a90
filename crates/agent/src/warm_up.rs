//! The warm-up: steps in their order, as data; each at most once per machine or once per boot.
//!
//! It is strict: the first step that fails, or that is still running when the time for all of them
//! is over, ends the warm-up, and the tail of its output is the report.
//!
//! Not here: how a step's program is run ([`crate::scripts`]).

use std::path::PathBuf;
use std::time::Duration;

use bullpen_core::ports::Clock;

use crate::host::{Notebook, Scripts};
use crate::notes::Notes;

/// How often a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// Once in the machine's life, however often it boots.
    OncePerMachine,
    /// Once in every boot.
    EachBoot,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is called in notes and reports; unique.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How often.
    pub often: Frequency,
}

impl Step {
    /// A script of a user's, in bash that stops at the first command that fails, in a pipe too, and
    /// at the first variable that is not set: a script that goes on after a failure would be called
    /// a success.
    pub fn bash(name: &str, script: &std::path::Path, often: Frequency) -> Self {
        let arguments = ["-e", "-u", "-o", "pipefail"].map(String::from);
        let script = script.to_string_lossy().into_owned();
        Self {
            name: name.to_owned(),
            program: PathBuf::from("/bin/bash"),
            arguments: arguments.into_iter().chain([script]).collect(),
            often,
        }
    }
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{how}\n{tail}")]
pub struct StepFailed {
    /// Its exit, or why it could not run.
    pub how: String,
    /// The tail of its output.
    pub tail: String,
}

/// Runs what is left to run. `within` bounds all steps together. The error is the report.
pub(crate) async fn warm_up<S: Scripts, N: Notebook, C: Clock>(
    steps: &[Step],
    within: Duration,
    notes: Notes,
    (scripts, notebook, clock): (&S, &N, &C),
) -> Result<(), String> {
    let mut notes = notes;
    if notes.warm {
        return Ok(());
    }
    let until = clock.monotonic() + within;
    for step in steps {
        let once = step.often == Frequency::OncePerMachine;
        if once && notes.installed.contains(&step.name) {
            continue;
        }
        let left = until.saturating_sub(clock.monotonic());
        let ran = tokio::select! {
            biased;
            ran = scripts.run(step) => ran,
            () = clock.sleep(left) => {
                let how = format!("did not end within {} s", within.as_secs());
                Err(StepFailed { how, tail: scripts.end(step).await })
            }
        };
        ran.map_err(|failed| format!("{}: {failed}", step.name))?;
        if once {
            notes.installed.push(step.name.clone());
            save(notebook, &notes);
        }
    }
    notes.warm = true;
    save(notebook, &notes);
    Ok(())
}

/// Notes that cannot be written cost a repeated step after a restart, and no more.
fn save<N: Notebook>(notebook: &N, notes: &Notes) {
    // What else is noted may have moved on since `notes` was loaded.
    let stored = notebook.load().filter(|now| now.boot == notes.boot);
    let beats = stored.as_ref().map_or(0, |now| now.beats).max(notes.beats);
    let clock_ahead = stored.map_or(notes.clock_ahead, |now| now.clock_ahead);
    let notes = Notes { beats, clock_ahead, ..notes.clone() };
    if let Err(error) = notebook.save(&notes) {
        tracing::warn!(%error, "could not write the agent's notes");
    }
}
