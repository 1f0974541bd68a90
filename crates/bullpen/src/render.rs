//! The only place that prints: data to stdout, talk to stderr.
//!
//! What strangers named is shown escaped (`bullpen_core::printable`): a line stays one line, and no text
//! steers a terminal. A reader that has gone, as `head` does, is no failure of ours: what it would have
//! read is dropped.
//!
//! Not here: what is said.

use std::io::{self, Write as _};

use bullpen_core::printable;

/// A line of data.
pub(crate) fn data(line: &str) {
    let _ = writeln!(io::stdout(), "{}", printable::one_line(line));
}

/// Several lines of data. Their maker has put every name in them on one line.
pub(crate) fn page(text: &str) {
    let _ = writeln!(io::stdout(), "{}", printable::page(text));
}

/// Data for programs: what it says stays what it is, and a person may look at it too.
pub(crate) fn json(text: &str) {
    let _ = writeln!(io::stdout(), "{}", printable::json(text));
}

/// A line of talk.
pub(crate) fn talk(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable::one_line(line));
}

/// Several lines of talk. Their maker has put every name in them on one line.
pub(crate) fn talk_page(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable::page(text));
}

/// A warning in one line; in a workflow GitHub shows it beside the step.
pub(crate) fn warning(what: &str, in_a_workflow: bool) {
    let begins = if in_a_workflow { "::warning::" } else { "warning: " };
    talk(&format!("{begins}{what}"));
}

/// An error in one line, and after a blank line what to do about it.
pub(crate) fn error(what: &str, hint: Option<&str>) {
    talk(&format!("error: {what}"));
    if let Some(hint) = hint {
        talk_page(&format!("\nhint: {hint}"));
    }
}
