//! The wire between one process and the world: calls take time, are refused, land without an
//! answer, land late, or never return because the process died.
//!
//! A model's method is an *effect* on shared state plus a trip over the wire ([`Wire::call`]).
//! Every await of the engine is such a trip or a sleep, so a process can die at any await: before
//! the effect, or after it and before the answer, and can pause there. Levers such as
//! [`Wire::lose_next_answer`] set the fate of the next call; [`Weather`] draws fates by chance.
//!
//! Not here: the effects of calls (`model`), storms ([`crate::storms`]), or restarting a process.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::ports::Fault;
use tokio::sync::watch;

use crate::clock::pass;
use crate::dice::Dice;
use crate::storms::{Party, StormKind, Storms};

/// The name of the simulator's own wire, which has no faults.
pub(crate) const OUTSIDE: &str = "calm";

/// The odds of each fault, out of a thousand calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// The longest trip, in each direction.
    pub latency_max: Duration,
    /// A call is refused as throttled, before it has an effect.
    pub throttle: u32,
    /// A call is refused for lack of a connection, before it has an effect.
    pub refuse: u32,
    /// A call lands, and its answer is lost.
    pub lose_answer: u32,
    /// A call gets no answer, and lands later.
    pub land_late: u32,
    /// The longest delay of a late call.
    pub late_max: Duration,
    /// A short poll is empty although the queue has messages.
    pub false_empty: u32,
    /// A message is delivered a second time.
    pub deliver_twice: u32,
    /// The longest lag of a listing that may lag.
    pub lag_max: Duration,
    /// A call takes up to its adapter's timeout.
    pub slow: u32,
    /// A call waits for its adapter's timeout. It has its effect at once, later, or never.
    pub hang: u32,
    /// Of a thousand refusals, how many come only after the adapter's timeout. Unless this is 0, all
    /// others take as long as answers.
    pub late_refusals: u32,
}

/// How long the adapter of a port waits for an answer.
fn timeout(port: &str) -> Duration {
    Duration::from_secs(match port {
        "fleet" => 20,
        "forge" | "job-forge" => 12,
        _ => 5,
    })
}

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

/// What happens to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Arrive,
    /// The answer takes this much longer.
    ArriveLate(Duration),
    Refuse(Fault),
    LoseAnswer,
    LandLate(Duration),
    /// The caller waits for its adapter's timeout.
    Hang(Landing),
    Kill,
}

/// When a call that hangs has its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Landing {
    AtOnce,
    After(Duration),
    Never,
}

/// A trouble planned for one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The port.
    pub port: String,
    /// The number of the call among the process's calls of this port, from 1.
    pub call: u64,
    /// The trouble.
    pub trouble: Trouble,
}

/// A trouble that can be planned for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The call is refused and has no effect.
    Refuse(Fault),
    /// The call lands, and its answer is lost.
    LoseAnswer,
    /// The call gets no answer and lands this much later.
    LandLate(Duration),
    /// The call lands, and the process dies before the answer.
    Kill,
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

/// How many calls each port received.
pub type Calls = BTreeMap<&'static str, u64>;

/// How often each fault occurred, to prove that it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Trips over the wire.
    pub calls: u64,
    /// Refused as throttled or unavailable.
    pub refused: u64,
    /// Landed without an answer.
    pub answers_lost: u64,
    /// Landed late, without an answer.
    pub landed_late: u64,
    /// Processes that died.
    pub crashes: u64,
    /// Other troubles, by name.
    pub happened: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Counts one trouble of this name.
    pub fn happened(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.refused += other.refused;
        self.answers_lost += other.answers_lost;
        self.landed_late += other.landed_late;
        self.crashes += other.crashes;
        for (what, count) in other.happened {
            *self.happened.entry(what).or_default() += count;
        }
    }
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

/// How many calls of a process are under way, and how many were at most.
#[derive(Debug, Default)]
struct UnderWay {
    now: AtomicU64,
    most: AtomicU64,
}

/// A call under way, until it is dropped.
struct Call<'w>(&'w UnderWay);

