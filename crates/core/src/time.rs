//! A point in time as a plain number, so that deciding code never needs a clock.
//!
//! [`Timestamp`] counts milliseconds since the Unix epoch and reads and writes RFC 3339.
//!
//! Not here: the present time (the `Clock` port), or calendars and zones (`schedule`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// 9999-12-30T22:00:00Z: the last second that has a date in every zone, and so the last second that
/// `jiff` reads back.
const MILLIS_MAX: i64 = 253_402_207_200_000;
/// 0001-01-01T00:00:00Z.
const MILLIS_MIN: i64 = -62_135_596_800_000;

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// From milliseconds since the epoch, clamped to the range that can be written and read back.
    pub const fn from_millis(millis: i64) -> Self {
        if millis > MILLIS_MAX {
            Self(MILLIS_MAX)
        } else if millis < MILLIS_MIN {
            Self(MILLIS_MIN)
        } else {
            Self(millis)
        }
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This much later; saturates at the end of the year 9999.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        Self::from_millis(self.0.saturating_add(millis))
    }

    /// This much earlier; saturates at the year 1.
    #[must_use]
    pub fn before(self, wait: Duration) -> Self {
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        Self::from_millis(self.0.saturating_sub(millis))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The time between the two, in either order.
    pub fn distance(self, other: Self) -> Duration {
        self.since(other).max(other.since(self))
    }
}

/// The time in a `Date` header of HTTP.
pub fn http_date(text: &str) -> Option<Timestamp> {
    let parsed = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Timestamp::from_millis(parsed.as_millisecond()))
}

/// A time as a `Date` header has it, in whole seconds.
pub fn to_http_date(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_millisecond(time.as_millis()).unwrap_or_default();
    let zoned = time.to_zoned(jiff::tz::TimeZone::UTC);
    jiff::fmt::strtime::format("%a, %d %b %Y %H:%M:%S GMT", &zoned).unwrap_or_default()
}

/// A text that is not an RFC 3339 instant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an RFC 3339 instant such as 2026-05-31T12:20:00Z")]
pub struct NotAnInstant {
    /// The text, shortened.
    pub text: String,
}

impl FromStr for Timestamp {
    type Err = NotAnInstant;

    fn from_str(text: &str) -> Result<Self, NotAnInstant> {
        jiff::Timestamp::from_str(text)
            .map(|instant| Self::from_millis(instant.as_millisecond()))
            .map_err(|_| NotAnInstant { text: text.chars().take(64).collect() })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => fmt::Display::fmt(&instant, f),
            // Unreachable by construction; printing the number is still better than a panic.
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3339_round_trips() {
        let at: Timestamp = "2025-05-31T12:20:00.250Z".parse().unwrap();
        assert_eq!(at.to_string(), "2025-05-31T12:20:00.25Z");
        assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
        let paris: Timestamp = "2025-05-31T14:20:00.250+02:00".parse().unwrap();
        assert_eq!(paris, at);
    }

    #[test]
    fn the_ends_of_time_saturate_and_still_print() {
        for at in [Timestamp::from_millis(i64::MAX), Timestamp::from_millis(i64::MIN)] {
            assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
            assert_eq!(at.after(Duration::MAX).since(at), at.after(Duration::MAX).distance(at));
        }
    }

    #[test]
    fn dates_of_http_are_read_and_written() {
        let at: Timestamp = "1994-11-06T08:49:37Z".parse().unwrap();
        let text = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(http_date(text), Some(at));
        assert_eq!(to_http_date(at), text);
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn nonsense_names_itself() {
        let error = "tomorrow".parse::<Timestamp>().unwrap_err();
        assert!(error.to_string().contains("\"tomorrow\""), "{error}");
    }
}
