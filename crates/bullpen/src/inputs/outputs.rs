//! What a workflow's step gets back: `GITHUB_OUTPUT`, `GITHUB_STEP_SUMMARY`, and masks for secrets.
//!
//! Not here: what is printed for people (`render`), or running anything.

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

/// Every output of a step, in the order they are written.
pub(crate) const NAMES: [&str; 8] =
    ["label", "request", "requested", "reused", "started", "created", "instances", "timings"];

/// What came of a `provision`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provisioned {
    /// Which request.
    pub(crate) request: RequestId,
    /// The label that jobs are to name.
    pub(crate) label: String,
    /// How many machines were asked for.
    pub(crate) requested: u32,
    /// How many were idle.
    pub(crate) reused: u32,
    /// How many were stopped.
    pub(crate) started: u32,
    /// How many are new.
    pub(crate) created: u32,
    /// All of them.
    pub(crate) instances: Vec<InstanceId>,
    /// How long each step took, in their order.
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
        // A summary is for all who can read the repository; a label is for the run's own jobs.
        for (name, value) in self.pairs().into_iter().filter(|(name, _)| *name != "label") {
            let value = value.replace('|', "\\|").replace(['\n', '\r'], " ");
            let _ = writeln!(text, "| {name} | `{value}` |");
        }
        text.push('\n');
        text
    }
}

/// The files that a step writes to; none outside of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputFiles {
    output: Option<PathBuf>,
    summary: Option<PathBuf>,
}

impl OutputFiles {
    /// From the environment.
    pub(crate) fn of(environment: &Environment) -> Self {
        let reader = Reader::new(environment);
        let path = |name| reader.variable(name).map(|given| PathBuf::from(given.text));
        Self { output: path("GITHUB_OUTPUT"), summary: path("GITHUB_STEP_SUMMARY") }
    }

    /// Writes which request it is, before anything is done: a step that is cancelled later has then
    /// told `release` what to give back.
    pub(crate) fn begin(&self, request: &RequestId) -> io::Result<()> {
        append(self.output.as_deref(), &blocks(&[("request", request.to_string())]))
    }

    /// Writes the label, once it is stored, and before any machine is asked for.
    pub(crate) fn begun(&self, label: &str) -> io::Result<()> {
        append(self.output.as_deref(), &blocks(&[("label", label.to_owned())]))
    }

    /// Writes what came of it.
    pub(crate) fn finish(&self, provisioned: &Provisioned) -> io::Result<()> {
        append(self.output.as_deref(), &blocks(&provisioned.pairs()))?;
        append(self.summary.as_deref(), &provisioned.summary())
    }
}

fn append(path: Option<&Path>, text: &str) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    OpenOptions::new().create(true).append(true).open(path)?.write_all(text.as_bytes())
}

/// Values as `name<<delimiter` blocks. A value can hold any line but its delimiter, so one is
/// chosen that is nowhere in it.
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
