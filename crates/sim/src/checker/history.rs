//! The event lines of one run: the last lines about each machine, all lines if a trace was
//! requested, and a digest of all lines, which compares two runs of one seed.
//!
//! Not here: judging the events.

use std::collections::{BTreeMap, VecDeque};

use bullpen_core::ids::InstanceId;

use crate::dice::fnv1a;

/// Lines kept per machine.
const LINES_MAX: usize = 40;

/// The lines of one run.
#[derive(Debug, Default)]
pub(super) struct History {
    of: BTreeMap<InstanceId, VecDeque<String>>,
    trace: Option<Vec<String>>,
    digest: u64,
}

impl History {
    /// Keeps every line if `trace`.
    pub(super) fn new(trace: bool) -> Self {
        Self { trace: trace.then(Vec::new), ..Self::default() }
    }

    /// Adds a line about the world.
    pub(super) fn keep(&mut self, line: &str) {
        self.digest = fnv1a(line.as_bytes()) ^ self.digest.rotate_left(5);
        if let Some(trace) = &mut self.trace {
            trace.push(line.to_owned());
        }
    }

    /// Adds a line about a machine.
    pub(super) fn note(&mut self, id: &InstanceId, line: &str) {
        self.keep(line);
        let lines = self.of.entry(id.clone()).or_default();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    /// The last lines about a machine.
    pub(super) fn about(&self, id: &InstanceId) -> Vec<String> {
        self.of.get(id).cloned().unwrap_or_default().into()
    }

    /// Equal for equal runs.
    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Every line, if a trace was requested.
    pub(super) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }
}
