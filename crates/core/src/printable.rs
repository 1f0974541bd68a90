//! Text from outside, made safe to show to people: a forged name cannot move a cursor, begin a
//! line, or reverse the order of letters.
//!
//! A character that could do so becomes an escape, such as `\n` or `\u{1b}`.
//!
//! Not here: making JSON, or storing text, which stays as it came.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text on one line.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |c| !is_shown(c))
}

/// The text with its line breaks; the caller has already put text from outside on one line.
pub fn page(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && !is_shown(c))
}

/// The text as Markdown code on one line, exactly as it is: no link, picture, mention or markup of
/// its own.
pub fn markdown(text: &str) -> String {
    let text = one_line(text);
    let run = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(run + 1);
    // Without the spaces a text that begins or ends with ` would lengthen the fence.
    let space = if run > 0 || text.is_empty() { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// Equal JSON, with an escape for every character that a terminal would obey: a JSON writer escapes
/// only the first 32 characters. Line breaks between its parts stay.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| c != '\n' && !is_shown(c);
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            // Outside of strings JSON has no such character, and in strings each has this escape.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

fn escaped(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            match c {
                '\n' | '\r' | '\t' => shown.extend(c.escape_debug()),
                _ => shown.extend(c.escape_unicode()),
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal draws the character as itself, in its place.
fn is_shown(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                // The two joiners between these stay: emoji and some scripts need them.
                | '\u{200b}' | '\u{200e}' | '\u{200f}'
                // Separators of lines, embeddings, overrides, isolates and invisible characters.
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_stay_as_they_are() {
        for name in ["build (ubuntu, 1.2)", "größe", "构建", "a \"b\" \\ 'c' `d`", "👩‍💻 test", ""]
        {
            assert!(matches!(one_line(name), Cow::Borrowed(same) if same == name), "{name}");
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        for (name, shown) in [
            ("\u{1b}[2Jx", r"\u{1b}[2Jx"),
            ("a\rb\nc\td", r"a\rb\nc\td"),
            ("\u{9b}31m", r"\u{9b}31m"),
            ("\u{7}\u{8}\u{7f}\0", r"\u{7}\u{8}\u{7f}\u{0}"),
            ("gpj.\u{202e}exe", r"gpj.\u{202e}exe"),
            ("\u{2066}a\u{2069}\u{200f}\u{feff}", r"\u{2066}a\u{2069}\u{200f}\u{feff}"),
            ("a\u{2028}b\u{e0041}", r"a\u{2028}b\u{e0041}"),
        ] {
            assert_eq!(one_line(name), shown);
        }
        assert_eq!(page("a\n\u{1b}b\r"), "a\n\\u{1b}b\\r");
    }

    #[test]
    fn json_says_the_same_and_steers_nothing() {
        let name = "a\u{7f}\u{9b}31m\u{202e}\u{e0041}\u{feff}ä构 \\ \" 👩‍💻";
        let text = serde_json::to_string_pretty(&serde_json::json!({ "name": name })).unwrap();
        assert!(text.contains('\u{9b}'), "the JSON writer does not escape it");
        let shown = json(&text);
        assert!(shown.contains(r"a\u007f\u009b31m\u202e\udb40\udc41\ufeffä构"), "{shown}");
        assert!(shown.chars().all(|c| c == '\n' || is_shown(c)), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap()["name"], name);
        assert!(matches!(json("{\n  \"a\": 1\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn markdown_has_no_way_out_of_its_span() {
        assert_eq!(markdown("build"), "`build`");
        assert_eq!(markdown("![x](https://x) @all <b>"), "`![x](https://x) @all <b>`");
        assert_eq!(markdown("a` [x](y) `b"), "`` a` [x](y) `b ``");
        assert_eq!(markdown("``"), "``` `` ```");
        assert_eq!(markdown("a\n\n# b"), r"`a\n\n# b`");
        assert_eq!(markdown(""), "`  `");
    }
}
