//! Reading a report that any program with root on its machine may have written.
//!
//! A store hands over the text it holds ([`RawReport`]); [`RawReport::read`] makes a [`Report`] of
//! it, or says in a bounded, escaped line why it cannot ([`UnreadableReport`]). Each machine has
//! its own result ([`ReportRead`]), so one machine's text never hides another's report.
//! [`Report::believed`] drops the signals that the machine cannot know.
//!
//! Not here: reading the stores (the adapters), or what a report proves (`mailbox`, `claim`).

use std::fmt;

use serde::de::DeserializeOwned;

use super::{Beat, Report, Signal, SignalKind};
use crate::instance::{Record, State};
use crate::limits::{
    REPORT_BOOT_BYTES_MAX, REPORT_BYTES_MAX, REPORT_PART_BYTES_MAX, REPORT_SIGNALS_MAX,
    REPORT_WORD_BYTES_MAX, SIGNAL_DETAIL_BYTES_MAX, UNREADABLE_CHARS_MAX,
};
use crate::request::stranger::RanJob;
use crate::sabotage;

/// The result of reading one agent's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportRead {
    /// The agent has reported nothing.
    Absent,
    /// The stored text is no report. It counts as none, for this machine alone.
    Unreadable(UnreadableReport),
    /// A report.
    Read(Report),
}

impl ReportRead {
    /// The report, if it exists and can be read.
    pub fn report(self) -> Option<Report> {
        match self {
            Self::Read(report) => Some(report),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }
}

impl From<Result<Report, UnreadableReport>> for ReportRead {
    fn from(read: Result<Report, UnreadableReport>) -> Self {
        match read {
            Ok(report) => Self::Read(report),
            Err(why) => Self::Unreadable(why),
        }
    }
}

/// Why a report cannot be read: one short line without control characters, for any stored text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableReport(String);

impl UnreadableReport {
    /// Takes as much of the reason as fits a line.
    pub fn because(why: impl fmt::Display) -> Self {
        Self(shown(&why.to_string(), UNREADABLE_CHARS_MAX))
    }
}

impl fmt::Display for UnreadableReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Text from a machine, made safe to show: at most `chars_max` characters, and no character that
/// moves a cursor, changes a colour or reverses the direction of reading.
pub fn shown(text: &str, chars_max: usize) -> String {
    let escaped = text.chars().flat_map(|c| {
        let plain = c == ' ' || !(c.is_control() || c.is_whitespace() || is_invisible(c));
        if plain { Shown::Plain(Some(c)) } else { Shown::Escaped(c.escape_unicode()) }
    });
    escaped.take(chars_max).collect()
}

enum Shown {
    Plain(Option<char>),
    Escaped(std::char::EscapeUnicode),
}

impl Iterator for Shown {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self {
            Self::Plain(c) => c.take(),
            Self::Escaped(escape) => escape.next(),
        }
    }
}

/// Characters that a terminal or a browser acts on and does not draw.
const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A report as a store holds it: each part is a text of any length and content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawReport<'a> {
    /// The beat.
    pub beat: Option<&'a str>,
    /// Each signal's kind and body.
    pub signals: Vec<(&'a str, &'a str)>,
}

impl RawReport<'_> {
    /// The report, if our agent could have written every part of it.
    pub fn read(&self) -> Result<Report, UnreadableReport> {
        if self.signals.len() > REPORT_SIGNALS_MAX {
            return Err(UnreadableReport::because(format_args!(
                "it has more than {REPORT_SIGNALS_MAX} signals"
            )));
        }
        let parts = self.signals.iter().flat_map(|(kind, body)| [kind.len(), body.len()]);
        let bytes: usize = parts.chain(self.beat.map(str::len)).sum();
        if bytes > REPORT_BYTES_MAX {
            return Err(UnreadableReport::because(format_args!(
                "it has {bytes} bytes; at most {REPORT_BYTES_MAX} are read"
            )));
        }
        let beat = self.beat.map(read_beat).transpose()?;
        let mut report = Report { beat, ..Report::default() };
        for (name, body) in &self.signals {
            let (kind, signal) = read_signal(name, body)?;
            report.signals.insert(kind, signal);
        }
        Ok(report)
    }
}

fn read_beat(text: &str) -> Result<Beat, UnreadableReport> {
    let beat: Beat = part("its beat", text)?;
    within("its boot id", &beat.boot, REPORT_BOOT_BYTES_MAX)?;
    Ok(beat)
}

fn read_signal(name: &str, body: &str) -> Result<(SignalKind, Signal), UnreadableReport> {
    let kind = serde_json::from_value(name.into())
        .map_err(|_| UnreadableReport::because(format_args!("there is no signal {name:?}")))?;
    let signal: Signal = part(name, body)?;
    within("a signal's detail", &signal.detail, SIGNAL_DETAIL_BYTES_MAX)?;
    if let Some(RanJob { repository, job, event, run: _, attempt: _ }) = &signal.ran {
        for (what, word) in [
            ("a job's repository", repository.as_str()),
            ("a job's name", job),
            ("a job's event", event),
        ] {
            within(what, word, REPORT_WORD_BYTES_MAX)?;
        }
    }
    Ok((kind, signal))
}

fn part<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, UnreadableReport> {
    within(what, text, REPORT_PART_BYTES_MAX)?;
    serde_json::from_str(text)
        .map_err(|error| UnreadableReport::because(format_args!("{what}: {error}")))
}

fn within(what: &str, text: &str, bytes_max: usize) -> Result<(), UnreadableReport> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    let bytes = text.len();
    Err(UnreadableReport::because(format_args!(
        "{what} has {bytes} bytes; at most {bytes_max} are read"
    )))
}

impl Report {
    /// The report without the signals that its machine cannot know, by its record. The ledger has
    /// not reached a later generation, so its signals are dropped. Before a job can have changed
    /// machines, a signal that names another owner is dropped too. A signal without an owner comes
    /// from an older agent, or is about the machine itself.
    #[must_use]
    pub fn believed(mut self, record: &Record) -> Self {
        let owner = match &record.state {
            State::Created { owner, .. } | State::Claimed { owner, .. } => Some(owner),
            State::Running { .. }
            | State::Idle { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminating { .. }
            | State::Terminated { .. } => None,
        };
        let names_another = |signal: &Signal| match (owner, &signal.owner) {
            (Some(owner), Some(named)) if signal.generation == record.generation => owner != named,
            _ => false,
        };
        self.signals.retain(|_, signal| {
            let is_ahead = signal.generation > record.generation;
            (!is_ahead || sabotage!("future-generations-acknowledge")) && !names_another(signal)
        });
        self
    }
}
