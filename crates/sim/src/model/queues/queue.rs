//! One queue.
//!
//! A message is *ready* (it can be received), or *hidden* until a time: delayed before its first
//! receive, in flight after a receive. A FIFO group with a message in flight delivers no other.
//!
//! Not here: where dead letters go (`state`), or waiting for a message (the handle).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ids::Receipt;
use bullpen_core::ports::{Delivery, Depth, Fault, Fifo, Outgoing, QueueKind, QueueSpec};
use bullpen_core::time::Timestamp;

use super::Changed;
use crate::wire::Wire;

/// A message with a deduplication id seen within this time is dropped, as SQS does.
const DEDUPLICATION: Duration = Duration::from_secs(300);
/// With any order, a receive picks from this many messages: enough to reorder, and cheap.
const SHUFFLED: usize = 64;

/// The terms of one receive: when a message is a dead letter, and which faults may occur.
pub(super) struct ReceiveTerms<'a> {
    pub(super) receives_max: Option<u32>,
    pub(super) wire: &'a Wire,
    pub(super) any_order: bool,
    pub(super) deliver_twice: u32,
    pub(super) twice_next: bool,
}

impl ReceiveTerms<'_> {
    fn twice(&mut self) -> bool {
        let twice =
            std::mem::take(&mut self.twice_next) || self.wire.dice().chance(self.deliver_twice);
        if twice {
            self.wire.happened("message delivered twice");
        }
        twice
    }
}

#[derive(Clone, Debug)]
pub(super) struct Message {
    body: String,
    fifo: Option<Fifo>,
    sent: Timestamp,
    receives: u32,
    /// Until when it is hidden, if it is.
    hidden: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct ModelQueue {
    pub(super) spec: QueueSpec,
    next: u64,
    messages: BTreeMap<u64, Message>,
    ready: BTreeSet<u64>,
    hidden: BTreeSet<(Timestamp, u64)>,
    by_age: BTreeSet<(Timestamp, u64)>,
    /// How many messages of each group are in flight.
    busy: BTreeMap<String, u32>,
    sent_lately: BTreeMap<String, Timestamp>,
    sent_order: VecDeque<(Timestamp, String)>,
    changed: Changed,
}

impl ModelQueue {
    pub(super) fn new(spec: QueueSpec) -> Self {
        Self {
            spec,
            next: 0,
            messages: BTreeMap::new(),
            ready: BTreeSet::new(),
            hidden: BTreeSet::new(),
            by_age: BTreeSet::new(),
            busy: BTreeMap::new(),
            sent_lately: BTreeMap::new(),
            sent_order: VecDeque::new(),
            changed: Changed::default(),
        }
    }

    pub(super) fn changed(&self) -> Changed {
        Arc::clone(&self.changed)
    }

    pub(super) fn next_appears(&self) -> Option<Timestamp> {
        self.hidden.first().map(|(at, _)| *at)
    }

    /// Brings the queue to the present: shows hidden messages in time, removes expired ones.
    pub(super) fn catch_up(&mut self, now: Timestamp) {
        while let Some((at, number)) = self.hidden.first().copied()
            && at <= now
        {
            self.show(number);
        }
        let oldest_kept = now.before(self.spec.retention);
        while let Some((sent, number)) = self.by_age.first().copied()
            && sent <= oldest_kept
        {
            self.take(number);
        }
        while self.sent_order.front().is_some_and(|(at, _)| now.since(*at) >= DEDUPLICATION) {
            if let Some((_, id)) = self.sent_order.pop_front() {
                self.sent_lately.remove(&id);
            }
        }
    }

    pub(super) fn send(&mut self, now: Timestamp, message: Outgoing) -> Result<(), Fault> {
        let Outgoing { body, delay, fifo } = message;
        let fifo = match self.spec.kind {
            QueueKind::Standard => None,
            QueueKind::Fifo => Some(fifo.ok_or_else(|| {
                Fault::Unclassified("MissingParameter: a FIFO message needs a group".into())
            })?),
        };
        if let Some(Fifo { deduplication, .. }) = &fifo {
            if self.sent_lately.contains_key(deduplication) {
                return Ok(());
            }
            self.sent_lately.insert(deduplication.clone(), now);
            self.sent_order.push_back((now, deduplication.clone()));
        }
        let until = (fifo.is_none() && !delay.is_zero()).then(|| now.after(delay));
        self.put(Message { body, fifo, sent: now, receives: 0, hidden: until });
        Ok(())
    }

    /// Adds a dead letter of another queue; its retention starts again.
    pub(super) fn bury(&mut self, now: Timestamp, message: Message) {
        self.put(Message { sent: now, receives: 0, hidden: None, ..message });
    }

    fn put(&mut self, message: Message) {
        let number = self.next;
        self.next += 1;
        self.by_age.insert((message.sent, number));
        match message.hidden {
            Some(until) => drop(self.hidden.insert((until, number))),
            None => drop(self.ready.insert(number)),
        }
        self.messages.insert(number, message);
        self.changed.notify_waiters();
    }

