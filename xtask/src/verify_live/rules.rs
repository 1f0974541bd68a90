//! The rules on `docs/unverified.md` and its scripts: one script for each entry, each safe to run
//! for an operator who has not read it.
//!
//! Not here: checks by bash and shellcheck, which the tests below run.

use std::collections::BTreeMap;

use super::{DOCUMENT, Header, SCRIPTS, scripts};
use crate::tidy::{File, Finding};

/// A failing command ends a script, and so does an unset variable.
const STRICT: &str = "\nset -euo pipefail\n";
/// A script removes its resources at every end.
const TRAP: &str = "\ntrap ";
/// The document that explains every variable to operators.
const README: &str = "scripts/verify-live/README.md";
/// The only hosts that scripts may call: GitHub, AWS, an instance's metadata, and this host.
const HOSTS: &[&str] =
    &["api.github.com", "github.com", "amazonaws.com", "169.254.169.254", "127.0.0.1"];
/// A host with one of these depends on a run's variables: the region's endpoints.
const FILLED_IN: [char; 2] = ['$', '{'];

/// Every rule on the list and its scripts.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(entries_and_scripts_match(files));
    let shell = |file: &&File| file.path.starts_with(SCRIPTS) && is_shell(&file.path);
    findings.extend(files.iter().filter(shell).flat_map(a_script_is_careful));
    findings.extend(scripts(files).flat_map(|script| a_script_says_what_it_is(script, files)));
    let ours = |file: &&File| file.path.starts_with(SCRIPTS);
    findings.extend(files.iter().filter(ours).filter_map(calls_only_known_hosts));
    findings
}

pub(super) fn is_shell(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extension == "sh")
}

/// The document's entries, by heading, with the script that each names.
fn entries(text: &str) -> BTreeMap<&str, Option<&str>> {
    text.split("\n## ").skip(1).map(entry).collect()
}

fn entry(section: &str) -> (&str, Option<&str>) {
    let (heading, rest) = section.split_once('\n').unwrap_or((section, ""));
    let last = rest.trim_end().lines().last().unwrap_or_default();
    (heading.trim(), last.strip_prefix("*Script:* "))
}

fn entries_and_scripts_match(files: &[File]) -> Vec<Finding> {
    let text = files.iter().find(|file| file.path == DOCUMENT).map_or("", |file| &file.text);
    let mut entries = entries(text);
    let mut findings = Vec::new();
    for script in scripts(files) {
        let entry = Header::read(&script.text).entry;
        let number = entry.split('.').next().and_then(|number| number.parse::<u32>().ok());
        let named = number.map(|number| format!("{SCRIPTS}{number:02}-"));
        if !named.is_some_and(|named| script.path.starts_with(&named)) {
            let what = format!("its number is not that of its `# Entry:` ({entry})");
            findings.push(Finding::failure(&script.path, what));
        }
        match entries.remove(entry.as_str()) {
            None => findings.push(Finding::failure(
                &script.path,
                format!("`{entry}` is no heading of {DOCUMENT}, or has two scripts"),
            )),
            Some(named) if named != Some(&script.path) => {
                let what = format!("`{entry}` does not end with `*Script:* {}`", script.path);
                findings.push(Finding::failure(DOCUMENT, what));
            }
            Some(_) => {}
        }
    }
    let left = entries.into_keys();
    findings
        .extend(left.map(|entry| Finding::failure(DOCUMENT, format!("`{entry}` has no script"))));
    findings
}

/// Libraries, which scripts source, have no modes of their own.
fn a_script_is_careful(file: &File) -> Vec<Finding> {
    if !file.text.starts_with("#!") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (needle, why) in [
        (STRICT, "has no `set -euo pipefail`, so it would go on after a failure"),
        (TRAP, "has no `trap`, so what it made would stay when it is interrupted"),
    ] {
        if !file.text.contains(needle) {
            findings.push(Finding::failure(&file.path, why));
        }
    }
    findings
}

fn a_script_says_what_it_is(script: &File, files: &[File]) -> Vec<Finding> {
    let header = Header::read(&script.text);
    let mut findings = Vec::new();
    let said = [
        ("Does", &header.does),
        ("Tools", &header.tools),
        ("Variables", &header.variables),
        ("Touches", &header.touches),
        ("Costs", &header.costs),
    ];
    for (key, _) in said.into_iter().filter(|(_, value)| value.is_empty()) {
        findings.push(Finding::failure(&script.path, format!("its header has no `# {key}:`")));
    }
    let readme = files.iter().find(|file| file.path == README).map_or("", |file| &file.text);
    let names = header.variables.split(' ').chain(header.optional.split(' '));
    for name in names.filter(|name| !name.is_empty() && !readme.contains(&format!("| `{name}` |")))
    {
        findings.push(Finding::failure(README, format!("does not explain `{name}`")));
    }
    findings
}

/// A host is the text after `://`, up to the first character that no host can have.
fn calls_only_known_hosts(file: &File) -> Option<Finding> {
    let host = |after: &str| -> String {
        let is_part = |c: &char| c.is_ascii_alphanumeric() || ".-$%{}".contains(*c);
        after.chars().take_while(is_part).collect()
    };
    let known = |host: &str| {
        let is = |known: &&str| host == *known || host.ends_with(&format!(".{known}"));
        host.is_empty() || host.contains(FILLED_IN) || HOSTS.iter().any(is)
    };
    let urls = file.text.match_indices("http").filter_map(|(at, _)| {
        let (scheme, after) = file.text[at..].split_once("://")?;
        ["http", "https"].contains(&scheme).then(|| (at, host(after)))
    });
    let (at, host) = urls.filter(|(_, host)| !known(host)).min()?;
    let line = 1 + file.text[..at].matches('\n').count();
    let what = format!("talks to {host}, which is neither GitHub nor AWS");
    Some(Finding::failure(format!("{}:{line}", file.path), what))
}

#[cfg(test)]
mod tests;
