//! Lanes in which jobs wait for capacity under a ceiling, so that a process that frees capacity
//! knows which lanes to wake.
//!
//! The rows are the waiting list; this document only says where to look. If a lane is not written
//! down, the sweep finds its jobs a little later.
//!
//! Not here: which job is next (`fair`), or storing this (`bullpen-engine`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Job, Wake};
use crate::ids::JobId;
use crate::parameters::Kept;
use crate::time::Timestamp;

/// How often one process writes one lane down.
pub const NOTED_EVERY: Duration = Duration::from_secs(60);
/// How long a lane counts as waiting after it was last written down. Workers retry the rows that
/// wait there far more often than that.
const WAITS_FOR: Duration = Duration::from_secs(5 * 60);

/// The lanes in which jobs wait for capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingLanes {
    lanes: BTreeMap<String, Noted>,
}

/// The last job that waited in a lane, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    job: JobId,
    at: Timestamp,
}

impl Kept for WaitingLanes {
    const NAME: &'static str = "crowded";
}

impl WaitingLanes {
    /// Adds the lane of a job that waits for capacity, and drops old lanes.
    #[must_use]
    pub fn with(mut self, job: &Job, now: Timestamp) -> Self {
        self.lanes.retain(|_, noted| now.since(noted.at) < WAITS_FOR);
        if let Some(at) = job.waiting_at() {
            self.lanes.insert(at.lane, Noted { job: job.id.clone(), at: now });
        }
        self
    }

    /// The messages to send when there is capacity: one for each lane.
    pub fn wakes(&self, now: Timestamp) -> Vec<Wake> {
        let waiting = self.lanes.iter().filter(|(_, noted)| now.since(noted.at) < WAITS_FOR);
        let wake = |(lane, noted): (&String, &Noted)| Wake {
            job: noted.job.clone(),
            lane: Some(lane.clone()),
        };
        waiting.map(wake).collect()
    }
}
