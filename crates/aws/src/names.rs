//! The names of a stack's tables and queues at AWS, and the hash that assigns a key to a shard.
//!
//! Names are derived and never stored, so every rule here is pure and must not change: with a
//! changed rule the service would no longer find what it created before.
//!
//! Not here: creating tables ([`crate::setup`]).

use std::fmt;

/// A stack's name is part of every other name, so it is short.
const STACK_CHARS_MAX: usize = 24;

/// A stack's name: `[a-z0-9-]{1,24}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackName(String);

/// Text that is not a valid stack name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot name a stack: 1 to {STACK_CHARS_MAX} of a-z, 0-9 and -")]
pub struct BadStackName {
    /// The invalid text.
    pub text: String,
}

impl StackName {
    /// Checks the text against the pattern above.
    pub fn new(text: &str) -> Result<Self, BadStackName> {
        let fits = (1..=STACK_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_plain);
        if fits { Ok(Self(text.to_owned())) } else { Err(BadStackName { text: text.to_owned() }) }
    }

    /// The ledger's table.
    #[cfg(feature = "ledger")]
    pub fn state_table(&self) -> String {
        format!("{self}-state")
    }

    /// The mailboxes' table.
    #[cfg(feature = "mailbox")]
    pub fn mailbox_table(&self) -> String {
        format!("{self}-mailbox")
    }
}

impl fmt::Display for StackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const fn is_plain(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')
}

/// FNV-1a, folded: spreads keys evenly and never changes. Not a defence against an attacker.
#[cfg(any(feature = "ledger", feature = "queues"))]
pub(crate) fn spread(text: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    // The low half alone would depend on too few bits of each byte.
    (hash >> 32) ^ (hash & 0xffff_ffff)
}

/// SQS's limit, the suffix of a FIFO queue included.
#[cfg(feature = "queues")]
const QUEUE_CHARS_MAX: usize = 80;
/// The suffix that SQS requires of a FIFO queue's name.
#[cfg(feature = "queues")]
pub(crate) const FIFO_ENDING: &str = ".fifo";

/// A queue's name at SQS, without the FIFO suffix: the stack, then the name unchanged if it is
/// plain and short enough, else as much of it as fits and six digits of its hash.
#[cfg(feature = "queues")]
pub(crate) fn queue(stack: &StackName, name: &bullpen_core::ids::QueueName) -> String {
    /// A hyphen and six hexadecimal digits.
    const MARK_CHARS: usize = 7;
    let prefix = format!("{stack}-");
    let own = name.as_str().strip_prefix(&prefix).unwrap_or(name.as_str());
    let chars_left = QUEUE_CHARS_MAX - FIFO_ENDING.len() - prefix.len();
    if !own.is_empty() && own.len() <= chars_left && own.bytes().all(is_plain) {
        return prefix + own;
    }
    let slug: String = own
        .to_lowercase()
        .bytes()
        .map(|byte| if is_plain(byte) { char::from(byte) } else { '-' })
        .take(chars_left - MARK_CHARS)
        .collect();
    format!("{prefix}{slug}-{:06x}", spread(own) & 0x00ff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_name_is_short_and_plain() {
        for good in ["a", "prod-2", "abcdefghijklmnopqrstuvwx"] {
            assert_eq!(StackName::new(good).unwrap().to_string(), good);
        }
        for bad in ["", "Prod", "a.b", "a_b", "ünder", "abcdefghijklmnopqrstuvwxy"] {
            let error = StackName::new(bad).unwrap_err();
            assert!(error.to_string().contains("1 to 24 of a-z, 0-9 and -"), "{error}");
        }
    }

    #[cfg(feature = "queues")]
    #[test]
    fn a_queue_name_is_kept_if_it_can_be() {
        let stack = StackName::new("prod").unwrap();
        let named = |name: &str| queue(&stack, &name.into());
        assert_eq!(named("prod-linux-x64"), "prod-linux-x64");
        assert_eq!(named("linux-x64"), "prod-linux-x64", "the stack is in front once");
        assert_eq!(named("prod-Linux.X64"), "prod-linux-x64-c3beba", "frozen");
        assert_ne!(named("prod-Linux"), named("prod-linux"));
        assert_ne!(named("prod-a.b"), named("prod-a_b"));
    }

    #[cfg(feature = "queues")]
    #[test]
    fn a_long_queue_name_still_fits_and_stays_apart() {
        let stack = StackName::new("abcdefghijklmnopqrstuvwx").unwrap();
        let long = "x".repeat(200);
        let (one, two) =
            (queue(&stack, &long.as_str().into()), queue(&stack, &(long + "y").as_str().into()));
        assert_ne!(one, two);
        for name in [one, two, queue(&stack, &"☃".into()), queue(&stack, &"".into())] {
            assert!(name.len() + FIFO_ENDING.len() <= QUEUE_CHARS_MAX, "{name}");
            assert!(name.bytes().all(is_plain), "{name}");
        }
    }

    #[cfg(any(feature = "ledger", feature = "queues"))]
    #[test]
    fn spreading_never_changes() {
        assert_eq!(spread(""), 0x4fd0_bfc1);
        assert_eq!(spread("a"), 0x2962_30c0);
    }
}
