//! What was probably meant: the known words nearest to one that is not known.
//!
//! The distance counts inserted, removed and changed characters, and two neighbours in the wrong
//! order as one; case does not count. A word further away than a third of its length is no
//! suggestion: a wrong hint costs more than none.
//!
//! Not here: the lists of known words, or the sentences around a suggestion.

/// A longer word gets no suggestion: comparing costs the product of both lengths, and strangers
/// write the words.
const WORD_CHARS_MAX: usize = 64;
/// More suggestions than this are a list, not a hint.
const SUGGESTIONS_MAX: usize = 3;

/// The known words nearest to this one, equally near, at most three; none if nothing is near.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word = folded(word);
    if word.is_empty() || word.len() > WORD_CHARS_MAX {
        return Vec::new();
    }
    // One change makes any two letters of any two others.
    let limit = if word.len() < 3 { 0 } else { word.len() / 3 };
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|candidate| {
            // The lengths alone may say that it is too far.
            let possible = candidate.chars().count().abs_diff(word.len()) <= limit;
            let far = possible.then(|| distance(&word, &folded(candidate), limit))?;
            (far <= limit).then_some((far, candidate))
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    let least = near.first().map_or(0, |&(far, _)| far);
    // Only the nearest: who wrote `mnoday` did not mean Sunday.
    let best = near.into_iter().take_while(|&(far, _)| far == least);
    best.take(SUGGESTIONS_MAX).map(|(_, word)| word).collect()
}

/// `; did you mean "a" or "b"?`, or nothing; to be put after a message.
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

/// Three rows of the usual table are enough: the third is for neighbours in the wrong order. What is
/// further away than the limit is only said to be further: two rows that exceed it have no way back.
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
