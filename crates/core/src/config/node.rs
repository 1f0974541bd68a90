//! The tree that YAML and TOML are read into, with the position of each value.
//!
//! A scalar keeps its text and how it was written; the key it belongs to decides its type, so that
//! `22:00` is a time and `099720109477` keeps its zero.
//!
//! Not here: parsing text (`yaml`, `toml`), or reading values out of the tree (`read`).

use super::finding::TextPosition;

/// A value and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) mark: TextPosition,
    pub(crate) value: Value,
    /// Whether the value has an error, so that the pool or file that contains it is not used.
    pub(crate) flawed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<MappingEntry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappingEntry {
    pub(crate) key: String,
    /// The position of the key.
    pub(crate) mark: TextPosition,
    pub(crate) node: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    pub(crate) style: Style,
}

/// How a scalar was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Without quotes: a number, a truth value or nothing, if it looks like one.
    Plain,
    /// With quotes, or as a block: always text.
    Quoted,
    /// From the environment, which has no types: any type that the key asks for.
    Bare,
}

/// The type of a scalar, as YAML and TOML parsers agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    Nothing,
    Bool(bool),
    Number,
    Text,
}

impl Scalar {
    pub(crate) fn kind(&self) -> ScalarKind {
        if self.style != Style::Plain {
            return ScalarKind::Text;
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => ScalarKind::Nothing,
            "true" | "True" | "TRUE" => ScalarKind::Bool(true),
            "false" | "False" | "FALSE" => ScalarKind::Bool(false),
            text if looks_like_a_number(text) => ScalarKind::Number,
            _ => ScalarKind::Text,
        }
    }
}

/// A number by YAML's core schema: integers in three bases, decimals, infinities.
fn looks_like_a_number(text: &str) -> bool {
    let digits =
        |part: &str, radix: u32| !part.is_empty() && part.chars().all(|c| c.is_digit(radix));
    if let Some(octal) = text.strip_prefix("0o") {
        return digits(octal, 8);
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return digits(hex, 16);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let whole = match mantissa.split_once('.') {
        Some((whole, "")) => digits(whole, 10),
        Some(("", part)) => digits(part, 10),
        Some((whole, part)) => digits(whole, 10) && digits(part, 10),
        None => digits(mantissa, 10),
    };
    let power = |text: &str| digits(text.strip_prefix(['-', '+']).unwrap_or(text), 10);
    whole && exponent.is_none_or(power)
}

impl Node {
    /// A value without an error.
    pub(crate) const fn new(mark: TextPosition, value: Value) -> Self {
        Self { mark, value, flawed: false }
    }

    pub(crate) fn scalar(mark: TextPosition, text: impl Into<String>, style: Style) -> Self {
        Self::new(mark, Value::Scalar(Scalar { text: text.into(), style }))
    }

    /// The entries of a mapping; empty for other values.
    pub(crate) fn entries(&self) -> &[MappingEntry] {
        match &self.value {
            Value::Map(entries) => entries,
            Value::Scalar(_) | Value::List(_) => &[],
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.kind() == ScalarKind::Nothing)
    }

    /// Counts nodes and depth, and whether a node is flawed. The parsers bound the depth.
    pub(crate) fn extent(&self) -> TreeSize {
        let over = |children: &mut dyn Iterator<Item = &Self>| {
            let mut extent = TreeSize { nodes: 1, depth: 1, flawed: self.flawed };
            for child in children {
                let inner = child.extent();
                extent.nodes += inner.nodes;
                extent.depth = extent.depth.max(1 + inner.depth);
                extent.flawed |= inner.flawed;
            }
            extent
        };
        match &self.value {
            Value::Scalar(_) => TreeSize { nodes: 1, depth: 1, flawed: self.flawed },
            Value::List(items) => over(&mut items.iter()),
            Value::Map(entries) => over(&mut entries.iter().map(|entry| &entry.node)),
        }
    }
}

/// How large a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeSize {
    pub(crate) nodes: usize,
    pub(crate) depth: usize,
    pub(crate) flawed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquoted_scalars_are_what_everyone_takes_them_for() {
        let kind = |text: &str| Scalar { text: text.to_owned(), style: Style::Plain }.kind();
        for text in ["0", "-1", "+2", "1.5", ".5", "1.", "1e3", "1.5E-3", "0x1f", "0o17", ".inf"] {
            assert_eq!(kind(text), ScalarKind::Number, "{text}");
        }
        for text in ["22:00", "2+4", "1_000", "t3", "-", ".", "e3", "1e", "0x", "yes", "1.2.3", "+"]
        {
            assert_eq!(kind(text), ScalarKind::Text, "{text}");
        }
        assert_eq!(kind("True"), ScalarKind::Bool(true));
        assert_eq!(kind("~"), ScalarKind::Nothing);
        let quoted = Scalar { text: "1".to_owned(), style: Style::Quoted };
        assert_eq!(quoted.kind(), ScalarKind::Text);
    }
}
