//! Tidy: checks the style by rules, and prints one list of findings.
//!
//! Every rule is a function over plain data (a file's path and text, a crate's dependencies), so
//! that its tests need neither a disk nor cargo. A *failure* stops the gate; a *warning* is shown.
//!
//! Not here: what rustfmt and clippy check (`rustfmt.toml`, `clippy.toml`), and function length,
//! which is clippy's `too_many_lines`.

mod actors;
mod code;
mod crates;
mod documents;
mod source;
mod table;
mod trust;
mod words;

use anyhow::{Context as _, Result, ensure};

use crate::place::Place;

/// A text file of the repository; its path is relative to the root, with `/`.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) weight: Weight,
    /// `path:line`, `path`, or a crate's name.
    pub(crate) place: String,
    pub(crate) text: String,
}

/// Whether a finding stops the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    Warning,
    Failure,
}

impl Finding {
    pub(crate) fn failure(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { weight: Weight::Failure, place: place.into(), text: text.into() }
    }

    fn warning(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { weight: Weight::Warning, place: place.into(), text: text.into() }
    }
}

/// Checks everything and prints every finding; fails if one is a failure.
pub(crate) fn run(place: &Place) -> Result<()> {
    let files = files(place)?;
    let mut findings = crates::check(place)?;
    findings.extend(files.iter().filter(|file| is_rust(&file.path)).flat_map(source::check));
    findings.extend(documents::check(&files));
    findings.extend(words::check(&files));
    findings.extend(actors::check(&files));
    findings.extend(trust::check(&files));
    findings.extend(crate::verify_live::check(&files));

    for finding in &findings {
        let word = match finding.weight {
            Weight::Warning => "warning",
            Weight::Failure => "failure",
        };
        eprintln!("tidy: {word}: {}: {}", finding.place, finding.text);
    }
    let failures = findings.iter().filter(|finding| finding.weight == Weight::Failure).count();
    let warnings = findings.len() - failures;
    eprintln!("tidy: files: {}, failures: {failures}, warnings: {warnings}", files.len());
    ensure!(failures == 0, "tidy found failures: {failures}");
    Ok(())
}

/// Every text file git tracks or would track, in git's order.
pub(crate) fn files(place: &Place) -> Result<Vec<File>> {
    let names = place.git(&[
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
    ])?;
    let mut files = Vec::new();
    for path in names.split_terminator('\0') {
        let full = place.root.join(path);
        if !full.is_file() {
            continue; // Deleted, but not yet from the index.
        }
        let bytes = std::fs::read(&full).with_context(|| format!("could not read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

fn is_rust(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extension == "rs")
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}
