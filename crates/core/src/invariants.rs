//! The invariants, as checks of what is stored.
//!
//! [`on_write`] compares a record before and after one ledger write; [`on_world`] checks a whole
//! stack, [`jobs::on_jobs`] its jobs and runners. They share no code with [`crate::instance::transition`], so that a mistake there is not
//! repeated here. The simulator applies them throughout a run, `ledger verify` to a live stack.
//!
//! Not here: invariants that need a history (every job ends, no missed warm), which the simulator
//! checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::creation::{Ceiling, Intent};
use crate::ids::InstanceId;
use crate::instance::{EndReason, Record, State};
use crate::limits::Limits;
use crate::ports::{Machine, MachineState};
use crate::time::Timestamp;

pub mod jobs;

/// An invariant, by its number in the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// 1: a queued job gets a runner or a visible failure.
    EveryJobEnds,
    /// 2: every machine has a record, every record a machine.
    Conservation,
    /// 3: never two owners, never a change of owner without a new generation.
    OneOwner,
    /// 4: only an authority that may do so ends a machine with a live claim or job.
    Protected,
    /// 5: never more machines than a ceiling allows.
    Ceilings,
    /// 6: a pool reaches its target and then plans nothing.
    Convergence,
    /// 7: calls stay within their rate limits.
    Rates,
    /// 8: no runner without an instance, nor the reverse.
    NoGhosts,
    /// 9: no machine is launched while a matching machine is idle.
    NoMissedWarm,
    /// 10: machines, launches and calls to GitHub cost no more than the work explains.
    Cost,
}

impl Invariant {
    /// Its number.
    pub const fn number(self) -> u8 {
        match self {
            Self::EveryJobEnds => 1,
            Self::Conservation => 2,
            Self::OneOwner => 3,
            Self::Protected => 4,
            Self::Ceilings => 5,
            Self::Convergence => 6,
            Self::Rates => 7,
            Self::NoGhosts => 8,
            Self::NoMissedWarm => 9,
            Self::Cost => 10,
        }
    }
}

/// A broken invariant, and where it broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The machine, if only one is concerned.
    pub instance: Option<InstanceId>,
    /// What the check saw.
    pub what: String,
}

impl Violation {
    /// What an operator can do about it.
    pub const fn remedy(&self) -> &'static str {
        match self.invariant {
            Invariant::EveryJobEnds => "start `bullpen serve`, or see `bullpen explain JOB`",
            Invariant::Conservation | Invariant::NoGhosts => {
                "run `bullpen refresh`; if it is still there after ten minutes, end it by hand"
            }
            Invariant::OneOwner => "drain the service and report this as a defect",
            Invariant::Protected => "see who stopped the machine; its job must be run again",
            Invariant::Ceilings => {
                "see whether the ceiling was lowered; nothing new is launched above it"
            }
            Invariant::Convergence => "see `bullpen pools`",
            Invariant::Rates => "see the calls in `/metrics`",
            Invariant::NoMissedWarm => "see `bullpen explain JOB`",
            Invariant::Cost => "see what launches so much: `bullpen status`, `bullpen pools`",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {} ({:?})", self.invariant.number(), self.invariant)?;
        if let Some(instance) = &self.instance {
            write!(f, " on {instance}")?;
        }
        write!(f, ": {}", self.what)
    }
}

fn violation(invariant: Invariant, record: &Record, what: impl Into<String>) -> Violation {
    Violation { invariant, instance: Some(record.id.clone()), what: what.into() }
}

/// Checks one ledger write.
pub fn on_write(before: Option<&Record>, after: &Record) -> Result<(), Violation> {
    let Some(before) = before else {
        return match after.state {
            State::Created { .. } => Ok(()),
            _ => Err(violation(
                Invariant::OneOwner,
                after,
                format!("a record begins as {}", after.state.name().as_str()),
            )),
        };
    };
    one_owner(before, after)?;
    protected(before, after)
}

fn one_owner(before: &Record, after: &Record) -> Result<(), Violation> {
    let wrong = |what: String| Err(violation(Invariant::OneOwner, after, what));
    if before.facts != after.facts {
        return wrong("the machine's facts changed".into());
    }
    if after.revision <= before.revision {
        return wrong(format!("revision {} after {}", after.revision, before.revision));
    }
    if after.generation < before.generation {
        return wrong(format!("generation {} after {}", after.generation, before.generation));
    }
    if !before.state.is_live() {
        return wrong("a tombstone was written over".into());
    }
    let owner_changed = before.state.owner() != after.state.owner();
    let claim_changed = claim_of(before) != claim_of(after) && claim_of(after).is_some();
    let fenced = after.generation > before.generation;
    if (owner_changed || claim_changed) && !fenced {
        return wrong(format!(
            "owner changed from {} to {} at the same generation {}",
            owner_text(before),
            owner_text(after),
            after.generation
        ));
    }
    if both_owned(before, after) && owner_changed {
        let (from, to) = (owner_text(before), owner_text(after));
        return wrong(format!("passed from {from} straight to {to}"));
    }
    Ok(())
}

