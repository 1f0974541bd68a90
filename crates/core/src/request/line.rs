//! The line of requests that wait for capacity under a ceiling, and which request is first.
//!
//! A place's name begins with the time at which the request took it, in a fixed width, so that
//! names sort by time. A place does not count once its request has left it or is past its deadline.
//!
//! Not here: storing places, or the privileges of the first request (`bullpen-engine`).

use serde::{Deserialize, Serialize};

use crate::class::RunnerClass;
use crate::ids::RequestId;
use crate::time::Timestamp;

/// A stored place in the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPlace {
    /// The request in this place.
    pub request: RequestId,
    /// When the request gives up.
    pub until: Timestamp,
    /// Whether the request has left the place.
    pub left: bool,
}

impl StoredPlace {
    /// Encodes the place for the ledger.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a place has string keys only, so it serialises")
    }
}

/// The name of a place that a request takes now.
pub fn name(request: &RequestId, now: Timestamp) -> String {
    format!("{:015}/{request}", now.as_millis())
}

/// The ledger's collection that holds the places of a class.
pub fn collection(class: &RunnerClass) -> String {
    format!("waiting/{}", class.name)
}

/// Whether `mine` is the first place that counts. `line` has names and stored texts, sorted by
/// name. An unreadable place counts, because some request holds it.
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
    fn the_first_request_that_still_waits_is_first() {
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
            "an unlisted request waits for no other"
        );
    }
}
