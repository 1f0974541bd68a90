//! The rules on other files than Rust: there is a changelog, decisions have titles, walks name
//! functions that exist, every crate takes the workspace's lints, and only the gate builds with
//! planted bugs.
//!
//! Not here: forbidden words (`words`).

use super::{File, Finding, is_rust};

const CHANGELOG: &str = "CHANGELOG.md";
const DECISIONS: &str = "docs/decisions/";
const WALKS: &str = "docs/walks.md";

/// Every rule on the documents and settings among these files.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(there_is_a_changelog(files));
    findings.extend(files.iter().filter_map(a_decision_has_a_title));
    findings.extend(files.iter().filter_map(a_crate_takes_the_lints));
    findings.extend(files.iter().filter_map(no_build_is_sabotaged));
    findings.extend(walks_name_functions(files));
    findings
}

/// A step of a walk names a file and a function in it, which must be there.
fn walks_name_functions(files: &[File]) -> Vec<Finding> {
    let Some(walks) = files.iter().find(|file| file.path == WALKS) else { return Vec::new() };
    // A step may be broken over two lines.
    let text = walks.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words: Vec<&str> = text.split('`').collect();
    let mut findings = Vec::new();
    for step in words.windows(3) {
        let [path, " ", function] = step else { continue };
        if !path.starts_with("crates/") || !is_rust(path) {
            continue;
        }
        let source = files.iter().find(|file| file.path == *path).map_or("", |file| &file.text);
        let is_named = |opened: char| source.contains(&format!("fn {function}{opened}"));
        if !is_named('(') && !is_named('<') {
            findings.push(Finding::failure(WALKS, format!("{path} has no function `{function}`")));
        }
    }
    findings
}

fn there_is_a_changelog(files: &[File]) -> Option<Finding> {
    let missing = !files.iter().any(|file| file.path == CHANGELOG);
    missing
        .then(|| Finding::failure(CHANGELOG, "is missing; a user-visible change adds a line to it"))
}

fn a_decision_has_a_title(file: &File) -> Option<Finding> {
    let is_decision = file.path.starts_with(DECISIONS) && has_extension(&file.path, "md");
    let missing = is_decision && !file.text.starts_with("# ");
    missing
        .then(|| Finding::failure(format!("{}:1", file.path), "does not start with a `# ` title"))
}

/// Without this line a crate may use `unsafe` and read the clock, without a warning.
fn a_crate_takes_the_lints(file: &File) -> Option<Finding> {
    let is_manifest = file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml");
    let missing = is_manifest
        && file.text.contains("[package]")
        && !file.text.contains("[lints]\nworkspace = true\n");
    missing.then(|| Finding::failure(&file.path, "has no `[lints]` with `workspace = true`"))
}

/// Only xtask's own step may set the flag: with a manifest, setting, script or image file that sets
/// it, planted bugs could reach a release. Declaring it, as `check-cfg` does, is not setting it.
fn no_build_is_sabotaged(file: &File) -> Option<Finding> {
    let is_prose = has_extension(&file.path, "md");
    let is_source = is_rust(&file.path) && !file.path.ends_with("build.rs");
    if is_prose || is_source || file.path.starts_with("xtask/") {
        return None;
    }
    let sets = |line: &str| {
        let bare = |c: &char| !c.is_whitespace() && !['"', '\'', ',', '=', '\\'].contains(c);
        line.chars().filter(bare).collect::<String>().contains("cfgsabotage")
    };
    let line = 1 + file.text.lines().position(sets)?;
    let text = "sets `cfg sabotage`; only the gate's own steps may build with planted bugs";
    Some(Finding::failure(format!("{}:{line}", file.path), text))
}

fn has_extension(path: &str, wanted: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extension == wanted)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn the_changelog_is_missed() {
        assert!(there_is_a_changelog(&[file("README.md", "")]).is_some());
        assert!(there_is_a_changelog(&[file("docs/CHANGELOG.md", "")]).is_some());
        assert!(there_is_a_changelog(&[file("CHANGELOG.md", "")]).is_none());
    }

    #[test]
    fn a_decision_without_a_title_is_found() {
        let title = |path, text| a_decision_has_a_title(&file(path, text));
        assert!(title("docs/decisions/0001-rooms.md", "# Rooms\n").is_none());
        assert!(title("docs/decisions/0001-rooms.md", "Rooms\n").is_some());
        assert!(title("docs/decisions/0001-rooms.md", "").is_some());
        assert!(title("docs/unverified.md", "Unverified\n").is_none());
    }

    #[test]
    fn a_walk_past_a_function_that_is_gone_is_found() {
        let source = "pub(super) async fn find<P: Ports>(stack: &Stack<P>) {}\nfn lose() {}\n";
        let with = |step: &str| {
            walks_name_functions(&[file("crates/a/src/lib.rs", source), file(WALKS, step)]).len()
        };
        assert_eq!(
            with(
                "1. `crates/a/src/lib.rs` `find`: by `lost`.\n2. `crates/a/src/lib.rs`\n   `lose`."
            ),
            0
        );
        assert_eq!(with("1. `crates/a/src/lib.rs` `gone`: finds."), 1);
        assert_eq!(with("1. `crates/a/src/gone.rs` `find`: finds."), 1);
        assert_eq!(with("The crate `crates/a` `b`."), 0);
    }

    #[test]
    fn a_crate_without_the_workspaces_lints_is_found() {
        let lints = |path, text| a_crate_takes_the_lints(&file(path, text));
        let good = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
        assert!(lints("crates/a/Cargo.toml", good).is_none());
        assert!(lints("crates/a/Cargo.toml", "[package]\nname = \"a\"\n").is_some());
        assert!(lints("Cargo.toml", "[workspace]\n").is_none());
    }

    #[test]
    fn a_sabotaged_build_is_found_wherever_it_is_set() {
        for (path, text) in [
            (".cargo/config.toml", "rustflags = [\"--cfg\", \"sabotage\"]"),
            (".cargo/config.toml", "rustflags = [\"--cfg=sabotage\"]"),
            ("Dockerfile", "ENV RUSTFLAGS=\"--cfg sabotage\""),
            ("scripts/release", "RUSTFLAGS='--cfg  sabotage' cargo build"),
            ("crates/core/build.rs", "println!(\"cargo::rustc-cfg=sabotage\");"),
        ] {
            assert!(no_build_is_sabotaged(&file(path, text)).is_some(), "{path}: {text}");
        }
    }

    #[test]
    fn declaring_the_flag_and_asking_for_it_is_fine() {
        for (path, text) in [
            ("Cargo.toml", "unexpected_cfgs = { check-cfg = [\"cfg(sabotage)\"] }"),
            ("crates/core/src/sabotage.rs", "#[cfg(sabotage)]\n//! --cfg sabotage"),
            ("docs/decisions/0006-planted-bugs.md", "`--cfg sabotage`"),
            ("xtask/src/sabotage.rs", "--cfg sabotage"),
        ] {
            assert!(no_build_is_sabotaged(&file(path, text)).is_none(), "{path}: {text}");
        }
    }
}
