//! What a route does to a job: it gives a lane, fails the job visibly, or leaves it alone.
//!
//! Not here: the route itself (`route`).

use super::{JobEvent, Lane, Reason};
use crate::labels::class::ClassRef;
use crate::route::{NotOurs, Route};
use crate::time::Timestamp;

/// What a route does to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The job takes this event.
    Event(JobEvent),
    /// The job waits until the service has read a configuration.
    Waits,
    /// This stack does not serve the job: it gets no row.
    NotOurs(NotOurs),
}

/// The placement for a route. If it is a failure, the service tells the author at once and cancels
/// the run by `cancel_by` at the latest, if that is set.
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
