//! Splits a job's labels, in any of their forms, into pairs of key and value.
//!
//! A *head* is `runs-on` or `bullpen`, alone or with `=id`. A label that begins with a head is
//! *packed*: pairs follow, each after `/` or `,`. In an *array* the head is one label and the pairs
//! are others. The *legacy* form is `runs-on-key=value`; there `-` before a known key begins the
//! next pair.
//!
//! Not here: the meaning of the pairs.

use super::finding::{LabelFindings, Problem};
use super::key::LabelKey;
use super::value::short;
use super::{LABEL_BYTES_MAX, LABELS_MAX, PAIRS_MAX};

const HEADS: [&str; 2] = ["runs-on", "bullpen"];
const LEGACY: &str = "runs-on-";
const SEPARATORS: [char; 2] = ['/', ','];
/// The beginning of the labels that `provision` prints; only the request's runners may take such a
/// job.
const OF_A_REQUEST: &str = "warm-";

/// How many hexadecimal digits end such a label, after a dot: 128 bits that cannot be guessed.
const DIGITS: usize = 32;

/// The only request whose runners may take a job with this label. Also reads labels of older
/// versions, which have no digits.
pub(super) fn request_of(label: &str) -> Option<&str> {
    let rest = after(label, OF_A_REQUEST)?;
    let is_bits = |end: &str| end.len() == DIGITS && end.bytes().all(|b| b.is_ascii_hexdigit());
    let id = match rest.rsplit_once('.') {
        Some((id, end)) if is_bits(end) => id,
        _ => rest,
    };
    Some(id).filter(|id| !id.is_empty())
}

/// A key and a value, and the label that has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelPair<'a> {
    pub(super) label: &'a str,
    pub(super) key: &'a str,
    pub(super) value: &'a str,
}

/// The parts of a job's labels.
#[derive(Debug, Default)]
pub(super) struct Split<'a> {
    pub(super) has_head: bool,
    pub(super) id: Option<&'a str>,
    pub(super) dependabot: bool,
    pub(super) of_a_request: bool,
    pub(super) pairs: Vec<LabelPair<'a>>,
    pub(super) findings: LabelFindings,
}

/// The form of one label.
pub(super) enum Form<'a> {
    Packed { id: Option<&'a str>, rest: &'a str },
    Legacy { rest: &'a str },
    Dependabot,
    OfARequest,
    Other,
}

pub(super) fn form(label: &str) -> Form<'_> {
    if label.eq_ignore_ascii_case("dependabot") {
        return Form::Dependabot;
    }
    if request_of(label).is_some() {
        return Form::OfARequest;
    }
    if let Some(rest) = after(label, LEGACY).filter(|rest| rest.contains('=')) {
        return Form::Legacy { rest };
    }
    let Some(tail) = HEADS.iter().find_map(|head| after(label, head)) else { return Form::Other };
    let (id, rest) = tail.split_at(tail.find(SEPARATORS).unwrap_or(tail.len()));
    match id.strip_prefix('=') {
        Some(id) => Form::Packed { id: Some(id), rest },
        None if id.is_empty() => Form::Packed { id: None, rest },
        None => Form::Other,
    }
}

/// The rest after this beginning; case does not matter, because GitHub ignores it in labels.
fn after<'a>(label: &'a str, beginning: &str) -> Option<&'a str> {
    let (head, tail) = label.split_at_checked(beginning.len())?;
    head.eq_ignore_ascii_case(beginning).then_some(tail)
}

pub(super) fn split<'a>(labels: impl Iterator<Item = &'a str>) -> Split<'a> {
    let mut split = Split::default();
    let mut others = Vec::new();
    for (index, label) in labels.enumerate() {
        if index == LABELS_MAX {
            split.add(label, None, Problem::TooManyLabels);
            break;
        }
        split.take(label.trim(), &mut others);
    }
    if split.has_head {
        for label in others {
            split.other(label);
        }
    }
    if let Some(LabelPair { label, key, .. }) = split.pairs.get(PAIRS_MAX).copied() {
        split.add(label, Some(key), Problem::TooManyPairs);
        split.pairs.truncate(PAIRS_MAX);
    }
    split
}

impl<'a> Split<'a> {
    fn take(&mut self, label: &'a str, others: &mut Vec<&'a str>) {
        let form = form(label);
        self.has_head |= matches!(form, Form::Packed { .. } | Form::Legacy { .. });
        if label.len() > LABEL_BYTES_MAX && !matches!(form, Form::OfARequest | Form::Other) {
            return self.add(label, None, Problem::TooLong);
        }
        match form {
            Form::Packed { id, rest } => {
                self.id = self.id.or(id.filter(|id| !id.is_empty()));
                self.packed(label, rest);
            }
            Form::Legacy { rest } => {
                for part in rest.split(SEPARATORS).flat_map(legacy) {
                    self.pair(label, part);
                }
            }
            Form::Dependabot => self.dependabot = true,
            Form::OfARequest => {
                self.of_a_request = true;
                self.add(label, None, Problem::OfARequest);
            }
            Form::Other => others.push(label),
        }
    }

    /// A label without a head, in a job that has one elsewhere.
    fn other(&mut self, label: &'a str) {
        if !label.contains('=') {
            self.add(label, None, Problem::NotForUs);
        } else if label.len() > LABEL_BYTES_MAX {
            self.add(label, None, Problem::TooLong);
        } else {
            self.packed(label, label);
        }
    }

    fn packed(&mut self, label: &'a str, rest: &'a str) {
        rest.split(SEPARATORS).for_each(|part| self.pair(label, part));
    }

    fn pair(&mut self, label: &'a str, part: &'a str) {
        // A template that expands to nothing leaves an empty part behind.
        if part.is_empty() {
            return;
        }
        match part.split_once('=') {
            None => self.add(label, None, Problem::NotAPair { part: short(part) }),
            // Keeps one pair more than the maximum, to detect that there are more.
            Some(_) if self.pairs.len() > PAIRS_MAX => {}
            Some((key, value)) => self.pairs.push(LabelPair { label, key, value }),
        }
    }

    fn add(&mut self, label: &str, key: Option<&str>, problem: Problem) {
        self.findings.add(label, key, problem);
    }
}

/// Splits `cpu=4-ram=8` at each `-` that a known key and `=` follow.
fn legacy(part: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in part.match_indices('-') {
        let next = part[at + 1..].split_once('=').map(|(key, _)| key);
        // A key that contains `-` begins at its first part, not at its second.
        let within = at > start && part[start..at].contains('=');
        if within && next.is_some_and(|key| LabelKey::parse(key).is_some()) {
            parts.push(&part[start..at]);
            start = at + 1;
        }
    }
    parts.push(&part[start..]);
    parts
}
