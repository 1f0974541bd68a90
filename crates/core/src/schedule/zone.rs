//! Zones: what a clock on the wall of a place shows at an instant.
//!
//! The data is compiled in and never the system's, so a schedule means the same on every machine
//! that runs the same version. Names are spelled as IANA spells them.
//!
//! Not here: what a schedule makes of the reading.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use super::time_of_day::{TimeOfDay, Weekday};
use crate::spelling;
use crate::time::Timestamp;

/// A place's clock, past and future.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

/// A name that is no zone's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not an IANA time zone{}", spelling::hint(.suggestions))]
pub struct UnknownZone {
    /// What was read instead, shortened.
    pub name: String,
    /// The zones it resembles.
    pub suggestions: Vec<String>,
}

/// What a clock on the wall shows; seconds do not matter to a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// The day of the week.
    pub day: Weekday,
    /// The time of day.
    pub time: TimeOfDay,
}

impl Zone {
    /// The zone of this name, such as `Europe/Paris`.
    pub fn parse(name: &str) -> Result<Self, UnknownZone> {
        // The database forgives case, and has a name for a zone that is not known. A schedule that
        // another reader refuses must be refused here.
        let found = TimeZoneDatabase::bundled()
            .get(name)
            .ok()
            .filter(|zone| zone.iana_name() == Some(name) && !zone.is_unknown());
        found.map(Self).ok_or_else(|| UnknownZone {
            name: name.chars().take(64).collect(),
            suggestions: suggestions(name),
        })
    }

    /// The names of all zones there are.
    pub fn names() -> Vec<String> {
        TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// What its wall clocks show at this instant.
    pub fn wall_clock(&self, at: Timestamp) -> WallClock {
        let local = self.0.to_datetime(instant(at));
        let day = Weekday::ALL[usize::from(local.weekday().to_monday_zero_offset().unsigned_abs())];
        let minutes =
            u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs());
        WallClock { day, time: TimeOfDay::from_minutes(minutes).unwrap_or(TimeOfDay::MIDNIGHT) }
    }

    /// The instant with its date, time of day and offset here, for people.
    pub fn written(&self, at: Timestamp) -> String {
        instant(at).to_zoned(self.0.clone()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
    }

    pub(super) fn civil(&self, at: Timestamp) -> DateTime {
        self.0.to_datetime(instant(at))
    }

    /// The instants at which wall clocks show this: none when it is skipped, two when repeated.
    pub(super) fn instants(&self, local: DateTime) -> impl Iterator<Item = Timestamp> {
        let (first, second) = match self.0.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => (Some(offset), None),
            AmbiguousOffset::Gap { .. } => (None, None),
            AmbiguousOffset::Fold { before, after } => (Some(before), Some(after)),
        };
        [first, second].into_iter().flatten().filter_map(move |offset| {
            let instant = offset.to_timestamp(local).ok()?;
            Some(Timestamp::from_millis(instant.as_millisecond()))
        })
    }

    /// When wall clocks are changed after `from` and before `until`, in order.
    pub(super) fn transitions(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = Timestamp> {
        self.0
            .following(instant(from))
            .map(|change| Timestamp::from_millis(change.timestamp().as_millisecond()))
            .take_while(move |&at| at < until)
    }
}

/// Every [`Timestamp`] is one: it is held inside what can be written down.
fn instant(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

fn suggestions(name: &str) -> Vec<String> {
    let names = Zone::names();
    let near = spelling::nearest(name, names.iter().map(String::as_str));
    if !near.is_empty() {
        return near.into_iter().map(str::to_owned).collect();
    }
    // A city alone, or one on the wrong continent.
    let place = |name: &str| name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let wanted = place(&name.replace(' ', "_"));
    names.into_iter().filter(|known| place(known) == wanted).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_they_are() {
        for name in ["UTC", "Etc/UTC", "Europe/Paris", "Australia/Lord_Howe", "America/New_York"] {
            assert_eq!(Zone::parse(name).unwrap().name(), name);
        }
    }

    #[test]
    fn an_unknown_zone_says_what_was_meant() {
        for (name, meant) in [
            ("europe/paris", "; did you mean \"Europe/Paris\"?"),
            ("Europe/Pari", "; did you mean \"Europe/Paris\"?"),
            ("Paris", "; did you mean \"Europe/Paris\"?"),
            ("Europe/New York", "; did you mean \"America/New_York\"?"),
            ("Etc/Unknown", ""),
            ("Mars/Olympus_Mons", ""),
            ("../../etc/passwd", ""),
            ("", ""),
        ] {
            let error = Zone::parse(name).unwrap_err().to_string();
            assert_eq!(error, format!("{name:?} is not an IANA time zone{meant}"));
        }
        assert!(Zone::parse(&"x".repeat(100_000)).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn the_ends_of_time_have_a_reading() {
        let paris = Zone::parse("Europe/Paris").unwrap();
        for millis in [i64::MIN, i64::MAX] {
            let at = Timestamp::from_millis(millis);
            assert!(!paris.written(at).is_empty());
            let _: WallClock = paris.wall_clock(at);
        }
    }
}
