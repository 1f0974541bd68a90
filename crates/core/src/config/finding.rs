//! Findings: what is wrong with a file, where, and what to write instead.
//!
//! A *code* is the stable name of a kind of finding; scripts match on it. A *mark* is a place in
//! the text. Findings are listed in the order of the text; duplicates, which aliases cause, are
//! listed once. An error inside a pool marks only that pool as *broken*; any other error makes the
//! reader *refuse* the file.
//!
//! Not here: the checks themselves.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::ids::PoolName;
use crate::severity::Severity;
use crate::spelling::nearest;

/// A place in a text, counted from 1. Line 0 is the environment, which has no lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TextPosition {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl TextPosition {
    /// The first character of a file.
    pub const START: Self = Self { line: 1, column: 1 };

    /// The place of a byte in a text.
    pub(crate) fn of_byte(text: &str, byte: usize) -> Self {
        let byte = text.floor_char_boundary(byte);
        let before = &text[..byte];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            line: count(1 + before.matches('\n').count()),
            column: count(1 + before[line_start..].chars().count()),
        }
    }
}

/// One error, warning or note about a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Where.
    pub mark: TextPosition,
    /// How bad.
    pub severity: Severity,
    /// The kind of finding, in kebab-case; stable.
    pub code: &'static str,
    /// What is wrong: a lowercase fragment.
    pub message: String,
    /// What to write instead.
    pub instead: Option<String>,
}

impl Finding {
    /// The message and what to write instead, in one line.
    pub fn text(&self) -> String {
        match &self.instead {
            Some(instead) => format!("{}; {instead}", self.message),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mark, severity, code, .. } = self;
        write!(f, "{}:{}: {}: {} [{code}]", mark.line, mark.column, severity.as_str(), self.text())
    }
}

/// How many findings are shown: a malicious file can have very many.
const FINDINGS_MAX: usize = 1_000;

/// How many comparisons with known words one file may cost. A hundred unknown zones take half of
/// it; without a bound, many unknown names among many known ones would take minutes.
const COMPARISONS_MAX: usize = 100_000;

/// Collects findings while a file is read.
#[derive(Debug)]
pub(crate) struct Findings {
    found: Vec<Finding>,
    comparisons_left: usize,
    /// The pool that is being read.
    inside: Option<PoolName>,
    broken: BTreeSet<PoolName>,
    refused: bool,
}

impl Default for Findings {
    fn default() -> Self {
        let (found, comparisons_left) = (Vec::new(), COMPARISONS_MAX);
        let (inside, broken, refused) = (None, BTreeSet::new(), false);
        Self { found, comparisons_left, inside, broken, refused }
    }
}

impl Findings {
    /// Adds a finding; the caller can set what to write instead on the result.
    pub(crate) fn add(
        &mut self,
        severity: Severity,
        mark: TextPosition,
        code: &'static str,
        message: impl Into<String>,
    ) -> &mut Finding {
        if severity == Severity::Error {
            self.blame();
        }
        self.push(Finding { mark, severity, code, message: message.into(), instead: None })
    }

    fn push(&mut self, finding: Finding) -> &mut Finding {
        self.found.push(finding);
        let last = self.found.len() - 1;
        &mut self.found[last]
    }

    /// Runs `read` for something that belongs to this pool: its errors break only this pool.
    pub(crate) fn inside<T>(&mut self, pool: &PoolName, read: impl FnOnce(&mut Self) -> T) -> T {
        self.inside = Some(pool.clone());
        let read = read(self);
        self.inside = None;
        read
    }

    /// Marks the pool being read as broken, or the file as refused outside of pools.
    pub(crate) fn blame(&mut self) {
        match &self.inside {
            Some(pool) => {
                self.broken.insert(pool.clone());
            }
            None => self.refused = true,
        }
    }

    /// The pools that have errors.
    pub(crate) const fn broken(&self) -> &BTreeSet<PoolName> {
        &self.broken
    }

    /// Adds an error while the tree is built. It breaks nothing yet: the caller marks the node as
    /// flawed, and the reader of that node calls [`Self::blame`].
    pub(crate) fn flaw(
        &mut self,
        mark: TextPosition,
        code: &'static str,
        message: impl Into<String>,
    ) -> &mut Finding {
        let (severity, message) = (Severity::Error, message.into());
        self.push(Finding { mark, severity, code, message, instead: None })
    }

    /// Adds an error, which breaks the pool being read or refuses the file.
    pub(crate) fn error(
        &mut self,
        mark: TextPosition,
        code: &'static str,
        message: impl Into<String>,
    ) -> &mut Finding {
        self.add(Severity::Error, mark, code, message)
    }

