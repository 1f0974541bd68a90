//! The agent's loop: gathers events, asks its [`AgentLife`], and carries out the actions.
//!
//! Everything runs in one loop of one task. Effects, sends, reads and heartbeats each have a *slot* that
//! holds at most one running future. The loop that acts on orders also sends the heartbeats, so an agent
//! that hangs stops sending them.
//!
//! Not here: deciding (`agent_life`), or which mailbox, clock and host these are (the binary's choice).

use std::future::pending;
use std::time::Duration;

use bullpen_core::ids::MailboxKey;
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::{AgentPhase, Beat, Inbox, Signal, SignalKind};
use bullpen_core::ports::{Clock, Consistency, Fault, Mailbox};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::agent_life::{Action, AgentLife, Effect, EffectOutcome, Event, SelfEndReason};
use crate::host::{Host, Notebook, Watchdog};
use crate::notes::{BEATS_RESERVED, Notes};
use crate::outbox::Outbox;
use crate::runner::{EndOutcome, Observed, Runner};
use crate::warm_up::{Step, warm_up};

/// How often the agent reads the inbox without a wake-up.
const POLL: Duration = Duration::from_secs(1);
/// The first wait after a failed call; doubles.
const RETRY: Duration = Duration::from_millis(200);
/// The longest wait after a failed call. With [`READ_WITHIN`] it leaves time to read an order again
/// before its owner gives the machine up (`limits.assignment_acknowledged`).
const RETRY_MAX: Duration = Duration::from_secs(1);
/// How long one read of the inbox may take. The store's adapter waits longer for an answer.
const READ_WITHIN: Duration = Duration::from_millis(1_500);
const _: () = assert!(
    RETRY_MAX.as_millis() + 2 * READ_WITHIN.as_millis()
        < Limits::DEFAULT.assignment_acknowledged.as_millis()
);
/// How long an agent that leaves may take to end its listener before the watchdog ends the machine.
const LEAVE_WITHIN: Duration = Duration::from_secs(60);
/// How long an agent that leaves tries to send its last signals.
const LAST_SIGNALS_WITHIN: Duration = Duration::from_secs(5);
/// Interruptions that may wait to be reported. They are rare and come from two or three sources.
const INTERRUPTIONS_MAX: usize = 8;

/// What an agent must know to start.
#[derive(Clone, Debug)]
pub struct AgentTask {
    /// Where its mailbox is.
    pub key: MailboxKey,
    /// The id of the machine's current boot.
    pub boot: String,
    /// The warm-up's steps, in order.
    pub steps: Vec<Step>,
    /// The stack's numbers.
    pub limits: Limits,
}

/// Reports to an agent that its machine will be taken away.
#[derive(Clone, Debug)]
pub struct Interrupter(mpsc::Sender<String>);

impl Interrupter {
    /// Reports a spot notice, a rebalance recommendation or a termination signal at once.
    pub fn interrupted(&self, reason: &str) {
        // If the queue is full, the control plane learns of the interruption from the earlier ones.
        let _ = self.0.try_send(reason.to_owned());
    }
}

/// One agent process.
#[derive(Debug)]
pub struct Agent<M, C, H> {
    mailbox: M,
    clock: C,
    host: H,
    task: AgentTask,
    poll: Duration,
    interruptions: mpsc::Receiver<String>,
}

/// The running futures, at most one per slot.
#[derive(Default)]
struct Slots<'a> {
    effect: Option<BoxFuture<'a, Turn>>,
    read: Option<BoxFuture<'a, Turn>>,
    send: Option<BoxFuture<'a, Turn>>,
    beat: Option<BoxFuture<'a, Turn>>,
    tick: Option<BoxFuture<'a, Turn>>,
    /// The alarm that `tick` waits for.
    armed: Option<Alarm>,
}

/// When the loop must run without an event: for a heartbeat (monotonic clock) or for a deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Alarm {
    beat: Option<Duration>,
    deadline: Option<Timestamp>,
}

/// The outcome of a slot's future.
enum Turn {
    Event(Event),
    Read(Consistency, Result<Option<Inbox>, Fault>),
    Sent(SignalKind, Signal, Result<(), Fault>),
}

