//! How machines behave in a world: the odds of the troubles on them.
//!
//! Not here: causing them ([`super`]), or the wire's troubles ([`crate::wire::Weather`]).

use std::time::Duration;

use crate::dice::Dice;

/// How machines and their agents behave. Odds are out of a thousand.
#[derive(Clone, Copy, Debug)]
pub struct AgentBehaviour {
    /// The longest usual warm-up.
    pub warm_up_max: Duration,
    /// Warm-ups that fail.
    pub warm_up_fails: u32,
    /// Warm-ups that take up to twice the limit.
    pub warm_up_slow: u32,
    /// Warm-ups that never end.
    pub warm_up_hangs: u32,
    /// The longest registration.
    pub register_max: Duration,
    /// Agent processes that die, at an await or at a time.
    pub dies: u32,
    /// Agent processes that hang once, for a while or for ever.
    pub hangs: u32,
    /// Machines whose agent never starts.
    pub mute: u32,
    /// The largest usual skew of a machine's clock, in either direction.
    pub skew_max: Duration,
    /// Machines whose clock is off by up to ten minutes.
    pub skewed: u32,
    /// Listeners that exit by themselves, with or without a job.
    pub exits: u32,
    /// Listeners whose runner GitHub removes.
    pub forgotten: u32,
    /// Machines whose runner program updates itself when it first listens.
    pub updates: u32,
}

/// The largest skew of all.
const SKEW_MOST: Duration = Duration::from_secs(600);

impl AgentBehaviour {
    /// The same behaviour without troubles.
    #[must_use]
    pub fn healed(self) -> Self {
        Self {
            warm_up_max: self.warm_up_max,
            register_max: self.register_max,
            ..crate::world::CALM.temper
        }
    }

    /// Draws a machine's skew in milliseconds, and whether it is unusually large.
    pub(super) fn skew(&self, dice: &Dice) -> (i64, bool) {
        let wrong = dice.chance(self.skewed);
        let most = if wrong { SKEW_MOST } else { self.skew_max };
        (crate::world::draw_skew(dice, most), wrong)
    }
}
