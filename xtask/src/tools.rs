//! The tools the gate needs beside cargo: rustfmt and clippy from the pinned toolchain,
//! cargo-deny, built once into the cache, and what the tests run: act, the emulators,
//! shellcheck, GitHub's own schemas, and the previous version of the program.
//!
//! Not here: the toolchain's version (`rust-toolchain.toml`), what cargo-deny checks (`deny`), or
//! how the tests' tools are installed (`venv`, `dynamodb_local`, `npm`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::gate::Part;
use crate::place::{Place, succeed};
use crate::{act, agent, dynamodb_local, ec2, ministack, npm, previous, shellcheck};

/// Raising it is a change to review: a new version may judge the same tree differently.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// Components of the toolchain, each with the cargo command it provides.
const COMPONENTS: &[(&str, &str)] = &[("rustfmt", "fmt"), ("clippy", "clippy")];

/// What the tests run: the variable that names each tool to them, and where it is.
pub(crate) type TestTools = Vec<(&'static str, PathBuf)>;

/// Installs every tool that a part of the gate needs and that is missing, but for what its tests run.
pub(crate) fn install(place: &Place, part: Part) -> Result<()> {
    for (component, command) in COMPONENTS {
        if !answers(place.command("cargo").args([command, "--version"])) {
            succeed(place.command("rustup").args(["component", "add", component]))
                .with_context(|| format!("could not add the toolchain's {component}"))?;
        }
    }
    if part == Part::Deep {
        cargo_deny(place)?;
        agent::tools(place)?;
    }
    Ok(())
}

/// What the tests run, by the variable that tells them where it is; installs what is missing.
pub(crate) fn for_tests(place: &Place, part: Part) -> Result<TestTools> {
    let mut tools =
        vec![(act::VARIABLE, act::TOOL.program(place)?), (npm::VARIABLE, npm::directory(place)?)];
    if part == Part::Deep {
        tools.extend([
            (ministack::VARIABLE, ministack::TOOL.program(place)?),
            (ec2::VARIABLE, ec2::TOOL.program(place)?),
            (shellcheck::VARIABLE, shellcheck::TOOL.program(place)?),
            (previous::VARIABLE, previous::program(place)?),
        ]);
        tools.extend(dynamodb_local::program(place)?.map(|path| (dynamodb_local::VARIABLE, path)));
    }
    Ok(tools)
}

/// The path of cargo-deny at our version, building it first if it is not there.
pub(crate) fn cargo_deny(place: &Place) -> Result<PathBuf> {
    let root = place.cache.join(format!("tools/cargo-deny-{CARGO_DENY_VERSION}"));
    let program = root.join("bin/cargo-deny");
    if !is_at_our_version(&program) {
        eprintln!("tools: building cargo-deny {CARGO_DENY_VERSION}, once");
        let mut install = place.command("cargo");
        install
            .args(["install", "cargo-deny", "--locked", "--force", "--version"])
            .args([CARGO_DENY_VERSION, "--root"])
            .arg(&root)
            // Cargo then builds in a temporary directory and removes it.
            .env_remove("CARGO_TARGET_DIR");
        succeed(&mut install).context("could not build cargo-deny")?;
    }
    Ok(program)
}

fn is_at_our_version(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).trim() == format!("cargo-deny {CARGO_DENY_VERSION}")
    })
}

/// Whether a command can be started and succeeds; it says nothing.
pub(crate) fn answers(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_not_at_our_version() {
        assert!(!is_at_our_version(Path::new("/no/such/program")));
    }

    #[test]
    fn another_program_is_not_at_our_version() {
        assert!(!is_at_our_version(Path::new("cargo")));
        assert!(answers(Command::new("cargo").arg("--version")));
    }
}
