//! Making machines: intents that are durable before any launch, ceilings they are reserved under,
//! the ladder of what to ask for next, the memory of shortages, and dealing an answer out.
//!
//! An [`Intent`] says how many machines somebody is about to launch. It is reserved together with
//! its ceilings in one atomic write, and its id is both the stem of the client token and a tag on
//! every machine, so that a crash between launch and record leaves nothing that cannot be found.
//!
//! Not here: calling the cloud (the `Fleet` port), or validating what came (`claim::check`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::class::{RunnerClass, Usage};
use crate::ids::{
    ClassName, InstanceType, IntentId, PoolName, Revision, SpecHash, TrustGroup, Zone,
};
use crate::instance::Owner;
use crate::limits::Limits;
use crate::request::TypePattern;
use crate::time::Timestamp;

/// A launch that somebody is about to make, or has made and not yet accounted for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Derived from owner, attempt and parameters: a replay is the same launch, a retry a new one.
    pub id: IntentId,
    /// For whom.
    pub owner: Owner,
    /// Whose code will run; nobody's in particular for a pool.
    pub trust: Option<TrustGroup>,
    /// Which class.
    pub class: ClassName,
    /// Which pool, if any.
    pub pool: Option<PoolName>,
    /// How they are paid for.
    pub usage: Usage,
    /// What they are built from.
    pub spec_hash: SpecHash,
    /// How many machines were asked for.
    #[serde(default)]
    pub count: u32,
    /// What was not asked for, because the cloud was short of it. A replay must ask for exactly the
    /// same, and by then the memory of shortages may say something else.
    #[serde(default)]
    pub avoid: BTreeSet<Offering>,
    /// How many machines are still reserved and not recorded.
    pub outstanding: u32,
    /// When whatever is still outstanding is given up.
    pub deadline: Timestamp,
    /// Raised by every write; the ledger sets it.
    pub revision: Revision,
}

/// What a ceiling counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Every machine of the stack.
    Stack,
    /// Machines of one class.
    Class(ClassName),
    /// Machines launched for one pool.
    Pool(PoolName),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stack => f.write_str("stack"),
            Self::Class(name) => write!(f, "class {name}"),
            Self::Pool(name) => write!(f, "pool {name}"),
        }
    }
}

impl Scope {
    /// Whether a machine, or an intent, of this class and pool counts towards it.
    pub fn counts(&self, class: &ClassName, pool: Option<&PoolName>) -> bool {
        match self {
            Self::Stack => true,
            Self::Class(name) => name == class,
            Self::Pool(name) => Some(name) == pool,
        }
    }
}

/// At most this many machines, launches in flight included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Of what.
    pub scope: Scope,
    /// How many.
    pub max: u32,
}

/// The first ceiling that a reservation would break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{scope} holds {used} of at most {max} machines, and {wanted} more were wanted")]
pub struct CeilingReached {
    /// Of what.
    pub scope: Scope,
    /// How many.
    pub max: u32,
    /// How many there are.
    pub used: u32,
    /// How many were wanted on top.
    pub wanted: u32,
}

impl Ceiling {
    /// Whether `wanted` more fit above `used`.
    pub fn admit(&self, used: u32, wanted: u32) -> Result<(), CeilingReached> {
        if used.saturating_add(wanted) <= self.max {
            Ok(())
        } else {
            Err(CeilingReached { scope: self.scope.clone(), max: self.max, used, wanted })
        }
    }
}

/// One thing the cloud can be short of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Offering {
    /// How it is paid for.
    pub usage: Usage,
    /// Which type.
    pub instance_type: InstanceType,
    /// Where.
    pub zone: Zone,
}

impl fmt::Display for Offering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.instance_type, self.usage.as_str(), self.zone)
    }
}

/// What the cloud was short of lately; not asked for again until its time has passed.
#[derive(Clone, Debug, Default)]
pub struct Shortages {
    until: BTreeMap<Offering, Timestamp>,
    /// What the cloud said last, and when that is forgotten.
    said: Option<(String, Timestamp)>,
}

impl Shortages {
    /// Remembers a shortage.
    pub fn remember(&mut self, offering: Offering, limits: &Limits, now: Timestamp) {
        self.until.retain(|_, until| *until > now);
        self.until.insert(offering, now.after(limits.shortage_memory));
    }

    /// Remembers why the cloud brought less.
    pub fn remember_words(&mut self, said: String, limits: &Limits, now: Timestamp) {
        self.said = Some((said, now.after(limits.shortage_memory)));
    }

    /// Why the cloud brought less lately, where it said so: an ending for a sentence.
    pub fn words(&self, now: Timestamp) -> String {
        let said = self.said.as_ref().filter(|(_, until)| *until > now);
        said.map(|(said, _)| format!(" ({said})")).unwrap_or_default()
    }

