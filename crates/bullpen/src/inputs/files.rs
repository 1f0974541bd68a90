//! Reads the files that inputs name: `runs-on.yml`, `bullpen.toml`, an App's key, a token.
//!
//! Not here: the configuration's formats (`bullpen_core::config`).

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use bullpen_core::config::stack::SecretRef;
use bullpen_core::config::{Config, STACK_BYTES_MAX, Stack, stack};
use bullpen_core::mailbox::Secret;
use bullpen_core::severity::Severity;

use super::common::StackInputs;
use super::github::{AppKey, PEM};
use super::given::Given;
use super::values::secret_word;
use super::{Environment, UsageError};
use crate::config_file;

/// The configuration in `runs-on.yml`, if the inputs name one.
pub(crate) fn config(inputs: &StackInputs) -> Result<Option<Config>, UsageError> {
    let load = |path| config_file::load(path).map_err(|error| UsageError::new(error.what));
    inputs.config.as_deref().map(load).transpose()
}

/// The settings in `bullpen.toml` and the environment, with defaults.
pub(crate) fn stack(inputs: &StackInputs, environment: &Environment) -> Result<Stack, UsageError> {
    let path = inputs.stack.as_deref();
    let bytes = path.map_or_else(|| Ok(Vec::new()), read)?;
    let (stack, findings) = stack::read(&bytes, environment).into_parts();
    stack.ok_or_else(|| {
        let shown = path.unwrap_or(Path::new("bullpen.toml")).display();
        let error = findings.iter().find(|finding| finding.severity == Severity::Error);
        let error = error.map_or_else(String::new, ToString::to_string);
        UsageError::new(format!("{shown}:{error}"))
    })
}

/// An App's key, from the input or from its file.
pub(crate) fn app_key(key: &AppKey) -> Result<Secret, UsageError> {
    match key {
        AppKey::Text(secret) => Ok(secret.clone()),
        AppKey::File(path) => {
            let text = String::from_utf8(read(path)?).ok();
            let key = text.as_deref().map(str::trim).filter(|text| text.starts_with(PEM));
            key.map(Secret::new).ok_or_else(|| {
                UsageError::new(format!("--app-key: {} is not a key in PEM", path.display()))
            })
        }
    }
}

/// The token in the file that `--github-token-file` names.
pub(crate) fn token(path: &Path) -> Result<Secret, UsageError> {
    let text = String::from_utf8(read(path)?).unwrap_or_default();
    let given = Given { place: path.display().to_string(), text };
    secret_word(&given)
}

/// A secret from its place in `bullpen.toml`; `key` is its key there, for errors.
pub(crate) fn secret(
    key: &str,
    place: &SecretRef,
    environment: &Environment,
) -> Result<Secret, UsageError> {
    let refuse = |why: String| UsageError::new(format!("{key}: {why}"));
    let text = match place {
        SecretRef::Env(name) => environment
            .get(name)
            .cloned()
            .ok_or_else(|| refuse(format!("the variable {name} is not set")))?,
        SecretRef::File(path) => {
            let bytes = read(Path::new(path))?;
            String::from_utf8(bytes).map_err(|_| refuse(format!("{path} is not text")))?
        }
        SecretRef::Arn(arn) => {
            let why = "cannot be fetched by this build; hand it in as env:NAME or file:/path";
            return Err(refuse(format!("{arn} {why}")));
        }
    };
    match text.trim() {
        "" => Err(refuse(format!("{place} is empty"))),
        text => Ok(Secret::new(text)),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, UsageError> {
    text(path, STACK_BYTES_MAX)
}

/// Reads a file, at most one byte more than the limit, so that the parser notices a file that is too
/// long. Refuses what is no file: a pipe or a terminal would make the command wait.
pub(crate) fn text(path: &Path, bytes_max: usize) -> Result<Vec<u8>, UsageError> {
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    let end = std::fs::metadata(path).and_then(|found| {
        if !found.is_file() {
            let kind = if found.is_dir() { "a directory" } else { "a pipe or a device" };
            return Err(io::Error::other(format!("it is {kind}, not a file")));
        }
        File::open(path)?.take(most).read_to_end(&mut bytes)
    });
    end.map_err(|error| UsageError::new(format!("could not read {}: {error}", path.display())))?;
    Ok(bytes)
}
