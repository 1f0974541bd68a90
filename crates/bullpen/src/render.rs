//! The only module that prints: data to stdout, messages to stderr.
//!
//! It escapes foreign names (`bullpen_core::printable`), so that a line stays one line and no text
//! controls the terminal. It ignores a closed pipe, because a reader such as `head` may stop early; the
//! command fails if data could not be written for another reason.
//!
//! Not here: the texts.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

use bullpen_core::printable;

use crate::table::{self, Column};

/// Why data was lost, if any was.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// Why data that this process printed was lost; nothing if all of it was written, or if its reader
/// stopped.
pub(crate) fn lost() -> Option<io::Error> {
    note(io::stdout().flush());
    LOST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn note(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        *LOST.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

/// Prints a line of data.
pub(crate) fn data(line: &str) {
    note(writeln!(io::stdout(), "{}", printable::one_line(line)));
}

/// Prints several lines of data. The caller has escaped line breaks in names.
pub(crate) fn page(text: &str) {
    note(writeln!(io::stdout(), "{}", printable::page(text)));
}

/// Prints a table that fits the terminal.
pub(crate) fn table<const N: usize>(columns: &[Column; N], rows: &[[String; N]]) {
    for line in table::lines(columns, rows, width()) {
        note(writeln!(io::stdout(), "{line}"));
    }
}

/// Whether a person reads the data on a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Sends a terminal its control characters.
pub(crate) fn screen(control: &'static str) {
    note(write!(io::stdout(), "{control}"));
}

/// The columns of the terminal that shows the data.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { table::NARROWEST } else { columns }
}

/// Prints JSON, escaped so that it keeps its meaning and is safe on a terminal.
pub(crate) fn json(text: &str) {
    note(writeln!(io::stdout(), "{}", printable::json(text)));
}

/// Prints a message of one line.
pub(crate) fn talk(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable::one_line(line));
}

/// Prints a message of several lines. The caller has escaped line breaks in names.
pub(crate) fn talk_page(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable::page(text));
}

/// Prints a warning of one line; in a workflow GitHub shows it beside the step.
pub(crate) fn warning(what: &str, in_a_workflow: bool) {
    let prefix = if in_a_workflow { "::warning::" } else { "warning: " };
    talk(&format!("{prefix}{what}"));
}

/// Prints an error of one line, and the advice after a blank line.
pub(crate) fn error(what: &str, hint: Option<&str>) {
    talk(&format!("error: {what}"));
    if let Some(hint) = hint {
        talk_page(&format!("\nhint: {hint}"));
    }
}
