//! The wire between one process and the world: calls take time, are refused, land without an
//! answer, land late, or never return because the process died.
//!
//! A model's method is an *effect* on shared state plus a trip over the wire ([`Wire::call`]).
//! Every await of the engine is such a trip or a sleep, so a process can die at any await: before
//! the effect, or after it and before the answer, and can pause there. Levers such as
//! [`Wire::lose_next_answer`] set the fate of the next call; [`Weather`] draws fates by chance.
//!
//! Not here: the effects of calls (`model`), storms ([`crate::storms`]), or restarting a process.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::ports::Fault;
use tokio::sync::watch;

use crate::clock::pass;
use crate::dice::Dice;
use crate::storms::{Party, Storms};

mod counts;
mod fate;
mod weather;

use counts::UnderWay;
pub use counts::{Calls, Counts};
use fate::{Fate, land};
pub use fate::{Planned, Trouble};
use weather::timeout;
pub use weather::{GITHUB_CALL, GITHUB_METHOD, Weather};

/// The name of the simulator's own wire, which has no faults.
pub(crate) const OUTSIDE: &str = "calm";

/// The caller's view of a call's result.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// The answer.
    Answered(T),
    /// The call certainly had no effect.
    Refused(Fault),
    /// The call may have had its effect, may have it later, or may never have it.
    Lost,
}

impl<T> Reply<T> {
    /// For calls that can safely be repeated: a lost answer becomes `unavailable`.
    pub fn or_unavailable(self) -> Result<T, Fault> {
        match self {
            Self::Answered(answer) => Ok(answer),
            Self::Refused(fault) => Err(fault),
            Self::Lost => Err(Fault::unavailable("no answer")),
        }
    }
}

#[derive(Debug)]
struct State {
    weather: Weather,
    levers: VecDeque<Fate>,
    planned: Vec<Planned>,
    /// Awaits left until the process dies; none if it lives.
    fuse: Option<u64>,
    /// The pauses still to come: awaits left until the first, and its length.
    pauses: VecDeque<(u64, Duration)>,
    counts: Counts,
    calls: Calls,
    writes: Calls,
}

/// One process's connection to the world.
#[derive(Clone)]
pub struct Wire {
    name: Arc<str>,
    party: Party,
    place: Arc<str>,
    storms: Storms,
    dice: Arc<Dice>,
    state: Arc<Mutex<State>>,
    under_way: Arc<UnderWay>,
    dead: Arc<watch::Sender<bool>>,
    /// How long the process pauses now, if it does.
    pause: Arc<watch::Sender<Option<Duration>>>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("dead", &*self.dead.borrow()).finish_non_exhaustive()
    }
}

impl Wire {
    /// A wire on which calls arrive at once and always.
    pub fn calm() -> Self {
        Self::new(0, OUTSIDE, Weather::default())
    }

    /// A wire of this name in a world of this seed.
    pub fn new(seed: u64, name: &str, weather: Weather) -> Self {
        let state = State {
            weather,
            levers: VecDeque::new(),
            planned: Vec::new(),
            fuse: None,
            pauses: VecDeque::new(),
            counts: Counts::default(),
            calls: Calls::new(),
            writes: Calls::new(),
        };
        Self {
            name: name.into(),
            party: Party::ControlPlane,
            place: "".into(),
            storms: Storms::default(),
            dice: Arc::new(Dice::new(seed, name)),
            state: Arc::new(Mutex::new(state)),
            under_way: Arc::default(),
            dead: Arc::new(watch::Sender::new(false)),
            pause: Arc::new(watch::Sender::new(None)),
        }
    }

    /// The same wire, as this party's at this place in a world with these storms.
    #[must_use]
    pub fn of(self, party: Party, place: &str, storms: Storms) -> Self {
        Self { party, place: place.into(), storms, ..self }
    }

    /// An agent's zone, or a replica's name.
    pub(crate) fn place(&self) -> &Arc<str> {
        &self.place
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the process.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether this is the same process's wire.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// The current weather.
    pub fn weather(&self) -> Weather {
        self.state().weather
    }

    /// Changes the weather.
    pub fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.state().counts.clone()
    }

    /// Counts a trouble that a model caused for this process.
    pub fn happened(&self, what: &'static str) {
        self.state().counts.happened(what);
    }

    /// The most calls that were under way at once.
    pub fn most_at_once(&self) -> u64 {
        self.under_way.most()
    }

    /// How many calls this process has made, by port.
    pub fn calls(&self) -> Calls {
        self.state().calls.clone()
    }

    /// How many of its calls were writes, by port.
    pub fn writes(&self) -> Calls {
        self.state().writes.clone()
    }

    /// Counts a call that writes to this port if it lands.
    pub(crate) fn writes_to(&self, what: &'static str) {
        *self.state().writes.entry(what).or_default() += 1;
    }

    /// The wire's own dice, for a model's choices.
    pub fn dice(&self) -> &Dice {
        &self.dice
    }

    /// Lever: the next call lands, and its answer is lost.
    pub fn lose_next_answer(&self) {
        self.state().levers.push_back(Fate::LoseAnswer);
    }

