//! Invariant 9: no attempt creates machines while a matching machine has been idle since before the
//! attempt began.
//!
//! Not here: which machines match ([`super::fit`]).

use bullpen_core::creation::Intent;
use bullpen_core::instance::{Record, State};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::time::Timestamp;

use super::fit::misfit;
use super::requests::{Asked, Requests};
use super::view::View;

/// A request reserves machines: no matching idle machine may have been available.
pub(super) fn reserved(
    view: &View,
    requests: &Requests,
    at: Timestamp,
    intent: &Intent,
) -> Result<(), Violation> {
    let Some(asked) = requests.asked(&intent.owner) else { return Ok(()) };
    match view.live.values().find(|record| was_there(view, asked, at, record)) {
        None => Ok(()),
        Some(record) => Err(Violation {
            invariant: Invariant::NoMissedWarm,
            instance: Some(record.id.clone()),
            what: format!("{} creates machines while it was idle", intent.owner),
        }),
    }
}

fn was_there(view: &View, asked: &Asked, at: Timestamp, record: &Record) -> bool {
    let State::Idle { since, deadline, shared: true, .. } = record.state else { return false };
    let limits = &view.limits;
    // A process whose clock runs ahead may rightly see this deadline as too close.
    let nearly_over = at.after(2 * limits.clock_skew + limits.not_claimable_before_deadline);
    since.after(limits.clock_skew) < asked.began
        && deadline > nearly_over
        && misfit(record, &asked.request, limits).is_none()
}
