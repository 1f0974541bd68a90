//! Keeping jobs from the instance's metadata, where their user may not become root.
//!
//! A user that may become root could lift the rule, so none is made for it. Containers in a network of
//! their own are kept away by the hop limit of the instance's metadata; but whoever may use Docker is as
//! good as root, and can have a container in the machine's network.
//!
//! Not here: the hop limit (the launch template).

use std::fs;
use std::io;
use std::path::Path;

use crate::runner::user::User;
use crate::warm_up::{Often, Step};

/// What is run.
const SCRIPT: &str = include_str!("guard.sh");

/// The step for this user; the script is written to `path`.
pub(super) fn step(user: &User, path: &Path) -> io::Result<Step> {
    fs::write(path, SCRIPT)?;
    let mut step = Step::bash("metadata", path, Often::EachBoot);
    step.arguments.push(user.uid.to_string());
    Ok(step)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// Runs the step where these programs are all there is, each of them a script.
    fn run(directory: &Path, programs: &[(&str, &str)]) -> (bool, String) {
        let user = User {
            name: "runner".into(),
            uid: 1001,
            gid: 1001,
            groups: Vec::new(),
            home: PathBuf::new(),
        };
        let step = step(&user, &directory.join("guard.sh")).unwrap();
        let bin = directory.join("bin");
        fs::create_dir_all(&bin).unwrap();
        for (name, script) in programs {
            let program = bin.join(name);
            let text = format!("#!/bin/bash\necho {name} \"$@\"\n{script}\n");
            fs::write(&program, text).unwrap();
            fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = Command::new(step.program);
        let output = command.args(step.arguments).env("PATH", &bin).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    const RULE: &str = "OUTPUT --destination 169.254.169.254 -m owner --uid-owner 1001 -j REJECT";

    #[test]
    fn the_rule_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let absent = [("iptables", "[[ $2 != --check ]]"), ("nft", "exit 1")];
        let (ok, said) = run(directory.path(), &absent);
        assert!(ok && said.contains(&format!("iptables --wait --insert {RULE}")), "{said}");
        let (ok, said) = run(directory.path(), &[("iptables", "")]);
        assert!(ok && !said.contains("--insert"), "{said}");
    }

    #[test]
    fn a_rule_that_could_not_be_made_is_a_failed_step() {
        let directory = tempfile::tempdir().unwrap();
        let (ok, said) = run(directory.path(), &[("iptables", "exit 1")]);
        assert!(!ok, "{said}");
    }

    #[test]
    fn nft_does_where_iptables_is_not() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("bin")).unwrap();
        symlink("/bin/cat", directory.path().join("bin/cat")).unwrap();
        let (ok, said) = run(directory.path(), &[("nft", "cat")]);
        let rule = "meta skuid 1001 ip daddr 169.254.169.254 reject";
        assert!(ok && said.contains(rule), "{said}");
    }

    #[test]
    fn a_machine_without_either_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let (ok, said) = run(directory.path(), &[]);
        assert!(ok && said.contains("warning: "), "{said}");
    }
}
