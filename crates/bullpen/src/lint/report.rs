//! Formats findings: lines for people, JSON for scripts, SARIF for code scanning.
//!
//! Not here: printing.

use std::collections::BTreeSet;

use bullpen_core::config::Finding;
use bullpen_core::severity::Severity;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::Checked;
use crate::table;

fn all(checked: &[Checked]) -> impl Iterator<Item = (&str, &Finding)> {
    checked.iter().flat_map(|file| file.findings.iter().map(|found| (file.path.as_str(), found)))
}

fn count(checked: &[Checked], severity: Severity) -> usize {
    all(checked).filter(|(_, finding)| finding.severity == severity).count()
}

/// A line for each finding.
pub(super) fn text(checked: &[Checked]) -> impl Iterator<Item = String> {
    all(checked).map(|(path, finding)| format!("{path}:{finding}"))
}

/// The counts in one line.
pub(super) fn summary(checked: &[Checked]) -> String {
    format!(
        "{}: {}, {}, {}",
        table::count(checked.len(), "file"),
        table::count(count(checked, Severity::Error), "error"),
        table::count(count(checked, Severity::Warning), "warning"),
        table::count(count(checked, Severity::Note), "note"),
    )
}

/// All findings as one object.
pub(super) fn json(checked: &[Checked]) -> Value {
    let finding = |(path, finding): (&str, &Finding)| {
        json!({
            "path": path,
            "line": finding.mark.line,
            "column": finding.mark.column,
            "severity": finding.severity.as_str(),
            "code": finding.code,
            "message": finding.message,
            "instead": finding.instead,
        })
    };
    json!({
        "files": checked.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(),
        "errors": count(checked, Severity::Error),
        "warnings": count(checked, Severity::Warning),
        "notes": count(checked, Severity::Note),
        "findings": all(checked).map(finding).collect::<Vec<_>>(),
    })
}

/// All findings as SARIF 2.1.0: one run, and a rule for each code among them.
pub(super) fn sarif(checked: &[Checked]) -> Value {
    let codes: BTreeSet<&str> = all(checked).map(|(_, finding)| finding.code).collect();
    let codes: Vec<&str> = codes.into_iter().collect();
    let rule =
        |code: &&str| json!({"id": code, "shortDescription": {"text": code.replace('-', " ")}});
    let result = |(path, finding): (&str, &Finding)| {
        json!({
            "ruleId": finding.code,
            "ruleIndex": codes.iter().position(|code| *code == finding.code),
            "level": finding.severity.as_str(),
            "message": {"text": finding.text()},
            "locations": [{
                "physicalLocation": {
                    "artifactLocation": {"uri": uri(path)},
                    "region": {
                        "startLine": finding.mark.line.max(1),
                        "startColumn": finding.mark.column.max(1),
                    },
                },
            }],
        })
    };
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": "bullpen",
                    "version": env!("CARGO_PKG_VERSION"),
                    "rules": codes.iter().map(rule).collect::<Vec<_>>(),
                },
            },
            "columnKind": "unicodeCodePoints",
            "results": all(checked).map(result).collect::<Vec<_>>(),
        }],
    })
}

/// What is escaped in a URI reference: all but letters, digits and a few marks.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'_').remove(b'-').remove(b'~');

/// A path as a URI reference.
fn uri(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_escaped_as_a_reference() {
        assert_eq!(uri("../.github/runs-on.yml"), "../.github/runs-on.yml");
        assert_eq!(uri("a b/ü.yml"), "a%20b/%C3%BC.yml");
    }
}
