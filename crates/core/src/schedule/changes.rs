//! When a schedule's target changes.
//!
//! A target depends only on the wall clock's weekday and time of day. Between two changes of the
//! zone's offset the wall clock runs evenly, so the target can change only where the clock passes
//! midnight or an end of a window, or where the offset changes. These instants are the
//! *candidates*; each is evaluated. Because nothing is sampled, no change is missed.
//!
//! Not here: the target at one instant (the parent module).

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::civil::{Date, Time};

use super::{Schedule, ScheduleEntry, Target, Window, Zone, entry_at};
use crate::time::Timestamp;

/// The longest span of a preview: ten years, a few thousand changes for a pool. The work grows with
/// the days in the span and the windows in the schedule.
pub const SPAN_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// An instant at which the target changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangePoint {
    /// The first instant of the new target.
    pub at: Timestamp,
    /// The new target.
    pub target: Target,
}

/// Every change from `from`, inclusive, to `until`, exclusive, in order. So neighbouring ranges
/// together have the changes of the whole range.
pub fn changes(
    schedule: &Schedule,
    zone: &Zone,
    from: Timestamp,
    until: Timestamp,
) -> Vec<ChangePoint> {
    let mut found = Vec::new();
    // The last instant before the range, to tell whether its first instant is a change.
    let before = from.before(Duration::from_millis(1));
    let mut current = entry_at(schedule, zone, before);
    for at in candidates(schedule, zone, before, until) {
        let next = entry_at(schedule, zone, at);
        if !same(current, next) {
            found.push(ChangePoint { at, target: Target::of(next) });
        }
        current = next;
    }
    found
}

/// Whether both entries give the same target.
fn same(one: Option<&ScheduleEntry>, other: Option<&ScheduleEntry>) -> bool {
    let counts = |entry: &ScheduleEntry| (entry.hot, entry.stopped);
    one.map(counts) == other.map(counts)
        && one.map(|entry| &entry.name) == other.map(|entry| &entry.name)
}

/// Every instant after `before` and before `until` at which the target may change.
fn candidates(
    schedule: &Schedule,
    zone: &Zone,
    before: Timestamp,
    until: Timestamp,
) -> BTreeSet<Timestamp> {
    let times = boundaries(schedule);
    let mut found: BTreeSet<Timestamp> = zone.transitions(before, until).collect();
    for date in dates(zone, before, until) {
        let instants = times.iter().flat_map(|&time| zone.instants(date.to_datetime(time)));
        found.extend(instants.filter(|&at| before < at && at < until));
    }
    found
}

/// The dates that the wall clock shows in the range, and one more at each end: a clock set back
/// over midnight shows a later date before an earlier one.
fn dates(zone: &Zone, from: Timestamp, until: Timestamp) -> impl Iterator<Item = Date> {
    let (first, last) = (zone.civil(from).date(), zone.civil(until).date());
    let first = first.yesterday().unwrap_or(first);
    let last = last.tomorrow().unwrap_or(last);
    // The calendar ends in the year 9999, and there is no later day.
    std::iter::successors(Some(first), |date| date.tomorrow().ok())
        .take_while(move |&date| date <= last)
}

/// The times of day at which an entry may start or stop matching.
fn boundaries(schedule: &Schedule) -> Vec<Time> {
    let windows = schedule.entries.iter().filter_map(|entry| entry.when.as_ref()?.window);
    let ends = windows.flat_map(|Window { from, to }| [from.minutes(), to.minutes()]);
    // At midnight one day's entries stop and the next day's start.
    let minutes: BTreeSet<u16> = ends.chain([0]).collect();
    let part = |number: u16| i8::try_from(number).unwrap_or(0);
    minutes.into_iter().filter_map(|m| Time::new(part(m / 60), part(m % 60), 0, 0).ok()).collect()
}
