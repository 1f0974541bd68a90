//! Schedules: how many instances a standby pool keeps, by weekday and time of day.
//!
//! An *entry* with a [`Match`] applies while it matches; an entry without is a *fallback* and
//! applies while no other entry does. Among several, the last listed entry wins. If no entry
//! applies, the
//! [`Target`] is zero. A [`Window`] that crosses midnight belongs to the day on which it starts.
//!
//! **When clocks change.** Only the weekday and time of day on the wall clock of the pool's zone
//! decide, so every instant has exactly one target: a window inside the hour that spring skips does
//! not happen, a window inside the hour that autumn repeats happens twice.
//!
//! Not here: reading schedules from a file (`config`), or following them (`pool`).

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

/// A part of a day, half-open: `from` is inside, `to` is not. If both are equal, the whole calendar
/// day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first minute inside.
    pub from: TimeOfDay,
    /// The first minute after it; on the next day if earlier than `from`.
    pub to: TimeOfDay,
}

/// When an entry applies. An absent condition is always true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The days; a window that crosses midnight continues into the next day.
    pub days: Option<BTreeSet<Weekday>>,
    /// The time of day.
    pub window: Option<Window>,
}

impl Match {
    /// Whether it matches while the wall clock shows this day and time.
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

/// The number of instances to keep, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleEntry {
    /// Its name, for people.
    pub name: String,
    /// How many instances to keep running and idle.
    pub hot: u32,
    /// How many instances to keep prepared and stopped.
    pub stopped: u32,
    /// When it applies; without it the entry is a fallback.
    pub when: Option<Match>,
}

/// A pool's schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The IANA name of the zone whose wall clock decides.
    pub zone: String,
    /// The entries in the order of the file, which decides the winner.
    pub entries: Vec<ScheduleEntry>,
}

/// The number of instances that a pool should keep at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The name of the entry that applies; `None` if none does, and then both counts are zero.
    pub entry: Option<String>,
    /// How many instances to keep running and idle.
    pub hot: u32,
    /// How many instances to keep prepared and stopped.
    pub stopped: u32,
}

impl Target {
    /// The target when no entry applies.
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
    /// The index of the entry that applies while the wall clock shows this day and time.
    pub fn entry_at(&self, day: Weekday, time: TimeOfDay) -> Option<usize> {
        let matching =
            |entry: &ScheduleEntry| entry.when.as_ref().is_some_and(|m| m.covers(day, time));
        self.entries
            .iter()
            .rposition(matching)
            .or_else(|| self.entries.iter().rposition(|entry| entry.when.is_none()))
    }
}

/// The target of the pool at this instant.
pub fn target_at(schedule: &Schedule, zone: &Zone, at: Timestamp) -> Target {
    Target::of(entry_at(schedule, zone, at))
}

fn entry_at<'a>(schedule: &'a Schedule, zone: &Zone, at: Timestamp) -> Option<&'a ScheduleEntry> {
    let WallClock { day, time } = zone.wall_clock(at);
    schedule.entry_at(day, time).map(|index| &schedule.entries[index])
}
