//! The severity of a finding about a text.
//!
//! Not here: the findings themselves (`labels`, `schedule`, `config`).

use serde::Serialize;

/// How much a finding matters, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// The author probably meant something else.
    Warning,
    /// The text cannot be used as it is.
    Error,
}

impl Severity {
    /// The word that the command line shows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}
