//! Reading a `runs-on.yml` for the commands that need what it says.
//!
//! Not here: telling everything that is wrong with it (`lint`).

use std::path::Path;

use bullpen_core::config::runs_on::{self, Config};
use bullpen_core::severity::Severity;

/// Why a configuration cannot be used, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// What happened, and where.
    pub(crate) what: String,
    /// What to do.
    pub(crate) hint: Option<String>,
}

impl Unusable {
    /// Without anything to do about it.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None }
    }
}

/// What the file says, if it may be believed, without the pools that may not.
pub(crate) fn load(path: &Path) -> Result<Config, Unusable> {
    let shown = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| Unusable::new(format!("could not read {shown}: {error}")))?;
    judged(&shown.to_string(), &bytes)
}

/// The same of a text that is somewhere else.
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
        let hint = Some(format!("`bullpen lint {shown}` tells all of it"));
        Unusable { what: format!("{shown}:{first}{more}"), hint }
    })
}
