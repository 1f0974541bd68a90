//! Lanes in which jobs wait for room under a ceiling, so that whoever makes room can wake somebody.
//!
//! The rows are the waiting list; this only says where to look. A lane that is not written down is
//! looked at a little later, by the sweep.
//!
//! Not here: whose turn it is then (`fair`), or storing this (`bullpen-engine`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Job, Wake};
use crate::ids::JobId;
use crate::parameters::Kept;
use crate::time::Timestamp;

/// How often one process writes one lane down.
pub const NOTED_EVERY: Duration = Duration::from_secs(60);
/// How long a lane counts as crowded after it was last written down. Rows that wait there are tried
/// far more often than that.
const CROWDED_FOR: Duration = Duration::from_secs(5 * 60);

/// The lanes in which jobs wait for room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingLanes {
    lanes: BTreeMap<String, Noted>,
}

/// Who waited in a lane last, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    job: JobId,
    at: Timestamp,
}

impl Kept for WaitingLanes {
    const NAME: &'static str = "crowded";
}

impl WaitingLanes {
    /// The same, and this job waits for room too. What is old is left out.
    #[must_use]
    pub fn with(mut self, job: &Job, now: Timestamp) -> Self {
        self.lanes.retain(|_, noted| now.since(noted.at) < CROWDED_FOR);
        if let Some(at) = job.waiting_at() {
            self.lanes.insert(at.lane, Noted { job: job.id.clone(), at: now });
        }
        self
    }

    /// Whom to wake when there is room: whoever's turn it is in each lane.
    pub fn wakes(&self, now: Timestamp) -> Vec<Wake> {
        let crowded = self.lanes.iter().filter(|(_, noted)| now.since(noted.at) < CROWDED_FOR);
        let wake = |(lane, noted): (&String, &Noted)| Wake {
            job: noted.job.clone(),
            lane: Some(lane.clone()),
        };
        crowded.map(wake).collect()
    }
}
