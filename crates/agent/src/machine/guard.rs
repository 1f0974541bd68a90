//! The step that keeps every user except root from the instance's metadata.
//!
//! It fails if it cannot make the rule or does not see it afterwards: a machine whose jobs could
//! read its credentials must take no jobs. A job that may become root can remove the rule. The hop
//! limit keeps containers in their own network away.
//!
//! Not here: the hop limit (the launch template), or whether an operator wants no rule (`live`).

use std::fs;
use std::io;
use std::path::Path;

use crate::warm_up::{Frequency, Step};

/// The step's script.
const SCRIPT: &str = include_str!("guard.sh");
/// A file that exists if the kernel supports IPv6.
pub(super) const IF_INET6: &str = "/proc/net/if_inet6";

/// Makes the step, and writes its script to `path`.
pub(super) fn step(path: &Path, if_inet6: &Path) -> io::Result<Step> {
    fs::write(path, SCRIPT)?;
    let mut step = Step::bash("metadata", path, Frequency::EachBoot);
    step.arguments.push(if_inet6.to_string_lossy().into_owned());
    Ok(step)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;
    use crate::test_program;

    const V4: &str = "OUTPUT --destination 169.254.169.254 -m owner ! --uid-owner 0 -j REJECT";
    const V6: &str = "OUTPUT --destination fd00:ec2::254 -m owner ! --uid-owner 0 -j REJECT";
    /// A program that has a rule after its insertion.
    const KEEPS: &str = r#"case $2 in
--check) [[ -e ${0%/*}/../${0##*/} ]];;
--insert) echo >"${0%/*}/../${0##*/}";;
esac"#;
    /// A program that lists its last input.
    const NFT: &str =
        r#"if [[ $1 == list ]]; then cat "${0%/*}/../nft"; else cat >"${0%/*}/../nft"; fi"#;

    /// Runs the step with a `PATH` that has only these programs, each a script.
    fn run(directory: &Path, programs: &[(&str, &str)], speaks_ipv6: bool) -> (bool, String) {
        let if_inet6 = directory.join(if speaks_ipv6 { "" } else { "none" });
        let step = step(&directory.join("guard.sh"), &if_inet6).unwrap();
        let bin = directory.join("bin");
        fs::create_dir_all(&bin).unwrap();
        for (name, script) in programs {
            let program = bin.join(name);
            let text = format!("#!/bin/bash\n[[ $1 == list ]] || echo {name} \"$@\"\n{script}\n");
            test_program::install(&program, &text);
        }
        symlink("/bin/cat", bin.join("cat")).unwrap_or_default();
        let mut command = Command::new(step.program);
        let output = command.args(step.arguments).env("PATH", &bin).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn every_user_but_root_is_kept_off_both_addresses_by_one_rule_each() {
        let directory = tempfile::tempdir().unwrap();
        let programs = [("iptables", KEEPS), ("ip6tables", KEEPS), ("nft", "exit 1")];
        let (ok, said) = run(directory.path(), &programs, true);
        assert!(ok && said.contains(&format!("iptables --wait --insert {V4}")), "{said}");
        assert!(said.contains(&format!("ip6tables --wait --insert {V6}")), "{said}");
        let (ok, said) = run(directory.path(), &programs, true);
        assert!(ok && !said.contains("--insert"), "made a second time: {said}");
    }

    #[test]
    fn a_rule_that_is_not_there_afterwards_was_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let forgets = [("iptables", "[[ $2 == --insert ]]")];
        let (ok, said) = run(directory.path(), &forgets, false);
        assert!(!ok && said.contains("metadata = \"open\""), "{said}");
        let (ok, said) =
            run(directory.path(), &[("iptables", "exit 1"), ("nft", "cat >/dev/null")], true);
        assert!(!ok && said.contains("does not list them"), "{said}");
    }

    #[test]
    fn ipv6_is_closed_too_where_the_kernel_speaks_it() {
        let directory = tempfile::tempdir().unwrap();
        let (ok, said) = run(directory.path(), &[("iptables", KEEPS)], true);
        assert!(!ok, "the other address is open: {said}");
        let (ok, said) = run(directory.path(), &[("iptables", KEEPS)], false);
        assert!(ok, "{said}");
    }

    #[test]
    fn nft_does_where_iptables_is_not_or_fails() {
        for iptables in [&[][..], &[("iptables", "exit 3")]] {
            let directory = tempfile::tempdir().unwrap();
            let programs: Vec<_> = iptables.iter().copied().chain([("nft", NFT)]).collect();
            let (ok, said) = run(directory.path(), &programs, true);
            assert!(ok, "{said}");
            let rules = fs::read_to_string(directory.path().join("nft")).unwrap();
            for rule in [
                "meta skuid 0 accept",
                "ip daddr 169.254.169.254 reject",
                "ip6 daddr fd00:ec2::254 reject",
            ] {
                assert!(rules.contains(rule), "{rules}");
            }
        }
    }

    #[test]
    fn a_machine_without_either_takes_no_jobs_and_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let (ok, said) = run(directory.path(), &[], true);
        assert!(!ok, "{said}");
        for word in
            ["no iptables", "no nft", "put one of them into the image", "metadata = \"open\""]
        {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
}
