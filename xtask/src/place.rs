//! Where the gate runs: the repository's root, the cache it keeps between clones, and the one way
//! it starts other programs.
//!
//! The *cache* is `$XDG_CACHE_HOME/bullpen` or `$HOME/.cache/bullpen`. Build products go to
//! `target` in it unless `CARGO_TARGET_DIR` is set, so that fresh clones compile the dependencies
//! once. `xtask` itself is built by `cargo run` before any of this, into the clone's own `target`.
//!
//! Not here: what is run (`steps`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The directories one run of the gate works in.
#[derive(Debug)]
pub(crate) struct Place {
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// Kept between clones and between runs.
    pub(crate) cache: PathBuf,
    /// Cargo's target directory.
    pub(crate) target: PathBuf,
    /// Whether a CI system runs us: the next build is of a fresh clone, and no person edits the tree.
    pub(crate) ci: bool,
}

impl Place {
    /// Reads the environment, once.
    pub(crate) fn find() -> Result<Self> {
        // Cargo's answer of now, not of compile time: clones may share one target directory.
        let manifest = variable("CARGO_MANIFEST_DIR").context("xtask is run by `cargo xtask`")?;
        let root = Path::new(&manifest).parent().context("xtask lies in the repository's root")?;
        let root = root.to_owned();
        let cache = cache_home(variable("XDG_CACHE_HOME"), variable("HOME"))
            .context("neither XDG_CACHE_HOME nor HOME is set to an absolute path")?
            .join("bullpen");
        let target =
            variable("CARGO_TARGET_DIR").map_or_else(|| cache.join("target"), PathBuf::from);
        Ok(Self { root, cache, target, ci: variable("CI").is_some() })
    }

    /// A command that starts in the root and builds into the target directory.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_our_package(name)) {
            command.env_remove(name);
        }
        if self.ci {
            // Incremental files cost time and space to write and a fresh clone never reads them.
            command.env("CARGO_INCREMENTAL", "0");
        }
        command
    }

    /// Runs cargo and fails if it does.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Result<()> {
        succeed(self.command("cargo").args(arguments))
    }

    /// What git prints, as text.
    pub(crate) fn git(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.command("git");
        command.args(arguments);
        let output = command.output().with_context(|| format!("could not start {command:?}"))?;
        ensure!(
            output.status.success(),
            "{command:?} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        String::from_utf8(output.stdout).context("git printed a name that is not UTF-8")
    }
}

/// Runs a command with our own output as its output, and fails if it does.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| format!("could not start `{shown}`"))?;
    ensure!(status.success(), "`{shown}` failed ({status})");
    Ok(())
}

/// An environment variable that is set and not empty.
#[expect(
    clippy::disallowed_methods,
    reason = "the gate is a command of its own, not a crate of the product"
)]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// What `cargo run` says of xtask. A cargo that inherits it builds anew, for every clone, what looks at
/// the same names when it is built: ring does, and TLS with all that stands on it follows.
fn is_of_our_package(name: &OsStr) -> bool {
    let about = ["CARGO_PKG_", "CARGO_MANIFEST_"];
    name.to_str().is_some_and(|name| about.iter().any(|about| name.starts_with(about)))
}

/// The XDG rule: a relative path is as good as none.
fn cache_home(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    xdg.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".cache")))
}

/// The command as one would type it, without its environment.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
impl Place {
    /// A place under `root` that need not exist.
    pub(crate) fn of_test(root: &str) -> Self {
        let root = PathBuf::from(root);
        Self { cache: root.join("cache"), target: root.join("target"), root, ci: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_under_xdg_then_home_then_nowhere() {
        let path = |text: &str| Some(OsString::from(text));
        assert_eq!(cache_home(path("/x"), path("/h")), Some(PathBuf::from("/x")));
        assert_eq!(cache_home(path("x"), path("/h")), Some(PathBuf::from("/h/.cache")));
        assert_eq!(cache_home(None, path("/h")), Some(PathBuf::from("/h/.cache")));
        assert_eq!(cache_home(None, None), None);
    }

    #[test]
    fn what_cargo_says_of_xtask_is_handed_to_nobody() {
        let is_of_ours = |name: &str| is_of_our_package(OsStr::new(name));
        assert!(is_of_ours("CARGO_PKG_NAME") && is_of_ours("CARGO_MANIFEST_DIR"));
        assert!(
            !is_of_ours("CARGO_HOME") && !is_of_ours("CARGO_TARGET_DIR") && !is_of_ours("PATH")
        );
        let command = Place::of_test("/x").command("cargo");
        assert!(command.get_envs().any(|it| it == (OsStr::new("CARGO_MANIFEST_DIR"), None)));
    }

    #[test]
    fn a_failing_command_is_named_as_one_would_type_it() {
        let error = succeed(Command::new("false").args(["some", "--flag"])).unwrap_err();
        assert!(error.to_string().starts_with("`false some --flag` failed"), "{error}");
    }
}
