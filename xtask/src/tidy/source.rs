//! The rules on each Rust file: what it must have and may not have.
//!
//! Not here: rules on other files (`documents`, `words`).

use super::code::{code_only, lines_with};
use super::{File, Finding};

/// A file longer than this is worth splitting.
const LINES_AIM: usize = 400;
/// A file longer than this must be split: no reader can keep it in mind.
const LINES_MAX: usize = 800;
const _: () = assert!(LINES_AIM < LINES_MAX);

/// Forbidden code, and what to do instead.
const NOWHERE: &[(&str, &str)] = &[
    ("#[ignore", "a test that does not run proves nothing; fix it or delete it"),
    ("todo!", "unfinished code does not pass the gate"),
    ("unimplemented!", "unfinished code does not pass the gate"),
    ("#[allow", "use `#[expect(..., reason = \"...\")]`, which fails when it is no longer needed"),
    (
        "#![allow",
        "use `#![expect(..., reason = \"...\")]`, which fails when it is no longer needed",
    ),
];

/// Crates in which bugs may be planted, because the simulator runs their code.
const SABOTAGE_CRATES: &[&str] =
    &["crates/agent/", "crates/core/", "crates/engine/", "crates/github/"];

/// The core's only files that may name futures, because ports declare them.
const CORE: &str = "crates/core/src/";
const CORE_PORTS: &[&str] = &["crates/core/src/ports.rs", "crates/core/src/ports/"];

/// Every rule on one Rust file.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let code = code_only(&file.text);
    let mut findings = Vec::new();
    findings.extend(opens_with_definitions(file));
    findings.extend(is_short(file));
    findings.extend(has_nothing_forbidden(&file.path, &code));
    findings.extend(plants_bugs_only_where_they_are_found(&file.path, &code));
    findings.extend(core_does_not_wait(&file.path, &code));
    findings
}

fn opens_with_definitions(file: &File) -> Option<Finding> {
    let text = "the file does not open with `//!` saying what it defines and what is not in it";
    (!file.text.starts_with("//!")).then(|| Finding::failure(format!("{}:1", file.path), text))
}

fn is_short(file: &File) -> Option<Finding> {
    let lines = file.text.lines().count();
    let say = |limit| format!("{lines} lines, more than {limit}; split it by noun");
    if lines > LINES_MAX {
        Some(Finding::failure(&file.path, say(LINES_MAX)))
    } else if lines > LINES_AIM {
        Some(Finding::warning(&file.path, say(LINES_AIM)))
    } else {
        None
    }
}

fn has_nothing_forbidden(path: &str, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (needle, instead) in NOWHERE {
        findings.extend(each_line(path, code, needle, instead));
    }
    findings
}

fn plants_bugs_only_where_they_are_found(path: &str, code: &str) -> Vec<Finding> {
    if SABOTAGE_CRATES.iter().any(|directory| path.starts_with(directory)) {
        return Vec::new();
    }
    each_line(path, code, "sabotage!", "bugs are planted in core, engine, agent and github only")
}

fn core_does_not_wait(path: &str, code: &str) -> Vec<Finding> {
    if !path.starts_with(CORE) || CORE_PORTS.iter().any(|ports| path.starts_with(ports)) {
        return Vec::new();
    }
    let instead = "the core decides and does not wait; futures are declared in its ports only";
    let mut findings = each_line(path, code, "async", instead);
    findings.extend(each_line(path, code, ".await", instead));
    findings
}

fn each_line(path: &str, code: &str, needle: &str, instead: &str) -> Vec<Finding> {
    let finding =
        |line| Finding::failure(format!("{path}:{line}"), format!("`{needle}`: {instead}"));
    lines_with(code, needle).into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Weight, file};
    use super::*;

    fn places(path: &str, text: &str) -> Vec<String> {
        check(&file(path, text)).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn a_file_opens_with_its_definitions() {
        assert_eq!(places("crates/core/src/a.rs", "//! A.\n"), [""; 0]);
        assert_eq!(places("crates/core/src/a.rs", "// A.\n"), ["crates/core/src/a.rs:1"]);
        assert_eq!(places("crates/core/src/a.rs", ""), ["crates/core/src/a.rs:1"]);
    }

    #[test]
    fn a_file_is_short() {
        let weight = |lines| is_short(&file("a.rs", &"x\n".repeat(lines))).map(|f| f.weight);
        assert_eq!(weight(400), None);
        assert_eq!(weight(401), Some(Weight::Warning));
        assert_eq!(weight(800), Some(Weight::Warning));
        assert_eq!(weight(801), Some(Weight::Failure));
    }

    #[test]
    fn unfinished_code_and_silenced_checks_are_found() {
        for line in [
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "todo!()",
            "unimplemented!(\"later\")",
            "#[allow(dead_code)]",
            "#![allow(dead_code)]",
        ] {
            let text = format!("//! A.\n{line}\nfn f() {{}}\n");
            assert_eq!(places("crates/sim/src/a.rs", &text), ["crates/sim/src/a.rs:2"], "{line}");
        }
    }

    #[test]
    fn comments_and_strings_may_name_them() {
        let text = "//! No `todo!()`.\n// #[ignore]\nconst A: &str = \"#[allow(x)]\";\n";
        assert_eq!(places("crates/sim/src/a.rs", text), [""; 0]);
        let text = "//! A.\n#[expect(dead_code, reason = \"soon\")]\nfn ignore() {}\n";
        assert_eq!(places("crates/sim/src/a.rs", text), [""; 0]);
    }

    #[test]
    fn bugs_are_planted_where_the_simulator_runs() {
        let text = "//! A.\nfn f() -> bool { sabotage!(\"a\") }\n";
        for name in ["agent", "core", "engine", "github"] {
            assert_eq!(places(&format!("crates/{name}/src/a.rs"), text), [""; 0]);
        }
        for name in ["bullpen", "embedded", "aws", "sim"] {
            let path = format!("crates/{name}/src/a.rs");
            assert_eq!(places(&path, text), [format!("{path}:2")]);
        }
        assert_eq!(places("crates/sim/src/a.rs", "//! A.\nmacro_rules! sabotage {}\n"), [""; 0]);
    }

    #[test]
    fn the_core_waits_in_no_file_but_its_ports() {
        let text = "//! A.\nasync fn f() {\n    g().await;\n}\n";
        let path = "crates/core/src/a.rs";
        assert_eq!(places(path, text), [format!("{path}:2"), format!("{path}:3")]);
        assert_eq!(places("crates/core/src/ports.rs", text), [""; 0]);
        assert_eq!(places("crates/core/src/ports/queue.rs", text), [""; 0]);
        assert_eq!(places("crates/engine/src/a.rs", text), [""; 0]);
    }
}
