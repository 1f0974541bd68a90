//! The mailbox's model: two records per key, with the fencing rules of the port.
//!
//! In weather with lag an eventual read answers from the past. A *weak* mailbox never wakes anyone:
//! a wait only ever times out.
//!
//! Not here: the rule an order is accepted by ([`Inbox::accept`]), or what an agent does about it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::ids::{Generation, MailboxKey};
use bullpen_core::mailbox::{Beat, Inbox, Order, Report, Signal, SignalKind};
use bullpen_core::ports::{Fault, Mailbox, Read, Written};
use bullpen_core::time::Timestamp;
use tokio::sync::Notify;

use super::{Past, each, lag, locked, written};
use crate::clock::{SimClock, pass};
use crate::wire::{Reply, Wire};

/// The two records under one key.
#[derive(Debug, Default)]
struct Slot {
    inbox: Option<Inbox>,
    past: Past<Option<Inbox>>,
    report: Option<Report>,
    changed: Arc<Notify>,
}

/// Everything all mailboxes hold.
#[derive(Default)]
pub struct MailboxState {
    slots: BTreeMap<MailboxKey, Slot>,
    weak: bool,
    observer: Option<Observer>,
}

/// Who is told of every order as it lands: what was stored, what is stored now.
pub type Observer = Box<dyn FnMut(&MailboxKey, Option<&Inbox>, &Inbox) + Send>;

impl fmt::Debug for MailboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxState").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl MailboxState {
    fn slot(&mut self, key: &MailboxKey) -> &mut Slot {
        if !self.slots.contains_key(key) {
            self.slots.insert(key.clone(), Slot::default());
        }
        self.slots.get_mut(key).expect("it is there now")
    }

    fn wake(&self, key: &MailboxKey) {
        if let Some(slot) = self.slots.get(key)
            && !self.weak
        {
            slot.changed.notify_waiters();
        }
    }

    fn put(&mut self, now: Timestamp, key: &MailboxKey, next: Inbox) {
        let slot = self.slot(key);
        let before = slot.inbox.replace(next);
        slot.past.note(now, before);
        self.wake(key);
    }

    /// Stores an order, if [`Inbox::accept`] takes it.
    pub fn post(&mut self, now: Timestamp, key: &MailboxKey, order: Order) -> Written<Inbox> {
        match Inbox::accept(self.inbox(key), order) {
            Ok(next) => {
                if let Some(mut observer) = self.observer.take() {
                    observer(key, self.inbox(key), &next);
                    self.observer = Some(observer);
                }
                self.put(now, key, next.clone());
                Written::Won(next)
            }
            Err(_) => Written::Lost,
        }
    }

    /// Removes the credential of this generation's assignment, if it is the latest order.
    pub fn redact(&mut self, now: Timestamp, key: &MailboxKey, generation: Generation) {
        if let Some(next) = self.inbox(key).and_then(|inbox| inbox.redacted(generation)) {
            self.put(now, key, next);
        }
    }

    /// The inbox now.
    pub fn inbox(&self, key: &MailboxKey) -> Option<&Inbox> {
        self.slots.get(key)?.inbox.as_ref()
    }

    fn inbox_then(&self, key: &MailboxKey, then: Timestamp) -> Option<&Inbox> {
        let slot = self.slots.get(key)?;
        slot.past.since(then).next().unwrap_or(&slot.inbox).as_ref()
    }

    /// The report now.
    pub fn report(&self, key: &MailboxKey) -> Option<&Report> {
        self.slots.get(key)?.report.as_ref()
    }

    /// Stores a beat, unless it does not follow the one that is there.
    pub fn beat(&mut self, key: &MailboxKey, beat: Beat) {
        let report = self.slot(key).report.get_or_insert_default();
        if report.beat.as_ref().is_none_or(|stored| beat.follows(stored)) {
            report.beat = Some(beat);
            self.wake(key);
        }
    }

    /// Stores a signal, unless one of its kind and of a later generation is there.
    pub fn signal(&mut self, key: &MailboxKey, kind: SignalKind, signal: Signal) {
        let report = self.slot(key).report.get_or_insert_default();
        let stored = report.signals.get(&kind);
        if stored.is_none_or(|stored| stored.generation <= signal.generation) {
            report.signals.insert(kind, signal);
            self.wake(key);
        }
    }
}

