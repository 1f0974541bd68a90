//! The values of labels: names, yes or no, amounts, families, and words of closed sets.
//!
//! A parser reads one text and returns a value or the reason why it is invalid; a runner's
//! configuration uses the same forms. Equal values are written as equal texts.
//!
//! Not here: volumes (`volume`), or the policy's limits (`policy`).

use std::collections::BTreeSet;
use std::fmt;

use crate::request::TypePattern;
use crate::spelling;

/// More vCPUs or GiB than any machine has; a larger amount is a mistake.
pub const AMOUNT_MAX: u32 = 65_536;
/// A list with more items than this is refused; no sensible list is as long.
pub const LIST_ITEMS_MAX: usize = 32;

/// A text that is not a valid value of its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not an amount.
    #[error("{0:?} is not an amount above 0 such as 4, 0.5 or 4+16")]
    Amount(String),
    /// Larger than any machine or volume.
    #[error("{asked:?} is more than there is; the most is {most}")]
    TooLarge {
        /// The amount in the label.
        asked: String,
        /// The maximum.
        most: u32,
    },
    /// A list that is too long.
    #[error("the list has more than {LIST_ITEMS_MAX} items")]
    TooMany,
    /// Not a machine family or type.
    #[error("{0:?} is not a machine family or type such as c7a, c7a.* or c7a.large")]
    Family(String),
    /// Not a part of a volume.
    #[error("{0:?} is not a part of a volume; write it as 80gb:gp3:125mibps:3000iops")]
    VolumePart(String),
    /// A part of a volume that is given twice, such as two sizes.
    #[error("{0:?} gives the volume's {1} a second time")]
    VolumeTwice(String, &'static str),
    /// A sticky volume without a size.
    #[error("a volume that is kept needs a size such as 40gb")]
    NoSize,
    /// Not one of a closed set of words.
    #[error("{text:?} is not one of {}{}", .known.join(", "), spelling::hint(.suggestions))]
    Word {
        /// The text.
        text: String,
        /// The words of the set.
        known: Vec<&'static str>,
        /// Similar words.
        suggestions: Vec<&'static str>,
    },
    /// Not a name.
    #[error("{0:?} is not a name: letters, digits, `.`, `_` and `-`, at most 64")]
    Name(String),
    /// Not an image id.
    #[error("{0:?} is not an image id such as ami-0123456789abcdef0")]
    Ami(String),
}

impl ValueError {
    pub(super) fn word(text: &str, known: &[&'static str]) -> Self {
        let suggestions = spelling::nearest(text, known.iter().copied());
        Self::Word { text: short(text), known: known.to_vec(), suggestions }
    }
}

/// The part of an untrusted text that messages show.
pub(super) fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The items of a `+` list, empty items included; the caller refuses those.
fn items(text: &str) -> Result<Vec<&str>, ValueError> {
    let items: Vec<&str> = text.split('+').take(LIST_ITEMS_MAX + 1).collect();
    if items.len() > LIST_ITEMS_MAX { Err(ValueError::TooMany) } else { Ok(items) }
}

/// A range of amounts, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AmountRange {
    /// The minimum.
    pub min_milli: u32,
    /// The maximum; equal to the minimum for a single amount.
    pub max_milli: u32,
}

impl AmountRange {
    /// Exactly this amount.
    pub const fn exactly(whole: u32) -> Self {
        let milli = whole.saturating_mul(1_000);
        Self { min_milli: milli, max_milli: milli }
    }

    /// Reads `4`, `0.5`, or a list, of which the lowest and the highest amount are the bounds.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let amounts = items(text)?.into_iter().map(milli).collect::<Result<Vec<_>, _>>()?;
        let bounds = amounts.iter().min().zip(amounts.iter().max());
        bounds
            .map(|(&min_milli, &max_milli)| Self { min_milli, max_milli })
            .ok_or_else(|| ValueError::Amount(short(text)))
    }
}

fn milli(text: &str) -> Result<u32, ValueError> {
    let wrong = || ValueError::Amount(short(text));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return Err(wrong());
    }
    let large = || ValueError::TooLarge { asked: short(text), most: AMOUNT_MAX };
    let whole: u32 = whole.parse().map_err(|_| large())?;
    let fraction: u32 = format!("{fraction:0<3}").parse().map_err(|_| wrong())?;
    let milli = whole.checked_mul(1_000).and_then(|milli| milli.checked_add(fraction));
    match milli {
        Some(0) => Err(wrong()),
        Some(milli) if milli <= AMOUNT_MAX * 1_000 => Ok(milli),
        _ => Err(large()),
    }
}

