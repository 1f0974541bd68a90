//! Reads YAML into a tree: resolves anchors, aliases and merge keys, finds duplicate keys.
//!
//! The text, the depth and the number of nodes after expanding aliases are bounded, so that a small
//! file cannot become a large tree. A broken bound or a syntax error gives no tree. After any other
//! error, the parser marks the value as flawed, wherever an alias copies it, and reads on.
//!
//! Not here: the meaning of the keys.

use std::collections::{BTreeMap, BTreeSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::finding::{Findings, TextPosition};
use super::node::{MappingEntry, Node, Style, Value};

/// How deep lists and mappings may be nested, aliases included. RunsOn's file needs six levels.
const DEPTH_MAX: usize = 32;
/// How many nodes a file may have, with aliases expanded. A file with 500 pools has about 15 000.
const NODES_MAX: usize = 200_000;

/// The tree of the only document in this text; `None` if there is no document or an error.
pub(super) fn read(text: &str, findings: &mut Findings) -> Option<Node> {
    let mut tree =
        Tree { findings, stack: Vec::new(), anchors: BTreeMap::new(), root: None, nodes: 0 };
    let mut documents = 0_u32;
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                no_yaml(text, &error, tree.findings);
                return None;
            }
        };
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                let message = "a second document begins here, and only one is read";
                tree.findings
                    .error(mark(span.start), "second-document", message)
                    .instead("remove the line `---` and what follows, or what precedes");
                return None;
            }
        }
        if tree.on(event, span).is_err() {
            return None;
        }
    }
    tree.root
}

fn mark(marker: Marker) -> TextPosition {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    TextPosition {
        line: count(marker.line()).max(1),
        column: count(marker.col()).saturating_add(1),
    }
}

/// Reports a syntax error. A tab is a more common cause than the parser's message suggests.
fn no_yaml(text: &str, error: &ScanError, findings: &mut Findings) {
    let at = mark(*error.marker());
    // The parser notices a tab on its line, one line later, or at the end of the line before.
    let around = [at.line, at.line.saturating_sub(1), at.line.saturating_add(1)];
    if let Some(tab) = around.into_iter().find_map(|line| tab_in_indentation(text, line)) {
        findings
            .error(tab, "tab-indentation", "a tab in the indentation")
            .instead("indent with spaces");
        return;
    }
    if error.info().contains("unknown anchor") {
        let message = "this alias stands for nothing";
        findings.error(at, "unknown-alias", message).instead("put `&name` on a value above it");
        return;
    }
    let message = format!("this is not YAML: {}", error.info().to_lowercase());
    findings.error(at, "syntax", message).instead("check the indentation and quotes up to here");
}

fn tab_in_indentation(text: &str, line: u32) -> Option<TextPosition> {
    let index = usize::try_from(line.checked_sub(1)?).ok()?;
    let content = text.lines().nth(index)?;
    let indentation = content.chars().take_while(|c| [' ', '\t'].contains(c));
    let column = indentation.into_iter().position(|c| c == '\t')?;
    let blank = content.chars().all(char::is_whitespace);
    (!blank).then(|| TextPosition { line, column: u32::try_from(column).unwrap_or(u32::MAX) + 1 })
}

/// A bound was exceeded: there is no tree.
struct Broken;

struct Tree<'f> {
    findings: &'f mut Findings,
    stack: Vec<Frame>,
    /// Complete nodes by anchor. A node that is still being read is missing.
    anchors: BTreeMap<usize, Node>,
    root: Option<Node>,
    nodes: usize,
}

struct Frame {
    mark: TextPosition,
    anchor: usize,
    kind: FrameKind,
    flawed: bool,
}

enum FrameKind {
    List(Vec<Node>),
    Map(Mapping),
}

#[derive(Default)]
struct Mapping {
    entries: Vec<MappingEntry>,
    seen: BTreeMap<String, TextPosition>,
    pending: Option<Pending>,
    merges: Vec<Node>,
    flawed: bool,
}

/// A key whose value is to come.
enum Pending {
    Key {
        key: String,
        mark: TextPosition,
    },
    Merge,
    /// A key with an error; its value is read and dropped.
    Refused,
}

