//! Invariants 4 and 6 in plans: no plan touches a machine that is in use, and a pool at its target
//! plans nothing.
//!
//! The plan itself is judged because its execution hides mistakes: a conditional write refuses a
//! wrong action. Use is judged from the record's state alone, independently of the planner's own
//! filter.
//!
//! Not here: judging the writes ([`super::protected`]).

use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_engine::pools::SurveyedPool;

/// No action of the plan touches a machine that is in use.
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

/// Why a pool has not converged, or `None` if it has.
pub(super) fn unconverged(found: &SurveyedPool) -> Option<Violation> {
    let what = if found.plan.actions.is_empty() {
        let waits = found.plan.notes.iter().find(|note| note.is_passing())?;
        format!("pool {} still waits: {waits}", found.pool)
    } else {
        format!("pool {} still plans {:?}", found.pool, found.plan.actions)
    };
    Some(Violation { invariant: Invariant::Convergence, instance: None, what })
}