/// The loop's own state.
struct LoopState {
    life: AgentLife,
    outbox: Outbox,
    notes: Notes,
    seq: u64,
    next_beat: Duration,
    last_phase: Option<AgentPhase>,
    /// The next read must be consistent.
    consistent: bool,
    /// The next read must not wait.
    at_once: bool,
    read_retry: Duration,
    send_retry: Duration,
}

impl<M: Mailbox, C: Clock, H: Host> Agent<M, C, H> {
    /// Makes an agent and the handle that reports interruptions to it.
    pub fn new(mailbox: M, clock: C, host: H, task: AgentTask) -> (Self, Interrupter) {
        let (sender, interruptions) = mpsc::channel(INTERRUPTIONS_MAX);
        let poll = POLL;
        (Self { mailbox, clock, host, task, poll, interruptions }, Interrupter(sender))
    }

    /// Sets how often the agent reads the inbox without a wake-up; seldom if wake-ups are reliable.
    #[must_use]
    pub fn polling(self, every: Duration) -> Self {
        Self { poll: every, ..self }
    }

    /// Runs until the machine must end, and shortens the watchdog before it returns. Dropping the future
    /// kills the agent and leaves its listener running.
    pub async fn live(mut self) -> SelfEndReason {
        let mut interruptions = std::mem::replace(&mut self.interruptions, mpsc::channel(1).1);
        let this = &self;
        let mut state = this.begin();
        let mut slots = Slots::default();
        let mut turn = Turn::Event(Event::Begun);
        loop {
            if let Some(ending) = this.handle_turn(turn, &mut state, &mut slots) {
                this.send_last_signals(&mut state).await;
                return ending;
            }
            this.start_due(&mut state, &mut slots);
            turn = tokio::select! {
                biased;
                Some(reason) = interruptions.recv() => Turn::Event(Event::Interrupted(reason)),
                turn = outcome_of(&mut slots.effect) => turn,
                seen = this.host.runner().observe() => Turn::Event(Event::Listener(seen)),
                turn = outcome_of(&mut slots.read) => turn,
                turn = outcome_of(&mut slots.send) => turn,
                turn = outcome_of(&mut slots.beat) => turn,
                turn = outcome_of(&mut slots.tick) => turn,
            };
        }
    }

    fn begin(&self) -> LoopState {
        let notes = self.host.notebook().load().unwrap_or_default();
        let notes = notes.for_boot(&self.task.boot);
        LoopState {
            life: AgentLife::new(self.task.limits.clone()).with_clock_ahead(notes.clock_ahead),
            outbox: Outbox::default(),
            seq: notes.beats,
            notes,
            next_beat: self.clock.monotonic(),
            last_phase: None,
            consistent: true,
            at_once: true,
            read_retry: Duration::ZERO,
            send_retry: Duration::ZERO,
        }
    }

