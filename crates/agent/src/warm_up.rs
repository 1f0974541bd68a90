//! Runs the warm-up: steps in order, each at most once per machine or once per boot.
//!
//! The first step that fails ends the warm-up, and so does a step that still runs when the time for
//! all steps is over. The tail of its output is the report.
//!
//! Not here: running a step's program ([`crate::scripts`]).

use std::path::PathBuf;
use std::time::Duration;

use bullpen_core::ports::Clock;

use crate::host::{Notebook, Scripts};
use crate::notes::Notes;

/// How often a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// Once in the machine's life, also if it boots again.
    OncePerMachine,
    /// Once in every boot.
    EachBoot,
}

/// One step of the warm-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its unique name, for notes and reports.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How often it runs.
    pub often: Frequency,
}

impl Step {
    /// Runs a user's script in bash that stops at the first failing command, also in a pipe, and at
    /// the first unset variable: a script that went on after a failure would count as a success.
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
    /// Its exit status, or why it could not run.
    pub how: String,
    /// The tail of its output.
    pub tail: String,
}

/// Runs the remaining steps. `within` bounds all steps together. The error is the report.
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

/// Saves the notes. A failed write only costs a repeated step after a restart.
fn save<N: Notebook>(notebook: &N, notes: &Notes) {
    // The agent's loop may have changed the other notes since `notes` was loaded.
    let stored = notebook.load().filter(|now| now.boot == notes.boot);
    let beats = stored.as_ref().map_or(0, |now| now.beats).max(notes.beats);
    let clock_ahead = stored.map_or(notes.clock_ahead, |now| now.clock_ahead);
    let notes = Notes { beats, clock_ahead, ..notes.clone() };
    if let Err(error) = notebook.save(&notes) {
        tracing::warn!(%error, "could not write agent notes");
    }
}
