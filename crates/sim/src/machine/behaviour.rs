//! How machines behave in a world: the odds of what goes wrong on them.
//!
//! Not here: making it happen ([`super`]), or the wire's own troubles ([`crate::wire::Weather`]).

use std::time::Duration;

use crate::dice::Dice;

/// How machines and their agents behave. Odds are out of a thousand.
#[derive(Clone, Copy, Debug)]
pub struct AgentBehaviour {
    /// The longest a usual warm-up takes.
    pub warm_up_max: Duration,
    /// Warm-ups that fail.
    pub warm_up_fails: u32,
    /// Warm-ups that take up to twice the time they may.
    pub warm_up_slow: u32,
    /// Warm-ups that never end.
    pub warm_up_hangs: u32,
    /// The longest a registration takes.
    pub register_max: Duration,
    /// Agent processes that die, at some await or some time.
    pub dies: u32,
    /// Agent processes that hang at some time, for a while or for ever.
    pub hangs: u32,
    /// Machines that never say anything.
    pub mute: u32,
    /// The largest skew of a usual machine's clock, either way.
    pub skew_max: Duration,
    /// Machines whose clock is off by up to ten minutes.
    pub skewed: u32,
    /// Listeners that exit by themselves, with or without a job.
    pub exits: u32,
    /// Listeners that GitHub forgets.
    pub forgotten: u32,
}

/// The largest skew there is.
const SKEW_MOST: Duration = Duration::from_secs(600);

impl AgentBehaviour {
    /// The same machines, with nothing going wrong any more.
    #[must_use]
    pub fn healed(self) -> Self {
        Self {
            warm_up_max: self.warm_up_max,
            register_max: self.register_max,
            ..crate::world::CALM.temper
        }
    }

    /// Draws one machine's skew in milliseconds, and whether it is more than usual.
    pub(super) fn skew(&self, dice: &Dice) -> (i64, bool) {
        let wrong = dice.chance(self.skewed);
        let most = if wrong { SKEW_MOST } else { self.skew_max };
        (crate::world::draw_skew(dice, most), wrong)
    }
}
