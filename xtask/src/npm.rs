//! GitHub's own schemas and examples, and a proxy that validates traffic against them, for the
//! conformance tests of `bullpen-github`.
//!
//! They are npm packages at locked versions, installed into the cache, once. A set is *ready* when
//! the lock file beside it equals the repository's; that file is copied last, so that a killed run
//! leaves none.
//!
//! Not here: the tests (`crates/github/tests/conformance`).

use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::debian;
use crate::place::{Place, succeed};
use crate::tools::answers;

/// The variable that names the directory to tests.
pub(crate) const VARIABLE: &str = "BULLPEN_CONFORMANCE";

/// The directory of the manifest and the lock file.
const SOURCE: &str = "crates/github/conformance";
const MANIFEST: &str = "package.json";
const LOCK: &str = "package-lock.json";
const READY: &str = "ready.json";
const NODE_LEAST: u32 = 20;
const DEBIAN_PACKAGES: &[&str] = &["nodejs", "npm"];

/// The directory with the packages; installs missing packages first.
pub(crate) fn directory(place: &Place) -> Result<PathBuf> {
    let source = place.root.join(SOURCE);
    let lock = std::fs::read(source.join(LOCK)).context("could not read the lock file")?;
    let root = place.cache.join(format!("tools/conformance-{:016x}", digest(&lock)));
    node(place)?;
    if !is_ready(&source, &root) {
        eprintln!("tools: installing GitHub's schemas and a validating proxy, once");
        install(place, &source, &root)?;
    }
    Ok(root)
}

/// A digest of the lock file, so that clones with other versions have other directories.
fn digest(lock: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(lock);
    hasher.finish()
}

fn is_ready(source: &Path, root: &Path) -> bool {
    let installed = std::fs::read(root.join(READY)).ok();
    installed.is_some() && installed == std::fs::read(source.join(LOCK)).ok()
}

fn install(place: &Place, source: &Path, root: &Path) -> Result<()> {
    if root.exists() {
        std::fs::remove_dir_all(root).context("could not remove what an earlier run left")?;
    }
    std::fs::create_dir_all(root)?;
    install_locked(place, source, root).context("could not install the npm packages")?;
    std::fs::copy(source.join(LOCK), root.join(READY)).context("could not say that it is ready")?;
    Ok(())
}

/// Installs the packages of the lock file in `source` into `root`.
pub(crate) fn install_locked(place: &Place, source: &Path, root: &Path) -> Result<()> {
    for file in [MANIFEST, LOCK] {
        std::fs::copy(source.join(file), root.join(file))
            .with_context(|| format!("could not copy {file}"))?;
    }
    succeed(&mut clean_install(place, root))
}

/// Whether `root` was installed by the lock file in `source`.
pub(crate) fn is_locked_alike(source: &Path, root: &Path) -> bool {
    let installed = std::fs::read(root.join(LOCK)).ok();
    installed.is_some() && installed == std::fs::read(source.join(LOCK)).ok()
}

/// `ci` installs exactly the lock file's versions, or fails. No package runs a script meanwhile.
fn clean_install(place: &Place, root: &Path) -> Command {
    let mut npm = place.command("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"])
        .arg(root);
    npm
}

/// Fails unless node and npm are there, or come from the system's packages, and are new enough.
fn node(place: &Place) -> Result<()> {
    if is_new_enough() {
        return Ok(());
    }
    debian::install(place, DEBIAN_PACKAGES)?;
    if !is_new_enough() {
        bail!(
            "GitHub's schemas are checked with Node.js {NODE_LEAST} or newer, and npm\n\n\
             hint: install them (nodejs and npm on Debian)"
        );
    }
    Ok(())
}

fn is_new_enough() -> bool {
    let output = Command::new("node").arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let new = said.is_ok_and(|said| major(&said).is_some_and(|major| major >= NODE_LEAST));
    new && answers(Command::new("npm").arg("--version"))
}

/// The 20 of `v20.20.2`.
fn major(said: &str) -> Option<u32> {
    said.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::shown;

    #[test]
    fn the_command_line_installs_locked_versions_and_runs_nothing() {
        let place = Place::of_test("/r");
        assert_eq!(
            shown(&clean_install(&place, Path::new("/t"))),
            "npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --prefix /t"
        );
    }

    #[test]
    fn a_missing_installation_is_not_ready() {
        let nowhere = Path::new("/no/such/directory");
        assert!(!is_ready(nowhere, nowhere), "nothing is not equal to nothing");
    }

    #[test]
    fn other_versions_have_another_directory() {
        assert_eq!(digest(b"1"), digest(b"1"));
        assert_ne!(digest(b"1"), digest(b"2"));
    }

    #[test]
    fn nodes_version_is_read() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("20.20.2"), None);
        assert_eq!(major(""), None);
    }
}
