//! What the workflow commands are told: as flags, as `INPUT_*` variables, or not at all.
//!
//! An *input* has one name. `--name` wins over `INPUT_NAME`, and an `INPUT_` variable that is empty
//! was not given. GitHub keeps hyphens in the variable's name, shells cannot, so both spellings are
//! read. Reading is pure: arguments and environment in, checked values out. What is wrong is one
//! line that names the input as it was given, its value, and what is legal; the exit code is 64.
//!
//! Not here: doing what the inputs ask for (`workflow`), or reading the files they name (`files`).

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

/// An input that cannot be used: one line that names it, its value, and what is legal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsageError(String);

impl UsageError {
    /// From the whole line. Line breaks in it become spaces, so that it stays one.
    pub(crate) fn new(line: impl AsRef<str>) -> Self {
        Self(line.as_ref().replace(['\n', '\r'], " "))
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The environment, read once, by the command. What is not UTF-8 is kept with the offending bytes
/// replaced: no input of ours can have them, and a refusal can show the rest.
pub(crate) fn environment() -> Environment {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

#[cfg(test)]
mod tests;
