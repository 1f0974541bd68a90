//! Things that one process noted recently, so that it does not write them again with every webhook.
//!
//! Not here: the notes themselves ([`super::active`], [`super::capacity`]).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::time::Timestamp;

/// Keys that this process noted, and when.
#[derive(Debug)]
pub(super) struct Recent<K> {
    every: Duration,
    noted: BTreeMap<K, Timestamp>,
}

impl<K: Ord + Clone> Recent<K> {
    /// Makes an empty list; each key may be noted once in `every`.
    pub(super) const fn new(every: Duration) -> Self {
        Self { every, noted: BTreeMap::new() }
    }

    /// Marks a key as noted; returns false if it was noted lately.
    pub(super) fn is_news(&mut self, key: &K, now: Timestamp) -> bool {
        // Forgets old keys, so that foreign webhooks cannot fill the memory.
        let every = self.every;
        self.noted.retain(|_, at| now.since(*at) < every);
        if self.noted.contains_key(key) {
            return false;
        }
        self.noted.insert(key.clone(), now);
        true
    }

    /// Takes back the mark of a key that could not be noted after all.
    pub(super) fn forget(&mut self, key: &K) {
        self.noted.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_news_once_in_a_while() {
        let mut recent = Recent::new(Duration::from_secs(60));
        let at = |seconds| Timestamp::EPOCH.after(Duration::from_secs(seconds));
        assert!(recent.is_news(&"one", at(0)) && !recent.is_news(&"one", at(59)));
        assert!(recent.is_news(&"two", at(59)) && recent.is_news(&"one", at(60)));
        recent.forget(&"one");
        assert!(recent.is_news(&"one", at(61)));
        assert_eq!(recent.noted.len(), 2);
        assert!(recent.is_news(&"three", at(600)));
        assert_eq!(recent.noted.len(), 1, "the old keys are forgotten");
    }
}
