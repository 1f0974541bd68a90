//! Waiting for the first of two futures.
//!
//! Not here: what they wait for, or wake-ups ([`crate::wake`]).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// The future that was ready first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// The left one, or both at once.
    Left,
    /// The right one.
    Right,
}

/// Waits for the first of two futures; the caller can wait for both again.
pub(crate) async fn first(
    mut left: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
    mut right: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
) -> First {
    poll_fn(|context| {
        if left.as_mut().poll(context).is_ready() {
            Poll::Ready(First::Left)
        } else {
            right.as_mut().poll(context).map(|()| First::Right)
        }
    })
    .await
}
