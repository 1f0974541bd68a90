//! The agent itself: gathers events, asks its [`AgentLife`], and does what it says.
//!
//! Everything runs in one loop of one task: effects, sending, reading and beating are *lanes*, each
//! with at most one thing under way. A beat is sent by the same loop that acts on orders, so an
//! agent that does not act does not beat either.
//!
//! Not here: deciding (`life`), or which mailbox, clock and host these are (the binary's choice).

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

/// How often the inbox is read where no wake-up comes.
const POLL: Duration = Duration::from_secs(1);
/// The first wait after a failed call; doubles.
const RETRY: Duration = Duration::from_millis(200);
/// The longest wait after a failed call: a store that is back must be noticed before an owner
/// gives up on the machine.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long a machine that ends may take to end its listener, before the watchdog does it.
const LEAVE_WITHIN: Duration = Duration::from_secs(60);
/// How long the last signals may take when the machine ends.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(5);
/// Interruptions that wait to be reported. They come from two or three sources, seldom.
const INTERRUPTIONS_MAX: usize = 8;

/// Who an agent is and what it has to do.
#[derive(Clone, Debug)]
pub struct AgentTask {
    /// Where its mailbox is.
    pub key: MailboxKey,
    /// Which boot of its machine this is.
    pub boot: String,
    /// The warm-up, in order.
    pub steps: Vec<Step>,
    /// The stack's numbers.
    pub limits: Limits,
}

/// Where the outside tells an agent that its machine will be taken away.
#[derive(Clone, Debug)]
pub struct Interrupter(mpsc::Sender<String>);

impl Interrupter {
    /// A spot notice, a rebalance recommendation, a termination signal: reported at once.
    pub fn interrupted(&self, reason: &str) {
        // When that many wait already, one more would say nothing new.
        let _ = self.0.try_send(reason.to_owned());
    }
}

/// One agent process.
#[derive(Debug)]
pub struct Agent<M, C, H> {
    mailbox: M,
    clock: C,
    host: H,
    orientation: AgentTask,
    poll: Duration,
    interruptions: mpsc::Receiver<String>,
}

/// What is under way, one thing per lane.
#[derive(Default)]
struct Lanes<'a> {
    effect: Option<BoxFuture<'a, Turn>>,
    read: Option<BoxFuture<'a, Turn>>,
    send: Option<BoxFuture<'a, Turn>>,
    beat: Option<BoxFuture<'a, Turn>>,
    tick: Option<BoxFuture<'a, Turn>>,
    /// What `tick` waits for.
    armed: Option<Alarm>,
}

/// When time alone makes the loop turn: for a beat, by the monotonic clock, or for a deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Alarm {
    beat: Option<Duration>,
    deadline: Option<Timestamp>,
}

/// What came out of a lane.
enum Turn {
    Event(Event),
    Read(Consistency, Result<Option<Inbox>, Fault>),
    Sent(SignalKind, Signal, Result<(), Fault>),
}

/// What the loop itself remembers.
struct Course {
    life: AgentLife,
    outbox: Outbox,
    notes: Notes,
    seq: u64,
    next_beat: Duration,
    said: Option<AgentPhase>,
    /// The next read must be consistent.
    consistent: bool,
    /// The next read must not wait.
    at_once: bool,
    read_retry: Duration,
    send_retry: Duration,
}

impl<M: Mailbox, C: Clock, H: Host> Agent<M, C, H> {
    /// An agent, and how to interrupt it.
    pub fn new(mailbox: M, clock: C, host: H, orientation: AgentTask) -> (Self, Interrupter) {
        let (sender, interruptions) = mpsc::channel(INTERRUPTIONS_MAX);
        let poll = POLL;
        (Self { mailbox, clock, host, orientation, poll, interruptions }, Interrupter(sender))
    }

    /// Where the mailbox's wake-ups can be relied on, the inbox is read this often without one.
    #[must_use]
    pub fn polling(self, every: Duration) -> Self {
        Self { poll: every, ..self }
    }

    /// Lives until the machine is to end; the watchdog is shortened by then. Dropping the future is
    /// the agent's death, and leaves its listener alive.
    pub async fn live(mut self) -> SelfEndReason {
        let mut interruptions = std::mem::replace(&mut self.interruptions, mpsc::channel(1).1);
        let this = &self;
        let mut course = this.begin();
        let mut lanes = Lanes::default();
        let mut turn = Turn::Event(Event::Begun);
        loop {
            if let Some(ending) = this.take(turn, &mut course, &mut lanes) {
                this.last_words(&mut course).await;
                return ending;
            }
            this.fill(&mut course, &mut lanes);
            turn = tokio::select! {
                biased;
                Some(reason) = interruptions.recv() => Turn::Event(Event::Interrupted(reason)),
                turn = lane(&mut lanes.effect) => turn,
                seen = this.host.runner().observe() => Turn::Event(Event::Listener(seen)),
                turn = lane(&mut lanes.read) => turn,
                turn = lane(&mut lanes.send) => turn,
                turn = lane(&mut lanes.beat) => turn,
                turn = lane(&mut lanes.tick) => turn,
            };
        }
    }

