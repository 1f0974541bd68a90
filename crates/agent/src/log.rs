//! Writers for log lines. They escape names from outside, so that an event stays one line and
//! cannot control a terminal.
//!
//! Not here: the log messages, or how a binary formats them.

use std::io::{self, Write};

use bullpen_core::printable;

/// Writes each buffer as one escaped line. A subscriber writes one event per buffer.
#[derive(Debug)]
pub struct OneLine<W>(pub W);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (line, end) = text.strip_suffix('\n').map_or((&*text, ""), |line| (line, "\n"));
        write!(self.0, "{}{end}", printable::one_line(line))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The same for events in JSON: escaping keeps their meaning.
#[derive(Debug)]
pub struct JsonLine<W>(pub W);

impl<W: Write> Write for JsonLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(printable::json(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_in_json_steers_no_terminal() {
        let mut written = Vec::new();
        JsonLine(&mut written).write_all("{\"name\":\"x\u{9b}2J\u{202e}\"}\n".as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "{\"name\":\"x\\u009b2J\\u202e\"}\n");
    }

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let mut written = Vec::new();
        let event = "INFO job queued name=x\u{1b}[2J\r\nINFO all good \u{202e}\n";
        OneLine(&mut written).write_all(event.as_bytes()).unwrap();
        let shown = "INFO job queued name=x\\u{1b}[2J\\r\\nINFO all good \\u{202e}\n";
        assert_eq!(String::from_utf8(written).unwrap(), shown);
    }
}