impl<'w> Call<'w> {
    fn begin(under_way: &'w UnderWay) -> Self {
        let now = under_way.now.fetch_add(1, Ordering::Relaxed) + 1;
        under_way.most.fetch_max(now, Ordering::Relaxed);
        Self(under_way)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
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
        self.under_way.most.load(Ordering::Relaxed)
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
        let _call = Call::begin(&self.under_way);
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
            Fate::Hang(landing) => {
                land(landing, effect);
                Box::pin(pass(timeout(port))).await;
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

    /// Counts a call, and takes the trouble planned for it.
    fn planned(&self, port: &'static str) -> Option<Fate> {
        let mut state = self.state();
        let calls = state.calls.entry(port).or_default();
        *calls += 1;
        let call = *calls;
        let is_meant = |planned: &Planned| planned.port == port && planned.call == call;
        let found = state.planned.iter().position(is_meant)?;
        Some(match state.planned.swap_remove(found).trouble {
            Trouble::Refuse(fault) => Fate::Refuse(fault),
            Trouble::LoseAnswer => Fate::LoseAnswer,
            Trouble::LandLate(late) => Fate::LandLate(late),
            Trouble::Kill => Fate::Kill,
        })
    }

    fn draw_fate(&self, port: &'static str) -> Fate {
        let planned = self.planned(port);
        let lever = planned.or_else(|| self.state().levers.pop_front());
        let fate = lever.or_else(|| self.storm_fate(port));
        let weather = self.weather();
        let fate = fate.unwrap_or_else(|| {
            if self.dice.chance(weather.throttle) {
                Fate::Refuse(Fault::Throttled)
            } else if self.dice.chance(weather.refuse) {
                Fate::Refuse(Fault::unavailable("no answer"))
            } else if self.dice.chance(weather.lose_answer) {
                Fate::LoseAnswer
            } else if self.dice.chance(weather.land_late) {
                Fate::LandLate(self.dice.between(Duration::ZERO, weather.late_max))
            } else if self.dice.chance(weather.slow) {
                self.happened("call slow");
                Fate::ArriveLate(self.dice.delay(Duration::ZERO, timeout(port)))
            } else if self.dice.chance(weather.hang) {
                self.happened("call hung");
                Fate::Hang(self.draw_landing(weather.late_max))
            } else {
                Fate::Arrive
            }
        });
        let counts = &mut self.state().counts;
        counts.calls += 1;
        match &fate {
            // `kill` counts a death.
            Fate::Arrive | Fate::ArriveLate(_) | Fate::Hang(_) | Fate::Kill => {}
            Fate::Refuse(_) => counts.refused += 1,
            Fate::LoseAnswer => counts.answers_lost += 1,
            Fate::LandLate(_) => counts.landed_late += 1,
        }
        fate
    }

    /// The fate of a call in a storm; `None` if it is in none, or gets through.
    fn storm_fate(&self, port: &'static str) -> Option<Fate> {
        let (waits, dice) = (timeout(port), &self.dice);
        match self.storms.over(self.party, &self.place, port)? {
            StormKind::Gone => {
                self.happened("call into a storm");
                Some(Fate::Hang(Landing::Never))
            }
            StormKind::Slow => {
                self.happened("call slow in a storm");
                let takes = dice.between(waits / 20, waits * 3 / 2);
                let hangs = takes >= waits;
                let landing =
                    if dice.chance(500) { Landing::AtOnce } else { Landing::After(takes) };
                Some(if hangs { Fate::Hang(landing) } else { Fate::ArriveLate(takes) })
            }
            StormKind::Throttling => dice.chance(900).then(|| {
                self.happened("call throttled in a storm");
                Fate::Refuse(Fault::Throttled)
            }),
        }
    }

    fn draw_landing(&self, late_max: Duration) -> Landing {
        match self.dice.below(3) {
            0 => Landing::AtOnce,
            1 => Landing::After(self.dice.between(Duration::ZERO, late_max)),
            _ => Landing::Never,
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

/// Lets a call that hangs have its effect, if it has one.
fn land<T>(landing: Landing, effect: impl FnOnce() -> T + Send + 'static) {
    match landing {
        Landing::AtOnce => drop(effect()),
        Landing::After(late) => detach(async move {
            pass(late).await;
            effect();
        }),
        Landing::Never => {}
    }
}

/// Runs a future that belongs to the world and outlives its process: a call already on its way.
pub fn detach(late: impl Future<Output = ()> + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "a call on the wire outlives its sender")]
    drop(tokio::spawn(late));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn counting() -> (Arc<AtomicU32>, impl FnOnce() -> u32 + Send + 'static) {
        let count = Arc::new(AtomicU32::new(0));
        let shared = Arc::clone(&count);
        (count, move || shared.fetch_add(1, Ordering::SeqCst))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_has_had_its_effect() {
        let wire = Wire::calm();
        wire.lose_next_answer();
        let (count, effect) = counting();
        assert_eq!(wire.call("test", effect).await, Reply::Lost);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_landing_has_its_effect_after_its_caller_went_on() {
        let wire = Wire::calm();
        wire.land_next_late(Duration::from_secs(5));
        let (count, effect) = counting();
        assert_eq!(wire.call("test", effect).await, Reply::Lost);
        assert_eq!(count.load(Ordering::SeqCst), 0);
        pass(Duration::from_secs(6)).await;
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_planned_trouble_hits_only_its_call() {
        let wire = Wire::calm();
        let trouble = Trouble::Refuse(Fault::Throttled);
        wire.plan(Planned { port: "fleet".into(), call: 2, trouble });
        assert_eq!(wire.call("fleet", || 1).await, Reply::Answered(1));
        assert_eq!(wire.call("ledger", || 2).await, Reply::Answered(2));
        assert_eq!(wire.call("fleet", || 3).await, Reply::Refused(Fault::Throttled));
        assert_eq!(wire.call("fleet", || 4).await, Reply::Answered(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_can_die_at_a_call_that_landed() {
        let wire = Wire::calm();
        wire.plan(Planned { port: "fleet".into(), call: 1, trouble: Trouble::Kill });
        let (count, effect) = counting();
        tokio::select! {
            biased;
            () = wire.died() => {}
            reply = wire.call("fleet", effect) => panic!("a dead process got {reply:?}"),
        }
        assert_eq!((count.load(Ordering::SeqCst), wire.counts().crashes), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_can_die_before_and_after_an_effect() {
        for (awaits, happened) in [(0, 0), (1, 1)] {
            let wire = Wire::calm();
            wire.die_after(awaits);
            let (count, effect) = counting();
            tokio::select! {
                biased;
                () = wire.died() => {}
                reply = wire.call("test", effect) => panic!("a dead process got {reply:?}"),
            }
            assert_eq!(count.load(Ordering::SeqCst), happened, "after {awaits} awaits");
            assert_eq!(wire.counts().crashes, 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_may_have_its_effect_and_waits_for_the_timeout() {
        let began = crate::clock::instant();
        for (landing, at_once, later) in [
            (Landing::AtOnce, 1, 1),
            (Landing::After(Duration::from_secs(9)), 0, 1),
            (Landing::Never, 0, 0),
        ] {
            let wire = Wire::calm();
            wire.state().levers.push_back(Fate::Hang(landing));
            let (count, effect) = counting();
            assert_eq!(wire.call("ledger", effect).await, Reply::Lost);
            assert_eq!(count.load(Ordering::SeqCst), at_once, "{landing:?}");
            pass(Duration::from_secs(5)).await;
            assert_eq!(count.load(Ordering::SeqCst), later, "{landing:?}");
        }
        assert_eq!(began.elapsed(), Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_pauses_goes_on_with_an_older_view_of_time() {
        let wire = Wire::calm();
        wire.pause_after(1, Duration::from_secs(90));
        let began = crate::clock::instant();
        let sleeps = async {
            wire.step().await;
            let first = began.elapsed();
            wire.step().await;
            (first, began.elapsed())
        };
        let beside = async {
            pass(Duration::from_secs(5)).await;
            began.elapsed()
        };
        let process = futures_util::future::join(sleeps, beside);
        let ((first, second), beside) = wire.with_pauses(process).await;
        assert_eq!((first, second), (Duration::ZERO, Duration::from_secs(90)));
        assert_eq!(beside, Duration::from_secs(90), "no part of the process goes on");
        assert_eq!(wire.counts().happened["process paused"], 1);
    }
}