    /// Adds a warning, which does not prevent the file from being used.
    pub(crate) fn warning(
        &mut self,
        mark: TextPosition,
        code: &'static str,
        message: impl Into<String>,
    ) -> &mut Finding {
        self.add(Severity::Warning, mark, code, message)
    }

    /// "did you mean `x`?", if a known word is near and comparisons are left.
    pub(crate) fn did_you_mean<'k>(
        &mut self,
        word: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> Option<String> {
        let mut left = self.comparisons_left;
        let within = known.into_iter().take_while(|_| {
            let more = left > 0;
            left = left.saturating_sub(1);
            more
        });
        let near = nearest(word, within).first().map(|near| format!("did you mean `{near}`?"));
        self.comparisons_left = left;
        near
    }

    /// Whether anything was found.
    pub(crate) fn any(&self) -> bool {
        !self.found.is_empty()
    }

    /// Prefixes the findings about environment variables with the variable's name.
    pub(crate) fn name_variables(&mut self, name: impl Fn(u32) -> Option<String>) {
        for finding in self.found.iter_mut().filter(|finding| finding.mark.line == 0) {
            if let Some(name) = name(finding.mark.column) {
                finding.message = format!("{name}: {}", finding.message);
            }
            finding.mark.column = 0;
        }
    }

    /// Sorts by place, drops duplicates, and cuts off after [`FINDINGS_MAX`].
    pub(crate) fn into_sorted(mut self) -> Vec<Finding> {
        self.found.sort();
        self.found.dedup();
        if let Some(first) = self.found.get(FINDINGS_MAX) {
            let message =
                format!("{} more findings are not shown", self.found.len() - FINDINGS_MAX);
            // As severe as the worst finding left out, so that an error is never hidden.
            let severity = self.found[FINDINGS_MAX..].iter().map(|finding| finding.severity).max();
            let (mark, severity) = (first.mark, severity.unwrap_or(Severity::Note));
            self.found.truncate(FINDINGS_MAX);
            self.add(severity, mark, "too-many", message);
        }
        self.found
    }
}

impl Finding {
    /// Says what to write instead.
    pub(crate) fn instead(&mut self, instead: impl Into<String>) {
        self.instead = Some(instead.into());
    }
}

/// The result of reading a file: a value without its broken pools, or none if the file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ConfigRead<T> {
    value: Option<T>,
    findings: Vec<Finding>,
}

impl<T> ConfigRead<T> {
    pub(crate) fn new(value: Option<T>, findings: Findings) -> Self {
        let refused = findings.refused;
        let findings = findings.into_sorted();
        debug_assert!(refused || value.is_some(), "a refused file has a finding");
        Self { value: value.filter(|_| !refused), findings }
    }

    /// The configuration, unless the file is refused.
    pub const fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// All findings, in the order of the text.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The value and the findings.
    pub fn into_parts(self) -> (Option<T>, Vec<Finding>) {
        (self.value, self.findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_has_a_line_and_a_column_in_characters() {
        let text = "ab\nüx\n";
        for (byte, line, column) in
            [(0, 1, 1), (2, 1, 3), (3, 2, 1), (4, 2, 1), (5, 2, 2), (99, 3, 1)]
        {
            assert_eq!(
                TextPosition::of_byte(text, byte),
                TextPosition { line, column },
                "byte {byte}"
            );
        }
    }

    #[test]
    fn findings_are_told_in_the_order_of_the_text_and_once() {
        let mut findings = Findings::default();
        findings.warning(TextPosition { line: 2, column: 1 }, "b", "later");
        findings.error(TextPosition::START, "a", "first").instead("write it right");
        findings.warning(TextPosition { line: 2, column: 1 }, "b", "later");
        let texts: Vec<String> = findings.into_sorted().iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["1:1: error: first; write it right [a]", "2:1: warning: later [b]"],);
    }

    #[test]
    fn there_is_no_value_beside_an_error_outside_of_pools() {
        let mut findings = Findings::default();
        findings.error(TextPosition::START, "a", "wrong");
        assert_eq!(ConfigRead::new(Some(1), findings).value(), None);
        assert_eq!(ConfigRead::new(Some(1), Findings::default()).value(), Some(&1));
        let (mut findings, pool) = (Findings::default(), PoolName::new("ci"));
        findings
            .inside(&pool, |findings| findings.error(TextPosition::START, "a", "wrong").clone());
        assert_eq!(findings.broken(), &BTreeSet::from([pool]));
        assert_eq!(ConfigRead::new(Some(1), findings).value(), Some(&1));
    }
}