impl fmt::Display for AmountRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_milli(f, self.min_milli)?;
        if self.max_milli != self.min_milli {
            f.write_str("+")?;
            write_milli(f, self.max_milli)?;
        }
        Ok(())
    }
}

fn write_milli(f: &mut fmt::Formatter<'_>, milli: u32) -> fmt::Result {
    let (whole, rest) = (milli / 1_000, milli % 1_000);
    if rest == 0 {
        return write!(f, "{whole}");
    }
    write!(f, "{whole}.{}", format!("{rest:03}").trim_end_matches('0'))
}

/// Reads a list of families. `c7` means every type that begins so, as in `c7*`; an item with a size
/// or a `*` stays as it is.
pub fn parse_families(text: &str) -> Result<Vec<TypePattern>, ValueError> {
    let mut families = Vec::new();
    for item in items(text)? {
        let item = item.to_ascii_lowercase();
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'*' | b'-');
        let dotted = item.starts_with('.') || item.ends_with('.') || item.matches('.').count() > 1;
        if item.is_empty() || dotted || !item.bytes().all(known) {
            return Err(ValueError::Family(short(&item)));
        }
        let whole = item.contains(['.', '*']);
        let pattern = TypePattern::new(&if whole { item } else { format!("{item}*") });
        if !families.contains(&pattern) {
            families.push(pattern);
        }
    }
    Ok(families)
}

/// Defines a closed set of words, each with its spellings; it is written in the first spelling.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $first:literal $(| $other:literal)*),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant),+
        }

        impl $name {
            const WORDS: &[&'static str] = &[$($first $(, $other)*),+];

            /// The word, in its first spelling.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $first),+
                }
            }

            /// The word with this spelling, if it is in the set.
            pub fn find(text: &str) -> Option<Self> {
                match text {
                    $($first $(| $other)* => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Reads a word of the set.
            pub fn parse(text: &str) -> Result<Self, ValueError> {
                Self::find(text).ok_or_else(|| ValueError::word(text, Self::WORDS))
            }
        }
    };
}

pub(super) use words;

words! {
    /// Whether to use spot capacity, and how EC2 chooses it.
    Spot {
        /// On-demand only.
        Never = "false" | "never",
        /// Cheap and likely to stay; plain `true` means this.
        PriceCapacityOptimized = "price-capacity-optimized" | "true" | "pco",
        /// The cheapest.
        LowestPrice = "lowest-price" | "lp",
        /// The least likely to be interrupted.
        CapacityOptimized = "capacity-optimized" | "co",
    }
}

words! {
    /// Whether a job that lost its machine is tried again.
    Retry {
        /// If EC2 interrupted the spot instance.
        WhenInterrupted = "when-interrupted",
        /// Never.
        Never = "false",
    }
}

words! {
    /// An addition to a machine.
    Extra {
        /// A cache in S3.
        S3Cache = "s3-cache",
        /// A shared file system.
        Efs = "efs",
        /// Scratch space in memory.
        Tmpfs = "tmpfs",
        /// A cache of container images.
        EcrCache = "ecr-cache",
        /// Telemetry.
        Otel = "otel",
    }
}

/// Reads a list of additions.
pub fn parse_extras(text: &str) -> Result<BTreeSet<Extra>, ValueError> {
    items(text)?.into_iter().map(Extra::parse).collect()
}

/// Reads a name.
pub fn parse_name(text: &str) -> Result<String, ValueError> {
    let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let fits = (1..=64).contains(&text.len()) && text.bytes().all(known);
    if fits { Ok(text.to_owned()) } else { Err(ValueError::Name(short(text))) }
}

/// Reads an AMI's id.
pub fn parse_ami(text: &str) -> Result<String, ValueError> {
    let digits = text.strip_prefix("ami-").unwrap_or("");
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let fits = (8..=17).contains(&digits.len()) && digits.bytes().all(hex);
    if fits { Ok(text.to_owned()) } else { Err(ValueError::Ami(short(text))) }
}

/// Reads yes or no.
pub fn parse_bool(text: &str) -> Result<bool, ValueError> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(ValueError::word(text, &["true", "false"])),
    }
}
