//! Branches: parts of one future, each of which is polled only if it was woken itself.
//!
//! `select!`, `join!` and `join_all` poll every part whenever any part is woken. A process is one
//! future ([`crate::jobs::run`]), so without branches each answer of a port would poll all of it.
//!
//! Not here: choosing what runs beside what.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Makes a branch of `future`. It is boxed: the futures that are worth a branch are large.
pub fn branch<F: Future>(future: F) -> Branch<F> {
    let parent = Waker::noop();
    let bell = Bell { is_rung: AtomicBool::new(true), parent: Mutex::new(parent.clone()) };
    let bell = Arc::new(bell);
    let waker = Waker::from(Arc::clone(&bell));
    Branch { future: Box::pin(future), parent: parent.clone(), bell, waker }
}

/// A future that is polled only if it was woken.
#[derive(Debug)]
pub struct Branch<F> {
    future: Pin<Box<F>>,
    /// What the bell wakes, to be compared without a lock.
    parent: Waker,
    bell: Arc<Bell>,
    /// Rings the bell.
    waker: Waker,
}

impl<F: Future> Future for Branch<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Before the look at the bell, so that no ring in between is lost.
        if !self.parent.will_wake(context.waker()) {
            self.parent.clone_from(context.waker());
            self.bell.parent().clone_from(context.waker());
        }
        if !self.bell.is_rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let Self { future, waker, .. } = &mut *self;
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

/// Rings when the branch can go on.
#[derive(Debug)]
struct Bell {
    is_rung: AtomicBool,
    parent: Mutex<Waker>,
}

impl Bell {
    fn parent(&self) -> MutexGuard<'_, Waker> {
        self.parent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_rung.store(true, Ordering::Release);
        self.parent().wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, poll_fn};

    use futures_util::FutureExt;
    use futures_util::future::join;
    use tokio::sync::Notify;

    use super::*;

    /// Waits for `notify`, and counts how often it is polled.
    async fn counting(notify: &Notify, polls: &Cell<u32>) {
        let mut notified = Box::pin(notify.notified());
        poll_fn(|context| {
            polls.set(polls.get() + 1);
            notified.as_mut().poll(context)
        })
        .await;
    }

    #[test]
    fn a_branch_is_polled_only_when_it_is_woken() {
        let (first, second) = (Notify::new(), Notify::new());
        let (of_first, of_second) = (Cell::new(0), Cell::new(0));
        let both = join(
            branch(counting(&first, &of_first)),
            branch(async {
                counting(&second, &of_second).await;
                pending::<()>().await;
            }),
        );
        let mut both = Box::pin(both);
        assert!(both.as_mut().now_or_never().is_none());
        second.notify_one();
        assert!(both.as_mut().now_or_never().is_none());
        assert_eq!((of_first.get(), of_second.get()), (1, 2));
        first.notify_one();
        assert!(both.as_mut().now_or_never().is_none());
        assert_eq!((of_first.get(), of_second.get()), (2, 2));
    }

    #[test]
    fn a_ring_before_the_first_poll_and_during_a_poll_is_not_lost() {
        let mut polls = 0;
        let mut twice = branch(poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert_eq!((&mut twice).now_or_never(), None);
        assert_eq!((&mut twice).now_or_never(), Some(()));
    }
}
