//! Pages of listings as GitHub sent them last. A page that has not changed since costs nothing of
//! the hour, and its items come from here.
//!
//! Not here: which listings are read like this (`runs`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bullpen_core::ports::{Clock, Fault};

use crate::client::GitHub;
use crate::fault::NotFoundMeans;
use crate::limits::{PAGES_MAX, SEEN_PAGES_MAX};
use crate::wire::{Answer, Call};

/// GitHub's tags may differ between accounts, so a page belongs to one account.
type Key = (usize, String);

#[derive(Clone, Debug)]
struct SeenPage<T> {
    tag: String,
    items: Vec<T>,
    /// The path of the next page.
    next: Option<String>,
    /// Rises with every use of any page.
    used: u64,
}

/// The pages of one kind of listing.
#[derive(Debug)]
pub(crate) struct SeenPages<T>(Mutex<(BTreeMap<Key, SeenPage<T>>, u64)>);

impl<T> Default for SeenPages<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> SeenPages<T> {
    fn pages(&self) -> MutexGuard<'_, (BTreeMap<Key, SeenPage<T>>, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &Key) -> Option<SeenPage<T>> {
        let mut guard = self.pages();
        let (pages, uses) = &mut *guard;
        let page = pages.get_mut(key)?;
        *uses += 1;
        page.used = *uses;
        Some(page.clone())
    }

    /// Keeps a page, and forgets the page that was not used for the longest time.
    fn keep(&self, key: Key, tag: String, items: &[T], next: Option<&String>) {
        let mut guard = self.pages();
        let (pages, uses) = &mut *guard;
        *uses += 1;
        let page = SeenPage { tag, items: items.to_vec(), next: next.cloned(), used: *uses };
        pages.insert(key, page);
        if pages.len() > SEEN_PAGES_MAX {
            let oldest = pages.iter().min_by_key(|(_, page)| page.used).map(|(key, _)| key.clone());
            oldest.map(|key| pages.remove(&key));
        }
    }
}

impl<C: Clock> GitHub<C> {
    /// Reads every page of a listing, and asks only for pages that have changed.
    pub(crate) async fn changed_pages<T: Clone>(
        &self,
        seen: &SeenPages<T>,
        first: Call,
        read: impl Fn(&Answer) -> Result<Vec<T>, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut all = Vec::new();
        let (purpose, priority) = (first.purpose, first.priority);
        let mut next = Some(first.path);
        for _ in 0..PAGES_MAX {
            let Some(path) = next else { return Ok(all) };
            let mut call = Call { priority, ..Call::get(purpose, path.clone()) };
            let (number, account) = self.cheapest(&call);
            let key = (number, path);
            let known = seen.find(&key);
            call.seen = known.as_ref().map(|page| page.tag.clone());
            let answer = account.call(&self.wire, &call).await?;
            if let Some(page) = known.filter(|_| answer.status == 304) {
                all.extend(page.items);
                next = page.next;
                continue;
            }
            let answer = answer.accepted(NotFoundMeans::Thing)?;
            let items = read(&answer)?;
            if let Some(tag) = answer.tag {
                seen.keep(key, tag, &items, answer.next.as_ref());
            }
            all.extend(items);
            next = answer.next;
        }
        match next {
            None => Ok(all),
            // Part of a listing must not pass for all of it.
            Some(_) => Err(Fault::Unreadable(format!("a listing of more than {PAGES_MAX} pages"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_that_was_not_used_for_the_longest_time_is_forgotten() {
        let seen = SeenPages::<u64>::default();
        let key = |page: usize| (0, format!("/runs?page={page}"));
        for page in 0..SEEN_PAGES_MAX {
            seen.keep(key(page), "tag".to_owned(), &[1], None);
        }
        assert!(seen.find(&key(0)).is_some());
        seen.keep(key(SEEN_PAGES_MAX), "tag".to_owned(), &[1], None);
        assert!(seen.find(&key(0)).is_some() && seen.find(&key(1)).is_none());
        assert!(seen.find(&(1, key(0).1)).is_none(), "another account has its own tags");
    }
}
