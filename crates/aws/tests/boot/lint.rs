//! Shell scripts pass shellcheck: the boot script in every shape, and the scripts of the
//! repository.
//!
//! Not here: running the boot script (the other modules).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bullpen_agent::machine::FETCH;
use bullpen_aws::boot::{BootPlan, render};
use bullpen_core::download::Download;

use crate::plan;

/// The scripts that download; they run with the functions of `FETCH` before them.
const FETCHING: &[&str] =
    &["crates/agent/src/machine/download.sh", "crates/agent/src/machine/fetched.sh"];

/// The other scripts of the repository, from its root.
const SCRIPTS: &[&str] = &[
    ".ci/run",
    "crates/agent/src/machine/guard.sh",
    "crates/agent/tests/processes/Runner.Listener",
    "crates/aws/tests/machine/hook",
];

fn shellcheck(scripts: &[PathBuf]) {
    let program =
        bullpen_faulty::tool("BULLPEN_SHELLCHECK", "shellcheck-", Path::new("bin/shellcheck"))
            .expect("shellcheck not found; `cargo xtask tools` installs it, once");
    let output = Command::new(program).arg("--norc").args(scripts).output().expect("shellcheck");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Plans with and without each optional part.
fn shapes() -> Vec<BootPlan> {
    let fetched = Download { url: "s3://bucket/it's".to_owned(), sha256: "0".repeat(64) };
    let mut shapes = Vec::new();
    for agent in [None, Some(fetched)] {
        for user in [None, Some("worker".to_owned())] {
            let (agent, user, sudo) = (agent.clone(), user.clone(), user.is_some());
            let payload = "{\"a\": \"$b `c`\"}".to_owned();
            shapes.push(BootPlan { agent, user, sudo, payload, ..plan() });
        }
    }
    shapes
}

#[test]
fn the_boot_script_is_clean_in_every_shape() {
    let directory = tempfile::tempdir().unwrap();
    let write = |(number, plan): (usize, BootPlan)| {
        let path = directory.path().join(format!("{number}.sh"));
        fs::write(&path, render(&plan).unwrap()).unwrap();
        path
    };
    let scripts: Vec<PathBuf> = shapes().into_iter().enumerate().map(write).collect();
    shellcheck(&scripts);
}

#[test]
fn the_scripts_of_the_repository_are_clean() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = tempfile::tempdir().unwrap();
    let whole = |(number, script): (usize, &&str)| {
        let path = directory.path().join(format!("{number}.sh"));
        let text = fs::read_to_string(root.join(script)).unwrap();
        fs::write(&path, format!("#!/bin/bash\npatience=1\n{FETCH}{text}")).unwrap();
        path
    };
    let scripts = SCRIPTS.iter().map(|script| root.join(script));
    let scripts: Vec<PathBuf> = scripts.chain(FETCHING.iter().enumerate().map(whole)).collect();
    shellcheck(&scripts);
}
