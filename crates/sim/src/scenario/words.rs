//! The words of one line: plain ones in order, and `key=value` ones in any order.
//!
//! A reader takes the words it knows and then calls [`Words::end`]; a word that is left is an error
//! that names the expected words.
//!
//! Not here: the meaning of words (`parse`).

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bullpen_core::spelling::{hint, nearest};

/// An error in a line, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct Misspelt {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// The error, and the expected words.
    pub what: String,
}

/// A piece of a line, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    line: usize,
    column: usize,
}

impl Word {
    pub(super) fn wrong(&self, what: impl Into<String>) -> Misspelt {
        Misspelt { line: self.line, column: self.column, what: what.into() }
    }

    /// A part of the word, at the same place.
    pub(super) fn piece(&self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self.clone() }
    }

    /// The meaning of the word in a list that must contain it.
    pub(super) fn one_of<T: Clone>(
        &self,
        what: &str,
        known: &[(&'static str, T)],
    ) -> Result<T, Misspelt> {
        if let Some((_, meant)) = known.iter().find(|(name, _)| *name == self.text) {
            return Ok(meant.clone());
        }
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let near = hint(&nearest(&self.text, names.iter().copied()));
        let all = names.join(", ");
        Err(self.wrong(format!("{:?} is no {what}{near} (one of: {all})", self.text)))
    }

    pub(super) fn number<T: std::str::FromStr>(&self) -> Result<T, Misspelt> {
        self.text.parse().map_err(|_| self.wrong(format!("{:?} is not a whole number", self.text)))
    }

    /// A time such as `90s`.
    pub(super) fn time(&self) -> Result<Duration, Misspelt> {
        parse_time(&self.text).ok_or_else(|| {
            self.wrong(format!("{:?} is not a time, such as 500ms, 90s, 10m or 2h", self.text))
        })
    }

    pub(super) fn span(&self) -> Result<Span, Misspelt> {
        let wrong =
            || self.wrong(format!("{:?} is not a count, such as 4, 1..3, ..3 or 4..", self.text));
        let part = |text: &str, absent| match text {
            "" => Ok(absent),
            digits => digits.parse::<u64>().map_err(|_| wrong()),
        };
        let (least, most) = match self.text.split_once("..") {
            Some((least, most)) => (part(least, 0)?, part(most, u64::MAX)?),
            None if self.text.is_empty() => return Err(wrong()),
            None => (part(&self.text, 0)?, part(&self.text, 0)?),
        };
        if least > most { Err(wrong()) } else { Ok(Span { least, most }) }
    }
}

fn parse_time(text: &str) -> Option<Duration> {
    let unit_at = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (digits, unit) = text.split_at(unit_at);
    let count: u64 = digits.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(Duration::from_millis(count.checked_mul(millis)?))
}

/// A range of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Span {
    pub(super) fn holds(self, count: u64) -> bool {
        (self.least..=self.most).contains(&count)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (least, most) if least == most => write!(f, "{least}"),
            (0, most) => write!(f, "..{most}"),
            (least, u64::MAX) => write!(f, "{least}.."),
            (least, most) => write!(f, "{least}..{most}"),
        }
    }
}

/// The words of one line that have not been taken yet.
#[derive(Debug)]
pub(super) struct Words {
    plain: VecDeque<Word>,
    options: Vec<(Word, Word)>,
    asked: Vec<&'static str>,
    after: Word,
}

impl Words {
    /// Splits a line into words; quotes hold words together.
    pub(super) fn of(line: usize, text: &str) -> Result<Self, Misspelt> {
        let mut words = Self {
            plain: VecDeque::new(),
            options: Vec::new(),
            asked: Vec::new(),
            after: Word { text: String::new(), line, column: text.chars().count() + 1 },
        };
        for (column, word) in split(line, text)? {
            let at = |text: &str, column| Word { text: text.to_owned(), line, column };
            match word.split_once('=') {
                Some((key, value)) => {
                    let value_at = column + key.chars().count() + 1;
                    words.options.push((at(key, column), at(value, value_at)));
                }
                None => words.plain.push_back(at(&word, column)),
            }
        }
        Ok(words)
    }

