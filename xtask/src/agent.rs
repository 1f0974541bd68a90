//! `cargo xtask agent`: builds the agent of an EC2 instance for a release, as one static file.
//!
//! It is for this machine's architecture. A test checks its dependencies, because every machine
//! downloads it, and it stays in memory beside every job.
//!
//! Not here: the profile (`Cargo.toml`), or its start on an instance (`bullpen_aws::boot`).

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::debian;
use crate::place::{Place, succeed};
use crate::tools::answers;

/// The package and its features.
const BUILD: &[&str] = &["-p", "bullpen-aws", "--no-default-features", "--features", "agent"];
const PROGRAM: &str = "bullpen-agent-ec2";
const PROFILE: &str = "agent";
/// Compiles the little C that TLS needs.
const COMPILER: &str = "musl-gcc";

/// The target whose programs need no library of their machine.
fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Installs the build's missing tools, where we may.
pub(crate) fn tools(place: &Place) -> Result<()> {
    let installed = place.command("rustup").args(["target", "list", "--installed"]).output();
    let installed = installed.context("could not ask rustup for its targets")?;
    if !String::from_utf8_lossy(&installed.stdout).lines().any(|line| line == target()) {
        succeed(place.command("rustup").args(["target", "add", &target()]))?;
    }
    if !answers(Command::new(COMPILER).arg("--version")) {
        debian::install(place, &["musl-tools"])?;
    }
    Ok(())
}

/// Builds it, and prints its size, path and checksum.
pub(crate) fn run(place: &Place) -> Result<()> {
    tools(place)?;
    ensure!(
        answers(Command::new(COMPILER).arg("--version")),
        "{COMPILER} is not there; Debian has it in musl-tools"
    );
    let target = target();
    let mut build = place.command("cargo");
    build.arg("build").args(BUILD).args(["--bin", PROGRAM, "--profile", PROFILE]);
    succeed(build.args(["--target", &target]))?;
    let path: PathBuf = place.target.join(target).join(PROFILE).join(PROGRAM);
    let bytes = path.metadata().with_context(|| format!("there is no {}", path.display()))?.len();
    println!("{bytes} bytes");
    // `<checksum>  <path>`, the form that `sha256sum --check` reads.
    succeed(place.command("sha256sum").arg(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Crates that the agent must not link: another store, or the rest of the SDK.
    const NEVER: &[&str] = &[
        "aws-sdk-ec2",
        "aws-sdk-iam",
        "aws-sdk-servicequotas",
        "aws-sdk-sqs",
        "aws-sdk-sso",
        "bullpen-embedded",
        "bullpen-engine",
        "bullpen-github",
        "bullpen-sim",
        "libsqlite3-sys",
        "rusqlite",
    ];

    #[test]
    fn the_agent_of_an_instance_links_neither_a_database_nor_the_rest_of_the_sdk() {
        let mut tree = Command::new(env!("CARGO"));
        tree.current_dir(env!("CARGO_MANIFEST_DIR")).arg("tree").args(BUILD);
        tree.args(["--edges", "normal", "--prefix", "none", "--locked"]);
        let output = tree.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let linked: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(
            linked.contains(&"aws-sdk-dynamodb") && linked.contains(&"bullpen-agent"),
            "{text}"
        );
        for never in NEVER {
            assert!(!linked.contains(never), "{never} is linked");
        }
    }
}
