//! What one process said lately, so that it does not say it again with every webhook.
//!
//! Not here: what is said ([`super::active`], [`super::capacity`]).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::time::Timestamp;

/// Things that were said, and when.
#[derive(Debug)]
pub(super) struct Recent<K> {
    every: Duration,
    said: BTreeMap<K, Timestamp>,
}

impl<K: Ord + Clone> Recent<K> {
    /// Nothing was said yet; each thing is said so often at most.
    pub(super) const fn new(every: Duration) -> Self {
        Self { every, said: BTreeMap::new() }
    }

    /// Whether this is to be said now; from now on it was.
    pub(super) fn is_news(&mut self, what: &K, now: Timestamp) -> bool {
        // What is old is forgotten, so that strangers cannot fill the memory.
        let every = self.every;
        self.said.retain(|_, at| now.since(*at) < every);
        if self.said.contains_key(what) {
            return false;
        }
        self.said.insert(what.clone(), now);
        true
    }

    /// It was not said after all.
    pub(super) fn forget(&mut self, what: &K) {
        self.said.remove(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_news_once_in_a_while() {
        let mut lately = Recent::new(Duration::from_secs(60));
        let at = |seconds| Timestamp::EPOCH.after(Duration::from_secs(seconds));
        assert!(lately.is_news(&"one", at(0)) && !lately.is_news(&"one", at(59)));
        assert!(lately.is_news(&"two", at(59)) && lately.is_news(&"one", at(60)));
        lately.forget(&"one");
        assert!(lately.is_news(&"one", at(61)));
        assert_eq!(lately.said.len(), 2);
        assert!(lately.is_news(&"three", at(600)));
        assert_eq!(lately.said.len(), 1, "what is old is forgotten");
    }
}
