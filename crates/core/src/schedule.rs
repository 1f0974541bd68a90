//! Schedules: how many machines a pool keeps, by day and time of day.
//!
//! Not here: reading one from a file (`config`).

use std::collections::BTreeSet;

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the days are their own documentation")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// Minutes since midnight, below 1440.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(u16);

impl TimeOfDay {
    /// Reads `HH:MM`. `24:00` is no time of day.
    pub fn parse(text: &str) -> Option<Self> {
        let (hours, minutes) = text.split_once(':')?;
        let two = |part: &str| {
            let digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            if digits { part.parse::<u16>().ok() } else { None }
        };
        let (hours, minutes) = (two(hours)?, two(minutes)?);
        (hours < 24 && minutes < 60).then_some(Self(hours * 60 + minutes))
    }

    /// Minutes since midnight.
    pub const fn minutes(self) -> u16 {
        self.0
    }
}

/// From one time of day to another; over midnight if the end is not after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first minute inside.
    pub from: TimeOfDay,
    /// The first minute outside.
    pub to: TimeOfDay,
}

/// When an entry applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// On these days; on every day if none are named.
    pub days: Option<BTreeSet<Weekday>>,
    /// Inside this window; all day without one.
    pub window: Option<Window>,
}

/// One line of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, for people.
    pub name: String,
    /// How many machines run and wait.
    pub hot: u32,
    /// How many are stopped and wait.
    pub stopped: u32,
    /// When; without it the entry is the fallback.
    pub when: Option<Match>,
}

/// A pool's whole schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The IANA zone whose wall clock decides; checked to exist.
    pub zone: String,
    /// The last entry that matches wins.
    pub entries: Vec<Entry>,
}
