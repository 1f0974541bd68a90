//! `[limits]` of `bullpen.toml`: the numbers of [`Limits`] by their keys.
//!
//! Not here: the numbers, their meaning and their relations (`limits`).

use super::super::finding::{Findings, TextPosition};
use super::super::node::MappingEntry;
use super::super::read::{ConfigKey, Fields, MappingShape, duration, positive, used};
use crate::limits::{BrokenRelation, Limit, LimitField, Limits};

const KEYS: [ConfigKey; Limits::ALL.len()] = {
    let mut keys = [const { used("") }; Limits::ALL.len()];
    let mut index = 0;
    while index < keys.len() {
        keys[index] = used(Limits::ALL[index].key);
        index += 1;
    }
    keys
};

fn overridden(fields: &Fields<'_>, findings: &mut Findings) -> Limits {
    let mut limits = Limits::DEFAULT;
    for Limit { key, field, .. } in Limits::ALL {
        let Some(node) = fields.get(key) else { continue };
        match field {
            LimitField::Duration(field) => {
                if let Some(given) = duration(node, key, findings) {
                    *field(&mut limits) = given;
                }
            }
            LimitField::Count(field) => {
                if let Some(given) = positive(node, key, findings) {
                    *field(&mut limits) = given;
                }
            }
        }
    }
    limits
}

/// The keys of `[limits]`.
pub const LIMITS: MappingShape = MappingShape { name: "`[limits]`", keys: &KEYS };

/// The default limits, overridden by the file.
pub(super) fn read(fields: &Fields<'_>, findings: &mut Findings) -> Limits {
    let limits = overridden(fields, findings);
    if let Err(broken) = limits.check() {
        findings.error(culprit(fields, broken), "broken-relation", broken.rule);
    }
    limits
}

/// The first entry that breaks this relation: without it, the relation holds.
fn culprit(fields: &Fields<'_>, broken: BrokenRelation) -> TextPosition {
    for entry in fields.entries() {
        let others = fields.entries().iter().filter(|other| other.key != entry.key);
        let others: Vec<MappingEntry> = others.cloned().collect();
        let without = overridden(&fields.holding(&others), &mut Findings::default());
        if without.check() != Err(broken) {
            return entry.mark;
        }
    }
    fields.mark
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    use super::*;
    use crate::config::{forms, stack};

    /// The longest line of the file.
    const COLUMNS: usize = 100;

    /// The heading of the section in `config.default.toml`, after which only the numbers come.
    const HEADING: &str = "\n[limits]\n";

    /// Every number with what is said of it, as in `config.default.toml`.
    fn section() -> String {
        let mut limits = Limits::DEFAULT;
        let mut text = String::new();
        for Limit { key, doc, field } in Limits::ALL {
            let value = match field {
                LimitField::Duration(field) => {
                    format!("\"{}\"", forms::duration_text(*field(&mut limits)))
                }
                LimitField::Count(field) => field(&mut limits).to_string(),
            };
            let mut line = "#".to_owned();
            for word in doc.split_whitespace() {
                if line.len() + 1 + word.len() > COLUMNS {
                    let _ = writeln!(text, "{line}");
                    "#".clone_into(&mut line);
                }
                line.push(' ');
                line.push_str(&word.replace('`', ""));
            }
            let _ = writeln!(text, "{line}\n{key} = {value}");
        }
        text
    }

    /// `BULLPEN_BLESS=1` writes the section again.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "only a variable can pass an option to a test")]
    fn the_defaults_document_every_number_with_its_value() {
        let (before, stored) = stack::DEFAULTS.split_once(HEADING).expect("the section is there");
        let section = section();
        if std::env::var("BULLPEN_BLESS").is_ok_and(|value| value == "1") {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config.default.toml");
            std::fs::write(path, format!("{before}{HEADING}{section}")).expect("a file of ours");
            return;
        }
        assert!(
            stored == section,
            "[limits] of config.default.toml differs from the numbers; write it again with \
             `BULLPEN_BLESS=1 cargo test -p bullpen-core`"
        );
    }

    #[test]
    fn a_broken_relation_is_found_at_the_key_that_breaks_it() {
        let text = "[limits]\nheartbeat = \"5s\"\nheartbeat-stale = \"9s\"\n";
        let findings = stack::read(text.as_bytes(), &BTreeMap::new()).into_parts().1;
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let expected =
            "3:1: error: heartbeat-stale must be at least three heartbeats [broken-relation]";
        assert_eq!(texts, [expected]);
    }
}
