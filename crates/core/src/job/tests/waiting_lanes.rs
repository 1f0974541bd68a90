//! Lanes in which jobs wait for capacity.
//!
//! Not here: waking them (`bullpen-engine`).

use super::super::capacity::WaitingLanes;
use super::*;

#[test]
fn a_lane_is_crowded_for_a_while() {
    let lanes = WaitingLanes::default().with(&waiting(), at(0));
    let wake = Wake { job: waiting().id, lane: Some("pool/ci".to_owned()) };
    assert_eq!(lanes.wakes(at(299)), [wake]);
    assert_eq!(lanes.wakes(at(300)), []);
    assert_eq!(lanes.with(&assigning(), at(300)), WaitingLanes::default(), "it does not wait");
}
