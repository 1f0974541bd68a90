//! Launching machines: intents, ceilings, what to ask the cloud for next, the memory of shortages,
//! and sharing one answer among callers.
//!
//! An [`Intent`] says how many machines its owner is about to launch. The ledger reserves it and its
//! ceilings in one atomic write. Its id is the stem of the client token and a tag on every machine,
//! so that the service finds every machine after a crash between launch and record.
//!
//! Not here: calling the cloud (the `Fleet` port), or checking a new machine (`claim::check`).

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

/// A launch that is about to be made, or whose machines are not all recorded yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Derived from owner, attempt and parameters: a replay is the same launch, a retry a new one.
    pub id: IntentId,
    /// The owner of the machines.
    pub owner: Owner,
    /// The trust group whose code will run; none for a pool.
    pub trust: Option<TrustGroup>,
    /// The class of the machines.
    pub class: ClassName,
    /// The pool that the machines are for, if any.
    pub pool: Option<PoolName>,
    /// How the machines are paid for.
    pub usage: Usage,
    /// The digest of what the machines are built from.
    pub spec_hash: SpecHash,
    /// How many machines the launch asks for.
    #[serde(default)]
    pub count: u32,
    /// Offerings that the launch leaves out because the cloud was short of them. Stored because a
    /// replay must ask for exactly the same, and the memory of shortages may have changed by then.
    #[serde(default)]
    pub avoid: BTreeSet<Offering>,
    /// How many machines are still reserved and not recorded.
    pub outstanding: u32,
    /// When the service gives up the machines that are still outstanding.
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
    /// What it counts.
    pub scope: Scope,
    /// The maximum.
    pub max: u32,
}

/// The first ceiling that a reservation would break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{scope} holds {used} of at most {max} machines, and {wanted} more were wanted")]
pub struct CeilingReached {
    /// What the ceiling counts.
    pub scope: Scope,
    /// The maximum.
    pub max: u32,
    /// How many machines count towards it already.
    pub used: u32,
    /// How many more the reservation wanted.
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

/// A kind of machine that the cloud can be short of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Offering {
    /// How the machine is paid for.
    pub usage: Usage,
    /// Its type.
    pub instance_type: InstanceType,
    /// Its zone.
    pub zone: Zone,
}

impl fmt::Display for Offering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.instance_type, self.usage.as_str(), self.zone)
    }
}

/// What a launch asks for, apart from its number: launches of one kind fail for the same shortage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchKind {
    /// The class.
    pub class: ClassName,
    /// The allowed machine types.
    pub allowed_types: Vec<TypePattern>,
    /// How the machines are paid for.
    pub usage: Usage,
}

/// What the cloud was recently short of. Launches leave an offering out for a while, and a job
/// launches nothing of an exhausted kind.
#[derive(Clone, Debug, Default)]
pub struct Shortages {
    until: BTreeMap<Offering, Timestamp>,
    exhausted: BTreeMap<LaunchKind, Exhausted>,
    /// The cloud's last explanation, and when it is forgotten.
    explanation: Option<(String, Timestamp)>,
}

/// How long a launch of one kind is not worth a call.
#[derive(Clone, Copy, Debug)]
struct Exhausted {
    until: Timestamp,
    /// Whether the cloud named no offering: a quota, which a machine that ends makes room in.
    at_quota: bool,
}

impl Shortages {
    /// Remembers a shortage.
    pub fn remember(&mut self, offering: Offering, limits: &Limits, now: Timestamp) {
        self.until.retain(|_, until| *until > now);
        self.until.insert(offering, now.after(limits.shortage_memory));
    }

    /// Takes note of a launch that left out `avoided` and brought no machine. If the cloud named no
    /// other shortage, the kind is exhausted until the first offering is offered again; without any
    /// known offering, as at a quota, for `limits.row_look_again`.
    pub fn note_nothing_came(
        &mut self,
        kind: LaunchKind,
        avoided: &BTreeSet<Offering>,
        named: &[Offering],
        (limits, now): (&Limits, Timestamp),
    ) {
        self.exhausted.retain(|_, exhausted| exhausted.until > now);
        if named.iter().any(|offering| !avoided.contains(offering)) {
            return;
        }
        let offered = avoided.iter().filter_map(|offering| self.until.get(offering)).min();
        let soonest = now.after(limits.row_look_again);
        let until = offered.map_or(soonest, |at| soonest.max(*at));
        self.exhausted.insert(kind, Exhausted { until, at_quota: offered.is_none() });
    }

