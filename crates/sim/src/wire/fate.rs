//! The fate of one call: planned, by a lever, by a storm, or drawn from the weather.
//!
//! Not here: playing it ([`super::Wire::call`]).

use std::time::Duration;

use bullpen_core::ports::Fault;

use super::weather::{method_timeout, timeout};
use super::{Wire, detach};
use crate::clock::pass;
use crate::storms::StormKind;

/// What happens to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrive,
    /// The answer takes this much longer.
    ArriveLate(Duration),
    Refuse(Fault),
    LoseAnswer,
    LandLate(Duration),
    /// The caller waits this long for an answer, and gets none.
    Hang(Landing, Duration),
    Kill,
}

/// When a call that hangs has its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landing {
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

impl Wire {
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

    pub(super) fn draw_fate(&self, port: &'static str) -> Fate {
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
                Fate::Hang(self.draw_landing(weather.late_max), self.draw_hang(port))
            } else {
                Fate::Arrive
            }
        });
        let counts = &mut self.state().counts;
        counts.calls += 1;
        match &fate {
            // `kill` counts a death.
            Fate::Arrive | Fate::ArriveLate(_) | Fate::Hang(..) | Fate::Kill => {}
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
                Some(Fate::Hang(Landing::Never, waits))
            }
            StormKind::Slow => {
                self.happened("call slow in a storm");
                let takes = dice.between(waits / 20, waits * 3 / 2);
                let hangs = takes >= waits;
                let landing =
                    if dice.chance(500) { Landing::AtOnce } else { Landing::After(takes) };
                Some(if hangs {
                    Fate::Hang(landing, self.draw_hang(port))
                } else {
                    Fate::ArriveLate(takes)
                })
            }
            StormKind::Throttling => dice.chance(900).then(|| {
                self.happened("call throttled in a storm");
                Fate::Refuse(Fault::Throttled)
            }),
        }
    }

    /// How long a call hangs: to its adapter's timeout, or longer if its method had made slow calls
    /// before.
    fn draw_hang(&self, port: &str) -> Duration {
        let (least, most) = (timeout(port), method_timeout(port));
        if least < most { self.dice.delay(least, most) } else { least }
    }

    fn draw_landing(&self, late_max: Duration) -> Landing {
        match self.dice.below(3) {
            0 => Landing::AtOnce,
            1 => Landing::After(self.dice.between(Duration::ZERO, late_max)),
            _ => Landing::Never,
        }
    }
}

/// Lets a call that hangs have its effect, if it has one.
pub(super) fn land<T>(landing: Landing, effect: impl FnOnce() -> T + Send + 'static) {
    match landing {
        Landing::AtOnce => drop(effect()),
        Landing::After(late) => detach(async move {
            pass(late).await;
            effect();
        }),
        Landing::Never => {}
    }
}
