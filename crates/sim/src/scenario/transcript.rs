//! The transcript: every line of the script, and below it the results.
//!
//! Not here: the results (`runner`).

/// How a line of the transcript begins.
pub(super) const MARK: char = '>';

/// A script's lines with the results below them.
#[derive(Clone, Debug, Default)]
pub(super) struct Transcript(String);

impl Transcript {
    pub(super) fn script(&mut self, line: &str) {
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }

    pub(super) fn results(&mut self, results: &[String]) {
        for line in results.iter().flat_map(|result| result.lines()) {
            self.0.push(MARK);
            self.0.push(' ');
            self.0.push_str(line.trim_end());
            self.0.push('\n');
        }
    }

    pub(super) fn text(self) -> String {
        self.0
    }
}

/// The lines in which two texts differ, with their numbers: `-` for expected lines, `+` for found
/// ones. None if the texts are the same.
pub fn difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let same_start = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let left = old.len().min(new.len()) - same_start;
    let ends = old.iter().rev().zip(new.iter().rev()).take(left);
    let same_end = ends.take_while(|(one, other)| one == other).count();
    let mut difference = Vec::new();
    for (sign, lines) in [('-', &old), ('+', &new)] {
        let differing = lines.iter().enumerate().take(lines.len() - same_end).skip(same_start);
        difference.extend(differing.map(|(index, line)| format!("{sign}{:4} {line}", index + 1)));
    }
    Some(difference.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_only_differing_lines() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let found = difference("a\nb\nc\n", "a\nx\ny\nc\n").unwrap();
        assert_eq!(found, "-   2 b\n+   2 x\n+   3 y");
        assert_eq!(difference("a\n", "a\na\n").unwrap(), "+   2 a");
    }
}