    /// Whether the cloud would launch no machine of this kind now.
    pub fn is_exhausted(&self, kind: &LaunchKind, now: Timestamp) -> bool {
        self.exhausted.get(kind).is_some_and(|exhausted| exhausted.until > now)
    }

    /// Takes note that a machine ended: where a quota was used up, another may come.
    pub fn note_ended(&mut self) {
        self.exhausted.retain(|_, exhausted| !exhausted.at_quota);
    }

    /// Remembers why the cloud launched fewer machines than asked for.
    pub fn remember_words(&mut self, said: String, limits: &Limits, now: Timestamp) {
        self.explanation = Some((said, now.after(limits.shortage_memory)));
    }

    /// Why the cloud recently launched fewer machines, in parentheses after a space; empty if the
    /// cloud gave no reason.
    pub fn words(&self, now: Timestamp) -> String {
        let recent = self.explanation.as_ref().filter(|(_, until)| *until > now);
        recent.map(|(text, _)| format!(" ({text})")).unwrap_or_default()
    }

    /// The offerings that a launch leaves out now.
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
    /// The launch's intent: the client token, and a tag on every machine.
    pub intent: IntentId,
    /// The machine shape.
    pub class: RunnerClass,
    /// The pool it is for, as a tag.
    pub pool: Option<PoolName>,
    /// How the machines are paid for.
    pub usage: Usage,
    /// The allowed machine types.
    pub allowed_types: Vec<TypePattern>,
    /// The offerings to leave out.
    pub avoid: BTreeSet<Offering>,
    /// The digest of what the machines are built from.
    pub spec_hash: SpecHash,
    /// How many machines.
    pub count: u32,
}

/// The result of one launch, as [`next_rung`] needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RungResult {
    /// The usage that the launch asked for.
    pub usage: Usage,
    /// Whether the cloud launched any machine.
    pub any_came: bool,
}

/// The usage to ask for next while a request still misses machines, or nothing more to try. The
/// fallback to on-demand comes only after a launch in which spot brought no machine at all.
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

/// One answer of the fleet, divided among the callers that shared a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealt<T, F> {
    /// One per caller, in their order.
    pub answers: Vec<Result<T, F>>,
    /// More machines than the callers asked for; they must be ended.
    pub spare: Vec<T>,
}

/// Divides one answer of the fleet among the callers of one batch.
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
    fn a_kind_is_exhausted_once_nothing_new_is_short() {
        let (limits, start) = (Limits::DEFAULT, Timestamp::EPOCH);
        let kind = LaunchKind {
            class: ClassName::new("large"),
            allowed_types: vec![TypePattern::new("c6i.*")],
            usage: Usage::Spot,
        };
        let mut shortages = Shortages::default();
        shortages.remember(offering("a"), &limits, start);
        let (none, a) = (BTreeSet::new(), BTreeSet::from([offering("a")]));
        shortages.note_nothing_came(kind.clone(), &none, &[offering("a")], (&limits, start));
        assert!(!shortages.is_exhausted(&kind, start), "other zones are still to be tried");
        shortages.note_nothing_came(kind.clone(), &a, &[offering("a")], (&limits, start));
        shortages.note_ended();
        let forgotten = start.after(limits.shortage_memory);
        assert!(shortages.is_exhausted(&kind, forgotten.before(Duration::from_millis(1))));
        assert!(!shortages.is_exhausted(&kind, forgotten));
        let other = LaunchKind { usage: Usage::OnDemand, ..kind.clone() };
        assert!(!shortages.is_exhausted(&other, start));
    }

    #[test]
    fn a_quota_is_asked_again_soon_or_once_a_machine_ended() {
        let (limits, start) = (Limits::DEFAULT, Timestamp::EPOCH);
        let (class, usage) = (ClassName::new("large"), Usage::OnDemand);
        let kind = LaunchKind { class, allowed_types: vec![], usage };
        let mut shortages = Shortages::default();
        let none = BTreeSet::new();
        shortages.note_nothing_came(kind.clone(), &none, &[], (&limits, start));
        assert!(shortages.is_exhausted(&kind, start));
        assert!(!shortages.is_exhausted(&kind, start.after(limits.row_look_again)));
        shortages.note_ended();
        assert!(!shortages.is_exhausted(&kind, start));
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