fn claim_of(record: &Record) -> Option<&str> {
    match &record.state {
        State::Claimed { claim, .. } => Some(claim.as_str()),
        _ => None,
    }
}

fn both_owned(before: &Record, after: &Record) -> bool {
    before.state.owner().is_some() && after.state.owner().is_some()
}

fn owner_text(record: &Record) -> String {
    record.state.owner().map_or_else(|| "no owner".into(), ToString::to_string)
}

/// Which reasons may end an owned machine, and when.
fn protected(before: &Record, after: &Record) -> Result<(), Violation> {
    let State::Terminating { why, since } = after.state else { return Ok(()) };
    let allowed = match (&before.state, why) {
        (State::Claimed { .. } | State::Running { .. }, EndReason::DeadlinePassed) => {
            since >= before.state.deadline()
        }
        // A used machine that blames GitHub each time is not believed.
        (State::Claimed { .. }, EndReason::FailedChecks | EndReason::Untrusted)
        | (
            State::Claimed { .. } | State::Running { .. },
            EndReason::Dumped
            | EndReason::RequestFailed
            | EndReason::Operator
            | EndReason::MachineGone,
        ) => true,
        (State::Claimed { .. } | State::Running { .. }, _) => false,
        _ => true,
    };
    if allowed {
        return Ok(());
    }
    let state = before.state.name().as_str();
    Err(violation(Invariant::Protected, after, format!("ended for {why:?} while {state}")))
}

/// The state of a whole stack at one moment.
#[derive(Clone, Debug)]
pub struct StackSnapshot<'a> {
    /// The current time.
    pub now: Timestamp,
    /// The whole ledger, tombstones included.
    pub records: &'a [Record],
    /// Launches whose machines are not all recorded yet.
    pub intents: &'a [Intent],
    /// Every machine with the stack's tag.
    pub machines: &'a [Machine],
    /// The ceilings in force.
    pub ceilings: &'a [Ceiling],
    /// The limits in force.
    pub limits: &'a Limits,
}

/// Checks a whole stack: conservation and ceilings.
pub fn on_world(stack: &StackSnapshot<'_>) -> Vec<Violation> {
    let mut found = machines_without_records(stack);
    found.extend(records_without_machines(stack));
    found.extend(ceilings(stack));
    found
}

fn machines_without_records(stack: &StackSnapshot<'_>) -> Vec<Violation> {
    let live: BTreeSet<_> =
        stack.records.iter().filter(|record| record.state.is_live()).map(|r| &r.id).collect();
    let intended: BTreeSet<_> = stack
        .intents
        .iter()
        .filter(|intent| intent.outstanding > 0 && intent.deadline > stack.now)
        .map(|intent| &intent.id)
        .collect();
    let grace = stack.limits.reconcile_grace + stack.limits.clock_skew;
    stack
        .machines
        .iter()
        .filter(|machine| machine.state != MachineState::Gone)
        .filter(|machine| !live.contains(&machine.id) && !intended.contains(&machine.intent))
        .filter(|machine| stack.now.since(machine.launched_at) > grace)
        .map(|machine| Violation {
            invariant: Invariant::Conservation,
            instance: Some(machine.id.clone()),
            what: format!("a machine launched at {} has no record", machine.launched_at),
        })
        .collect()
}

fn records_without_machines(stack: &StackSnapshot<'_>) -> Vec<Violation> {
    let machines: BTreeMap<_, _> =
        stack.machines.iter().map(|machine| (&machine.id, machine.state)).collect();
    let grace = stack.limits.reconcile_grace + stack.limits.clock_skew;
    stack
        .records
        .iter()
        .filter(|record| record.state.is_live())
        .filter(|record| machines.get(&record.id).is_none_or(|s| *s == MachineState::Gone))
        .filter(|record| stack.now.since(record.state.deadline()) > grace)
        .map(|record| {
            let state = record.state.name().as_str();
            let what = format!("{state} past its deadline, and there is no such machine");
            violation(Invariant::Conservation, record, what)
        })
        .collect()
}

fn ceilings(stack: &StackSnapshot<'_>) -> Vec<Violation> {
    let used = |ceiling: &Ceiling| {
        let recorded = stack
            .records
            .iter()
            .filter(|record| record.state.is_live())
            .filter(|r| ceiling.scope.counts(&r.facts.class, r.facts.pool.as_ref()))
            .count();
        let intended: u32 = stack
            .intents
            .iter()
            .filter(|intent| ceiling.scope.counts(&intent.class, intent.pool.as_ref()))
            .map(|intent| intent.outstanding)
            .sum();
        recorded + usize::try_from(intended).unwrap_or(usize::MAX)
    };
    stack
        .ceilings
        .iter()
        .map(|ceiling| (ceiling, used(ceiling)))
        .filter(|(ceiling, used)| *used > usize::try_from(ceiling.max).unwrap_or(usize::MAX))
        .map(|(ceiling, used)| Violation {
            invariant: Invariant::Ceilings,
            instance: None,
            what: format!("{} holds {used} of at most {}", ceiling.scope, ceiling.max),
        })
        .collect()
}

#[cfg(test)]
mod tests;
