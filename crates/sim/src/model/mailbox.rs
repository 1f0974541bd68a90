//! The mailbox's model: two records per key, with the fencing rules of the port.
//!
//! In weather with lag an eventual read answers from the past. A *weak* mailbox never wakes anyone:
//! a wait only ever times out.
//!
//! An idle agent must cost nothing to simulate, so two things about an agent's own handle
//! ([`MailboxModel::for_agent`]) are worked out instead of played through:
//!
//! - *Beats are lazy.* The simulated agent beats when its phase changes and hardly ever besides.
//!   Each beat starts a `Pulse`: whoever reads the report sees the beats that a process which
//!   lives and does not hang would have sent by then, one per heartbeat. Beats that were never
//!   sent still count: the next real one gets a number after them.
//! - *Polls are lazy.* Where an agent would poll, a wait returns up to one poll after a change;
//!   while its last read showed less than is stored (it lagged, or a change came right after it) a
//!   wait lasts one poll.
//!
//! Not here: the rule an order is accepted by ([`Inbox::accept`]), or what an agent does about it.

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
use crate::wire::{Reply, Wire};

/// How often an agent's inbox is read where no wake-up comes.
const POLL: Duration = Duration::from_secs(1);

/// The two records under one key.
#[derive(Debug, Default)]
struct Slot {
    inbox: Option<Inbox>,
    /// Counts the inbox's changes.
    version: u64,
    past: Past<Option<Inbox>>,
    report: Option<Report>,
    /// What somebody with root on the machine writes over it, again and again.
    forged: Option<Forgery>,
    pulse: Option<Pulse>,
    /// Beats that were worked out and never sent, of all pulses before this one.
    unsent: u64,
    /// The inbox or the report changed.
    changed: Arc<Notify>,
    /// The inbox changed.
    ordered: Arc<Notify>,
}

/// What somebody with root on a machine writes over its report. Parts that it leaves out stay the
/// agent's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgery {
    /// Over its beat.
    pub beat: Option<String>,
    /// Over its signals: the kind of each, and the signal.
    pub signals: Vec<(String, String)>,
    /// Something that is no text stands where a text should.
    pub ill_typed: bool,
}