    fn begin(&self) -> Course {
        let notes = self.host.notebook().load().unwrap_or_default();
        let notes = notes.for_boot(&self.orientation.boot);
        Course {
            life: AgentLife::new(self.orientation.limits.clone())
                .with_clock_ahead(notes.clock_ahead),
            outbox: Outbox::default(),
            seq: notes.beats,
            notes,
            next_beat: self.clock.monotonic(),
            said: None,
            consistent: true,
            at_once: true,
            read_retry: Duration::ZERO,
            send_retry: Duration::ZERO,
        }
    }

    /// Makes an event of what came, and does what the life says about it.
    fn take<'a>(
        &'a self,
        turn: Turn,
        course: &mut Course,
        lanes: &mut Lanes<'a>,
    ) -> Option<SelfEndReason> {
        let event = match turn {
            Turn::Event(event) => event,
            Turn::Read(read, Ok(inbox)) => {
                course.consistent = false;
                course.read_retry = Duration::ZERO;
                Event::Orders { inbox, read }
            }
            Turn::Read(_, Err(fault)) => {
                tracing::debug!(%fault, "could not read the inbox");
                course.read_retry = later(course.read_retry);
                Event::Tick
            }
            Turn::Sent(kind, signal, Ok(())) => {
                course.outbox.stored(kind, &signal);
                course.send_retry = Duration::ZERO;
                if course.outbox.is_empty() { Event::Stored } else { Event::Tick }
            }
            Turn::Sent(kind, _, Err(fault)) => {
                tracing::debug!(?kind, %fault, "could not store a signal");
                course.send_retry = later(course.send_retry);
                Event::Tick
            }
        };
        log(&event);
        let actions = course.life.on(event, self.clock.now());
        if course.life.clock_ahead() != course.notes.clock_ahead {
            self.save(course, course.notes.beats);
        }
        for action in actions {
            match action {
                Action::Signal(kind, signal) => {
                    tracing::info!(?kind, generation = %signal.generation, "signal");
                    if course.outbox.push(kind, signal) {
                        lanes.send = None;
                        course.send_retry = Duration::ZERO;
                    }
                }
                Action::Do(effect) => {
                    let done = self.perform(effect, course.notes.clone());
                    lanes.effect = Some(Box::pin(async { Turn::Event(Event::Did(done.await)) }));
                }
                Action::Read => {
                    // One that is under way, or waits for a store that is down, will do; starting
                    // it again and again would never let it come to its end.
                    if !(course.consistent && lanes.read.is_some()) {
                        course.consistent = true;
                        course.at_once = true;
                        lanes.read = None;
                    }
                }
                Action::End(ending) => return Some(ending),
            }
        }
        None
    }

    /// Starts what is due in every lane that is free.
    fn fill<'a>(&'a self, course: &mut Course, lanes: &mut Lanes<'a>) {
        if lanes.read.is_none() && course.life.takes_orders() {
            let read =
                if course.consistent { Consistency::Consistent } else { Consistency::Eventual };
            let at_once = std::mem::take(&mut course.at_once);
            let wait = if at_once && course.read_retry.is_zero() {
                Duration::ZERO
            } else if course.read_retry.is_zero() {
                self.poll
            } else {
                course.read_retry
            };
            lanes.read = Some(Box::pin(self.read(read, wait)));
        }
        if lanes.send.is_none()
            && let Some((kind, signal)) = course.outbox.next()
        {
            lanes.send = Some(Box::pin(self.send(kind, signal, course.send_retry)));
        }
        if lanes.beat.is_none()
            && let Some(phase) = course.life.phase()
            && (self.clock.monotonic() >= course.next_beat || course.said != Some(phase))
        {
            lanes.beat = Some(Box::pin(self.beat(course, phase)));
        }
        self.set_alarm(course, lanes);
    }

    /// The loop turns when the next beat or deadline is due, and not before: time alone changes
    /// nothing else.
    fn set_alarm<'a>(&'a self, course: &Course, lanes: &mut Lanes<'a>) {
        let now = self.clock.now();
        // One that is under way makes the loop turn when it is done.
        let beats = lanes.beat.is_none() && course.life.phase().is_some();
        let beat = beats.then_some(course.next_beat);
        let alarm = Alarm { beat, deadline: course.life.next_deadline(now) };
        if lanes.tick.is_some() && lanes.armed == Some(alarm) {
            return;
        }
        let beat = alarm.beat.map(|due| due.saturating_sub(self.clock.monotonic()));
        let deadline = alarm.deadline.map(|deadline| deadline.since(now));
        lanes.armed = Some(alarm);
        lanes.tick = beat.into_iter().chain(deadline).min().map(|wait| {
            let sleep = self.clock.sleep(wait);
            let tick: BoxFuture<'a, Turn> = Box::pin(async {
                sleep.await;
                Turn::Event(Event::Tick)
            });
            tick
        });
    }

    async fn read(&self, read: Consistency, wait: Duration) -> Turn {
        let key = &self.orientation.key;
        if !wait.is_zero() {
            self.mailbox.wait(key, wait).await;
        }
        Turn::Read(read, self.mailbox.inbox(key, read).await)
    }

    async fn send(&self, kind: SignalKind, signal: Signal, wait: Duration) -> Turn {
        if !wait.is_zero() {
            self.clock.sleep(wait).await;
        }
        let answer = self.mailbox.signal(&self.orientation.key, kind, &signal).await;
        Turn::Sent(kind, signal, answer)
    }

    fn beat<'a>(
        &'a self,
        course: &mut Course,
        phase: AgentPhase,
    ) -> impl Future<Output = Turn> + Send + use<'a, M, C, H> {
        course.seq += 1;
        if course.seq > course.notes.beats {
            self.save(course, course.seq + BEATS_RESERVED);
        }
        course.said = Some(phase);
        course.next_beat = self.clock.monotonic() + self.orientation.limits.heartbeat;
        let boot = self.orientation.boot.clone();
        let beat = Beat { seq: course.seq, at: self.clock.now(), phase, boot };
        async move {
            // A lost beat is followed by the next one.
            let _ = self.mailbox.beat(&self.orientation.key, &beat).await;
            Turn::Event(Event::Tick)
        }
    }

    fn save(&self, course: &mut Course, beats: u64) {
        let notebook = self.host.notebook();
        // The warm-up writes there too.
        let stored = notebook.load().filter(|notes| notes.boot == self.orientation.boot);
        let clock_ahead = course.life.clock_ahead();
        course.notes =
            Notes { beats, clock_ahead, ..stored.unwrap_or_else(|| course.notes.clone()) };
        if let Err(error) = notebook.save(&course.notes) {
            tracing::warn!(%error, "could not write the agent's notes");
        }
    }

    /// Does one effect. What must be done in the end is tried until it is.
    async fn perform(&self, effect: Effect, notes: Notes) -> EffectOutcome {
        let runner = self.host.runner();
        match effect {
            Effect::Find => EffectOutcome::Found(self.insist(|| runner.find()).await),
            Effect::WarmUp => {
                let outside = (self.host.scripts(), self.host.notebook(), &self.clock);
                let within = self.orientation.limits.warm_up;
                EffectOutcome::WarmedUp(
                    warm_up(&self.orientation.steps, within, notes, outside).await,
                )
            }
            Effect::Register(to) => EffectOutcome::Registered(runner.register(&to).await),
            Effect::Listen(to) => EffectOutcome::Launched(runner.listen(&to).await),
            Effect::Adopt(to) => {
                self.insist(|| runner.adopt(&to)).await;
                EffectOutcome::Adopted
            }
            Effect::End => {
                let unless_busy = !sabotage!("agent-stops-under-a-job");
                EffectOutcome::Ended(self.insist(|| runner.end(unless_busy)).await)
            }
            Effect::Kill => {
                self.insist(|| runner.kill()).await;
                EffectOutcome::Ended(EndOutcome::Gone)
            }
            Effect::Deregister(token) => {
                EffectOutcome::Deregistered(runner.deregister(&token).await)
            }
            Effect::Clean => {
                self.insist(|| runner.clean()).await;
                EffectOutcome::Cleaned
            }
            Effect::Leave => {
                self.shorten(LEAVE_WITHIN).await;
                self.insist(|| runner.end(false)).await;
                EffectOutcome::Left
            }
        }
    }

    async fn insist<T, F: Future<Output = std::io::Result<T>>>(&self, work: impl Fn() -> F) -> T {
        loop {
            match work().await {
                Ok(done) => return done,
                Err(error) => tracing::warn!(%error, "the runner's host failed; once more"),
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

    /// The machine ends: what is not stored is tried for a moment, an outage does not keep it.
    async fn last_words(&self, course: &mut Course) {
        let send = async {
            while let Some((kind, signal)) = course.outbox.next() {
                let sent = self.send(kind, signal, course.send_retry).await;
                course.send_retry = RETRY;
                if let Turn::Sent(kind, signal, Ok(())) = sent {
                    course.outbox.stored(kind, &signal);
                }
            }
        };
        tokio::select! {
            biased;
            () = send => {}
            () = self.clock.sleep(LAST_WORDS_WITHIN) => {}
        }
        self.shorten(Duration::ZERO).await;
    }
}

/// The lane's outcome, once there is one; the lane is free then.
async fn lane(slot: &mut Option<BoxFuture<'_, Turn>>) -> Turn {
    let Some(work) = slot else { return pending().await };
    let outcome = work.await;
    *slot = None;
    outcome
}

fn later(wait: Duration) -> Duration {
    (wait * 2).clamp(RETRY, RETRY_MAX)
}

fn log(event: &Event) {
    match event {
        Event::Listener(Observed::Trouble(refused)) => {
            tracing::warn!(detail = refused.detail, "the listener has trouble");
        }
        Event::Interrupted(reason) => tracing::warn!(reason, "interrupted"),
        _ => {}
    }
}
