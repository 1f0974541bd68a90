//! Schedules: how many instances a standby pool keeps, by weekday and time of day.
//!
//! An *entry* names two counts. One with a [`Match`] applies while it matches; one without is the
//! *fallback* and applies while no other does. Among entries that match, the last one listed wins,
//! and so among several fallbacks. Where nothing applies the [`Target`] is zero and names no entry.
//!
//! A window is half-open: its first minute is inside, its last is not. One that crosses midnight
//! belongs to the day it starts on; one that ends where it starts is the whole calendar day.
//!
//! **When clocks change.** Whether an entry matches is asked of the weekday and the time of day that
//! a clock on the wall of the pool's zone shows at the instant, and of nothing else. Every instant
//! has exactly one such reading, so every instant has exactly one target, without a rule for
//! special nights: a window inside the hour that is skipped in spring does not happen that night,
//! one inside the hour that is repeated in autumn happens twice, and one around it is an hour
//! shorter or longer.
//!
//! Not here: reading schedules from a file (`config`), or doing what they say (`pool`).

mod changes;
mod lint;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod time_of_day;
mod zone;

use std::collections::BTreeSet;

pub use changes::{ChangePoint, SPAN_MAX, changes};
pub use lint::{ENTRIES_MAX, ScheduleFinding, ScheduleFindingKind, lint};
pub use time_of_day::{NotATime, TimeOfDay, UnknownWeekday, Weekday};
pub use zone::{UnknownZone, WallClock, Zone};

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A time of day, from the first minute inside to the first that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first minute inside.
    pub from: TimeOfDay,
    /// The first minute after it; the next day's if it is not later than `from`.
    pub to: TimeOfDay,
}

/// When an entry applies. What is not said is always true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// On which days; a window that crosses midnight goes on into the next.
    pub days: Option<BTreeSet<Weekday>>,
    /// At which time of day.
    pub window: Option<Window>,
}

impl Match {
    /// Whether it matches while a wall clock shows this.
    pub fn covers(&self, day: Weekday, time: TimeOfDay) -> bool {
        let on = |day| self.days.as_ref().is_none_or(|days| days.contains(&day));
        match self.window {
            None => on(day),
            Some(Window { from, to }) if from == to => on(day),
            Some(Window { from, to }) if from < to => on(day) && from <= time && time < to,
            Some(Window { from, to }) => {
                (on(day) && from <= time) || (on(day.previous()) && time < to)
            }
        }
    }
}

/// What to keep, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleEntry {
    /// What people call it.
    pub name: String,
    /// How many instances run and wait.
    pub hot: u32,
    /// How many are prepared and stopped.
    pub stopped: u32,
    /// When; without it the entry is the fallback.
    pub when: Option<Match>,
}

/// A pool's schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The IANA name of the zone whose wall clock decides.
    pub zone: String,
    /// In the order they are listed, which decides who wins.
    pub entries: Vec<ScheduleEntry>,
}

/// What a pool should keep at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The name of the entry that says so; nothing if none applies, and then both counts are zero.
    pub entry: Option<String>,
    /// How many instances run and wait.
    pub hot: u32,
    /// How many are prepared and stopped.
    pub stopped: u32,
}

impl Target {
    /// What holds where no entry applies.
    pub const NOTHING: Self = Self { entry: None, hot: 0, stopped: 0 };

    fn of(entry: Option<&ScheduleEntry>) -> Self {
        entry.map_or(Self::NOTHING, |entry| Self {
            entry: Some(entry.name.clone()),
            hot: entry.hot,
            stopped: entry.stopped,
        })
    }
}

impl Schedule {
    /// Which entry applies while a wall clock shows this, by its place in the list.
    pub fn entry_at(&self, day: Weekday, time: TimeOfDay) -> Option<usize> {
        let matching =
            |entry: &ScheduleEntry| entry.when.as_ref().is_some_and(|m| m.covers(day, time));
        self.entries
            .iter()
            .rposition(matching)
            .or_else(|| self.entries.iter().rposition(|entry| entry.when.is_none()))
    }
}

/// What the pool should keep at this instant.
pub fn target_at(schedule: &Schedule, zone: &Zone, at: Timestamp) -> Target {
    Target::of(entry_at(schedule, zone, at))
}

fn entry_at<'a>(schedule: &'a Schedule, zone: &Zone, at: Timestamp) -> Option<&'a ScheduleEntry> {
    let WallClock { day, time } = zone.wall_clock(at);
    schedule.entry_at(day, time).map(|index| &schedule.entries[index])
}
