//! Reads the inputs of the workflow commands from flags and from `INPUT_*` variables.
//!
//! `--name` wins over `INPUT_NAME`, and an empty variable counts as absent. GitHub keeps hyphens in
//! variables' names and shells cannot, so both spellings are read. Reading is pure: arguments and
//! environment in, checked values out. A wrong input gives one line with its name as the user gave
//! it, its value, and the legal values; the exit code is 64.
//!
//! Not here: the commands (`workflow`), or reading the files that inputs name (`files`).

mod arguments;
mod classes;
mod common;
pub(crate) mod files;
mod github;
mod given;
mod identity;
mod origin;
mod outputs;
mod provision;
mod refresh;
mod release;
mod values;

use std::collections::BTreeMap;
use std::fmt;

pub(crate) use arguments::refuse_secrets;
pub(crate) use classes::runner_classes;
#[cfg(any(feature = "aws", test))]
pub(crate) use common::Fleet;
pub(crate) use common::{CommonArgs, CommonInputs, Engine, StackArgs, StackInputs};
pub(crate) use github::{AppKey, Credential, GithubArgs, GithubInputs, Scope};
pub(crate) use identity::IdentityArgs;
pub(crate) use origin::origin_of_run;
pub(crate) use outputs::{OutputFiles, Provisioned, masks};
pub(crate) use provision::{ProvisionArgs, ProvisionInputs};
pub(crate) use refresh::{RefreshArgs, RefreshInputs};
pub(crate) use release::{ReleaseArgs, ReleaseInputs, ReleaseTarget};

/// The variables of the environment, by name.
pub(crate) type Environment = BTreeMap<String, String>;

/// A wrong input: one line with its name, its value and the legal values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsageError(String);

impl UsageError {
    /// The error with this line. Line breaks in it become spaces.
    pub(crate) fn new(line: impl AsRef<str>) -> Self {
        Self(line.as_ref().replace(['\n', '\r'], " "))
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the environment, once per command. Bytes that are not UTF-8 are replaced: no valid input
/// has them, and an error can show the rest.
pub(crate) fn environment() -> Environment {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

#[cfg(test)]
mod tests;
