//! The pools of a seed's world: their configuration over time, with schedules that change in the
//! middle of the load, new versions that replace machines, and pools that are removed and added.
//!
//! In some worlds the time zone's clocks change meanwhile.
//!
//! Not here: keeping the pools (the service does), or the checks ([`crate::checker`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bullpen_core::config::pool::PoolConfig;
use bullpen_core::config::runs_on;
use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::ids::PoolName;

use crate::dice::Dice;

/// Of a thousand services, how many keep pools.
const KEEPING: u32 = 400;
/// A time zone, its offset in minutes, and the time at which a world begins in it.
const ZONES: [(&str, i64, &str); 5] = [
    ("UTC", 0, "2026-01-05T00:00:00Z"),
    ("America/New_York", -5 * 60, "2026-01-05T00:00:00Z"),
    // Half an hour before the clocks go forward, and back.
    ("Europe/Paris", 60, "2026-03-29T00:30:00Z"),
    ("Europe/Paris", 120, "2026-10-25T00:30:00Z"),
    ("America/New_York", -4 * 60, "2026-11-01T05:30:00Z"),
];

/// The configuration of pools.
pub type Pools = BTreeMap<PoolName, PoolConfig>;

/// The configuration of pools over time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// When the world begins, if that matters.
    pub begins: Option<&'static str>,
    /// The changes in order.
    changes: Vec<(Duration, Pools)>,
    /// Whether all pools are removed.
    over: Arc<AtomicBool>,
}