    /// Lever: the next call is refused and has no effect.
    pub fn refuse_next(&self, fault: Fault) {
        self.state().levers.push_back(Fate::Refuse(fault));
    }

    /// Lever: the next call gets no answer and lands this much later.
    pub fn land_next_late(&self, late: Duration) {
        self.state().levers.push_back(Fate::LandLate(late));
    }

    /// Lever: plans a trouble for one call of one port, at any time.
    pub fn plan(&self, planned: Planned) {
        self.state().planned.push(planned);
    }

    /// Lever: the process dies at its await number `awaits` from now.
    pub fn die_after(&self, awaits: u64) {
        self.state().fuse = Some(awaits);
    }

    /// Lever: the process pauses for this long at its await number `awaits` from now, or from the end
    /// of the pause before.
    pub fn pause_after(&self, awaits: u64, length: Duration) {
        self.state().pauses.push_back((awaits, length));
    }

    /// Forgets the pauses still to come.
    pub fn pause_no_more(&self) {
        self.state().pauses.clear();
    }

    /// Pauses the process now.
    pub fn pause(&self, length: Duration) {
        self.state().counts.happened("process paused");
        self.storms.note_pause(&self.name, length);
        self.pause.send_replace(Some(length));
    }

    /// Runs a process's future. While the process pauses the future is not polled, as in a virtual
    /// machine that is stopped; its time goes on.
    pub async fn with_pauses<T>(&self, process: impl Future<Output = T>) -> T {
        let mut process = pin!(process);
        loop {
            let length = tokio::select! {
                biased;
                length = self.pauses() => length,
                ended = &mut process => return ended,
            };
            pass(length).await;
            self.pause.send_replace(None);
        }
    }

    /// Returns once the process pauses.
    async fn pauses(&self) -> Duration {
        let mut pause = self.pause.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let length = pause.wait_for(Option::is_some).await.ok().and_then(|length| *length);
        length.unwrap_or_default()
    }

    /// Returns once the process has died.
    pub async fn died(&self) {
        let mut dead = self.dead.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = dead.wait_for(|dead| *dead).await;
    }

    /// One await: the process may die here, and then never continues, or pause.
    pub async fn step(&self) {
        let (dies, pauses) = self.state().await_once();
        if let Some(length) = pauses {
            self.pause(length);
            let mut pause = self.pause.subscribe();
            // The sender lives as long as `self`, so waiting cannot fail.
            Box::pin(async move { drop(pause.wait_for(Option::is_none).await) }).await;
        }
        if dies || *self.dead.borrow() {
            self.kill();
            pending::<()>().await;
        }
    }

    /// Ends the process.
    pub fn kill(&self) {
        if !self.dead.send_replace(true) {
            self.state().counts.crashes += 1;
        }
    }

    /// Makes one call: it travels, has its effect or not, and its answer travels back or is lost.
    pub async fn call<T, F>(&self, port: &'static str, effect: F) -> Reply<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let _call = self.under_way.begin();
        self.step().await;
        self.travel().await;
        let answer = match self.draw_fate(port) {
            Fate::Refuse(fault) => {
                // Boxed, because this is rare and every call's future would contain it.
                Box::pin(self.refusal_travels(port)).await;
                return Reply::Refused(fault);
            }
            Fate::LandLate(late) => {
                detach(async move {
                    pass(late).await;
                    effect();
                });
                self.travel().await;
                return Reply::Lost;
            }
            Fate::Hang(landing, waits) => {
                land(landing, effect);
                Box::pin(pass(waits)).await;
                return Reply::Lost;
            }
            Fate::LoseAnswer => {
                effect();
                None
            }
            Fate::Kill => {
                effect();
                self.kill();
                None
            }
            Fate::Arrive => Some(effect()),
            Fate::ArriveLate(late) => {
                Box::pin(pass(late)).await;
                Some(effect())
            }
        };
        self.step().await;
        self.travel().await;
        answer.map_or(Reply::Lost, Reply::Answered)
    }

    /// The way of a refusal to its caller, which in most worlds takes no time.
    async fn refusal_travels(&self, port: &str) {
        let late = self.weather().late_refusals;
        if self.dice.chance(late) {
            self.happened("refusal late");
            pass(timeout(port)).await;
        } else if late > 0 {
            self.travel().await;
        }
    }

    async fn travel(&self) {
        let latency_max = self.weather().latency_max;
        if latency_max > Duration::ZERO {
            pass(self.dice.between(Duration::ZERO, latency_max)).await;
        }
    }
}

impl State {
    /// Counts one await; returns whether the process dies here, and how long it pauses here.
    fn await_once(&mut self) -> (bool, Option<Duration>) {
        let dies = match &mut self.fuse {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        };
        let pauses = match self.pauses.front_mut() {
            Some((0, _)) => self.pauses.pop_front().map(|(_, length)| length),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        (dies, pauses)
    }
}

/// Runs a future that belongs to the world and outlives its process: a call already on its way.
pub fn detach(late: impl Future<Output = ()> + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "a call on the wire outlives its sender")]
    drop(tokio::spawn(late));
}

#[cfg(test)]
mod tests;
