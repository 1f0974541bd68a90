//! The mailbox's model: two records per key, with the fencing rules of the port.
//!
//! In weather with lag an eventual read answers from the past. In a *weak* mailbox a wait only ever
//! times out. An agent's own handle ([`MailboxModel::for_agent`]) computes most beats and polls
//! instead of simulating them (`Lazy`), so that an idle agent costs nothing to simulate.
//!
//! Not here: accepting an order ([`Inbox::accept`]), or obeying it (`bullpen-agent`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::ids::{Generation, InstanceId, MailboxKey};
use bullpen_core::mailbox::{
    Beat, Inbox, Order, RawReport, Report, ReportRead, Signal, SignalKind, UnreadableReport,
};
use bullpen_core::ports::{Consistency, Fault, Mailbox, Written};
use bullpen_core::time::Timestamp;
use tokio::sync::Notify;

use super::{Past, Witness, each, lag, locked, written};
use crate::clock::{SimClock, pass};
use crate::storms::CutOff;
use crate::wire::{Reply, Wire};

/// How often an agent reads its inbox without a wake-up.
const POLL: Duration = Duration::from_secs(1);

/// The two records under one key.
#[derive(Debug, Default)]
struct Slot {
    inbox: Option<Inbox>,
    /// Counts the inbox's changes.
    version: u64,
    past: Past<Option<Inbox>>,
    report: Option<Report>,
    /// The text that an intruder with root on the machine keeps writing over the report.
    forged: Option<Forgery>,
    pulse: Option<Pulse>,
    /// The zone of its agent.
    place: Arc<str>,
    /// The number of computed, never sent beats of all earlier pulses.
    unsent: u64,
    /// The inbox or the report changed.
    changed: Arc<Notify>,
    /// The inbox changed.
    ordered: Arc<Notify>,
}

/// The text that an intruder with root on a machine writes over its report. Parts that it leaves
/// out stay the agent's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgery {
    /// Replaces the beat.
    pub beat: Option<String>,
    /// Replaces signals: the kind of each, and the signal.
    pub signals: Vec<(String, String)>,
    /// Whether a value that is no text stands where a text should.
    pub ill_typed: bool,
}

impl Forgery {
    /// This beat and these signals, as an agent would write them.
    pub fn of(report: &Report) -> Self {
        let text = |written: serde_json::Result<String>| written.expect("all keys are strings");
        let kind = |kind| text(serde_json::to_string(kind)).trim_matches('"').to_owned();
        let signals = report.signals.iter();
        Self {
            beat: report.beat.as_ref().map(|beat| text(serde_json::to_string(beat))),
            signals: signals
                .map(|(of, signal)| (kind(of), text(serde_json::to_string(signal))))
                .collect(),
            ill_typed: false,
        }
    }

    /// The report as a reader sees it: the forgery over the agent's report.
    fn over(&self, report: Option<&Report>) -> ReportRead {
        if self.ill_typed {
            return ReportRead::Unreadable(UnreadableReport::because("its beat is no text"));
        }
        let signals = self.signals.iter().map(|(kind, body)| (&**kind, &**body)).collect();
        let raw = RawReport { beat: self.beat.as_deref(), signals };
        let forged = raw.read().map(|forged| {
            let mut report = report.cloned().unwrap_or_default();
            report.beat = forged.beat.or(report.beat);
            report.signals.extend(forged.signals);
            report
        });
        forged.into()
    }
}

/// A process that keeps beating.
#[derive(Clone, Debug)]
struct Pulse {
    /// The last beat that the agent sent.
    beat: Beat,
    /// The true time of that beat.
    since: Timestamp,
    every: Duration,
    /// Whether the process hangs; it does not beat then.
    hangs: bool,
}

impl Pulse {
    /// How many beats followed the sent beat.
    fn followed(&self, now: Timestamp) -> u64 {
        let every = self.every.as_millis().max(1);
        u64::try_from(now.since(self.since).as_millis() / every).unwrap_or(u64::MAX)
    }