    /// Delivers up to `max` messages; also returns the messages that were received too often.
    pub(super) fn receive(
        &mut self,
        now: Timestamp,
        max: usize,
        terms: &mut ReceiveTerms<'_>,
    ) -> (Vec<Delivery>, Vec<Message>) {
        let (mut received, mut dead) = (Vec::new(), Vec::new());
        // Groups that were busy before this call; one call may deliver several messages of a group.
        let busy: BTreeSet<String> = self.busy.keys().cloned().collect();
        let mut passed = None;
        while received.len() < max {
            let Some(number) = self.candidate(&busy, passed, terms) else { break };
            let is_dead = terms
                .receives_max
                .is_some_and(|max| self.messages.get(&number).is_some_and(|m| m.receives >= max));
            if is_dead {
                dead.extend(self.take(number));
                continue;
            }
            passed = (!terms.any_order).then_some(number);
            received.extend(self.deliver(now, number));
            if self.spec.kind == QueueKind::Standard
                && terms.twice()
                && let Some(copy) = self.messages.get(&number).cloned()
            {
                self.put(Message { hidden: None, ..copy });
            }
        }
        (received, dead)
    }

    /// The next message to deliver, after the messages that this call has passed.
    fn candidate(
        &self,
        busy: &BTreeSet<String>,
        passed: Option<u64>,
        terms: &ReceiveTerms<'_>,
    ) -> Option<u64> {
        if terms.any_order {
            let choices = u64::try_from(self.ready.len().min(SHUFFLED)).unwrap_or(1);
            let index = usize::try_from(terms.wire.dice().below(choices)).unwrap_or(0);
            return self.ready.iter().nth(index).copied();
        }
        let from = passed.map_or(0, |number| number + 1);
        self.ready.range(from..).copied().find(|number| {
            let group = self.messages.get(number).and_then(|message| message.fifo.as_ref());
            group.is_none_or(|fifo| !busy.contains(&fifo.group))
        })
    }

    fn deliver(&mut self, now: Timestamp, number: u64) -> Option<Delivery> {
        let until = now.after(self.spec.visibility);
        let message = self.messages.get_mut(&number)?;
        message.receives += 1;
        message.hidden = Some(until);
        if let Some(fifo) = &message.fifo {
            *self.busy.entry(fifo.group.clone()).or_default() += 1;
        }
        self.ready.remove(&number);
        self.hidden.insert((until, number));
        Some(Delivery {
            body: message.body.clone(),
            receipt: Receipt::new(format!("{number}/{}", message.receives)),
            receives: message.receives,
        })
    }

    /// The message in flight whose latest receipt this is.
    fn received(&self, receipt: &Receipt) -> Option<u64> {
        let (number, receive) = receipt.as_str().split_once('/')?;
        let (number, receive): (u64, u32) = (number.parse().ok()?, receive.parse().ok()?);
        self.messages.get(&number).filter(|message| message.receives == receive)?;
        Some(number)
    }

    pub(super) fn delete(&mut self, receipt: &Receipt) {
        if let Some(number) = self.received(receipt) {
            self.take(number);
            // A FIFO group may be free now.
            self.changed.notify_waiters();
        }
    }

    pub(super) fn defer(&mut self, now: Timestamp, receipt: &Receipt, hidden: Duration) {
        let Some(number) = self.received(receipt) else { return };
        let Some(message) = self.messages.get_mut(&number) else { return };
        // A receipt cannot hide a message that is visible again.
        let Some(until) = message.hidden else { return };
        // With `hidden` at zero the next call shows the message.
        let later = now.after(hidden);
        message.hidden = Some(later);
        self.hidden.remove(&(until, number));
        self.hidden.insert((later, number));
        self.changed.notify_waiters();
    }

    /// Makes a hidden message visible.
    fn show(&mut self, number: u64) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        let Some(until) = message.hidden.take() else { return };
        let group = message.fifo.as_ref().filter(|_| message.receives > 0).map(|f| f.group.clone());
        self.hidden.remove(&(until, number));
        self.ready.insert(number);
        self.free(group);
    }

    fn take(&mut self, number: u64) -> Option<Message> {
        let message = self.messages.remove(&number)?;
        self.ready.remove(&number);
        self.by_age.remove(&(message.sent, number));
        if let Some(until) = message.hidden {
            self.hidden.remove(&(until, number));
            self.free(message.fifo.as_ref().map(|fifo| fifo.group.clone()));
        }
        Some(message)
    }

    fn free(&mut self, group: Option<String>) {
        if let Some(group) = group
            && let Some(count) = self.busy.get_mut(&group)
        {
            *count -= 1;
            if *count == 0 {
                self.busy.remove(&group);
            }
        }
    }

    pub(super) fn depth(&self) -> Depth {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let delayed = |(_, number): &&(Timestamp, u64)| {
            self.messages.get(number).is_some_and(|message| message.receives == 0)
        };
        let delayed = self.hidden.iter().filter(delayed).count();
        Depth {
            visible: count(self.ready.len()),
            delayed: count(delayed),
            in_flight: count(self.hidden.len() - delayed),
        }
    }
}
