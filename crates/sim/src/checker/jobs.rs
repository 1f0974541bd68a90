//! Invariant 1 for jobs: every job that GitHub queued gets a runner in time, or its author gets a
//! notice; a job has one machine and a machine has one job; an ended job keeps no machine; no
//! waiting repository is passed over for long.
//!
//! Compares GitHub's view of its jobs with the rows. The waiting jobs are known from the rows'
//! writes alone, because listings may lag.
//!
//! Not here: which trust group's code ran on which machine ([`super::trust`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bullpen_core::ids::{Generation, InstanceId, JobId, Repository, RunnerName};
use bullpen_core::instance::{Owner, State};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::job::{End, Job, JobState, ReportedStatus};
use bullpen_core::ports::{JobRow, WaitingAt};
use bullpen_core::time::Timestamp;

use super::view::View;
use crate::model::job_forge::SeenJob;

/// How long after its deadline a job may still wait for a runner or for a notice to its author: a
/// job without webhooks is found late, and GitHub may be down when the notice is due.
const NOTICE_WITHIN: Duration = Duration::from_secs(45 * 60);
/// How long after a job's end its row may still be open: the service asks GitHub every quarter of
/// an hour, and GitHub may be down then.
const ENDED_WITHIN: Duration = Duration::from_secs(45 * 60);
/// How long a job may own two machines: a worker that lost its row gives back the machine it took.
const SEVERAL_MAX: Duration = Duration::from_secs(10 * 60);
/// How long an ended job may keep a machine: after a crash, leases and sweeps release it.
const KEPT_MAX: Duration = Duration::from_secs(20 * 60);
/// How long a row waits before it can count as passed over: listings lag.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// How many turns in a row other repositories may have in a lane while one repository waits there
/// and has no job under way. Turns go round among a few repositories, in each of a few processes.
const PASSED_OVER_MAX: u32 = 16;
/// How many turns each of many repositories may have meanwhile: about one in each process.
const TURNS_EACH: u32 = 3;

/// A job as its row says, and when a worker could first have begun it.
#[derive(Debug)]
struct Row {
    job: Job,
    ready: Timestamp,
}

/// A job that waits, and since when a worker could have begun it.
#[derive(Debug)]
pub(super) struct WaitingRow<'r> {
    pub(super) job: &'r Job,
    pub(super) ready: Timestamp,
}

/// The state of all checks on jobs that have a row.
#[derive(Debug, Default)]
pub(super) struct JobChecks {
    rows: BTreeMap<JobId, Row>,
    /// Turns of other repositories since this waiting repository last had one.
    passed_over: BTreeMap<WaitingAt, u32>,
    several: BTreeMap<JobId, Timestamp>,
    kept: BTreeMap<InstanceId, Timestamp>,
}

fn wrong(instance: Option<&InstanceId>, what: String) -> Result<(), Violation> {
    Err(Violation { invariant: Invariant::EveryJobEnds, instance: instance.cloned(), what })
}

impl JobChecks {
    /// A job as its row says.
    pub(super) fn row(&self, job: &JobId) -> Option<&Job> {
        self.rows.get(job).map(|row| &row.job)
    }