    /// Feeds a slot's outcome to the state machine and starts the actions it returns.
    fn handle_turn<'a>(
        &'a self,
        turn: Turn,
        state: &mut LoopState,
        slots: &mut Slots<'a>,
    ) -> Option<SelfEndReason> {
        let event = match turn {
            Turn::Event(event) => event,
            Turn::Read(read, Ok(inbox)) => {
                state.consistent = false;
                state.read_retry = Duration::ZERO;
                Event::Orders { inbox, read }
            }
            Turn::Read(_, Err(fault)) => {
                tracing::debug!(%fault, "could not read the inbox");
                state.read_retry = next_wait(state.read_retry);
                Event::Tick
            }
            Turn::Sent(kind, signal, Ok(())) => {
                state.outbox.stored(kind, &signal);
                state.send_retry = Duration::ZERO;
                if state.outbox.is_empty() { Event::Stored } else { Event::Tick }
            }
            Turn::Sent(kind, _, Err(fault)) => {
                tracing::debug!(?kind, %fault, "could not store a signal");
                state.send_retry = next_wait(state.send_retry);
                Event::Tick
            }
        };
        log(&event);
        let actions = state.life.on(event, self.clock.now());
        if state.life.clock_ahead() != state.notes.clock_ahead {
            self.save(state, state.notes.beats);
        }
        for action in actions {
            match action {
                Action::Signal(kind, signal) => {
                    tracing::info!(?kind, generation = %signal.generation, "agent sends a signal");
                    if state.outbox.push(kind, signal) {
                        slots.send = None;
                        state.send_retry = Duration::ZERO;
                    }
                }
                Action::Do(effect) => {
                    let done = self.perform(effect, state.notes.clone());
                    slots.effect = Some(Box::pin(async { Turn::Event(Event::Did(done.await)) }));
                }
                Action::Read => {
                    // A consistent read that is already running is enough: restarting it each time
                    // would never let it finish.
                    if !(state.consistent && slots.read.is_some()) {
                        state.consistent = true;
                        state.at_once = true;
                        slots.read = None;
                    }
                }
                Action::End(ending) => return Some(ending),
            }
        }
        None
    }

    /// Starts what is due in every free slot.
    fn start_due<'a>(&'a self, state: &mut LoopState, slots: &mut Slots<'a>) {
        if slots.read.is_none() && state.life.takes_orders() {
            let read =
                if state.consistent { Consistency::Consistent } else { Consistency::Eventual };
            let at_once = std::mem::take(&mut state.at_once);
            let wait = if at_once && state.read_retry.is_zero() {
                Duration::ZERO
            } else if state.read_retry.is_zero() {
                self.poll
            } else {
                state.read_retry
            };
            slots.read = Some(Box::pin(self.read(read, wait)));
        }
        if slots.send.is_none()
            && let Some((kind, signal)) = state.outbox.next()
        {
            slots.send = Some(Box::pin(self.send(kind, signal, state.send_retry)));
        }
        if slots.beat.is_none()
            && let Some(phase) = state.life.phase()
            && (self.clock.monotonic() >= state.next_beat || state.last_phase != Some(phase))
        {
            slots.beat = Some(Box::pin(self.beat(state, phase)));
        }
        self.set_alarm(state, slots);
    }

    /// Wakes the loop when the next heartbeat or deadline is due.
    fn set_alarm<'a>(&'a self, state: &LoopState, slots: &mut Slots<'a>) {
        let now = self.clock.now();
        // A heartbeat that is being sent wakes the loop when it is done.
        let beats = slots.beat.is_none() && state.life.phase().is_some();
        let beat = beats.then_some(state.next_beat);
        let alarm = Alarm { beat, deadline: state.life.next_deadline(now) };
        if slots.tick.is_some() && slots.armed == Some(alarm) {
            return;
        }
        let beat = alarm.beat.map(|due| due.saturating_sub(self.clock.monotonic()));
        let deadline = alarm.deadline.map(|deadline| deadline.since(now));
        slots.armed = Some(alarm);
        slots.tick = beat.into_iter().chain(deadline).min().map(|wait| {
            let sleep = self.clock.sleep(wait);
            let tick: BoxFuture<'a, Turn> = Box::pin(async {
                sleep.await;
                Turn::Event(Event::Tick)
            });
            tick
        });
    }

    async fn read(&self, read: Consistency, wait: Duration) -> Turn {
        let key = &self.task.key;
        if !wait.is_zero() {
            self.mailbox.wait(key, wait).await;
        }
        let answer = tokio::select! {
            biased;
            answer = self.mailbox.inbox(key, read) => answer,
            () = self.clock.sleep(READ_WITHIN) => Err(Fault::unavailable("no answer in time")),
        };
        Turn::Read(read, answer)
    }

    async fn send(&self, kind: SignalKind, signal: Signal, wait: Duration) -> Turn {
        if !wait.is_zero() {
            self.clock.sleep(wait).await;
        }
        let answer = self.mailbox.signal(&self.task.key, kind, &signal).await;
        Turn::Sent(kind, signal, answer)
    }

    fn beat<'a>(
        &'a self,
        state: &mut LoopState,
        phase: AgentPhase,
    ) -> impl Future<Output = Turn> + Send + use<'a, M, C, H> {
        state.seq += 1;
        if state.seq > state.notes.beats {
            self.save(state, state.seq + BEATS_RESERVED);
        }
        state.last_phase = Some(phase);
        state.next_beat = self.clock.monotonic() + self.task.limits.heartbeat;
        let boot = self.task.boot.clone();
        let beat = Beat { seq: state.seq, at: self.clock.now(), phase, boot };
        async move {
            // A lost heartbeat needs no retry: the next one follows soon.
            let _ = self.mailbox.beat(&self.task.key, &beat).await;
            Turn::Event(Event::Tick)
        }
    }

    fn save(&self, state: &mut LoopState, beats: u64) {
        let notebook = self.host.notebook();
        // Reload first: the warm-up writes to the same notes.
        let stored = notebook.load().filter(|notes| notes.boot == self.task.boot);
        let clock_ahead = state.life.clock_ahead();
        state.notes = Notes { beats, clock_ahead, ..stored.unwrap_or_else(|| state.notes.clone()) };
        if let Err(error) = notebook.save(&state.notes) {
            tracing::warn!(%error, "could not write agent notes");
        }
    }

    /// Runs one effect. Steps that must not fail are retried until they succeed.
    async fn perform(&self, effect: Effect, notes: Notes) -> EffectOutcome {
        let runner = self.host.runner();
        match effect {
            Effect::Find => EffectOutcome::Found(self.retry(|| runner.find()).await),
            Effect::WarmUp => {
                let outside = (self.host.scripts(), self.host.notebook(), &self.clock);
                let within = self.task.limits.warm_up;
                EffectOutcome::WarmedUp(warm_up(&self.task.steps, within, notes, outside).await)
            }
            Effect::Register(to) => EffectOutcome::Registered(runner.register(&to).await),
            Effect::Listen(to) => EffectOutcome::Launched(runner.listen(&to).await),
            Effect::Adopt(to) => {
                self.retry(|| runner.adopt(&to)).await;
                EffectOutcome::Adopted
            }
            Effect::End => {
                let unless_busy = !sabotage!("agent-stops-under-a-job");
                EffectOutcome::Ended(self.retry(|| runner.end(unless_busy)).await)
            }
            Effect::Kill => {
                self.retry(|| runner.kill()).await;
                EffectOutcome::Ended(EndOutcome::Gone)
            }
            Effect::Deregister(token) => {
                EffectOutcome::Deregistered(runner.deregister(&token).await)
            }
            Effect::Clean => {
                self.retry(|| runner.clean()).await;
                EffectOutcome::Cleaned
            }
            Effect::Leave => {
                self.shorten(LEAVE_WITHIN).await;
                self.retry(|| runner.end(false)).await;
                EffectOutcome::Left
            }
        }
    }

    async fn retry<T, F: Future<Output = std::io::Result<T>>>(&self, work: impl Fn() -> F) -> T {
        loop {
            match work().await {
                Ok(done) => return done,
                Err(error) => tracing::warn!(%error, "runner operation failed; retrying"),
            }
            self.clock.sleep(POLL).await;
        }
    }

    async fn shorten(&self, within: Duration) {
        let to = self.clock.now().after(within);
        if let Err(error) = self.host.watchdog().shorten(to).await {
            tracing::error!(%error, "could not shorten the watchdog");
        }
    }

    /// Tries to send the remaining signals, but not for long: an outage must not keep the machine up.
    async fn send_last_signals(&self, state: &mut LoopState) {
        let send = async {
            while let Some((kind, signal)) = state.outbox.next() {
                let sent = self.send(kind, signal, state.send_retry).await;
                state.send_retry = RETRY;
                if let Turn::Sent(kind, signal, Ok(())) = sent {
                    state.outbox.stored(kind, &signal);
                }
            }
        };
        tokio::select! {
            biased;
            () = send => {}
            () = self.clock.sleep(LAST_SIGNALS_WITHIN) => {}
        }
        self.shorten(Duration::ZERO).await;
    }
}

/// Waits for a slot's outcome and frees the slot.
async fn outcome_of(slot: &mut Option<BoxFuture<'_, Turn>>) -> Turn {
    let Some(work) = slot else { return pending().await };
    let outcome = work.await;
    *slot = None;
    outcome
}

fn next_wait(wait: Duration) -> Duration {
    (wait * 2).clamp(RETRY, RETRY_MAX)
}

fn log(event: &Event) {
    match event {
        Event::Listener(Observed::Trouble(refused)) => {
            tracing::warn!(detail = refused.detail, "listener reported a problem");
        }
        Event::Interrupted(reason) => tracing::warn!(reason, "machine is being interrupted"),
        _ => {}
    }
}
