//! The state behind its lock, with its clock and a signal for all that wait for a change.
//!
//! Not here: what the state does (`state`, `runners`, `jobs`).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::ports::Clock;
use bullpen_core::time::Timestamp;
use tokio::sync::watch;

use super::access::Options;
use super::state::State;

/// A clock of any kind, so that the server is of one kind.
trait Time: Send + Sync {
    fn now(&self) -> Timestamp;
    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

struct Given<C>(Arc<C>);

impl<C: Clock> Time for Given<C> {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.0.sleep(wait))
    }
}

pub(super) struct World {
    pub(super) options: Options,
    state: Mutex<State>,
    time: Box<dyn Time>,
    changed: watch::Sender<u64>,
}

impl World {
    pub(super) fn new<C: Clock + 'static>(options: Options, clock: Arc<C>) -> Self {
        let time = Box::new(Given(clock));
        let state = Mutex::new(State::new(options.token.clone()));
        Self { options, state, time, changed: watch::Sender::new(0) }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.time.now()
    }

    pub(super) async fn sleep(&self, wait: Duration) {
        self.time.sleep(wait).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state as it is by now, and wakes all that wait for a change.
    pub(super) fn act<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = self.now();
        let mut state = self.lock();
        state.settle(now);
        let done = act(&mut state, now);
        drop(state);
        self.changed.send_modify(|changes| *changes += 1);
        done
    }

    /// Says when something has changed, from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Looks at the state without waking any waiter.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = self.now();
        look(&mut self.lock(), now)
    }

    /// Waits until `look` sees something.
    pub(super) async fn until<T>(&self, look: impl Fn(&mut State, Timestamp) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(seen) = self.look(&look) {
                return seen;
            }
            // The sender is ours and outlives this wait.
            let _ = changed.changed().await;
        }
    }
}
