//! "Did you mean": the known word that is nearest to an unknown one.
//!
//! Nearest by insertions, deletions, replacements and swaps of neighbours, without regard to case.
//! A word that is far from everything gets no suggestion.
//!
//! Not here: what to do about it.

/// Longer words are nobody's misspelling, and comparing them costs time.
const LENGTH_MAX: usize = 64;

/// The known word nearest to this one, if one is near; the first in order among equals.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if word.is_empty() || word.len() > LENGTH_MAX {
        return None;
    }
    let folded: Vec<char> = word.to_lowercase().chars().collect();
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let other: Vec<char> = candidate.to_lowercase().chars().collect();
        let near = folded.len().max(other.len()) / 3;
        if folded.len().abs_diff(other.len()) > near {
            continue;
        }
        let distance = distance(&folded, &other);
        if distance <= near && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Three rows suffice: a swap looks back two.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut before_last = vec![0; other.len() + 1];
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, &a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &b) in other.iter().enumerate() {
            let replaced = last[j] + usize::from(a != b);
            let mut fewest = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a == other[j - 1] && one[i - 1] == b {
                fewest = fewest.min(before_last[j - 1] + 1);
            }
            row.push(fewest);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not() {
        let known = ["runner", "timezone", "schedule", "env", "version"];
        for (word, near) in [
            ("runer", Some("runner")),
            ("Runner", Some("runner")),
            ("rnuner", Some("runner")),
            ("timezome", Some("timezone")),
            ("shcedul", Some("schedule")),
            ("en", Some("env")),
            ("", None),
            ("x", None),
            ("capacity", None),
        ] {
            assert_eq!(nearest(word, known), near, "{word}");
        }
        assert_eq!(nearest(&"runner".repeat(100), known), None);
    }
}
