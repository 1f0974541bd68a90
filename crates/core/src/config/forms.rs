//! The small languages inside values: ranges, families, volumes, spot, durations.
//!
//! Each is read from text alone, so that a label can use it too. The error says what is wrong in a
//! lowercase fragment.
//!
//! Not here: where the text stands (`read`).

use std::time::Duration;

use crate::request::TypePattern;

/// Larger than any machine, in thousandths: a bound for arithmetic, not a promise.
const MILLI_MAX: u64 = 1_000_000_000;
/// Ten years: longer is a slip of the keyboard.
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

/// `c7` stands for `c7*`; with a dot or a star it is already a pattern. `+` joins several.
pub fn family(text: &str) -> Result<Vec<TypePattern>, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || ['.', '*', '-'].contains(&c);
    let one = |part: &str| {
        if part.is_empty() || !part.chars().all(legal) {
            return Err(
                "a family is letters, digits, `.`, `-` and `*`, such as `t3` or `c7a.*`".to_owned()
            );
        }
        let whole = part.contains(['.', '*']);
        Ok(TypePattern::new(&if whole { part.to_owned() } else { format!("{part}*") }))
    };
    text.split('+').map(one).collect()
}

/// Whether and how spot capacity is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// On-demand only.
    Never,
    /// Cheap and unlikely to be taken away.
    PriceCapacityOptimized,
    /// The cheapest.
    LowestPrice,
    /// The least likely to be taken away.
    CapacityOptimized,
}

impl Spot {
    /// Every spelling.
    pub const SPELLINGS: [(&'static str, Self); 9] = [
        ("true", Self::PriceCapacityOptimized),
        ("false", Self::Never),
        ("never", Self::Never),
        ("pco", Self::PriceCapacityOptimized),
        ("price-capacity-optimized", Self::PriceCapacityOptimized),
        ("lp", Self::LowestPrice),
        ("lowest-price", Self::LowestPrice),
        ("co", Self::CapacityOptimized),
        ("capacity-optimized", Self::CapacityOptimized),
    ];
}

/// A disk's kind, by its EC2 name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are EC2's")]
pub enum VolumeKind {
    Gp2,
    Gp3,
    Io1,
    Io2,
    St1,
    Sc1,
    Standard,
}

const VOLUME_KINDS: [(&str, VolumeKind); 7] = [
    ("gp2", VolumeKind::Gp2),
    ("gp3", VolumeKind::Gp3),
    ("io1", VolumeKind::Io1),
    ("io2", VolumeKind::Io2),
    ("st1", VolumeKind::St1),
    ("sc1", VolumeKind::Sc1),
    ("standard", VolumeKind::Standard),
];

/// A machine's disk. What is not said is the image's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// In GiB.
    pub size_gib: Option<u32>,
    /// Its kind.
    pub kind: Option<VolumeKind>,
    /// In MiB per second.
    pub throughput_mibps: Option<u32>,
    /// Operations per second.
    pub iops: Option<u32>,
}

impl Volume {
    /// Reads `80gb:gp3:125mibps:3000iops`; the parts in any order, each at most once.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut volume = Self::default();
        for part in text.split(':') {
            volume.part(part)?;
        }
        Ok(volume)
    }

    fn part(&mut self, part: &str) -> Result<(), String> {
        let folded = part.to_ascii_lowercase();
        let twice = |was_there: bool| {
            if was_there {
                Err(format!("`{folded}` is a second word for the same"))
            } else {
                Ok(())
            }
        };
        if let Some((_, kind)) = VOLUME_KINDS.iter().find(|(name, _)| *name == folded) {
            return twice(self.kind.replace(*kind).is_some());
        }
        let unit_at = folded.find(|c: char| !c.is_ascii_digit()).unwrap_or(folded.len());
        let (number, unit) = folded.split_at(unit_at);
        let number = number.parse().ok().filter(|number| *number > 0);
        let slot = match unit {
            "gb" | "gib" => &mut self.size_gib,
            "mibps" | "mbps" | "mbs" => &mut self.throughput_mibps,
            "iops" => &mut self.iops,
            _ => {
                let known = "a size as `80gb`, a kind as `gp3`, `125mibps` or `3000iops`";
                return Err(format!("{} is neither {known}", super::read::shown(part)));
            }
        };
        let Some(number) = number else {
            return Err(format!("{} has no number in front of its unit", super::read::shown(part)));
        };
        twice(slot.replace(number).is_some())
    }
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

/// The shortest text that [`duration`] reads as this.
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
    fn families_without_a_dot_or_star_are_prefixes() {
        let patterns = |text| {
            family(text)
                .map(|all| all.iter().map(|one| one.as_str().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(patterns("t3"), Ok(vec!["t3*".to_owned()]));
        assert_eq!(patterns("m7i.*+M7a"), Ok(vec!["m7i.*".to_owned(), "m7a*".to_owned()]));
        assert_eq!(patterns("c7a.large"), Ok(vec!["c7a.large".to_owned()]));
        assert!(patterns("c7 m7").is_err());
        assert!(patterns("c7+").is_err());
    }

    #[test]
    fn a_volume_is_read_in_any_order() {
        let volume = Volume {
            size_gib: Some(30),
            kind: Some(VolumeKind::Gp3),
            throughput_mibps: Some(125),
            iops: Some(3_000),
        };
        for text in
            ["gp3:30gb:125mbps:3000iops", "3000iops:125mibps:GP3:30gb", "30gib:gp3:125mbs:3000iops"]
        {
            assert_eq!(Volume::parse(text).as_ref(), Ok(&volume), "{text}");
        }
        for text in ["", "gp3:", "30", "gb", "0gb", "gp3:gp2", "30gb:40gb", "30tb", "99999999999gb"]
        {
            assert!(Volume::parse(text).is_err(), "{text}");
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
