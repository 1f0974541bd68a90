//! What users need beyond safety: a machine that stands by serves a waiting job at once, a job fails
//! only for its own machines, a job costs few launches, and an incident ends few healthy machines.
//!
//! A world is *calm* while no call, process or machine meets trouble. Under trouble the bounds are
//! wider: they are what a thousand seeds showed, and a third more.
//!
//! Not here: that jobs end at all ([`super::jobs`]), or who may end a machine ([`super::protected`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bullpen_core::ids::{InstanceId, JobId, PoolName};
use bullpen_core::instance::{EndReason, Owner, Record, State};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::job::{End, Job, JobState, Lane, Reason, Setback};
use bullpen_core::time::Timestamp;

use super::jobs::WaitingRow;
use super::view::View;

/// How long a job may wait in a calm world while a machine of its pool stands by: the promise is
/// thirty seconds, and the checker looks every thirty seconds.
const WARM_WITHIN: Duration = Duration::from_secs(60);
/// The same under trouble.
const WARM_UNDER_TROUBLE: Duration = Duration::from_secs(20 * 60);
/// How long a calm world may take to serve a job that trouble kept waiting: no job fails later for
/// its deadline.
const RECOVERED: Duration = Duration::from_secs(20 * 60);
/// The most machines launched for one job: five attempts, and as many again for what counts as none.
const LAUNCHES_MAX: u32 = 10;
/// The most healthy machines of a pool that one incident may end.
const ENDED_MAX: usize = 2;
/// How long after an incident its consequences may come.
const AFTERMATH: Duration = Duration::from_secs(2 * 60);

/// The state of these checks.
#[derive(Debug, Default)]
pub(super) struct Needs {
    calm_since: Option<Timestamp>,
    launches: BTreeMap<JobId, u32>,
    incident: Option<Incident>,
}

/// Storms, from the first to some time after the last.
#[derive(Debug)]
struct Incident {
    began: Timestamp,
    last_seen: Timestamp,
    ended: BTreeMap<PoolName, BTreeSet<InstanceId>>,
}

/// What a world's conditions are at one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    /// Whether no call, process or machine meets trouble.
    pub(super) is_calm: bool,
    /// Whether a storm goes on.
    pub(super) storms: bool,
}

fn wrong(
    invariant: Invariant,
    instance: Option<&InstanceId>,
    what: String,
) -> Result<(), Violation> {
    Err(Violation { invariant, instance: instance.cloned(), what })
}

impl Needs {
    /// Whether storms go on, or were there a moment ago.
    pub(super) const fn has_incident(&self) -> bool {
        self.incident.is_some()
    }