    fn latest(&self, now: Timestamp) -> Beat {
        let followed = self.followed(now);
        let later = self.every * u32::try_from(followed).unwrap_or(u32::MAX);
        Beat { seq: self.beat.seq + followed, at: self.beat.at.after(later), ..self.beat.clone() }
    }
}

impl Slot {
    /// Stores the beats that are due by now.
    fn settle(&mut self, now: Timestamp) {
        if let Some(pulse) = &self.pulse
            && !pulse.hangs
            && pulse.followed(now) > 0
        {
            let latest = pulse.latest(now);
            self.store(latest);
        }
    }

    fn store(&mut self, beat: Beat) -> bool {
        let report = self.report.get_or_insert_default();
        let follows = report.beat.as_ref().is_none_or(|stored| beat.follows(stored));
        if follows {
            report.beat = Some(beat);
        }
        follows
    }

    /// Ends the pulse: the process stops beating, or sends its next beat.
    fn end_pulse(&mut self, now: Timestamp) {
        self.settle(now);
        if let Some(pulse) = self.pulse.take().filter(|pulse| !pulse.hangs) {
            self.unsent += pulse.followed(now);
        }
    }

    fn hang(&mut self, now: Timestamp) {
        self.settle(now);
        if let Some(pulse) = &mut self.pulse
            && !pulse.hangs
        {
            self.unsent += pulse.followed(now);
            let at = pulse.beat.at.after(now.since(pulse.since));
            pulse.beat = Beat { at, ..pulse.latest(now) };
            pulse.since = now;
            pulse.hangs = true;
        }
    }

    fn resume(&mut self, now: Timestamp) {
        if let Some(pulse) = &mut self.pulse {
            pulse.beat.at = pulse.beat.at.after(now.since(pulse.since));
            pulse.since = now;
            pulse.hangs = false;
        }
    }
}

/// The state of all mailboxes.
#[derive(Default)]
pub struct MailboxState {
    slots: BTreeMap<MailboxKey, Slot>,
    weak: bool,
    /// The agents whose calls do not arrive: readers see their beats as they were before.
    cut_off: CutOff,
    observer: Option<MailboxObserver>,
    witness: Witness,
}

