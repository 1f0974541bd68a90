//! Reads values out of the tree: one function for each form of a value.
//!
//! Each function returns the value, or adds a finding and returns `None`. A [`MappingShape`] lists
//! the keys of one kind of mapping; unknown keys are found by it alone.
//!
//! Not here: the meaning of the keys (`runner`, `image`, `pool`, `extension`, `stack`).

use std::borrow::Cow;
use std::time::Duration;

use super::finding::{Finding, Findings, TextPosition};
use super::forms;
use super::node::{MappingEntry, Node, Scalar, ScalarKind, Style, Value};
use crate::spelling::nearest;

/// How many characters of a value a message quotes.
const SHOWN_MAX: usize = 40;

/// How many keys of a mapping are compared with a missing key. None of our mappings has more.
const SLIPS_MAX: usize = 32;

/// The keys of one kind of mapping.
#[derive(Debug)]
pub struct MappingShape {
    /// Its name in messages, such as "a pool".
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [ConfigKey],
}

/// A key of a mapping, and how we support it.
#[derive(Debug)]
pub struct ConfigKey {
    /// Its name in the file.
    pub name: &'static str,
    /// How we support it.
    pub fate: KeySupport,
}

/// How we support a known key.
#[derive(Debug, PartialEq, Eq)]
pub enum KeySupport {
    /// It has an effect.
    Used,
    /// It is accepted because RunsOn has it, and has no effect; the text says what happens instead.
    Ignored(&'static str),
    /// It has an effect, and its name is now this.
    Renamed(&'static str),
}

/// A key with an effect.
pub(super) const fn used(name: &'static str) -> ConfigKey {
    ConfigKey { name, fate: KeySupport::Used }
}

/// A key that is accepted and has no effect.
pub(super) const fn ignored(name: &'static str, why: &'static str) -> ConfigKey {
    ConfigKey { name, fate: KeySupport::Ignored(why) }
}

impl MappingShape {
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known.name == key)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name)
    }
}

/// A mapping whose keys have been checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'n> {
    pub(super) mark: TextPosition,
    shape: &'static MappingShape,
    entries: &'n [MappingEntry],
}

impl<'n> Fields<'n> {
    /// The value of a key, unless it is absent or empty.
    pub(super) fn get(&self, key: &str) -> Option<&'n Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// Whether a key is absent, and no misspelling of it is there, which would be reported already.
    pub(super) fn lacks(&self, key: &str) -> bool {
        let slip = |entry: &MappingEntry| {
            !self.shape.has(&entry.key)
                && nearest(&entry.key, self.shape.names()).first() == Some(&key)
        };
        self.get(key).is_none() && !self.entries.iter().take(SLIPS_MAX).any(slip)
    }

    /// All entries, in the order of the text.
    pub(super) fn entries(&self) -> &'n [MappingEntry] {
        self.entries
    }

    /// A mapping of the same shape with other entries.
    pub(super) fn holding<'m>(&self, entries: &'m [MappingEntry]) -> Fields<'m> {
        Fields { mark: self.mark, shape: self.shape, entries }
    }

    pub(super) fn entry(&self, key: &str) -> Option<&'n MappingEntry> {
        self.entries.iter().find(|entry| entry.key == key && !entry.node.is_nothing())
    }
}

/// A value as messages quote it: short, on one line, in backticks.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    // Quotes need no escape between backticks.
    short = short.replace("\\\"", "\"").replace("\\'", "'");
    let more = if text.chars().nth(SHOWN_MAX).is_some() { "…" } else { "" };
    format!("`{short}{more}`")
}

fn described(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) if scalar.kind() == ScalarKind::Nothing => "nothing".to_owned(),
        Value::Scalar(scalar) if scalar.style == Style::Quoted => {
            format!("the text {}", shown(&scalar.text))
        }
        Value::Scalar(scalar) => shown(&scalar.text),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
    }
}

