//! How much a finding about a text matters.
//!
//! Not here: the findings themselves; each text has its own.

use serde::Serialize;

/// From what is only worth knowing to what must be put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Probably not what was meant.
    Warning,
    /// Cannot be used as it is.
    Error,
}

impl Severity {
    /// As it is written on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}