    /// The jobs that wait, of repositories that have no job under way: a share may hold back the others.
    pub(super) fn waiting(&self) -> impl Iterator<Item = WaitingRow<'_>> {
        let busy = self.busy();
        let waits = |row: &&Row| matches!(row.job.state, JobState::Waiting { .. });
        let free = move |row: &&Row| !busy.contains(row.job.repository());
        let waiting = self.rows.values().filter(waits).filter(free);
        waiting.map(|Row { job, ready }| WaitingRow { job, ready: *ready })
    }

    /// The repositories that have a job under way.
    fn busy(&self) -> BTreeSet<&Repository> {
        let begun = |row: &&Row| matches!(row.job.state, JobState::Assigning { .. });
        self.rows.values().filter(begun).map(|row| row.job.repository()).collect()
    }

    /// Whether this runner's name belongs to a job that has not ended.
    pub(super) fn wants(&self, stack: &str, runner: &RunnerName) -> bool {
        let job = runner.as_str().strip_prefix(stack).and_then(|rest| rest.strip_prefix('-'));
        let job = job.and_then(|rest| rest.rsplit_once('-')).map(|(job, _)| JobId::new(job));
        job.and_then(|job| self.row(&job)).is_some_and(|job| !job.is_over())
    }

    /// Records a row's write, and judges it.
    pub(super) fn written(&mut self, at: Timestamp, row: &JobRow) -> Result<String, Violation> {
        let unreadable = |error| Violation {
            invariant: Invariant::EveryJobEnds,
            instance: None,
            what: format!("the row of job {} cannot be read: {error}", row.job),
        };
        let job = Job::decode(&row.body).map_err(unreadable)?;
        let before = self.rows.get(&job.id);
        if before.is_some_and(|before| before.job.is_over()) && !job.is_over() {
            wrong(None, format!("job {} was ended, and its row was reopened", job.id))?;
        }
        let was_waiting =
            before.is_some_and(|row| matches!(row.job.state, JobState::Waiting { .. }));
        let begins = was_waiting && matches!(job.state, JobState::Assigning { .. });
        let turn = before.filter(|_| begins).and_then(|before| before.job.waiting_at());
        let ready = match (&job.state, before) {
            (JobState::Waiting { not_before, .. }, Some(before)) if was_waiting => {
                before.ready.max(*not_before)
            }
            (JobState::Waiting { not_before, .. }, _) => at.max(*not_before),
            _ => at,
        };
        let line = format!("{at} job {} is {}", job.id, job.state.name().as_str());
        self.rows.insert(job.id.clone(), Row { job, ready });
        match turn {
            Some(turn) => self.begins(at, &turn).map(|()| line),
            None => Ok(line),
        }
    }

    /// A repository takes a turn in a lane: no other waiting repository may be passed over too
    /// often.
    fn begins(&mut self, at: Timestamp, whose: &WaitingAt) -> Result<(), Violation> {
        self.passed_over.remove(whose);
        let others = self.others(at, whose);
        self.passed_over.retain(|other, _| other.lane != whose.lane || others.contains(other));
        let known: BTreeSet<_> = self.rows.values().map(|row| row.job.repository()).collect();
        let known = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let most = PASSED_OVER_MAX.max(known.saturating_mul(TURNS_EACH));
        for other in others {
            let turns = self.passed_over.entry(other.clone()).or_default();
            *turns += 1;
            if *turns > most {
                let WaitingAt { lane, repository } = &other;
                let what = format!("{repository} waits in {lane}; others had {turns} turns");
                return wrong(None, what);
            }
        }
        Ok(())
    }

    /// The other repositories that wait in the same lane and have no job under way there.
    fn others(&self, at: Timestamp, whose: &WaitingAt) -> BTreeSet<WaitingAt> {
        let busy = self.busy();
        let waiting = self.rows.values().filter(|row| at >= row.ready.after(SEEN_WITHIN));
        waiting
            .filter_map(|row| row.job.waiting_at())
            .filter(|other| other.lane == whose.lane && other.repository != whose.repository)
            .filter(|other| !busy.contains(&other.repository))
            .collect()
    }

    /// Judges GitHub's jobs, the rows, and the machines that jobs own.
    pub(super) fn look(
        &mut self,
        view: &View,
        seen: &[SeenJob],
        now: Timestamp,
    ) -> Vec<Result<(), Violation>> {
        let mut judged: Vec<_> = seen.iter().map(|job| self.in_time(view, job, now)).collect();
        judged.push(self.one_machine(view, now));
        judged.push(self.one_job());
        judged.push(self.keeps_nothing(view, now));
        judged
    }

    /// A job waits no longer than its deadline allows, and the author of a failed job got a notice.
    fn in_time(&self, view: &View, seen: &SeenJob, now: Timestamp) -> Result<(), Violation> {
        let row = self.row(&seen.job);
        if let Some(Job { state: JobState::Ended { end: End::Failed(reason), debts, .. }, .. }) =
            row
            && !debts.tell
            && !seen.has_notice
        {
            let code = reason.code();
            return wrong(
                None,
                format!("job {} failed ({code}), and its author got no notice", seen.job),
            );
        }
        let has_ended = seen.ended.is_some_and(|at| now.since(at) > ENDED_WITHIN);
        if has_ended && row.is_some_and(|job| !job.is_over()) {
            let (job, is) = (&seen.job, row.map_or("", |job| job.state.name().as_str()));
            return wrong(None, format!("job {job} has ended, and its row is still {is}"));
        }
        let waits = matches!(seen.said, ReportedStatus::Queued { .. }) && !seen.has_notice;
        if waits && now.since(seen.queued) > view.limits.job_deadline + NOTICE_WITHIN {
            let is = row.map_or("not there", |job| job.state.name().as_str());
            let (job, since) = (&seen.job, seen.queued);
            return wrong(None, format!("job {job} waits since {since}; its row is {is}"));
        }
        Ok(())
    }

    /// A job owns at most one machine.
    fn one_machine(&mut self, view: &View, now: Timestamp) -> Result<(), Violation> {
        let mut held: BTreeMap<&JobId, u32> = BTreeMap::new();
        let mut running: BTreeMap<&JobId, u32> = BTreeMap::new();
        for record in view.live.values() {
            if let Some(Owner::Job(job)) = record.state.owner() {
                *held.entry(job).or_default() += 1;
                let runs = matches!(record.state, State::Running { .. });
                *running.entry(job).or_default() += u32::from(runs);
            }
        }
        if let Some((job, count)) = running.iter().find(|(_, count)| **count > 1) {
            return wrong(None, format!("{count} machines run for job {job}"));
        }
        self.several.retain(|job, _| held.get(job).is_some_and(|count| *count > 1));
        for (job, _) in held.into_iter().filter(|(_, count)| *count > 1) {
            let since = *self.several.entry(job.clone()).or_insert(now);
            if now.since(since) > SEVERAL_MAX {
                return wrong(None, format!("job {job} has several machines since {since}"));
            }
        }
        Ok(())
    }

    /// At most one row names a machine.
    fn one_job(&self) -> Result<(), Violation> {
        let mut holders: BTreeMap<(&InstanceId, Generation), &JobId> = BTreeMap::new();
        for Row { job, .. } in self.rows.values() {
            let Some(held) = job.held() else { continue };
            if let Some(other) = holders.insert((&held.instance, held.generation), &job.id) {
                let what = format!("the rows of jobs {other} and {} both name it", job.id);
                return Err(Violation {
                    invariant: Invariant::OneOwner,
                    instance: Some(held.instance.clone()),
                    what,
                });
            }
        }
        Ok(())
    }

    /// An ended job does not keep a machine for long, unless another job runs there.
    fn keeps_nothing(&mut self, view: &View, now: Timestamp) -> Result<(), Violation> {
        let rows = &self.rows;
        let is_over = |job: &JobId| rows.get(job).is_some_and(|row| row.job.is_over());
        let is_taken = |job: &JobId| {
            let taker = rows.get(job).and_then(|row| row.job.taken_by.as_ref());
            taker.is_some_and(|taker| !is_over(taker))
        };
        let kept: BTreeMap<&InstanceId, &JobId> = view
            .live
            .values()
            .filter_map(|record| match record.state.owner() {
                Some(Owner::Job(job)) if is_over(job) && !is_taken(job) => Some((&record.id, job)),
                _ => None,
            })
            .collect();
        self.kept.retain(|id, _| kept.contains_key(id));
        for (id, job) in kept {
            let since = *self.kept.entry(id.clone()).or_insert(now);
            if now.since(since) > KEPT_MAX {
                return wrong(Some(id), format!("job {job} has ended and keeps it since {since}"));
            }
        }
        Ok(())
    }
}