/// Adds the error that a value has the wrong type.
pub(super) fn wrong<'f>(
    node: &Node,
    key: &str,
    must_be: &str,
    findings: &'f mut Findings,
) -> &'f mut Finding {
    let message = format!("`{key}` must be {must_be}, not {}", described(node));
    findings.error(node.mark, "wrong-type", message)
}

/// The entries of a mapping.
pub(super) fn entries<'n>(
    node: &'n Node,
    key: &str,
    findings: &mut Findings,
) -> &'n [MappingEntry] {
    let Value::Map(entries) = &node.value else {
        wrong(node, key, "a mapping", findings);
        return &[];
    };
    entries
}

/// Reads a mapping of this shape. Unknown keys are errors; `others` are the shapes that a misplaced
/// key may belong to.
pub(super) fn mapping<'n>(
    node: &'n Node,
    shape: &'static MappingShape,
    others: &[&MappingShape],
    findings: &mut Findings,
) -> Option<Fields<'n>> {
    let Value::Map(entries) = &node.value else {
        let message = format!("{} must be a mapping, not {}", shape.name, described(node));
        findings.error(node.mark, "wrong-type", message);
        return None;
    };
    for entry in entries {
        match shape.keys.iter().find(|known| known.name == entry.key) {
            Some(known) => accepted(entry, known, shape, findings),
            None => unknown(entry, shape, others, findings),
        }
    }
    Some(Fields { mark: node.mark, shape, entries })
}

fn accepted(
    entry: &MappingEntry,
    known: &ConfigKey,
    shape: &MappingShape,
    findings: &mut Findings,
) {
    let name = known.name;
    match known.fate {
        KeySupport::Used => {}
        KeySupport::Ignored(why) => {
            let message = format!("`{name}` of {} is accepted and not acted on: {why}", shape.name);
            findings.warning(entry.mark, "not-acted-on", message);
        }
        KeySupport::Renamed(to) => {
            let message = format!("`{name}` is the deprecated spelling of `{to}`");
            findings
                .warning(entry.mark, "deprecated-key", message)
                .instead(format!("write `{to}`"));
        }
    }
    if entry.node.is_nothing() {
        let message = format!("`{name}` has no value and is taken as absent");
        findings
            .warning(entry.mark, "empty-value", message)
            .instead("give it a value or remove it");
    }
}

fn unknown(
    entry: &MappingEntry,
    shape: &MappingShape,
    others: &[&MappingShape],
    findings: &mut Findings,
) {
    let message = format!("unknown key {} in {}", shown(&entry.key), shape.name);
    let meant = findings.did_you_mean(&entry.key, shape.names());
    let finding = findings.error(entry.mark, "unknown-key", message);
    let strayed = || {
        let home = others.iter().find(|other| other.has(&entry.key))?;
        Some(format!("it belongs in {}", home.name))
    };
    let all = || shape.names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    finding.instead = meant.or_else(strayed).or_else(|| Some(format!("known keys are {}", all())));
}

/// Any scalar that is not empty.
pub(super) fn scalar<'n>(
    node: &'n Node,
    key: &str,
    must_be: &str,
    findings: &mut Findings,
) -> Option<&'n Scalar> {
    match &node.value {
        Value::Scalar(scalar) if scalar.kind() != ScalarKind::Nothing => Some(scalar),
        _ => {
            wrong(node, key, must_be, findings);
            None
        }
    }
}

/// Text. Unquoted numbers and booleans are errors: other readers of the file would convert them.
pub(super) fn text<'n>(node: &'n Node, key: &str, findings: &mut Findings) -> Option<&'n str> {
    let scalar = scalar(node, key, "text", findings)?;
    if scalar.kind() != ScalarKind::Text {
        wrong(node, key, "text", findings)
            .instead(format!("put it in quotes: `\"{}\"`", scalar.text));
        return None;
    }
    if scalar.text.is_empty() {
        findings.error(node.mark, "empty-value", format!("`{key}` must not be empty"));
        return None;
    }
    Some(&scalar.text)
}