/// One process's handle on a world's mailboxes: the control plane's, or an agent's.
#[derive(Clone, Debug)]
pub struct MailboxModel {
    state: Arc<Mutex<MailboxState>>,
    wire: Wire,
    clock: SimClock,
}

impl MailboxModel {
    /// A new world's mailboxes.
    pub fn new(wire: Wire, clock: SimClock) -> Self {
        Self { state: Arc::default(), wire, clock }
    }

    /// A new world's mailboxes, in which a wait only ever times out.
    pub fn weak(wire: Wire, clock: SimClock) -> Self {
        let model = Self::new(wire, clock);
        model.set_weak(true);
        model
    }

    /// Another process's handle on the same mailboxes.
    #[must_use]
    pub fn for_process(&self, wire: Wire, clock: SimClock) -> Self {
        Self { state: Arc::clone(&self.state), wire, clock }
    }

    /// Whether a wait only ever times out.
    pub fn set_weak(&self, weak: bool) {
        locked(&self.state).weak = weak;
    }

    /// Who is told of every order.
    pub fn set_observer(&self, observer: Observer) {
        locked(&self.state).observer = Some(observer);
    }

    /// What is stored for an agent, without a trip.
    pub fn inbox_now(&self, key: &MailboxKey) -> Option<Inbox> {
        locked(&self.state).inbox(key).cloned()
    }

    /// What is stored of an agent, without a trip.
    pub fn report_now(&self, key: &MailboxKey) -> Option<Report> {
        locked(&self.state).report(key).cloned()
    }

    async fn trip<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut MailboxState, Timestamp) -> T + Send + 'static,
    ) -> Reply<T> {
        let (state, clock) = (Arc::clone(&self.state), self.clock.clone());
        self.wire.call("mailbox", move || effect(&mut locked(&state), clock.true_now())).await
    }
}

impl Mailbox for MailboxModel {
    async fn post(&self, key: &MailboxKey, order: &Order) -> Result<Written<Inbox>, Fault> {
        let (key, order) = (key.clone(), order.clone());
        written(self.trip(move |state, now| state.post(now, &key, order)).await)
    }

    async fn post_all(&self, orders: &[(MailboxKey, Order)]) -> Vec<Result<Written<Inbox>, Fault>> {
        let (all, count) = (orders.to_vec(), orders.len());
        let reply = self.trip(move |state, now| {
            let posted = all.into_iter();
            posted.map(|(key, order)| state.post(now, &key, order)).collect::<Vec<_>>()
        });
        each(reply.await, count)
    }

    async fn redact(&self, key: &MailboxKey, generation: Generation) -> Result<(), Fault> {
        let key = key.clone();
        self.trip(move |state, now| state.redact(now, &key, generation)).await.or_unavailable()
    }

    async fn inbox(&self, key: &MailboxKey, read: Read) -> Result<Option<Inbox>, Fault> {
        let key = key.clone();
        let lag = match read {
            Read::Eventual => lag(&self.wire),
            Read::Consistent => Duration::ZERO,
        };
        let read = move |state: &mut MailboxState, now: Timestamp| {
            state.inbox_then(&key, now.before(lag)).cloned()
        };
        self.trip(read).await.or_unavailable()
    }

    async fn reports(&self, keys: &[MailboxKey]) -> Result<Vec<Option<Report>>, Fault> {
        let keys = keys.to_vec();
        let read = move |state: &mut MailboxState, _| {
            keys.iter().map(|key| state.report(key).cloned()).collect()
        };
        self.trip(read).await.or_unavailable()
    }

    async fn beat(&self, key: &MailboxKey, beat: &Beat) -> Result<(), Fault> {
        let (key, beat) = (key.clone(), beat.clone());
        self.trip(move |state, _| state.beat(&key, beat)).await.or_unavailable()
    }

    async fn signal(
        &self,
        key: &MailboxKey,
        kind: SignalKind,
        signal: &Signal,
    ) -> Result<(), Fault> {
        let (key, signal) = (key.clone(), signal.clone());
        self.trip(move |state, _| state.signal(&key, kind, signal)).await.or_unavailable()
    }

    async fn wait(&self, key: &MailboxKey, at_most: Duration) {
        let changed = Arc::clone(&locked(&self.state).slot(key).changed);
        let changed = changed.notified();
        // Registered before the step, or a change during it would be slept through.
        tokio::pin!(changed);
        changed.as_mut().enable();
        self.wire.step().await;
        tokio::select! {
            biased;
            () = changed => {}
            () = pass(at_most) => {}
        }
    }
}
