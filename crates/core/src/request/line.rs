//! The line of requests that wait for room under a ceiling: who is first.
//!
//! A place's name begins with the time it was taken, in a fixed width, so that names are in order.
//! A place that was left, or whose request is past its deadline, holds nobody up.
//!
//! Not here: storing places, or what the first may do that others may not (`bullpen-engine`).

use serde::{Deserialize, Serialize};

use crate::class::RunnerClass;
use crate::ids::RequestId;
use crate::time::Timestamp;

/// What is stored of a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPlace {
    /// Whose it is.
    pub request: RequestId,
    /// When it gives up.
    pub until: Timestamp,
    /// Whether it has left.
    pub left: bool,
}

impl StoredPlace {
    /// As it is stored.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a place has string keys only, so it serialises")
    }
}

/// The name of a place that is taken now.
pub fn name(request: &RequestId, now: Timestamp) -> String {
    format!("{:015}/{request}", now.as_millis())
}

/// What the places of a class are stored under.
pub fn collection(class: &RunnerClass) -> String {
    format!("waiting/{}", class.name)
}

/// Whether `mine` is the first place that counts. `line` has names and stored texts, in the order of
/// the names; what cannot be read is somebody's, and counts.
pub fn is_first<'a>(
    line: impl Iterator<Item = (&'a str, &'a str)>,
    mine: &str,
    now: Timestamp,
) -> bool {
    let counts = |text: &str| match serde_json::from_str::<StoredPlace>(text) {
        Ok(place) => !place.left && place.until > now,
        Err(_) => true,
    };
    let mut line = line.filter(|(name, text)| *name == mine || counts(text));
    line.next().is_none_or(|(name, _)| name == mine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::at;

    #[test]
    fn the_first_who_still_waits_is_first() {
        let place = |until, left| {
            StoredPlace { request: RequestId::new("1.1.a"), until: at(until), left }.encode()
        };
        let (gone, late, waits) = (place(600, true), place(10, false), place(600, false));
        let names: Vec<String> =
            (0..4).map(|n| name(&RequestId::new(format!("{n}.1.a")), at(n))).collect();
        let texts = [&gone, &late, &waits, &waits];
        let line = || names.iter().map(String::as_str).zip(texts.iter().map(|text| text.as_str()));
        assert!(is_first(line(), &names[2], at(20)));
        assert!(!is_first(line(), &names[3], at(20)));
        assert!(!is_first(line(), &names[2], at(5)), "the second has time left");
        assert!(
            is_first(std::iter::empty(), "mine", at(0)),
            "whoever is not listed waits for none"
        );
    }
}
