//! Reads a `runs-on.yml` for the commands that need its configuration.
//!
//! Not here: printing all its findings (`lint`).

use std::path::Path;

use bullpen_core::config::RUNS_ON_BYTES_MAX;
use bullpen_core::config::runs_on::{self, Config};
use bullpen_core::severity::Severity;

use crate::inputs::files;

/// Why a configuration cannot be used, with advice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// The error and its place.
    pub(crate) what: String,
    /// The advice.
    pub(crate) hint: Option<String>,
}

impl Unusable {
    /// An error without advice.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None }
    }
}

/// Reads the configuration in a file, without its broken pools.
pub(crate) fn load(path: &Path) -> Result<Config, Unusable> {
    let bytes = files::text(path, RUNS_ON_BYTES_MAX);
    let bytes = bytes.map_err(|error| Unusable::new(error.to_string()))?;
    judged(&path.display().to_string(), &bytes)
}

/// Reads the configuration in a text. `shown` is its place, for errors.
pub(crate) fn judged(shown: &str, bytes: &[u8]) -> Result<Config, Unusable> {
    let (config, findings) = runs_on::read(bytes).into_parts();
    config.ok_or_else(|| {
        let mut errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
        let first = errors.next().map_or_else(String::new, |error| {
            format!("{}:{}: {}", error.mark.line, error.mark.column, error.message)
        });
        let more = match errors.count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let hint = Some(format!("`bullpen lint {shown}` shows every error"));
        Unusable { what: format!("{shown}:{first}{more}"), hint }
    })
}
