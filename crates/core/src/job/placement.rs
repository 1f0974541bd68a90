//! What its route makes of a job: a lane, a visible failure, patience, or nothing of ours.
//!
//! Not here: the route itself (`route`).

use super::{JobEvent, Lane, Reason};
use crate::labels::class::ClassRef;
use crate::route::{NotOurs, Route};
use crate::time::Timestamp;

/// What becomes of a job by its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// This happens to it.
    Event(JobEvent),
    /// It waits until a configuration was read.
    Waits,
    /// It is none of ours: no row is made for it.
    NotOurs(NotOurs),
}

/// What a route makes of a job. A failure is told at once, and its run is cancelled by `cancel_by`
/// at the latest, if that is wanted.
pub fn place(route: &Route, at: Timestamp, cancel_by: Option<Timestamp>) -> Placement {
    let routed = |lane| Placement::Event(JobEvent::Routed { lane, at });
    let failed = |reason| Placement::Event(JobEvent::Failed { reason, at, cancel_by });
    match route {
        Route::Pool(pool) => routed(Lane::Pool(pool.clone())),
        Route::Launch(launch) => routed(match &launch.class {
            ClassRef::Named(class) => Lane::Class(class.name.clone()),
            ClassRef::Anonymous(_) => Lane::Anonymous,
        }),
        Route::UnknownPool { pool, suggestions } => {
            failed(Reason::UnknownPool { pool: pool.clone(), suggestions: suggestions.clone() })
        }
        Route::Refused(why) => {
            failed(Reason::Refused { why: why.iter().map(ToString::to_string).collect() })
        }
        Route::NotOurs(why) => Placement::NotOurs(*why),
        Route::Wait => Placement::Waits,
    }
}