/// One of the given words.
pub(super) fn choice<T: Copy>(
    node: &Node,
    key: &str,
    choices: &[(&'static str, T)],
    findings: &mut Findings,
) -> Option<T> {
    let names = || choices.iter().map(|(name, _)| *name);
    let listed = names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let listed = format!("one of {listed}");
    let scalar = scalar(node, key, &listed, findings)?;
    let found = choices.iter().find(|(name, _)| *name == scalar.text).map(|(_, choice)| *choice);
    if found.is_none() {
        let message = format!("`{key}` must be {listed}, not {}", shown(&scalar.text));
        let meant = findings.did_you_mean(&scalar.text, names());
        let finding = findings.error(node.mark, "unknown-value", message);
        finding.instead = meant;
    }
    found
}

/// `true` or `false`, also in quotes, as labels write them.
pub(super) fn boolean(node: &Node, key: &str, findings: &mut Findings) -> Option<bool> {
    let must_be = "`true` or `false`";
    let scalar = scalar(node, key, must_be, findings)?;
    if let ScalarKind::Bool(value) = scalar.kind() {
        return Some(value);
    }
    match scalar.text.as_str() {
        "true" => Some(true),
        "false" => Some(false),
        other => {
            let meant = match other.to_lowercase().as_str() {
                "yes" | "on" | "y" => Some("true"),
                "no" | "off" | "n" => Some("false"),
                _ => None,
            };
            let finding = wrong(node, key, must_be, findings);
            finding.instead = meant.map(|meant| format!("write `{meant}`"));
            None
        }
    }
}

/// A whole number that is not negative.
pub(super) fn count(node: &Node, key: &str, findings: &mut Findings) -> Option<u32> {
    let must_be = "a whole number, 0 or more";
    let scalar = scalar(node, key, must_be, findings)?;
    let digits = scalar.text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = if digits { scalar.text.parse().ok() } else { None };
    match (scalar.style, parsed) {
        (Style::Plain | Style::Bare, Some(number)) => Some(number),
        (Style::Quoted, Some(number)) => {
            wrong(node, key, must_be, findings).instead(format!("remove the quotes: `{number}`"));
            None
        }
        (_, None) => {
            wrong(node, key, must_be, findings);
            None
        }
    }
}

/// A whole number above zero.
pub(super) fn positive(node: &Node, key: &str, findings: &mut Findings) -> Option<u32> {
    let number = count(node, key, findings)?;
    if number == 0 {
        findings.error(node.mark, "out-of-range", format!("`{key}` must be 1 or more"));
    }
    (number > 0).then_some(number)
}

/// A length of time above zero.
pub(super) fn duration(node: &Node, key: &str, findings: &mut Findings) -> Option<Duration> {
    let must_be = "a length of time such as `90s`, `7m` or `1h30m`";
    let scalar = scalar(node, key, must_be, findings)?;
    let read = forms::duration(&scalar.text).filter(|read| !read.is_zero());
    if read.is_none() {
        let message = format!("`{key}` must be {must_be}, above zero, not {}", shown(&scalar.text));
        let finding = findings.error(node.mark, "bad-duration", message);
        if scalar.text.bytes().all(|byte| byte.is_ascii_digit()) {
            finding.instead("add a unit: `ms`, `s`, `m`, `h` or `d`");
        }
    }
    read
}

/// The items of a list. A single scalar is a list of one; a value from the environment is split at
/// its commas.
pub(super) fn items<'n>(
    node: &'n Node,
    key: &str,
    must_be: &str,
    findings: &mut Findings,
) -> Option<Vec<Cow<'n, Node>>> {
    Some(match &node.value {
        Value::List(items) => items.iter().map(Cow::Borrowed).collect(),
        Value::Scalar(scalar) if scalar.style == Style::Bare => {
            let part = |text: &str| Cow::Owned(Node::scalar(node.mark, text.trim(), Style::Bare));
            scalar.text.split(',').map(part).collect()
        }
        Value::Scalar(scalar) if scalar.kind() != ScalarKind::Nothing => vec![Cow::Borrowed(node)],
        _ => {
            wrong(node, key, must_be, findings);
            return None;
        }
    })
}
