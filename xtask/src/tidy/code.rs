//! Rust text with its comments and literals blanked out, so that a rule about code does not match
//! prose or the rule's own strings.
//!
//! Not here: parsing. This module knows where comments and literals end, and nothing else of Rust.

/// The code of a file: comments, strings and characters become one blank each; lines are kept.
pub(crate) fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_word = code.chars().next_back().is_some_and(is_word);
        if let Some(length) = blank_length(rest, in_word) {
            let (blank, tail) = rest.split_at(length);
            code.push(' ');
            code.extend(blank.chars().filter(|&c| c == '\n'));
            rest = tail;
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// The comments and literals of a file: everything else becomes one blank each; lines are kept.
pub(crate) fn prose_only(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let (mut rest, mut in_word) = (text, false);
    while let Some(first) = rest.chars().next() {
        if let Some(length) = blank_length(rest, in_word) {
            let (said, tail) = rest.split_at(length);
            prose.push_str(said);
            (rest, in_word) = (tail, false);
        } else {
            prose.push(if first == '\n' { first } else { ' ' });
            (rest, in_word) = (&rest[first.len_utf8()..], is_word(first));
        }
    }
    prose
}

/// The lines, counted from 1, on which `needle` stands as a word of its own.
pub(crate) fn lines_with(code: &str, needle: &str) -> Vec<usize> {
    let starts_word = needle.chars().next().is_some_and(is_word);
    let ends_word = needle.chars().next_back().is_some_and(is_word);
    let whole = |&(at, _): &(usize, &str)| {
        let before = code[..at].chars().next_back().is_some_and(is_word);
        let after = code[at + needle.len()..].chars().next().is_some_and(is_word);
        !(starts_word && before || ends_word && after)
    };
    let line = |(at, _): (usize, &str)| 1 + code[..at].matches('\n').count();
    code.match_indices(needle).filter(whole).map(line).collect()
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// How many bytes from the start of `rest` are a comment or a literal, if it starts with one.
fn blank_length(rest: &str, in_word: bool) -> Option<usize> {
    match rest.as_bytes() {
        [b'/', b'/', ..] => Some(rest.find('\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(block_comment(rest)),
        [b'"', ..] => Some(1 + until_unescaped(&rest[1..], '"')),
        [b'\'', b'\\', ..] => Some(1 + until_unescaped(&rest[1..], '\'')),
        [b'\'', ..] => {
            let mut inside = rest[1..].char_indices().skip(1);
            inside.next().filter(|&(_, c)| c == '\'').map(|(at, _)| at + 2)
        }
        [b'r', ..] if !in_word => raw_string(rest, 1),
        [b'b' | b'c', b'r', ..] if !in_word => raw_string(rest, 2),
        _ => None,
    }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let pair = rest.as_bytes().get(at..at + 2);
        if pair == Some(b"/*") {
            depth += 1;
            at += 2;
        } else if pair == Some(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Bytes up to and with the first `end` that no backslash escapes.
fn until_unescaped(rest: &str, end: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        if !escaped && c == end {
            return at + c.len_utf8();
        }
        escaped = !escaped && c == '\\';
    }
    rest.len()
}

/// A raw string whose hashes start after `prefix` bytes; a raw identifier is none.
fn raw_string(rest: &str, prefix: usize) -> Option<usize> {
    let after = &rest[prefix..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opening = prefix + hashes + 1;
    Some(body.find(&end).map_or(rest.len(), |at| opening + at + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_what_code_is_not() {
        assert_eq!(prose_only("a // b\nc"), "  // b\n ");
        assert_eq!(prose_only("f(\"x\");"), "  \"x\"  ");
        assert_eq!(prose_only("word"), "    ");
    }

    #[test]
    fn comments_are_blank() {
        assert_eq!(code_only("a // b\nc"), "a  \nc");
        assert_eq!(code_only("a /* b /* c */\n d */ e"), "a  \n e");
    }

    #[test]
    fn literals_are_blank() {
        assert_eq!(code_only(r#"f("a \" b", 'c')"#), "f( ,  )");
        assert_eq!(code_only("f(r#\"a \" b\"#, '\\'')"), "f( ,  )");
        assert_eq!(code_only("f(br\"a\\\", b\"c\")"), "f( , b )");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_eq!(code_only("fn f<'a>(r#in: &'a str) {}"), "fn f<'a>(r#in: &'a str) {}");
        assert_eq!(code_only("let bar = 'ä';"), "let bar =  ;");
    }

    #[test]
    fn an_unfinished_literal_ends_with_the_file() {
        assert_eq!(code_only("a \"b"), "a  ");
        assert_eq!(code_only("a /* b"), "a  ");
    }

    #[test]
    fn a_needle_is_a_word_of_its_own() {
        assert_eq!(lines_with("async fn f\nasynchronous\nx.await", "async"), [1]);
        assert_eq!(lines_with("my_todo!()\n todo!()", "todo!"), [2]);
    }
}
