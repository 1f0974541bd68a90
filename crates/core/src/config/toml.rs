//! Reads TOML into the tree that YAML is read into.
//!
//! Not here: the meaning of the keys (`stack`).

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use super::finding::{Findings, TextPosition};
use super::node::{MappingEntry, Node, Style, Value};

/// The tree of this text; `None` if the text is not TOML, with a finding for each syntax error.
pub(super) fn read(text: &str, findings: &mut Findings) -> Option<Node> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let lines = Lines::of(text);
    for error in &errors {
        let at = error.span().map_or(TextPosition::START, |span| lines.mark(span.start));
        findings.error(at, "syntax", format!("this is not TOML: {}", error.message()));
    }
    errors.is_empty().then(|| lines.table(TextPosition::START, table.get_ref()))
}

/// The starts of the lines, so that finding a position does not scan the text again.
struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn of(text: &'t str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    fn mark(&self, byte: usize) -> TextPosition {
        let line = self.starts.partition_point(|&start| start <= byte);
        let start = self.starts[line.saturating_sub(1)];
        let column = 1 + self.text[start..self.text.floor_char_boundary(byte)].chars().count();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        TextPosition { line: count(line), column: count(column) }
    }

    /// Sorts the entries by position, because the parser does not keep the order of the text.
    fn table(&self, mark: TextPosition, table: &DeTable<'_>) -> Node {
        let entry = |(key, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
            let mark = self.mark(key.span().start);
            MappingEntry { key: key.get_ref().to_string(), mark, node: self.value(value) }
        };
        let mut entries: Vec<MappingEntry> = table.iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.mark);
        Node::new(mark, Value::Map(entries))
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let mark = self.mark(value.span().start);
        let plain = |text: String| Node::scalar(mark, text, Style::Plain);
        match value.get_ref() {
            DeValue::String(text) => Node::scalar(mark, text.as_ref(), Style::Quoted),
            DeValue::Integer(number) => {
                let read = i128::from_str_radix(number.as_str(), number.radix());
                plain(read.map_or_else(|_| number.as_str().to_owned(), |read| read.to_string()))
            }
            DeValue::Float(number) => plain(number.as_str().to_owned()),
            DeValue::Boolean(value) => plain(value.to_string()),
            DeValue::Datetime(at) => plain(at.to_string()),
            DeValue::Array(items) => {
                Node::new(mark, Value::List(items.iter().map(|item| self.value(item)).collect()))
            }
            DeValue::Table(table) => self.table(mark, table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_with_their_places() {
        let text = "[b]\n\"ü\" = 0x1F\nx = [1, \"a\"]\n[a.c]\ny = true\n";
        let mut findings = Findings::default();
        let root = read(text, &mut findings).unwrap();
        let Value::Map(entries) = &root.value else { panic!("a table") };
        assert_eq!(entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        let Value::Map(b) = &entries[0].node.value else { panic!("a table") };
        assert_eq!(
            b[0].node,
            Node::scalar(TextPosition { line: 2, column: 7 }, "31", Style::Plain)
        );
    }

    #[test]
    fn every_place_that_is_no_toml_is_found() {
        let mut findings = Findings::default();
        assert_eq!(read("a = \nb = [1\n[c\n", &mut findings), None);
        let findings = findings.into_sorted();
        assert!(findings.len() > 1, "{findings:?}");
        assert_eq!(findings[0].mark.line, 1);
    }
}
