//! The only place that prints: data to stdout, talk to stderr.
//!
//! Not here: what is said.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this module is how the rest prints"
)]

/// A line of data.
pub(crate) fn data(line: &str) {
    println!("{line}");
}

/// A line of talk.
pub(crate) fn talk(line: &str) {
    eprintln!("{line}");
}

/// An error in one line, and after a blank line what to do about it.
pub(crate) fn error(what: &str, hint: Option<&str>) {
    eprintln!("error: {what}");
    if let Some(hint) = hint {
        eprintln!("\nhint: {hint}");
    }
}
