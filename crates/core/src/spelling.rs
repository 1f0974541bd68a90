//! Suggestions for an unknown word: the nearest known words.
//!
//! The distance counts inserted, removed and changed characters, and a swap of two neighbours as
//! one change; case does not count. A word further away than a third of its length is no
//! suggestion, because a wrong hint is worse than none.
//!
//! Not here: the lists of known words, or the sentences around a suggestion.

/// A longer word gets no suggestion: a comparison costs the product of both lengths, and untrusted
/// authors write the words.
const WORD_CHARS_MAX: usize = 64;
/// More suggestions than this do not help.
const SUGGESTIONS_MAX: usize = 3;

/// The nearest known words, all at the same distance, at most three; empty if none is near.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word = folded(word);
    if word.is_empty() || word.len() > WORD_CHARS_MAX {
        return Vec::new();
    }
    // In a word of two letters one change is too much to recognise the word.
    let limit = if word.len() < 3 { 0 } else { word.len() / 3 };
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|candidate| {
            // Skips the comparison if the lengths alone differ too much.
            let possible = candidate.chars().count().abs_diff(word.len()) <= limit;
            let far = possible.then(|| distance(&word, &folded(candidate), limit))?;
            (far <= limit).then_some((far, candidate))
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    let least = near.first().map_or(0, |&(far, _)| far);
    // Keeps only the nearest words: the author of `mnoday` did not mean Sunday.
    let best = near.into_iter().take_while(|&(far, _)| far == least);
    best.take(SUGGESTIONS_MAX).map(|(_, word)| word).collect()
}

/// The end of a message: `; did you mean "a" or "b"?`, or an empty text.
pub fn hint(suggestions: &[impl AsRef<str>]) -> String {
    if suggestions.is_empty() {
        return String::new();
    }
    let quoted: Vec<_> = suggestions.iter().map(|word| format!("{:?}", word.as_ref())).collect();
    format!("; did you mean {}?", quoted.join(" or "))
}

fn folded(word: &str) -> Vec<char> {
    word.chars().take(WORD_CHARS_MAX + 1).flat_map(char::to_lowercase).collect()
}

/// Needs only three rows of the usual table; the third is for swapped neighbours. Stops at two rows
/// that exceed the limit, because no later row can be below it, and then returns `usize::MAX`.
fn distance(one: &[char], other: &[char], limit: usize) -> usize {
    let mut before = vec![0; other.len() + 1];
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (i, &a) in one.iter().enumerate() {
        let mut row = Vec::with_capacity(other.len() + 1);
        row.push(i + 1);
        for (j, &b) in other.iter().enumerate() {
            let changed = above[j] + usize::from(a != b);
            let mut least = changed.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a == other[j - 1] && one[i - 1] == b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        let exceeds = |row: &[usize]| row.iter().all(|&far| far > limit);
        if exceeds(&row) && exceeds(&above) {
            return usize::MAX;
        }
        before = std::mem::replace(&mut above, row);
    }
    above[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
        assert_eq!(nearest("mnoday", days), ["monday"]);
        assert_eq!(nearest("Tuseday", days), ["tuesday"]);
        assert_eq!(nearest("MONDAY", days), ["monday"]);
        assert_eq!(nearest("lundi", days), [""; 0]);
        assert_eq!(nearest("", days), [""; 0]);
        assert_eq!(nearest(&"m".repeat(10_000), days), [""; 0]);
        assert_eq!(nearest("cpus", ["cpu", "ram"]), ["cpu"]);
    }

    #[test]
    fn the_distance_counts_a_swap_once() {
        let far = |a: &str, b: &str, limit| distance(&folded(a), &folded(b), limit);
        for (a, b, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("ab", "ba", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(far(a, b, usize::MAX), expected, "{a} {b}");
            assert_eq!(far(a, b, expected), expected, "{a} {b}");
        }
    }

    #[test]
    fn a_hint_reads_as_the_end_of_a_sentence() {
        assert_eq!(hint(&[""; 0]), "");
        assert_eq!(hint(&["a", "b"]), "; did you mean \"a\" or \"b\"?");
    }
}
