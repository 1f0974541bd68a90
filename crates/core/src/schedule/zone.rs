//! Time zones: the reading of a place's wall clock at an instant.
//!
//! The zone data is compiled in and never the system's, so a schedule means the same on every
//! machine that runs the same version. Names have IANA's spelling.
//!
//! Not here: which entry of a schedule applies (the parent module).

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use super::time_of_day::{TimeOfDay, Weekday};
use crate::spelling;
use crate::time::Timestamp;

/// A time zone with its past and future clock changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

/// A name that is not an IANA time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not an IANA time zone{}", spelling::hint(.suggestions))]
pub struct UnknownZone {
    /// The text, shortened.
    pub name: String,
    /// Similar zones.
    pub suggestions: Vec<String>,
}

/// The reading of a wall clock, without seconds, which do not matter to a schedule.
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
        // The database ignores case and has a name for the unknown zone. Other readers of the file
        // refuse both, so this reader must too.
        let found = TimeZoneDatabase::bundled()
            .get(name)
            .ok()
            .filter(|zone| zone.iana_name() == Some(name) && !zone.is_unknown());
        found.map(Self).ok_or_else(|| UnknownZone {
            name: name.chars().take(64).collect(),
            suggestions: suggestions(name),
        })
    }

    /// The names of all zones.
    pub fn names() -> Vec<String> {
        TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The reading of its wall clock at this instant.
    pub fn wall_clock(&self, at: Timestamp) -> WallClock {
        let local = self.0.to_datetime(instant(at));
        let day = Weekday::ALL[usize::from(local.weekday().to_monday_zero_offset().unsigned_abs())];
        let minutes =
            u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs());
        WallClock { day, time: TimeOfDay::from_minutes(minutes).unwrap_or(TimeOfDay::MIDNIGHT) }
    }

    /// The instant as date, time of day and offset in this zone, for people.
    pub fn written(&self, at: Timestamp) -> String {
        instant(at).to_zoned(self.0.clone()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
    }

    pub(super) fn civil(&self, at: Timestamp) -> DateTime {
        self.0.to_datetime(instant(at))
    }

    /// The instants at which the wall clock shows this: none if skipped, two if repeated.
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

    /// The clock changes after `from` and before `until`, in order.
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

/// Never fails in practice: every [`Timestamp`] is inside the range of [`jiff::Timestamp`].
fn instant(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

fn suggestions(name: &str) -> Vec<String> {
    let names = Zone::names();
    let near = spelling::nearest(name, names.iter().map(String::as_str));
    if !near.is_empty() {
        return near.into_iter().map(str::to_owned).collect();
    }
    // A city alone, or with the wrong continent.
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
