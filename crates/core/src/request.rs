//! What a request asks for, and whether a machine satisfies it.
//!
//! A [`TypePattern`] is a machine type in which `*` stands for any characters. It must match the
//! whole type; case does not matter. An empty list of patterns matches nothing.
//!
//! Not here: expanding `family: t3` to `t3*` (`config`), or judging messages (`pickup`).

use serde::{Deserialize, Serialize};

pub mod entry;
pub mod line;
pub mod stranger;

use crate::class::{RunnerClass, Usage};
use crate::ids::{InstanceType, RequestId, SpecHash, TrustGroup};
use crate::job::OnlyUnused;
use crate::spec_hash::drifted;
use crate::time::Timestamp;

/// One pattern over machine types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct TypePattern(String);

// Calls `new`, so that a deserialized pattern is folded to lower case like any other.
impl From<String> for TypePattern {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<TypePattern> for String {
    fn from(pattern: TypePattern) -> Self {
        pattern.0
    }
}

impl TypePattern {
    /// Any text is a pattern. Folds it to lower case once.
    pub fn new(text: &str) -> Self {
        Self(text.to_lowercase())
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole type matches.
    pub fn matches(&self, instance_type: &InstanceType) -> bool {
        glob(self.0.as_bytes(), instance_type.as_str().to_lowercase().as_bytes())
    }
}

/// Matches without recursion and remembers only the last star: when a literal fails, that star
/// takes one byte more. Linear in practice, never worse than the length of the pattern times the
/// text.
pub(crate) fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p + 1, t));
            p += 1;
        } else if p < pattern.len() && pattern[p] == text[t] {
            p += 1;
            t += 1;
        } else if let Some((after_star, taken)) = star {
            star = Some((after_star, taken + 1));
            p = after_star;
            t = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// What a request does when it can get only part of its machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnPartial {
    /// Keeps the machines it has and tries other types, zones and usages until the deadline.
    #[default]
    TopUp,
    /// Fails at once.
    Fail,
}

/// A demand for `count` runners of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its id, which is also its owner name and the beginning of its label.
    pub id: RequestId,
    /// How many times a request of this id began again after it had finished.
    pub incarnation: u32,
    /// The machine shape.
    pub class: RunnerClass,
    /// How many runners.
    pub count: u32,
    /// Spot or on-demand.
    pub usage: Usage,
    /// The machine types that it accepts.
    pub allowed_types: Vec<TypePattern>,
    /// The trust group of the code that will run.
    pub trust: TrustGroup,
    /// When to give up.
    pub deadline: Timestamp,
    /// What to do if only part of the machines is available.
    pub on_partial: OnPartial,
    /// Whether it may launch on-demand instances when EC2 has no spot capacity.
    pub on_demand_fallback: bool,
    /// The spec hash that its machines must have; `None` if it accepts any.
    #[serde(default)]
    pub spec_hash: Option<SpecHash>,
    /// Whether each of its runners serves one job only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// Why it accepts only unused machines; `None` if it accepts used machines of its trust group
    /// too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_unused: Option<OnlyUnused>,
}

impl Request {
    /// Whether this machine type is among the allowed ones.
    pub fn allows(&self, instance_type: &InstanceType) -> bool {
        self.allowed_types.iter().any(|pattern| pattern.matches(instance_type))
    }

    /// Whether a machine with this spec hash equals a machine launched for the request now.
    pub fn fits(&self, built_from: Option<&SpecHash>) -> bool {
        match (&self.spec_hash, built_from) {
            (Some(want), Some(seen)) => !drifted(seen, want),
            _ => true,
        }
    }

    /// Whether a machine last used by `last` may serve this request; an unused machine may serve
    /// any.
    pub fn trusts(&self, last: Option<&TrustGroup>) -> bool {
        last.is_none_or(|group| *group == self.trust)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        TypePattern::new(pattern).matches(&InstanceType::new(text))
    }

    #[test]
    fn patterns_match_whole_strings() {
        for (pattern, text, expected) in [
            ("*", "c6i.large", true),
            ("c*", "c6i.large", true),
            ("c*", "m6i.large", false),
            ("c6i.large", "C6I.Large", true),
            ("c6i.large", "c6i.large2", false),
            ("c6i.", "c6i.large", false),
            ("*.large", "c6i.xlarge", false),
            ("c*.*large", "c6i.2xlarge", true),
            ("c6i?large", "c6i.large", false),
            ("c.*", "c6i.large", false),
            ("", "", true),
            ("", "c6i.large", false),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_pattern_that_was_read_folds_its_case_too() {
        let pattern: TypePattern = serde_json::from_str("\"C6I.*\"").unwrap();
        assert!(pattern.matches(&InstanceType::new("c6i.large")));
        assert_eq!(serde_json::to_string(&pattern).unwrap(), "\"c6i.*\"");
    }

    proptest! {
        /// Compares the matcher with the plain recursive definition.
        #[test]
        fn the_matcher_agrees_with_its_definition(pattern in "[ab*]{0,8}", text in "[ab]{0,8}") {
            fn defined(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => (0..=text.len()).any(|taken| defined(rest, &text[taken..])),
                    Some((byte, rest)) => text.first() == Some(byte) && defined(rest, &text[1..]),
                }
            }
            prop_assert_eq!(matches(&pattern, &text), defined(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
