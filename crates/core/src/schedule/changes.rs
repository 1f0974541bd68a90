//! When a schedule's target changes.
//!
//! A target depends on nothing but the wall clock's weekday and time of day. Between two changes of
//! the zone's offset the wall clock runs evenly, so the target can change only where the clock
//! passes midnight or a window's end, or where the clock itself is changed. Those instants are the
//! *candidates*; each is asked once. Nothing is sampled, so nothing is missed.
//!
//! Not here: what holds at one instant (the parent module).

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::civil::{Date, Time};

use super::{Schedule, ScheduleEntry, Target, Window, Zone, entry_at};
use crate::time::Timestamp;

/// The longest span a person is shown: ten years, a few thousand changes a pool. The work grows
/// with the days in the span and the windows in the schedule.
pub const SPAN_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// An instant from which another target holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangePoint {
    /// The first instant of it.
    pub at: Timestamp,
    /// What holds from then on, and just before did not.
    pub target: Target,
}

/// Every change from `from` on and before `until`, in order. A change at `from` itself is one of
/// them, at `until` not, so that neighbouring ranges together have what the whole has.
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

/// Whether both make the same target.
fn same(one: Option<&ScheduleEntry>, other: Option<&ScheduleEntry>) -> bool {
    let says = |entry: &ScheduleEntry| (entry.hot, entry.stopped);
    one.map(says) == other.map(says)
        && one.map(|entry| &entry.name) == other.map(|entry| &entry.name)
}

/// Every instant after `before` and ahead of `until` at which the target may change.
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

/// The dates that wall clocks show in the range, and one more at each end: a clock that is put back
/// over midnight shows a later date before an earlier one.
fn dates(zone: &Zone, from: Timestamp, until: Timestamp) -> impl Iterator<Item = Date> {
    let (first, last) = (zone.civil(from).date(), zone.civil(until).date());
    let first = first.yesterday().unwrap_or(first);
    let last = last.tomorrow().unwrap_or(last);
    // The calendar ends in the year 9999; there is no day after that to look at.
    std::iter::successors(Some(first), |date| date.tomorrow().ok())
        .take_while(move |&date| date <= last)
}

/// The times of day at which some entry may begin or end to match.
fn boundaries(schedule: &Schedule) -> Vec<Time> {
    let windows = schedule.entries.iter().filter_map(|entry| entry.when.as_ref()?.window);
    let ends = windows.flat_map(|Window { from, to }| [from.minutes(), to.minutes()]);
    // Midnight is where one day's entries end and another's begin.
    let minutes: BTreeSet<u16> = ends.chain([0]).collect();
    let part = |number: u16| i8::try_from(number).unwrap_or(0);
    minutes.into_iter().filter_map(|m| Time::new(part(m / 60), part(m % 60), 0, 0).ok()).collect()
}