impl Forgery {
    /// This beat and these signals, as an agent would write them.
    pub fn of(report: &Report) -> Self {
        let text = |written: serde_json::Result<String>| written.expect("it has string keys only");
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

    /// What is read where this stands over what the agent wrote.
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

/// A process that goes on beating.
#[derive(Clone, Debug)]
struct Pulse {
    /// The last beat that was really sent.
    beat: Beat,
    /// When, by the true time.
    since: Timestamp,
    every: Duration,
    /// A process that hangs does not beat.
    hangs: bool,
}

impl Pulse {
    /// How many beats followed the one that was sent.
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

    /// The process beats no more, or the next beat is a real one.
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

    fn go_on(&mut self, now: Timestamp) {
        if let Some(pulse) = &mut self.pulse {
            pulse.beat.at = pulse.beat.at.after(now.since(pulse.since));
            pulse.since = now;
            pulse.hangs = false;
        }
    }
}

/// Everything all mailboxes hold.
#[derive(Default)]
pub struct MailboxState {
    slots: BTreeMap<MailboxKey, Slot>,
    weak: bool,
    observer: Option<MailboxObserver>,
    witness: Witness,
}

/// Who is told of every order as it lands: what was stored, what is stored now.
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

    /// The inbox as it was then, and how many changes it had seen.
    fn inbox_then(&self, key: &MailboxKey, then: Timestamp) -> (Option<&Inbox>, u64) {
        let Some(slot) = self.slots.get(key) else { return (None, 0) };
        let missed = u64::try_from(slot.past.since(then).count()).unwrap_or(u64::MAX);
        let inbox = slot.past.since(then).next().unwrap_or(&slot.inbox).as_ref();
        (inbox, slot.version.saturating_sub(missed))
    }

    /// The report now.
    pub fn report(&mut self, now: Timestamp, key: &MailboxKey) -> Option<&Report> {
        let slot = self.slots.get_mut(key)?;
        slot.settle(now);
        slot.report.as_ref()
    }

    /// What is read as the report now: whatever was forged stands over what the agent said.
    fn read_report(&mut self, now: Timestamp, key: &MailboxKey) -> ReportRead {
        let forged = self.slots.get(key).and_then(|slot| slot.forged.clone());
        let report = self.report(now, key);
        match forged {
            Some(forged) => forged.over(report),
            None => report.cloned().map_or(ReportRead::Absent, ReportRead::Read),
        }
    }

    /// Stores a beat, unless it does not follow the one that is there.
    pub fn beat(&mut self, key: &MailboxKey, beat: Beat) {
        if self.slot(key).store(beat) {
            self.wake(key);
        }
    }

    /// Stores a signal, unless one of its kind and of a later generation is there.
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

/// What makes an agent's handle lazy.
#[derive(Debug)]
struct Lazy {
    heartbeat: Duration,
    /// Which version of its inbox it read last.
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

    /// The agent process under this key is dead.
    pub fn falls_silent(&self, key: &MailboxKey) {
        let now = self.clock.true_now();
        locked(&self.state).slot(key).end_pulse(now);
    }

    /// The agent process under this key hangs.
    pub fn hangs(&self, key: &MailboxKey) {
        let now = self.clock.true_now();
        locked(&self.state).slot(key).hang(now);
    }

    /// The agent process under this key goes on.
    pub fn goes_on(&self, key: &MailboxKey) {
        let now = self.clock.true_now();
        locked(&self.state).slot(key).go_on(now);
    }

    /// Somebody with root on the machine under this key writes this over its report, from now on and
    /// after whatever the agent says; none: no more.
    pub fn forge_report(&self, key: &MailboxKey, forged: Option<Forgery>) {
        let mut state = locked(&self.state);
        state.slot(key).forged = forged;
        state.wake(key);
    }

    /// Whether a wait only ever times out.
    pub fn set_weak(&self, weak: bool) {
        locked(&self.state).weak = weak;
    }

    /// Who is told of every order.
    /// Who is told of every signal as it lands.
    pub fn set_witness(&self, witness: impl FnMut(&InstanceId, &str) + Send + 'static) {
        locked(&self.state).witness = Witness(Some(Box::new(witness)));
    }

    /// Who is told of every order as it lands.
    pub fn set_observer(&self, observer: MailboxObserver) {
        locked(&self.state).observer = Some(observer);
    }

    /// What is stored for an agent, without a trip.
    pub fn inbox_now(&self, key: &MailboxKey) -> Option<Inbox> {
        locked(&self.state).inbox(key).cloned()
    }

    /// What an agent said, whatever was forged, without a trip.
    pub fn report_now(&self, key: &MailboxKey) -> Option<Report> {
        let now = self.clock.true_now();
        locked(&self.state).report(now, key).cloned()
    }

    /// The beat as it is sent: numbered after all that were not.
    fn pulsing(&self, key: &MailboxKey, beat: &Beat) -> Beat {
        let Some(agent) = &self.agent else { return beat.clone() };
        let since = self.clock.true_now();
        let mut state = locked(&self.state);
        let slot = state.slot(key);
        slot.end_pulse(since);
        let beat = Beat { seq: beat.seq + slot.unsent, ..beat.clone() };
        let pulse = Pulse { beat: beat.clone(), since, every: agent.heartbeat, hangs: false };
        slot.pulse = Some(pulse);
        beat
    }

    /// What a wait waits for, how long, and how much later the change may be noticed.
    fn what_to_wait_for(
        &self,
        key: &MailboxKey,
        at_most: Duration,
    ) -> (Arc<Notify>, Duration, Duration) {
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
        let (key, beat) = (key.clone(), self.pulsing(key, beat));
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
        let (changed, at_most, notices_within) = self.what_to_wait_for(key, at_most);
        let changed = changed.notified();
        // Registered before the step, or a change during it would be slept through.
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
