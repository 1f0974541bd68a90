//! Invariants 4 and 6 in plans: none touches a machine that somebody uses, and a pool that keeps its
//! target plans nothing.
//!
//! A plan is looked at because what carries it out would hide its mistakes: a conditional write refuses
//! whatever a plan should not have said. What is in use is judged from the record's state alone, apart
//! from the planner's own filter.
//!
//! Not here: what the writes did ([`super::protected`]).

use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_engine::pools::SurveyedPool;

/// No action of the plan touches what somebody uses.
pub(super) fn planned(found: &SurveyedPool) -> Result<(), Violation> {
    let touched: Vec<_> = found.plan.actions.iter().flat_map(|action| action.touches()).collect();
    let in_use = |record: &&Record| is_in_use(record) && touched.contains(&&record.id);
    let mut records = found.observed.instances.iter().map(|one| &one.record);
    let Some(record) = records.find(in_use) else { return Ok(()) };
    let (pool, state) = (&found.pool, record.state.name().as_str());
    Err(Violation {
        invariant: Invariant::Protected,
        instance: Some(record.id.clone()),
        what: format!("pool {pool} plans for it while it is {state}: {:?}", found.plan.actions),
    })
}

fn is_in_use(record: &Record) -> bool {
    match &record.state {
        State::Created { owner, .. } => !matches!(owner, Owner::Pool(_)),
        State::Claimed { .. } | State::Running { .. } | State::Releasing { .. } => true,
        State::Idle { .. }
        | State::Stopping { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => false,
    }
}

/// What keeps a pool from having converged, if anything does.
pub(super) fn unconverged(found: &SurveyedPool) -> Option<Violation> {
    let what = if found.plan.actions.is_empty() {
        let waits = found.plan.notes.iter().find(|note| note.is_passing())?;
        format!("pool {} still waits: {waits}", found.pool)
    } else {
        format!("pool {} still plans {:?}", found.pool, found.plan.actions)
    };
    Some(Violation { invariant: Invariant::Convergence, instance: None, what })
}