    /// Notes the conditions, and judges the jobs that wait.
    pub(super) fn look<'r>(
        &mut self,
        view: &View,
        waiting: impl Iterator<Item = WaitingRow<'r>>,
        conditions: Conditions,
        now: Timestamp,
    ) -> Result<(), Violation> {
        self.calm_since = conditions.is_calm.then(|| self.calm_since.unwrap_or(now));
        if conditions.storms {
            let fresh = || Incident { began: now, last_seen: now, ended: BTreeMap::new() };
            self.incident.get_or_insert_with(fresh).last_seen = now;
        } else if self.incident.as_ref().is_some_and(|it| now.since(it.last_seen) > AFTERMATH) {
            self.incident = None;
        }
        for row in waiting {
            self.serves(view, &row, now)?;
        }
        Ok(())
    }

    /// No machine of a job's pool stands by for long while the job waits.
    fn serves(&self, view: &View, row: &WaitingRow<'_>, now: Timestamp) -> Result<(), Violation> {
        let Some(Lane::Pool(pool)) = &row.job.lane else { return Ok(()) };
        let limits = &view.limits;
        let nearly_over = now.after(2 * limits.clock_skew + limits.not_claimable_before_deadline);
        for record in view.live.values().filter(|record| record.facts.pool.as_ref() == Some(pool)) {
            let State::Idle { since, deadline, .. } = &record.state else { continue };
            if record.uses > 0 || *deadline <= nearly_over {
                continue;
            }
            let both = row.ready.max(*since);
            let calm = self.calm_since.map(|calm| calm.max(both));
            let is_late = now.since(both) > WARM_UNDER_TROUBLE
                || calm.is_some_and(|calm| now.since(calm) > WARM_WITHIN);
            if is_late {
                let (job, ready) = (&row.job.id, row.ready);
                let what = format!("it stands by since {since}; job {job} waits since {ready}");
                return wrong(Invariant::NoMissedWarm, Some(&record.id), what);
            }
        }
        Ok(())
    }

    /// Counts the machines launched for each job.
    pub(super) fn launched(&mut self, owner: &Owner) -> Result<(), Violation> {
        let Owner::Job(job) = owner else { return Ok(()) };
        let launches = self.launches.entry(job.clone()).or_default();
        *launches += 1;
        if *launches > LAUNCHES_MAX {
            return wrong(
                Invariant::Cost,
                None,
                format!("{launches} machines were launched for job {job}"),
            );
        }
        Ok(())
    }

    /// A job fails only if machines launched for it failed, or if trouble lasted to its deadline.
    pub(super) fn failed(&self, job: &Job, at: Timestamp) -> Result<(), Violation> {
        let JobState::Ended { end: End::Failed(reason), .. } = &job.state else { return Ok(()) };
        let launches = self.launches.get(&job.id).copied().unwrap_or_default();
        let is_without_cause = match reason {
            Reason::OutOfAttempts { attempts, last } => {
                // These count without a launch: GitHub refuses the job's runner or gives it no job, and
                // the cloud refuses its launch.
                let is_refused = matches!(
                    last,
                    Setback::NeverGiven | Setback::Forge { .. } | Setback::LaunchFailed { .. }
                );
                !is_refused && launches < *attempts
            }
            Reason::DeadlinePassed { .. } => {
                self.calm_since.is_some_and(|calm| at.since(calm) > RECOVERED)
            }
            Reason::UnknownPool { .. }
            | Reason::Refused { .. }
            | Reason::Vanished
            | Reason::Operator => false,
        };
        if is_without_cause {
            let (id, code) = (&job.id, reason.code());
            let what = format!("job {id} failed ({code}) after {launches} launches: {reason}");
            return wrong(Invariant::EveryJobEnds, None, what);
        }
        Ok(())
    }

    /// Counts the healthy machines of a pool that end during an incident.
    pub(super) fn condemned(
        &mut self,
        before: &Record,
        why: EndReason,
        is_ailing: bool,
    ) -> Result<(), Violation> {
        let (Some(incident), Some(pool)) = (&mut self.incident, &before.facts.pool) else {
            return Ok(());
        };
        // The other reasons are a machine's age or use, the pool's target, or a job's code.
        let is_blamed = matches!(
            why,
            EndReason::FailedChecks | EndReason::NotAcknowledged | EndReason::MachineGone
        );
        let never_ready = matches!(before.state, State::Created { .. });
        if is_ailing || !is_blamed || never_ready {
            return Ok(());
        }
        let ended = incident.ended.entry(pool.clone()).or_default();
        ended.insert(before.id.clone());
        if ended.len() > ENDED_MAX {
            let (count, since) = (ended.len(), incident.began);
            let what = format!("{count} healthy machines of {pool} ended since storms at {since}");
            return wrong(Invariant::Protected, Some(&before.id), what);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::record;

    fn ended(needs: &mut Needs, machine: &str, why: EndReason, is_ailing: bool) -> bool {
        let (at, deadline) = (Timestamp::EPOCH, Timestamp::from_millis(60_000));
        let owner = Owner::Job(JobId::new("7"));
        let mut before = record(State::Running { owner, since: at, deadline, cap: deadline });
        before.id = InstanceId::new(machine);
        before.facts.pool = Some(PoolName::new("ci"));
        needs.condemned(&before, why, is_ailing).is_ok()
    }

    #[test]
    fn an_incident_may_end_two_healthy_machines_of_a_pool() {
        let storms = |storms| Conditions { is_calm: false, storms };
        let view = View::new(Default::default(), Default::default(), Vec::new());
        let mut needs = Needs::default();
        let look = |needs: &mut Needs, seconds: i64, conditions| {
            let now = Timestamp::from_millis(seconds * 1_000);
            needs.look(&view, std::iter::empty(), conditions, now).unwrap();
        };
        for machine in ["i-1", "i-2", "i-3"] {
            assert!(ended(&mut needs, machine, EndReason::FailedChecks, false), "no storm");
        }
        look(&mut needs, 60, storms(true));
        assert!(ended(&mut needs, "i-4", EndReason::FailedChecks, false));
        assert!(ended(&mut needs, "i-5", EndReason::FailedChecks, true), "its agent is to blame");
        assert!(ended(&mut needs, "i-6", EndReason::WornOut, false), "the class says so");
        assert!(ended(&mut needs, "i-7", EndReason::NotAcknowledged, false));
        assert!(ended(&mut needs, "i-7", EndReason::NotAcknowledged, false), "the same again");
        assert!(!ended(&mut needs, "i-8", EndReason::MachineGone, false), "three");
        look(&mut needs, 90, storms(false));
        assert!(!ended(&mut needs, "i-9", EndReason::FailedChecks, false), "the aftermath");
        look(&mut needs, 240, storms(false));
        assert!(ended(&mut needs, "i-9", EndReason::FailedChecks, false));
    }
}
