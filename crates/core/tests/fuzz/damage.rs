//! Damages the checked-in texts: flipped bits, cuts, doubled parts, enormous numbers, nesting.
//!
//! Not here: texts that no program of ours wrote (`arbitrary::json`).

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const FIXTURES: &[&str] = &[
    include_str!("../../fixtures/message/future.json"),
    include_str!("../../fixtures/message/seed-plain.json"),
    include_str!("../../fixtures/message/seed-threshold.json"),
    include_str!("../../fixtures/message/v1.json"),
    include_str!("../../fixtures/message/v1-least.json"),
    include_str!("../../fixtures/mailbox/inbox-assigned-v1.json"),
    include_str!("../../fixtures/mailbox/inbox-assigned-token-v1.json"),
    include_str!("../../fixtures/mailbox/inbox-withdrawn-v1.json"),
    include_str!("../../fixtures/mailbox/inbox-future.json"),
    include_str!("../../fixtures/mailbox/report-v1.json"),
];

/// One kind of damage; places are fractions of the text's length.
#[derive(Clone, Debug)]
enum Damage {
    Flip { place: u16, bit: u8 },
    Cut { from: u16, to: u16 },
    Double { from: u16, to: u16 },
    Truncate { place: u16 },
    BlowUp { which: u16, number: &'static str },
    Nest { which: u16, depth: u16 },
    Swap { one: u16, other: u16 },
}

const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "-0.0",
    "0.5",
    "999999999999999999999999999999999999999999",
];

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<u16>;
    prop_oneof![
        (place(), 0..8_u8).prop_map(|(place, bit)| Damage::Flip { place, bit }),
        (place(), place()).prop_map(|(from, to)| Damage::Cut { from, to }),
        (place(), place()).prop_map(|(from, to)| Damage::Double { from, to }),
        place().prop_map(|place| Damage::Truncate { place }),
        (place(), select(NUMBERS)).prop_map(|(which, number)| Damage::BlowUp { which, number }),
        (place(), 1..400_u16).prop_map(|(which, depth)| Damage::Nest { which, depth }),
        (place(), place()).prop_map(|(one, other)| Damage::Swap { one, other }),
    ]
}

/// A random fixture with one to four damages.
pub(crate) fn damaged_fixture() -> impl Strategy<Value = Vec<u8>> {
    damaged(FIXTURES)
}

/// A random text of these with one to four damages.
pub(crate) fn damaged(texts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    (select(texts), vec(damage(), 1..5)).prop_map(|(text, damages)| {
        damages.iter().fold(text.as_bytes().to_vec(), |bytes, damage| damage.done_to(bytes))
    })
}

impl Damage {
    fn done_to(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if bytes.is_empty() {
            return bytes;
        }
        let length = bytes.len();
        let index = |place: u16| usize::from(place) * length / (usize::from(u16::MAX) + 1);
        let range = |from: u16, to: u16| index(from.min(to))..index(from.max(to));
        match *self {
            Self::Flip { place, bit } => bytes[index(place)] ^= 1 << bit,
            Self::Cut { from, to } => drop(bytes.drain(range(from, to))),
            Self::Double { from, to } => {
                let part = bytes[range(from, to)].to_vec();
                let at = index(from.max(to));
                bytes.splice(at..at, part);
            }
            Self::Truncate { place } => bytes.truncate(index(place)),
            Self::BlowUp { which, number } => replace_value(&mut bytes, which, number.as_bytes()),
            Self::Nest { which, depth } => {
                let depth = usize::from(depth);
                let nest = ["[".repeat(depth), "]".repeat(depth)].concat();
                replace_value(&mut bytes, which, nest.as_bytes());
            }
            Self::Swap { one, other } => bytes.swap(index(one), index(other)),
        }
        bytes
    }
}

/// Replaces one of the text's values by `value`.
fn replace_value(bytes: &mut Vec<u8>, which: u16, value: &[u8]) {
    let colons: Vec<usize> =
        bytes.windows(2).enumerate().filter(|(_, w)| *w == b"\":").map(|(at, _)| at + 2).collect();
    let Some(&start) = colons.get(usize::from(which) % colons.len().max(1)) else { return };
    let rest = &bytes[start..];
    let length = rest.iter().position(|byte| b",}".contains(byte)).unwrap_or(rest.len());
    bytes.splice(start..start + length, value.iter().copied());
}