    /// What must not be asked for now.
    pub fn at(&self, now: Timestamp) -> BTreeSet<Offering> {
        self.until
            .iter()
            .filter(|(_, until)| **until > now)
            .map(|(offering, _)| offering.clone())
            .collect()
    }
}

/// What to ask the cloud for, with nothing left to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchRequest {
    /// The intent it is made under: the client token, and a tag on every machine.
    pub intent: IntentId,
    /// The machine shape.
    pub class: RunnerClass,
    /// The pool it is for, as a tag.
    pub pool: Option<PoolName>,
    /// How it is paid for.
    pub usage: Usage,
    /// Which types will do.
    pub allowed_types: Vec<TypePattern>,
    /// What the cloud is known to be short of.
    pub avoid: BTreeSet<Offering>,
    /// What the machines are built from.
    pub spec_hash: SpecHash,
    /// How many.
    pub count: u32,
}

/// How one launch went, as far as the ladder cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RungResult {
    /// What was asked for.
    pub usage: Usage,
    /// Whether anything came.
    pub any_came: bool,
}

/// What to try next for a request that is still short, or nothing: first what was asked for, around
/// the known shortages; on-demand in place of spot only when spot gave nothing at all.
pub fn next_rung(
    wanted: Usage,
    on_demand_fallback: bool,
    last: Option<RungResult>,
) -> Option<Usage> {
    match last {
        None | Some(RungResult { any_came: true, .. }) => Some(wanted),
        Some(RungResult { usage: Usage::Spot, any_came: false }) if on_demand_fallback => {
            Some(Usage::OnDemand)
        }
        Some(RungResult { any_came: false, .. }) => None,
    }
}

/// One answer, dealt out to the callers that shared a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealt<T, F> {
    /// One per caller, in their order.
    pub answers: Vec<Result<T, F>>,
    /// What nobody asked for; it must be ended.
    pub spare: Vec<T>,
}

/// Deals one fleet answer out to the callers that were batched into it.
pub fn deal<T, F: Clone>(launched: Vec<T>, shortfall: &F, callers: usize) -> Dealt<T, F> {
    let mut launched = launched.into_iter();
    let answers = (0..callers).map(|_| launched.next().ok_or_else(|| shortfall.clone())).collect();
    Dealt { answers, spare: launched.collect() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn offering(zone: &str) -> Offering {
        Offering {
            usage: Usage::Spot,
            instance_type: InstanceType::new("c6i.large"),
            zone: Zone::new(zone),
        }
    }

    #[test]
    fn a_shortage_is_forgotten_after_its_time() {
        let (limits, start) = (Limits::DEFAULT, Timestamp::EPOCH);
        let mut shortages = Shortages::default();
        shortages.remember(offering("a"), &limits, start);
        let later = start.after(Duration::from_secs(60));
        shortages.remember(offering("b"), &limits, later);
        assert_eq!(shortages.at(later).len(), 2);
        let end = start.after(limits.shortage_memory);
        assert_eq!(shortages.at(end), BTreeSet::from([offering("b")]));
    }

    #[test]
    fn the_ladder_falls_back_only_when_spot_gave_nothing() {
        let came = |usage, any_came| Some(RungResult { usage, any_came });
        assert_eq!(next_rung(Usage::Spot, true, None), Some(Usage::Spot));
        assert_eq!(next_rung(Usage::Spot, true, came(Usage::Spot, true)), Some(Usage::Spot));
        assert_eq!(next_rung(Usage::Spot, true, came(Usage::Spot, false)), Some(Usage::OnDemand));
        assert_eq!(next_rung(Usage::Spot, false, came(Usage::Spot, false)), None);
        assert_eq!(next_rung(Usage::Spot, true, came(Usage::OnDemand, false)), None);
    }

    #[test]
    fn an_answer_is_dealt_in_order_and_the_rest_is_spare() {
        let short = deal(vec!["a"], &"short", 2);
        assert_eq!(short.answers, [Ok("a"), Err("short")]);
        let long = deal(vec!["a", "b", "c"], &"short", 2);
        assert_eq!((long.answers.len(), long.spare), (2, vec!["c"]));
    }

    #[test]
    fn a_ceiling_counts_what_is_already_there() {
        let ceiling = Ceiling { scope: Scope::Stack, max: 3 };
        assert!(ceiling.admit(2, 1).is_ok());
        let error = ceiling.admit(2, 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "stack holds 2 of at most 3 machines, and 2 more were wanted"
        );
        assert!(ceiling.admit(u32::MAX, 1).is_err(), "no overflow");
    }
}
