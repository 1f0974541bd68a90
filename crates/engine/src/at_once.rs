//! Work on many items, some of them at once: a slow one does not hold up the others.
//!
//! Not here: what is done for each.

use futures_util::stream::{FuturesUnordered, StreamExt as _};

/// How many items a pass works on at once: enough that a slow answer delays few others, and few
/// enough to leave the stores to those who serve jobs.
const AT_ONCE_MAX: usize = 16;

/// Does `work` for each item and returns the answers, in the order in which they came.
pub(crate) async fn at_once<T, A>(
    items: impl IntoIterator<Item = T>,
    work: impl AsyncFn(T) -> A,
) -> Vec<A> {
    let (mut answers, mut under_way) = (Vec::new(), FuturesUnordered::new());
    for item in items {
        if under_way.len() >= AT_ONCE_MAX {
            answers.extend(under_way.next().await);
        }
        under_way.push(work(item));
    }
    while let Some(answer) = under_way.next().await {
        answers.push(answer);
    }
    answers
}
