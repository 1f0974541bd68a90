//! The previous program, built from its commit: the tests of upgrades run it beside the one under test.
//!
//! Not here: those tests (`crates/bullpen/tests/service/upgrade.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::place::{Place, succeed};

/// The variable that names the program to tests.
pub(crate) const VARIABLE: &str = "BULLPEN_PREVIOUS";

/// The version from which an upgrade must work, and to which a rollback must. There is no release yet, so
/// it is the commit before shortages stopped counting as attempts. A release raises it to the one before.
const COMMIT: &str = "1fb8698a4d8233f02465929a3ce0f49e0d4bfeb8";

/// The program, built into the cache if it is not there.
pub(crate) fn program(place: &Place) -> Result<PathBuf> {
    let root = place.cache.join(format!("previous/{COMMIT}"));
    let program = root.join("bullpen");
    if program.exists() {
        return Ok(program);
    }
    eprintln!("tools: building the previous program, {COMMIT}, once");
    let source = root.join("source");
    fs::create_dir_all(&source).with_context(|| format!("could not make {}", source.display()))?;
    unpack(place, &source)?;
    let target = root.join("target");
    let mut build = place.command("cargo");
    build
        .args(["build", "--locked", "--package", "bullpen"])
        .current_dir(&source)
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "none");
    succeed(&mut build).context("could not build the previous program")?;
    fs::rename(target.join("debug/bullpen"), &program).context("cargo built no program")?;
    // What it was built from is not needed again.
    for directory in [source, target] {
        fs::remove_dir_all(&directory)
            .with_context(|| format!("could not remove {}", directory.display()))?;
    }
    Ok(program)
}

/// Unpacks the commit's files.
fn unpack(place: &Place, source: &Path) -> Result<()> {
    let archive = source.with_extension("tar");
    let mut git = place.command("git");
    git.args(["archive", "--format=tar", COMMIT, "--output"]).arg(&archive);
    succeed(&mut git).context(
        "git has no such commit\n\nhint: a shallow clone lacks it; `git fetch --unshallow` brings it",
    )?;
    let mut tar = place.command("tar");
    tar.arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(source);
    succeed(&mut tar).context("could not unpack the previous program's source")?;
    fs::remove_file(&archive).with_context(|| format!("could not remove {}", archive.display()))
}
