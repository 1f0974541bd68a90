//! An input's value with the name under which the user gave it, and the lookup of inputs.
//!
//! Not here: parsing the value (`values`).

use super::{Environment, UsageError};

/// The characters of a refused value that an error shows: a script must not fill the log.
const SHOWN_CHARS_MAX: usize = 64;

/// A value, and the name under which the user gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// `--instance-count`, `INPUT_INSTANCE-COUNT` or `GITHUB_REPOSITORY`.
    pub(crate) place: String,
    /// The value, untouched.
    pub(crate) text: String,
}

impl Given {
    /// The value without the white space around it: YAML's block texts end with a line break.
    pub(crate) fn word(&self) -> &str {
        self.text.trim()
    }

    /// Whether it is an argument, which other users can read.
    pub(crate) fn is_argument(&self) -> bool {
        self.place.starts_with("--")
    }

    /// An error that shows the value; `legal` follows "is not".
    pub(crate) fn refuse(&self, legal: impl AsRef<str>) -> UsageError {
        UsageError::new(format!("{}: {} is not {}", self.place, shown(&self.text), legal.as_ref()))
    }

    /// An error without the value, which may be secret.
    pub(crate) fn refuse_unseen(&self, why: &str) -> UsageError {
        UsageError::new(format!("{}: {why}", self.place))
    }
}

/// A value in quotes, on one line, and short.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{more}")
}

/// Looks inputs up in flags and variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    environment: &'a Environment,
}

impl<'a> Reader<'a> {
    /// A reader of this environment.
    pub(crate) const fn new(environment: &'a Environment) -> Self {
        Self { environment }
    }

    /// The input's flag, else its `INPUT_` variable.
    pub(crate) fn input(self, name: &str, flag: Option<&String>) -> Option<Given> {
        let flag = flag.map(|text| Given { place: format!("--{name}"), text: text.clone() });
        flag.or_else(|| self.variable_of(name))
    }

    /// The input, else this other variable.
    pub(crate) fn input_or(
        self,
        name: &str,
        flag: Option<&String>,
        variable: &str,
    ) -> Option<Given> {
        self.input(name, flag).or_else(|| self.variable(variable))
    }

    /// The input's `INPUT_` variable, with hyphens as GitHub sets it, or with underscores.
    pub(crate) fn variable_of(self, name: &str) -> Option<Given> {
        let kept = format!("INPUT_{}", name.to_uppercase());
        self.variable(&kept).or_else(|| self.variable(&kept.replace('-', "_")))
    }

    /// A variable that is set and not empty.
    pub(crate) fn variable(self, name: &str) -> Option<Given> {
        let text = self.environment.get(name).filter(|text| !text.is_empty())?;
        Some(Given { place: name.to_owned(), text: text.clone() })
    }
}
