//! Writes the results of a workflow's step: `GITHUB_OUTPUT`, `GITHUB_STEP_SUMMARY`, secrets' masks.
//!
//! Not here: printing for people (`render`).

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bullpen_core::ids::{InstanceId, RequestId};
use bullpen_core::mailbox::Secret;
use serde_json::{Map, Value, json};

use super::Environment;
use super::given::Reader;

/// The names of a step's outputs, in the order of the file.
pub(crate) const NAMES: [&str; 8] =
    ["label", "request", "requested", "reused", "started", "created", "instances", "timings"];

/// The result of `provision`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provisioned {
    /// The request's id.
    pub(crate) request: RequestId,
    /// The label for jobs.
    pub(crate) label: String,
    /// The number of requested machines.
    pub(crate) requested: u32,
    /// The number of machines that were idle.
    pub(crate) reused: u32,
    /// The number of machines that were stopped.
    pub(crate) started: u32,
    /// The number of new machines.
    pub(crate) created: u32,
    /// All machines.
    pub(crate) instances: Vec<InstanceId>,
    /// The duration of each step, in order.
    pub(crate) timings: Vec<(String, Duration)>,
}

impl Provisioned {
    /// Every output with its value.
    fn pairs(&self) -> [(&'static str, String); NAMES.len()] {
        let millis = |took: Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let timings = self
            .timings
            .iter()
            .map(|(step, took)| (format!("{step}_ms"), Value::from(millis(*took))));
        let values = [
            self.label.clone(),
            self.request.to_string(),
            self.requested.to_string(),
            self.reused.to_string(),
            self.started.to_string(),
            self.created.to_string(),
            json!(self.instances).to_string(),
            Value::Object(timings.collect::<Map<_, _>>()).to_string(),
        ];
        let mut values = values.into_iter();
        NAMES.map(|name| (name, values.next().unwrap_or_default()))
    }

    /// The step's summary: a short table.
    fn summary(&self) -> String {
        let mut text = String::from("### Bullpen\n\n| | |\n|---|---|\n");
        // All readers of the repository can read a summary, and only the run's jobs may have the
        // label.
        for (name, value) in self.pairs().into_iter().filter(|(name, _)| *name != "label") {
            let value = value.replace('|', "\\|").replace(['\n', '\r'], " ");
            let _ = writeln!(text, "| {name} | `{value}` |");
        }
        text.push('\n');
        text
    }
}

/// The files that a step writes to; `None` outside of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputFiles {
    output: Option<PathBuf>,
    summary: Option<PathBuf>,
}

impl OutputFiles {
    /// The files that the environment names.
    pub(crate) fn of(environment: &Environment) -> Self {
        let reader = Reader::new(environment);
        let path = |name| reader.variable(name).map(|given| PathBuf::from(given.text));
        Self { output: path("GITHUB_OUTPUT"), summary: path("GITHUB_STEP_SUMMARY") }
    }

    /// Writes the request's id, before the command does anything: if GitHub cancels the step later,
    /// `release` knows the request.
    pub(crate) fn begin(&self, request: &RequestId) -> io::Result<()> {
        append(self.output.as_deref(), &blocks(&[("request", request.to_string())]))
    }

    /// Writes the label, after it is stored and before the engine claims or launches a machine.
    pub(crate) fn begun(&self, label: &str) -> io::Result<()> {
        append(self.output.as_deref(), &blocks(&[("label", label.to_owned())]))
    }

    /// Writes all outputs and the summary.
    pub(crate) fn finish(&self, provisioned: &Provisioned) -> io::Result<()> {
        append(self.output.as_deref(), &blocks(&provisioned.pairs()))?;
        append(self.summary.as_deref(), &provisioned.summary())
    }
}

fn append(path: Option<&Path>, text: &str) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    OpenOptions::new().create(true).append(true).open(path)?.write_all(text.as_bytes())
}

/// Formats values as `name<<delimiter` blocks, each with a delimiter that its value does not
/// contain.
fn blocks(pairs: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        let mut delimiter = String::from("BULLPEN");
        while value.contains(&delimiter) {
            delimiter.push('_');
        }
        let _ = writeln!(text, "{name}<<{delimiter}\n{value}\n{delimiter}");
    }
    text
}

/// The lines that make the runner hide these secrets; none outside of GitHub Actions.
pub(crate) fn masks(secrets: &[&Secret], environment: &Environment) -> Vec<String> {
    if environment.get("GITHUB_ACTIONS").is_none_or(|value| value != "true") {
        return Vec::new();
    }
    let escaped = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    secrets.iter().map(|secret| format!("::add-mask::{}", escaped(secret.reveal()))).collect()
}

#[cfg(test)]
mod tests;
