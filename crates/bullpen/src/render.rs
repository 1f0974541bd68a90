//! The only place that prints: data to stdout, talk to stderr.
//!
//! A reader that has gone, as `head` does, is no failure of ours: what it would have read is dropped.
//!
//! Not here: what is said.

use std::io::{self, Write as _};

/// A line of data.
pub(crate) fn data(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// A line of talk.
pub(crate) fn talk(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// An error in one line, and after a blank line what to do about it.
pub(crate) fn error(what: &str, hint: Option<&str>) {
    talk(&format!("error: {what}"));
    if let Some(hint) = hint {
        talk(&format!("\nhint: {hint}"));
    }
}
