//! Suggestions for an unknown word: the nearest known words.
//!
//! The distance counts inserted, removed and changed characters, and a swap of two neighbours as
//! one change; case does not count. A word further away than a third of its length is no
//! suggestion, because a wrong hint is worse than none.
//!
//! Not here: the lists of known words, or the sentences around a suggestion.

use strsim::osa_distance;

/// A longer word gets no suggestion: a comparison costs the product of both lengths, and untrusted
/// authors write the words.
const WORD_CHARS_MAX: usize = 64;
/// More suggestions than this do not help.
const SUGGESTIONS_MAX: usize = 3;

/// The nearest known words, all at the same distance, at most three; empty if none is near.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word = folded(word);
    let chars = word.chars().count();
    if word.is_empty() || chars > WORD_CHARS_MAX {
        return Vec::new();
    }
    // In a word of two letters one change is too much to recognise the word.
    let limit = if chars < 3 { 0 } else { chars / 3 };
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|candidate| {
            // Skips the comparison if the lengths alone differ too much.
            let possible = candidate.chars().count().abs_diff(chars) <= limit;
            let far = possible.then(|| osa_distance(&word, &folded(candidate)))?;
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

fn folded(word: &str) -> String {
    word.chars().take(WORD_CHARS_MAX + 1).flat_map(char::to_lowercase).collect()
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
    fn a_swap_of_neighbours_is_one_change_like_any_other() {
        for word in ["acb", "abcd", "abd", "ABD"] {
            assert_eq!(nearest(word, ["abc", "xyz"]), ["abc"], "{word}");
        }
        assert_eq!(nearest("ab", ["abc"]), [""; 0], "one in two letters");
        assert_eq!(nearest("cab", ["abc"]), [""; 0], "two changes in three letters");
        assert_eq!(nearest("kitten", ["sitting"]), [""; 0], "three in six");
        assert_eq!(nearest("skittens", ["kitten"]), ["kitten"], "two in eight");
        assert_eq!(nearest("größe", ["grösse", "größer"]), ["größer"], "characters, not bytes");
    }

    #[test]
    fn a_hint_reads_as_the_end_of_a_sentence() {
        assert_eq!(hint(&[""; 0]), "");
        assert_eq!(hint(&["a", "b"]), "; did you mean \"a\" or \"b\"?");
    }
}