impl Timeline {
    /// Whether the service ever keeps pools.
    pub fn is_kept(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The configuration after this long; `None` if the world's pools never change.
    pub fn at(&self, elapsed: Duration) -> Option<Pools> {
        if self.over.load(Ordering::Relaxed) {
            return Some(Pools::new());
        }
        let known = self.changes.iter().rev().find(|(at, _)| *at <= elapsed);
        known.map(|(_, pools)| pools.clone())
    }

    /// Removes all pools from now on.
    pub fn remove_pools(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// The ceilings of the pools; they never change.
    pub fn ceilings(&self) -> Vec<Ceiling> {
        let first = self.changes.first().into_iter().flat_map(|(_, pools)| pools);
        let own = |(name, pool): (&PoolName, &PoolConfig)| {
            Some(Ceiling { scope: Scope::Pool(name.clone()), max: pool.own.max? })
        };
        first.filter_map(own).collect()
    }
}

/// Draws the configuration of pools in a world whose faults last this long.
pub(super) fn draw(dice: &Dice, lasts: Duration) -> Timeline {
    if !dice.chance(KEEPING) {
        return Timeline::default();
    }
    let (zone, ahead, begins) = *dice.pick(&ZONES).expect("the list is not empty");
    let pool = Drawn::new(dice, zone, ahead, begins, lasts);
    let mut changes = vec![(Duration::ZERO, pool.read(1))];
    let mut at = Duration::ZERO;
    for version in 2..=1 + dice.below(3) {
        at += dice.between(Duration::ZERO, lasts / 3);
        if dice.chance(300) {
            changes.push((at, Pools::new()));
            at += dice.between(Duration::ZERO, lasts / 6);
        }
        changes.push((at, pool.read(version)));
    }
    Timeline { begins: Some(begins), changes, over: Arc::default() }
}

/// The pools of a big world, which do not change.
pub(super) const BIG: u64 = 20;

/// The name of one pool of a big world.
pub(super) fn name_of(number: u64) -> PoolName {
    if number == 0 { PoolName::new("ci") } else { PoolName::new(format!("ci-{number}")) }
}

/// Draws the pools of a big world.
pub(super) fn draw_big(dice: &Dice, lasts: Duration) -> Timeline {
    let (zone, ahead, begins) = ZONES[0];
    let one = |number| {
        let drawn = Drawn::new(dice, zone, ahead, begins, lasts).read(1);
        drawn.into_values().next().map(|pool| (name_of(number), pool))
    };
    let pools: Pools = (0..BIG).filter_map(one).collect();
    let changes = vec![(Duration::ZERO, pools)];
    Timeline { begins: Some(begins), changes, over: Arc::default() }
}

/// One pool, without its version.
struct Drawn {
    zone: &'static str,
    usual: (u64, u64),
    rush: (u64, u64),
    window: (String, String),
    max: u64,
    rollout: &'static str,
    lifetime: &'static str,
    spot: bool,
}

impl Drawn {
    fn new(dice: &Dice, zone: &'static str, ahead: i64, begins: &str, lasts: Duration) -> Self {
        let (usual, rush) = ((dice.below(3), dice.below(3)), (dice.below(4), dice.below(3)));
        let from = dice.between(Duration::ZERO, lasts);
        let until = from + dice.between(Duration::from_secs(600), Duration::from_secs(3_600));
        let most = (usual.0 + usual.1).max(rush.0 + rush.1);
        Self {
            zone,
            usual,
            rush,
            window: (local(begins, ahead, from), local(begins, ahead, until)),
            max: (most + dice.below(4)).max(1),
            rollout: if dice.chance(500) { "rolling" } else { "immediate" },
            lifetime: if dice.chance(500) { "10m" } else { "1h" },
            spot: dice.chance(300),
        }
    }

    fn read(&self, version: u64) -> Pools {
        let Self { zone, usual, rush, window: (from, until), max, rollout, lifetime, spot } = self;
        let text = format!(
            "
runners: {{large: {{cpu: 2, ram: 4}}}}
pools:
  ci:
    runner: large
    timezone: {zone}
    version: v{version}
    schedule:
      - {{name: usual, hot: {}, stopped: {}}}
      - {{name: rush, hot: {}, stopped: {}, match: {{time: [\"{from}\", \"{until}\"]}}}}
x-bullpen:
  pools:
    ci: {{max: {max}, rollout: {rollout}, hot-lifetime: {lifetime}, spot: {spot}}}
",
            usual.0, usual.1, rush.0, rush.1
        );
        let read = runs_on::read(text.as_bytes());
        read.value()
            .unwrap_or_else(|| panic!("a bad configuration was drawn: {text}"))
            .pools
            .clone()
    }
}

/// The local time in a zone with this offset, this long after a world began.
fn local(begins: &str, ahead: i64, after: Duration) -> String {
    let digits = |range: std::ops::Range<usize>| {
        begins.get(range).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
    };
    let minutes = digits(11..13) * 60 + digits(14..16) + ahead;
    let minutes = minutes + i64::try_from(after.as_secs() / 60).unwrap_or(0);
    let minutes = minutes.rem_euclid(24 * 60);
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drawn_configuration_can_be_read_and_changes_over_time() {
        let lasts = Duration::from_secs(5_400);
        let drawn: Vec<_> = (0..200).map(|seed| draw(&Dice::new(seed, "t"), lasts)).collect();
        let kept: Vec<_> = drawn.iter().filter(|timeline| timeline.is_kept()).collect();
        assert!((50..120).contains(&kept.len()), "{}", kept.len());
        assert!(kept.iter().any(|timeline| timeline.changes.len() > 3));
        for timeline in kept {
            assert!(timeline.at(Duration::ZERO).is_some_and(|pools| pools.len() == 1));
            assert_eq!(timeline.ceilings().len(), 1);
            timeline.remove_pools();
            assert_eq!(timeline.at(lasts), Some(Pools::new()));
        }
    }

    #[test]
    fn a_big_world_has_twenty_pools() {
        let timeline = draw_big(&Dice::new(7, "t"), Duration::from_secs(5_400));
        let pools = timeline.at(Duration::ZERO).expect("they are kept");
        assert_eq!((pools.len(), timeline.ceilings().len()), (20, 20));
        assert!(pools.contains_key(&PoolName::new("ci")));
    }

    #[test]
    fn local_time_wraps_at_midnight() {
        assert_eq!(local("2026-03-29T00:30:00Z", 60, Duration::from_secs(1_800)), "02:00");
        assert_eq!(local("2026-01-05T00:00:00Z", -300, Duration::from_secs(60)), "19:01");
    }
}
