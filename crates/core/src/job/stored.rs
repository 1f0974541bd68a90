//! A job as the ledger keeps it: the versioned document, and what it is listed by.
//!
//! Not here: writing it (the `Ledger` port).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::fact::JobPhase;
use super::{Job, JobState, Lane, UNROUTED};
use crate::ids::Revision;
use crate::limits::Limits;
use crate::ports::{JobRow, WaitingAt};
use crate::sabotage;
use crate::time::Timestamp;

/// How often a row is looked at whose job runs on a machine of ours: the machine says more, and
/// sooner.
pub const RUNNING_LOOK_AGAIN: Duration = Duration::from_secs(5 * 60);
/// How often a row is looked at of which only GitHub knows more: held back by a gate, or running
/// elsewhere. Each look is a call, and there may be hundreds for days.
pub const FOREIGN_LOOK_AGAIN: Duration = Duration::from_secs(15 * 60);
/// How often a row is looked at that is over and has debts.
pub const ENDED_LOOK_AGAIN: Duration = Duration::from_secs(15);
/// A job that was queued longer ago than this is looked up before anything is launched for it: the
/// fact may be a redelivery of something that is long over.
pub const QUEUED_BELIEVED_FOR: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1(Job),
}

impl Job {
    /// The document.
    pub fn encode(&self) -> String {
        serde_json::to_string(&Stored::V1(self.clone()))
            .expect("a job has string keys only, so it serialises")
    }

    /// From the document.
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        let Stored::V1(job) = serde_json::from_str(text)?;
        Ok(job)
    }

    /// The row to be stored over `seen`, with everything it is listed by.
    pub fn row(&self, seen: Option<Revision>, now: Timestamp, limits: &Limits) -> JobRow {
        JobRow {
            job: self.id.clone(),
            revision: seen.unwrap_or_default(),
            body: self.encode(),
            waiting: self.waiting_at(),
            next_look: self.next_look(now, limits),
            forget_at: self.forget_at(now, limits),
        }
    }

    /// Where it is listed while it waits for a runner.
    pub fn waiting_at(&self) -> Option<WaitingAt> {
        let waits = matches!(self.state, JobState::Waiting { .. });
        waits.then(|| WaitingAt {
            lane: self.lane.as_ref().map_or_else(|| UNROUTED.to_owned(), ToString::to_string),
            repository: self.repository().clone(),
        })
    }

    /// When somebody should look at it again, whatever else wakes them; none if it is over and done
    /// with.
    pub fn next_look(&self, now: Timestamp, limits: &Limits) -> Option<Timestamp> {
        let soon = now.after(limits.row_look_again);
        match &self.state {
            JobState::Waiting { deadline, not_before } => {
                Some(soon.max(*not_before).min(*deadline))
            }
            JobState::Assigning { lease, deadline, .. } => {
                Some(lease.after(limits.clock_skew).min(*deadline))
            }
            JobState::Assigned { .. } if self.known.phase() == JobPhase::Queued => Some(soon),
            JobState::Assigned { .. } if sabotage!("ends-are-only-heard-of") => None,
            JobState::Assigned { .. } => Some(now.after(RUNNING_LOOK_AGAIN)),
            JobState::Dormant | JobState::Elsewhere => Some(now.after(FOREIGN_LOOK_AGAIN)),
            JobState::Ended { debts, .. } => {
                (!debts.is_settled()).then(|| now.after(ENDED_LOOK_AGAIN))
            }
        }
    }

    /// A row that is not over is written at every look, and so never forgotten.
    fn forget_at(&self, now: Timestamp, limits: &Limits) -> Timestamp {
        match &self.state {
            JobState::Ended { at, debts, .. } if debts.is_settled() => at.after(limits.job_row_ttl),
            _ => now.after(limits.job_row_ttl),
        }
    }

    /// Whether GitHub has to be asked before anything is launched for it.
    pub fn must_be_checked(&self, now: Timestamp) -> bool {
        // A request's own jobs carry its label too, and may have been announced before it was over.
        let of_a_request = matches!(self.lane, Some(Lane::Request(_)));
        let queued = self.known.queued_at();
        of_a_request || queued.is_some_and(|at| now.since(at) > QUEUED_BELIEVED_FOR)
    }
}