    /// The next plain word, or an error.
    pub(super) fn plain(&mut self, what: &str) -> Result<Word, Misspelt> {
        let missing = || self.after.wrong(format!("{what} is missing"));
        self.plain.pop_front().ok_or_else(missing)
    }

    /// The next plain word, if there is one.
    pub(super) fn more(&mut self) -> Option<Word> {
        self.plain.pop_front()
    }

    /// The value of an option, if it is given.
    pub(super) fn option(&mut self, key: &'static str) -> Option<Word> {
        self.asked.push(key);
        let found = self.options.iter().position(|(given, _)| given.text == key)?;
        Some(self.options.remove(found).1)
    }

    /// The value of a required option.
    pub(super) fn needed(&mut self, key: &'static str) -> Result<Word, Misspelt> {
        let after = self.after.clone();
        self.option(key).ok_or_else(|| after.wrong(format!("{key}=… is missing")))
    }

    /// Every option that is left, in the order of the line.
    pub(super) fn options(&mut self) -> Vec<(Word, Word)> {
        std::mem::take(&mut self.options)
    }

    /// Whether every word has been taken.
    pub(super) fn nothing_left(&self) -> bool {
        self.plain.is_empty() && self.options.is_empty()
    }

    /// The place after the last word.
    pub(super) fn after(&self) -> &Word {
        &self.after
    }

    /// Checks that no word is left.
    pub(super) fn end(self) -> Result<(), Misspelt> {
        if let Some((key, _)) = self.options.first() {
            let near = hint(&nearest(&key.text, self.asked.iter().copied()));
            let known = match self.asked.as_slice() {
                [] => String::from("none is expected here"),
                asked => format!("one of: {}", asked.join(", ")),
            };
            return Err(key.wrong(format!("unknown option {:?}{near} ({known})", key.text)));
        }
        match self.plain.front() {
            None => Ok(()),
            Some(word) => Err(word.wrong(format!("{:?} is one word too many", word.text))),
        }
    }
}

fn split(line: usize, text: &str) -> Result<Vec<(usize, String)>, Misspelt> {
    let mut words: Vec<(usize, String)> = Vec::new();
    let (mut inside, mut quoted) = (false, None);
    for (index, letter) in text.chars().enumerate() {
        let column = index + 1;
        if letter == '"' {
            quoted = if quoted.is_some() { None } else { Some(column) };
        }
        if letter.is_whitespace() && quoted.is_none() {
            inside = false;
            continue;
        }
        if !inside {
            words.push((column, String::new()));
            inside = true;
        }
        if let Some((_, word)) = words.last_mut()
            && letter != '"'
        {
            word.push(letter);
        }
    }
    match quoted {
        None => Ok(words),
        Some(column) => {
            let what = String::from("this quote is not closed");
            Err(Misspelt { line, column, what })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Word {
        Word { text: text.to_owned(), line: 1, column: 1 }
    }

    #[test]
    fn quotes_hold_words_together_and_columns_are_of_the_line() {
        let mut words = Words::of(3, "expect  because=\"no capacity\" x").unwrap();
        assert_eq!(words.plain("a verb").unwrap().column, 1);
        let because = words.option("because").unwrap();
        assert_eq!((because.text.as_str(), because.column), ("no capacity", 17));
        assert_eq!(words.plain("x").unwrap().text, "x");
        assert!(words.end().is_ok());
        assert_eq!(Words::of(3, "a \"b").unwrap_err().column, 3);
    }

    #[test]
    fn times_and_counts_are_read_strictly() {
        assert_eq!(word("90s").time().unwrap(), Duration::from_secs(90));
        assert_eq!(word("250ms").time().unwrap(), Duration::from_millis(250));
        for text in ["", "90", "s", "-1s", "1d", "99999999999999999999h"] {
            assert!(word(text).time().is_err(), "{text}");
        }
        for (text, least, most) in
            [("4", 4, 4), ("1..3", 1, 3), ("..3", 0, 3), ("4..", 4, u64::MAX)]
        {
            let span = word(text).span().unwrap();
            assert_eq!(span, Span { least, most });
            assert_eq!(span.to_string(), text);
        }
        for text in ["", "3..1", "a", "1..b"] {
            assert!(word(text).span().is_err(), "{text}");
        }
    }
}
