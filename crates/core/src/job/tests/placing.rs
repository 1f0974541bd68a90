//! What a route does to a job.
//!
//! Not here: routes themselves (`route::tests`).

use super::super::placement::{Placement, place};
use super::*;
use crate::route::{NotOurs, Route};

#[test]
fn a_route_is_a_lane_a_failure_or_nothing() {
    let ci = PoolName::new("ci");
    let event = |route: &Route| match place(route, at(1), None) {
        Placement::Event(event) => waiting().on(&event).expect("a waiting job takes it"),
        other => panic!("{other:?}"),
    };
    assert_eq!(event(&Route::Pool(ci.clone())).lane, Some(Lane::Pool(ci.clone())));
    let unknown = Route::UnknownPool { pool: ci, suggestions: vec![] };
    let job = event(&unknown);
    assert!(matches!(&job.state, JobState::Ended { end: End::Failed(reason), debts, .. }
        if reason.code() == "unknown-pool" && debts.tell));
    assert_eq!(place(&Route::Wait, at(1), None), Placement::Waits);
    let theirs = Route::NotOurs(NotOurs::NoHead);
    assert_eq!(place(&theirs, at(1), None), Placement::NotOurs(NotOurs::NoHead));
}