/// The observer of every order as it lands: the inbox before, the inbox now.
pub type MailboxObserver = Box<dyn FnMut(&MailboxKey, Option<&Inbox>, &Inbox) + Send>;

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
        self.slots.get_mut(key).expect("the slot was inserted above")
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
        slot.version += 1;
        slot.past.note(now, before);
        slot.ordered.notify_waiters();
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

    /// Removes the credential of this generation's assignment if that is the latest order.
    pub fn redact(&mut self, now: Timestamp, key: &MailboxKey, generation: Generation) {
        if let Some(next) = self.inbox(key).and_then(|inbox| inbox.redacted(generation)) {
            self.put(now, key, next);
        }
    }

    /// The current inbox.
    pub fn inbox(&self, key: &MailboxKey) -> Option<&Inbox> {
        self.slots.get(key)?.inbox.as_ref()
    }

    /// The inbox as it was then, and the number of changes until then.
    fn inbox_then(&self, key: &MailboxKey, then: Timestamp) -> (Option<&Inbox>, u64) {
        let Some(slot) = self.slots.get(key) else { return (None, 0) };
        let missed = u64::try_from(slot.past.since(then).count()).unwrap_or(u64::MAX);
        let inbox = slot.past.since(then).next().unwrap_or(&slot.inbox).as_ref();
        (inbox, slot.version.saturating_sub(missed))
    }

    /// The current report.
    pub fn report(&mut self, now: Timestamp, key: &MailboxKey) -> Option<&Report> {
        let slot = self.slots.get_mut(key)?;
        if !self.cut_off.has(&slot.place) {
            slot.settle(now);
        }
        slot.report.as_ref()
    }

    /// The report as a reader sees it: a forgery stands over the agent's report.
    fn read_report(&mut self, now: Timestamp, key: &MailboxKey) -> ReportRead {
        let forged = self.slots.get(key).and_then(|slot| slot.forged.clone());
        let report = self.report(now, key);
        match forged {
            Some(forged) => forged.over(report),
            None => report.cloned().map_or(ReportRead::Absent, ReportRead::Read),
        }
    }

    /// Stores a beat if it follows the stored beat.
    pub fn beat(&mut self, key: &MailboxKey, beat: Beat) {
        if self.slot(key).store(beat) {
            self.wake(key);
        }
    }

    /// Stores a signal unless a signal of its kind with a later generation is stored.
    pub fn signal(&mut self, key: &MailboxKey, kind: SignalKind, signal: Signal) {
        let report = self.slot(key).report.get_or_insert_default();
        let stored = report.signals.get(&kind);
        if stored.is_none_or(|stored| stored.generation <= signal.generation) {
            let generation = signal.generation;
            report.signals.insert(kind, signal);
            let machine = InstanceId::new(key.as_str());
            self.witness.see(&machine, format_args!("{machine} says {kind:?} g{generation}"));
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
    agent: Option<Arc<Lazy>>,
}

/// The state of an agent's lazy handle.
///
/// The simulated agent beats when its phase changes, and otherwise almost never. Each beat starts a
/// [`Pulse`]: a reader of the report sees the beats that a live, responsive process would have sent
/// by then, one per heartbeat. Unsent beats count: the next sent beat gets a number after them.
///
/// Where an agent would poll, a wait returns up to one poll after a change. While its last read
/// showed less than is stored (it lagged, or a change came right after it), a wait lasts one poll.
#[derive(Debug)]
struct Lazy {
    heartbeat: Duration,
    /// The version of the inbox at the last read.
    read: AtomicU64,
}

impl MailboxModel {
    /// A new world's mailboxes.
    pub fn new(wire: Wire, clock: SimClock) -> Self {
        Self { state: Arc::default(), wire, clock, agent: None }
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
        Self { state: Arc::clone(&self.state), wire, clock, agent: None }
    }

    /// An agent process's handle on the same mailboxes. Its beats and polls are lazy.
    #[must_use]
    pub fn for_agent(&self, wire: Wire, clock: SimClock, heartbeat: Duration) -> Self {
        let agent = Some(Arc::new(Lazy { heartbeat, read: AtomicU64::new(0) }));
        Self { agent, ..self.for_process(wire, clock) }
    }

    /// Ends the beats of this key: its agent process is dead.
    pub fn stop_beats(&self, key: &MailboxKey) {
        let now = self.clock.true_now();
        locked(&self.state).slot(key).end_pulse(now);
    }

    /// Pauses the beats of this key: its agent process hangs.
    pub fn pause_beats(&self, key: &MailboxKey) {
        let now = self.clock.true_now();
        locked(&self.state).slot(key).hang(now);
    }

    /// Resumes the beats of this key: its agent process continues.
    pub fn resume_beats(&self, key: &MailboxKey) {
        let now = self.clock.true_now();
        locked(&self.state).slot(key).resume(now);
    }

    /// Lays a forgery over the report of this key, from now on and over later signals of the agent;
    /// `None` removes it.
    pub fn forge_report(&self, key: &MailboxKey, forged: Option<Forgery>) {
        let mut state = locked(&self.state);
        state.slot(key).forged = forged;
        state.wake(key);
    }

    /// Sets whether a wait only ever times out.
    pub fn set_weak(&self, weak: bool) {
        locked(&self.state).weak = weak;
    }

    /// Sets which agents are cut off from their mailboxes, so that none of their beats arrives.
    pub fn set_cut_off(&self, cut_off: CutOff) {
        let now = self.clock.true_now();
        let mut state = locked(&self.state);
        let was = std::mem::replace(&mut state.cut_off, cut_off);
        let MailboxState { slots, cut_off, .. } = &mut *state;
        for slot in slots.values_mut() {
            if cut_off.has(&slot.place) && !was.has(&slot.place) {
                slot.settle(now);
            }
        }
    }

    /// Sets the witness of every signal as it lands.
    pub fn set_witness(&self, witness: impl FnMut(&InstanceId, &str) + Send + 'static) {
        locked(&self.state).witness = Witness(Some(Box::new(witness)));
    }

    /// Sets the observer of every order as it lands.
    pub fn set_observer(&self, observer: MailboxObserver) {
        locked(&self.state).observer = Some(observer);
    }

    /// The stored inbox of an agent, without a call.
    pub fn inbox_now(&self, key: &MailboxKey) -> Option<Inbox> {
        locked(&self.state).inbox(key).cloned()
    }

    /// The agent's own report without forgeries, without a call.
    pub fn report_now(&self, key: &MailboxKey) -> Option<Report> {
        let now = self.clock.true_now();
        locked(&self.state).report(now, key).cloned()
    }

    /// The beat to send, numbered after all unsent beats.
    fn next_beat(&self, key: &MailboxKey, beat: &Beat) -> Beat {
        let Some(agent) = &self.agent else { return beat.clone() };
        let since = self.clock.true_now();
        let mut state = locked(&self.state);
        let slot = state.slot(key);
        slot.end_pulse(since);
        slot.place = Arc::clone(self.wire.place());
        let beat = Beat { seq: beat.seq + slot.unsent, ..beat.clone() };
        let pulse = Pulse { beat: beat.clone(), since, every: agent.heartbeat, hangs: false };
        slot.pulse = Some(pulse);
        beat
    }

    /// The event that a wait waits for, the wait's length, and how late the waiter may notice it.
    fn wait_terms(&self, key: &MailboxKey, at_most: Duration) -> (Arc<Notify>, Duration, Duration) {
        let mut state = locked(&self.state);
        let weak = state.weak;
        let slot = state.slot(key);
        let Some(agent) = &self.agent else {
            return (Arc::clone(&slot.changed), at_most, Duration::ZERO);
        };
        let behind = agent.read.load(Ordering::Relaxed) < slot.version;
        let at_most = if behind { at_most.min(POLL) } else { at_most };
        (Arc::clone(&slot.ordered), at_most, if weak { POLL } else { Duration::ZERO })
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

    async fn inbox(&self, key: &MailboxKey, read: Consistency) -> Result<Option<Inbox>, Fault> {
        let key = key.clone();
        let lag = match read {
            Consistency::Eventual => lag(&self.wire),
            Consistency::Consistent => Duration::ZERO,
        };
        let read = move |state: &mut MailboxState, now: Timestamp| {
            let (inbox, version) = state.inbox_then(&key, now.before(lag));
            (inbox.cloned(), version)
        };
        let (inbox, version) = self.trip(read).await.or_unavailable()?;
        if let Some(agent) = &self.agent {
            agent.read.store(version, Ordering::Relaxed);
        }
        Ok(inbox)
    }

    async fn reports(&self, keys: &[MailboxKey]) -> Result<Vec<ReportRead>, Fault> {
        let keys = keys.to_vec();
        let read = move |state: &mut MailboxState, now: Timestamp| {
            keys.iter().map(|key| state.read_report(now, key)).collect()
        };
        self.trip(read).await.or_unavailable()
    }

    async fn beat(&self, key: &MailboxKey, beat: &Beat) -> Result<(), Fault> {
        let (key, beat) = (key.clone(), self.next_beat(key, beat));
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
        let (changed, at_most, notices_within) = self.wait_terms(key, at_most);
        let changed = changed.notified();
        // Registered before the step: a change during the step must not be missed.
        tokio::pin!(changed);
        changed.as_mut().enable();
        self.wire.step().await;
        tokio::select! {
            biased;
            () = changed => {
                if notices_within > Duration::ZERO {
                    pass(self.wire.dice().between(Duration::ZERO, notices_within)).await;
                }
            }
            () = pass(at_most) => {}
        }
    }
}
