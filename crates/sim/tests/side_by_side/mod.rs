//! Runs many worlds in parallel, each on one thread.
//!
//! Not here: the worlds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Calls `each` for every item, starting in order, on as many threads as there are processors.
pub(crate) fn side_by_side<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            each(item);
        }
    };
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
}
