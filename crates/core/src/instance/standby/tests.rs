//! Tests of the status that an operator sees of a pool's instance.
//!
//! Not here: the states themselves.

use super::*;
use crate::instance::Tier;
use crate::samples::{
    at, claimed, created, idle, job_owner, pool_owner, record, releasing, running, stopping,
};

#[test]
fn each_state_of_a_pools_machine_has_its_status() {
    let ending = |why| State::Terminating { why, since: at(0) };
    for (state, expected) in [
        (created(pool_owner()), Some("warming-up")),
        (stopping(), Some("ready-to-stop")),
        (idle(Tier::Hot), Some("ready")),
        (idle(Tier::Stopped), Some("ready")),
        (claimed(job_owner(), Tier::Hot), Some("detached")),
        (running(job_owner()), Some("detached")),
        (releasing(job_owner(), Tier::Hot), Some("detached")),
        (ending(EndReason::FailedWarmUp), Some("error")),
        (ending(EndReason::FailedChecks), Some("error")),
        (ending(EndReason::Surplus), None),
    ] {
        let status = standby_status(&record(state.clone())).map(StandbyStatus::as_str);
        assert_eq!(status, expected, "{state:?}");
    }
}

#[test]
fn a_machine_of_no_pool_has_no_status() {
    let mut record = record(idle(Tier::Hot));
    record.facts.pool = None;
    assert_eq!(standby_status(&record), None);
}