impl Tree<'_> {
    fn on(&mut self, event: Event<'_>, span: Span) -> Result<(), Broken> {
        let at = mark(span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let flawed = !self.known(tag.as_deref(), at);
                let node = Node::scalar(at, text, styled(style, tag.as_deref()));
                self.spend(1, at)?;
                self.complete(Node { flawed, ..node }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                let flawed = !self.known(tag.as_deref(), at);
                self.open(Frame { mark: at, anchor, kind: FrameKind::List(Vec::new()), flawed })
            }
            Event::MappingStart(anchor, tag) => {
                let flawed = !self.known(tag.as_deref(), at);
                let kind = FrameKind::Map(Mapping::default());
                self.open(Frame { mark: at, anchor, kind, flawed })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor, at),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    /// Rejects custom tags, which ask for types of another program. YAML's own tags are harmless.
    fn known(&mut self, tag: Option<&Tag>, at: TextPosition) -> bool {
        let Some(tag) = tag else { return true };
        let says_text = tag.handle == "!" && tag.suffix.is_empty();
        let known = tag.is_yaml_core_schema() || says_text;
        if !known {
            let message = format!("the tag `{tag}` means nothing here");
            self.findings.flaw(at, "unknown-tag", message).instead("remove it");
        }
        known
    }

    fn spend(&mut self, nodes: usize, at: TextPosition) -> Result<(), Broken> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= NODES_MAX {
            return Ok(());
        }
        let message = format!("the file has more than {NODES_MAX} values, counting every alias");
        self.findings.error(at, "too-large", message);
        Err(Broken)
    }

    fn shallow(&mut self, depth: usize, at: TextPosition) -> Result<(), Broken> {
        if depth <= DEPTH_MAX {
            return Ok(());
        }
        let message = format!("nested more than {DEPTH_MAX} deep");
        self.findings.error(at, "too-deep", message);
        Err(Broken)
    }

    fn open(&mut self, frame: Frame) -> Result<(), Broken> {
        self.spend(1, frame.mark)?;
        self.shallow(self.stack.len() + 1, frame.mark)?;
        self.stack.push(frame);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Broken> {
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let (value, flawed) = match frame.kind {
            FrameKind::List(items) => (Value::List(items), false),
            FrameKind::Map(mapping) => self.merged(mapping)?,
        };
        let flawed = flawed || frame.flawed;
        self.complete(Node { mark: frame.mark, value, flawed }, frame.anchor)
    }

    fn alias(&mut self, anchor: usize, at: TextPosition) -> Result<(), Broken> {
        let Some(node) = self.anchors.get(&anchor) else {
            self.findings.error(at, "endless-alias", "an alias inside the value it stands for");
            return Err(Broken);
        };
        let extent = node.extent();
        self.spend(extent.nodes, at)?;
        self.shallow(self.stack.len() + extent.depth, at)?;
        let node = self.anchors[&anchor].clone();
        self.complete(node, 0)
    }

    /// Stores a complete node under its anchor and adds it to its parent.
    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Broken> {
        if anchor > 0 {
            self.spend(node.extent().nodes, node.mark)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut frame.kind {
            FrameKind::List(items) => items.push(node),
            FrameKind::Map(mapping) => mapping.take(node, self.findings),
        }
        Ok(())
    }

    /// Merges `<<` into a mapping: its own keys win over merged ones, earlier merges over later
    /// ones. Also returns whether the result is flawed.
    fn merged(&mut self, mapping: Mapping) -> Result<(Value, bool), Broken> {
        let Mapping { mut entries, merges, mut flawed, .. } = mapping;
        if merges.is_empty() {
            return Ok((Value::Map(entries), flawed));
        }
        let mut keys: BTreeSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
        for merge in merges {
            let extent = merge.extent();
            self.spend(extent.nodes, merge.mark)?;
            flawed |= extent.flawed;
            let sources = match merge.value {
                Value::List(items) => items,
                Value::Map(_) | Value::Scalar(_) => vec![merge],
            };
            for source in sources {
                let Value::Map(more) = source.value else {
                    self.findings
                        .flaw(source.mark, "merge-not-a-mapping", "`<<` merges only mappings")
                        .instead("write `<<: *name` or `<<: [*one, *other]`");
                    flawed = true;
                    continue;
                };
                entries.extend(more.into_iter().filter(|entry| keys.insert(entry.key.clone())));
            }
        }
        Ok((Value::Map(entries), flawed))
    }
}

fn styled(style: ScalarStyle, tag: Option<&Tag>) -> Style {
    let is_text = tag.is_some_and(|tag| tag.suffix == "str" || tag.suffix.is_empty());
    if style == ScalarStyle::Plain && !is_text { Style::Plain } else { Style::Quoted }
}

impl Mapping {
    fn take(&mut self, node: Node, findings: &mut Findings) {
        match self.pending.take() {
            None => self.pending = Some(self.key(node, findings)),
            Some(Pending::Key { key, mark }) => self.entries.push(MappingEntry { key, mark, node }),
            Some(Pending::Merge) => self.merges.push(node),
            Some(Pending::Refused) => {}
        }
    }

    fn key(&mut self, node: Node, findings: &mut Findings) -> Pending {
        let Node { mark, value, flawed } = node;
        self.flawed |= flawed;
        let Value::Scalar(scalar) = value else {
            self.flawed = true;
            findings
                .flaw(mark, "key-not-text", "a key must be a word, not a list or a mapping")
                .instead("quote it if it is meant as text");
            return Pending::Refused;
        };
        let is_merge = scalar.style == Style::Plain && scalar.text == "<<";
        if let Some(first) = self.seen.get(&scalar.text) {
            let shown = super::read::shown(&scalar.text);
            let message = format!("the key {shown} is already there, on line {}", first.line);
            let instead =
                if is_merge { "write `<<: [*one, *other]`" } else { "remove one of them" };
            findings.flaw(mark, "duplicate-key", message).instead(instead);
            self.flawed = true;
            return Pending::Refused;
        }
        self.seen.insert(scalar.text.clone(), mark);
        if is_merge { Pending::Merge } else { Pending::Key { key: scalar.text, mark } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree without positions, as text.
    fn flat(text: &str) -> Result<String, String> {
        fn show(node: &Node) -> String {
            match &node.value {
                Value::Scalar(scalar) => scalar.text.clone(),
                Value::List(items) => {
                    format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" "))
                }
                Value::Map(entries) => {
                    let each =
                        |entry: &MappingEntry| format!("{}:{}", entry.key, show(&entry.node));
                    format!("{{{}}}", entries.iter().map(each).collect::<Vec<_>>().join(" "))
                }
            }
        }
        let mut findings = Findings::default();
        let node = read(text, &mut findings);
        match findings.into_sorted().first() {
            Some(finding) => Err(finding.to_string()),
            None => Ok(node.map(|node| show(&node)).unwrap_or_default()),
        }
    }

    #[test]
    fn aliases_and_merges_are_resolved() {
        for (text, expected) in [
            ("", ""),
            ("a: &x [1, 2]\nb: *x", "{a:[1 2] b:[1 2]}"),
            ("a: &x {k: 1, l: 2}\nb:\n  <<: *x\n  k: 3", "{a:{k:1 l:2} b:{k:3 l:2}}"),
            (
                "a: &x {k: 1}\nb: &y {k: 2, m: 4}\nc: {<<: [*y, *x], z: 0}",
                "{a:{k:1} b:{k:2 m:4} c:{z:0 k:2 m:4}}",
            ),
            ("a: &x 1\nb: &x 2\nc: *x", "{a:1 b:2 c:2}"),
            ("\"<<\": 1", "{<<:1}"),
            ("a: |\n  one\n  two\n", "{a:one\ntwo\n}"),
        ] {
            assert_eq!(flat(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_refused_has_a_place() {
        for (text, says) in [
            ("a: 1\nb: 2\na: 3", "3:1: error: the key `a` is already there, on line 1"),
            ("a:\n\tb: 1", "2:1: error: a tab in the indentation"),
            ("a: 1\n b: 2", "2:3: error: this is not YAML"),
            ("a: *x", "1:4: error: this alias stands for nothing"),
            ("a: &x [*x]", "1:8: error: an alias inside the value"),
            ("[a]: 1", "1:1: error: a key must be a word"),
            ("a: !mine 1", "1:4: error: the tag `!mine` means nothing here"),
            ("a: {<<: 1}", "1:9: error: `<<` merges only mappings"),
            ("a: 1\n---\nb: 2", "2:1: error: a second document begins here"),
        ] {
            let error = flat(text).unwrap_err();
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_small_file_cannot_become_a_large_tree() {
        let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..30 {
            let inner = format!("*a{}", level - 1);
            let line = format!("a{level}: &a{level} [{}]\n", vec![inner; 10].join(", "));
            laughs.push_str(&line);
        }
        assert!(flat(&laughs).unwrap_err().contains("[too-large]"));
        let mut tower = String::from("a0: &a0 [x]\n");
        for level in 1..2_000 {
            let line = format!("a{level}: &a{level} [*a{}]\n", level - 1);
            tower.push_str(&line);
        }
        assert!(flat(&tower).unwrap_err().contains("[too-deep]"));
        for open in ["[", "{a: ", "- ", "? "] {
            assert!(flat(&open.repeat(10_000)).is_err(), "{open}");
        }
    }
}
