//! Weekdays and times of day, in the spelling of a schedule.
//!
//! Not here: instants (`time`), or the wall clock's reading at an instant (`zone`).

use std::fmt;

use crate::spelling;

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weekday {
    /// The first day, as ISO 8601 counts.
    Monday,
    /// The second day.
    Tuesday,
    /// The third day.
    Wednesday,
    /// The fourth day.
    Thursday,
    /// The fifth day.
    Friday,
    /// The sixth day.
    Saturday,
    /// The seventh day.
    Sunday,
}

/// A text that is not a day of the week.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a day of the week{}", spelling::hint(.suggestions))]
pub struct UnknownWeekday {
    /// The text, shortened.
    pub text: String,
    /// Similar days.
    pub suggestions: Vec<&'static str>,
}

impl Weekday {
    /// All days, in order.
    pub const ALL: [Self; 7] = [
        Self::Monday,
        Self::Tuesday,
        Self::Wednesday,
        Self::Thursday,
        Self::Friday,
        Self::Saturday,
        Self::Sunday,
    ];

    /// The day as a schedule writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Monday => "monday",
            Self::Tuesday => "tuesday",
            Self::Wednesday => "wednesday",
            Self::Thursday => "thursday",
            Self::Friday => "friday",
            Self::Saturday => "saturday",
            Self::Sunday => "sunday",
        }
    }

    /// Reads a whole day's name in lower case.
    pub fn parse(text: &str) -> Result<Self, UnknownWeekday> {
        Self::ALL.into_iter().find(|day| day.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str);
            // An abbreviation differs by more letters than a typing error, but is clear.
            let lower = text.to_lowercase();
            let stem = names.into_iter().find(|name| text.len() >= 3 && name.starts_with(&lower));
            let near = spelling::nearest(text, names);
            let suggestions = stem.map_or(near, |name| vec![name]);
            UnknownWeekday { text: text.chars().take(64).collect(), suggestions }
        })
    }

    /// Its index in the week, from Monday as 0.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The day before.
    #[must_use]
    pub const fn previous(self) -> Self {
        match self {
            Self::Monday => Self::Sunday,
            Self::Tuesday => Self::Monday,
            Self::Wednesday => Self::Tuesday,
            Self::Thursday => Self::Wednesday,
            Self::Friday => Self::Thursday,
            Self::Saturday => Self::Friday,
            Self::Sunday => Self::Saturday,
        }
    }
}

impl fmt::Display for Weekday {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A time of day, to the minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay(u16 /* minutes since midnight, 0..1440 */);

/// A text that is not a time of day.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotATime {
    /// Midnight is the beginning of a day, not its end.
    #[error("24:00 is not a time of day; midnight is 00:00")]
    EndOfDay,
    /// Any other text.
    #[error("{text:?} is not a time of day between 00:00 and 23:59{}", spelling::hint(suggestion.as_slice()))]
    Malformed {
        /// The text, shortened.
        text: String,
        /// The time that the author probably meant.
        suggestion: Option<String>,
    },
}

impl TimeOfDay {
    /// The number of minutes in a day.
    pub const COUNT: u16 = 24 * 60;
    /// 00:00.
    pub const MIDNIGHT: Self = Self(0);

    /// The time this many minutes after midnight, if the day has as many.
    pub const fn from_minutes(minutes: u16) -> Option<Self> {
        if minutes < Self::COUNT { Some(Self(minutes)) } else { None }
    }

    /// Minutes since midnight.
    pub const fn minutes(self) -> u16 {
        self.0
    }

    /// Reads `HH:MM`: two digits each, 00:00 to 23:59.
    pub fn parse(text: &str) -> Result<Self, NotATime> {
        if text == "24:00" {
            return Err(NotATime::EndOfDay);
        }
        let strict = (text.len() == 5).then(|| Self::read(text)).flatten();
        strict.ok_or_else(|| NotATime::Malformed {
            text: text.chars().take(64).collect(),
            suggestion: Self::lenient(text).map(|time| time.to_string()),
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (hours, minutes) = text.split_once(':')?;
        let number = |part: &str| {
            let digits = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| part.parse::<u16>().ok()).flatten()
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        (hours < 24 && minutes < 60).then_some(Self(hours * 60 + minutes))
    }

    /// Reads other spellings that people use: `6:00`, `6`, `06.00`, `06h00`, `06:00:00`.
    fn lenient(text: &str) -> Option<Self> {
        let text = text.trim();
        let colons = text.replace(['.', 'h', 'H'], ":");
        let short = colons.strip_suffix(":00").filter(|rest| rest.contains(':'));
        let text = short.unwrap_or(&colons).trim_end_matches(':');
        if text.contains(':') { Self::read(text) } else { Self::read(&format!("{text}:00")) }
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_minute_of_the_day_reads_back() {
        for minutes in 0..TimeOfDay::COUNT {
            let time = TimeOfDay::from_minutes(minutes).unwrap();
            assert_eq!(TimeOfDay::parse(&time.to_string()), Ok(time));
        }
        assert_eq!(TimeOfDay::from_minutes(TimeOfDay::COUNT), None);
    }

    #[test]
    fn a_malformed_time_is_refused_with_a_suggestion() {
        let error = |text: &str| TimeOfDay::parse(text).unwrap_err().to_string();
        let expected = "is not a time of day between 00:00 and 23:59";
        assert_eq!(error("24:00"), "24:00 is not a time of day; midnight is 00:00");
        for text in ["6:00", "6", "06.00", "06h00", "06:00:00", "6h"] {
            assert_eq!(error(text), format!("{text:?} {expected}; did you mean \"06:00\"?"));
        }
        for text in ["", ":", "25:00", "23:60", "-1:00", "+1:00", "aa:bb", "12:3é", "１２:００"]
        {
            assert_eq!(error(text), format!("{text:?} {expected}"));
        }
        assert!(error(&"9".repeat(10_000)).len() < 200);
    }

    #[test]
    fn days_are_whole_words_and_others_are_explained() {
        for day in Weekday::ALL {
            assert_eq!(Weekday::parse(day.as_str()), Ok(day));
            assert_eq!(Weekday::ALL[day.index()], day);
            assert_eq!(Weekday::ALL[(day.index() + 6) % 7], day.previous());
        }
        let error = |text: &str| Weekday::parse(text).unwrap_err().to_string();
        for (text, meant) in [("Mon", "monday"), ("THU", "thursday"), ("wensday", "wednesday")] {
            let expected = format!("{text:?} is not a day of the week; did you mean \"{meant}\"?");
            assert_eq!(error(text), expected);
        }
        assert_eq!(error("weekend"), "\"weekend\" is not a day of the week");
        assert_eq!(error(""), "\"\" is not a day of the week");
    }
}
