//! A job as the ledger stores it: the versioned document, and the values that list its row.
//!
//! Not here: writing it (the `Ledger` port).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::fact::JobPhase;
use super::{EndTasks, Job, JobState, Lane, UNROUTED};
use crate::ids::Revision;
use crate::limits::Limits;
use crate::ports::{JobRow, WaitingAt};
use crate::sabotage;
use crate::time::Timestamp;

/// How often the sweep looks at a job that runs on a machine of ours, and at a job that is over and
/// on whose machine another job runs: the machine's agent reports more, and sooner.
pub const RUNNING_LOOK_AGAIN: Duration = Duration::from_secs(5 * 60);
/// How often the sweep looks at a job that a gate holds back or that runs elsewhere: only GitHub
/// knows more about it. Each look is a call, and hundreds of such jobs may last for days.
pub const FOREIGN_LOOK_AGAIN: Duration = Duration::from_secs(15 * 60);
/// How often the sweep looks at a job that is over and has tasks left.
pub const ENDED_LOOK_AGAIN: Duration = Duration::from_secs(15);
/// If a job was queued longer ago than this, the worker asks GitHub about it before a launch: the
/// fact may be a late redelivery about a job that is over.
pub const QUEUED_BELIEVED_FOR: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1(Job),
}

impl Job {
    /// The stored document.
    pub fn encode(&self) -> String {
        serde_json::to_string(&Stored::V1(self.clone()))
            .expect("a job has string keys only, so it serialises")
    }

    /// Reads the stored document.
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        let Stored::V1(job) = serde_json::from_str(text)?;
        Ok(job)
    }

    /// The row to store over `seen`, with the values that list it.
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

    /// When the sweep looks at it again, if no message wakes a worker before; none if it is over
    /// and no task remains.
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
            JobState::Elsewhere if self.runs_on().is_some() => Some(now.after(RUNNING_LOOK_AGAIN)),
            JobState::Dormant | JobState::Elsewhere => Some(now.after(FOREIGN_LOOK_AGAIN)),
            // The end of the job that runs there is heard of sooner.
            JobState::Ended {
                debts: EndTasks { tell: false, cancel_by: None, after: None, .. },
                ..
            } if self.taken_by.is_some() => self.keeps().map(|_| now.after(RUNNING_LOOK_AGAIN)),
            JobState::Ended { debts, .. } => {
                (!debts.is_settled()).then(|| now.after(ENDED_LOOK_AGAIN))
            }
        }
    }

    /// When the row expires. A job that is not over is written at every look, so it never does.
    fn forget_at(&self, now: Timestamp, limits: &Limits) -> Timestamp {
        match &self.state {
            JobState::Ended { at, debts, .. } if debts.is_settled() => at.after(limits.job_row_ttl),
            _ => now.after(limits.job_row_ttl),
        }
    }

    /// Whether the worker must ask GitHub about it before a launch.
    pub fn must_be_checked(&self, now: Timestamp) -> bool {
        // The request's own jobs carry its label too, and one may be queued since before its end.
        let of_a_request = matches!(self.lane, Some(Lane::Request(_)));
        let queued = self.known.queued_at();
        of_a_request || queued.is_some_and(|at| now.since(at) > QUEUED_BELIEVED_FOR)
    }
}
