//! The small languages inside values: numbers, ranges, durations.
//!
//! Each parser takes text alone, so that labels can use it too.
//!
//! Not here: places in the file (`read`).

use std::time::Duration;

/// Larger than any machine, in thousandths: keeps later arithmetic from overflowing.
const MILLI_MAX: u64 = 1_000_000_000;
/// Ten years: a longer duration is a typing error.
const DURATION_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// A positive decimal with at most three places, in thousandths.
pub(crate) fn milli(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let part: u64 = format!("{part:0<3}").parse().ok()?;
    let milli = whole.checked_mul(1_000)?.checked_add(part)?;
    (0 < milli && milli <= MILLI_MAX).then_some(milli)
}

/// `4`, or `4+16` for a range from the lowest to the highest; in thousandths.
pub(crate) fn range(text: &str) -> Option<(u64, u64)> {
    let numbers: Option<Vec<u64>> = text.split('+').map(milli).collect();
    let numbers = numbers?;
    Some((*numbers.iter().min()?, *numbers.iter().max()?))
}

/// Reads `7m`, `90s`, `1h30m`, `500ms`, `14d`.
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
        let millis = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(millis)?))?;
        rest = &rest[letters..];
    }
    (!text.is_empty() && total <= DURATION_MAX).then_some(total)
}

/// The shortest text that [`duration`] parses as this value.
pub fn duration_text(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let exact = units.iter().find(|(unit, _)| millis >= *unit && millis.is_multiple_of(*unit));
    exact.map_or_else(|| "0s".to_owned(), |(unit, name)| format!("{}{name}", millis / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_from_the_lowest_to_the_highest() {
        assert_eq!(range("4"), Some((4_000, 4_000)));
        assert_eq!(range("16+4+8"), Some((4_000, 16_000)));
        assert_eq!(range("0.5"), Some((500, 500)));
        for text in ["", "0", "+", "4+", "-1", "1e3", "1.2345", "4 + 8", "99999999999999999999"] {
            assert_eq!(range(text), None, "{text}");
        }
    }

    #[test]
    fn durations_read_back_as_they_are_written() {
        for (text, seconds) in [("7m", 420), ("90s", 90), ("1h30m", 5_400), ("14d", 1_209_600)] {
            assert_eq!(duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(duration("35ms"), Some(Duration::from_millis(35)));
        for text in
            ["", "7", "m", "7 m", "7M", "-7m", "7m30", "1y", "99999999999999999999s", "4000d"]
        {
            assert_eq!(duration(text), None, "{text}");
        }
        for text in ["7m", "90s", "35ms", "2d", "49h", "0s"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
    }
}
