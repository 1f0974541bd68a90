//! Jobs' lives: queued, given to a runner, running, over.
//!
//! A job goes to any online idle runner whose labels contain all of its own, even if the runner was
//! made for another job: runners that wait right now first, then by id; jobs in the order they were
//! queued.
//!
//! Not here: how a runner hears of it (`runners`).

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::time::Timestamp;

use super::protocol::{Conclusion, JobMessage, JobOrder, JobView};
use super::state::{Job, JobStage, Refused, Runner, State};
use crate::settings::Scope;

/// A job that its runner does not start goes back to the queue after this.
const STARTED_WITHIN: Duration = Duration::from_secs(60);
/// A running job whose runner is not heard of for this long has failed.
const LOST_AFTER: Duration = Duration::from_secs(10 * 60);

impl Job {
    pub(super) fn message(&self) -> JobMessage {
        JobMessage {
            job: self.id,
            name: self.name.clone(),
            repository: self.order.repository.clone(),
            run_id: self.run,
            run_attempt: self.attempt,
            event: if self.order.fork.is_some() { "pull_request" } else { "push" }.to_owned(),
            labels: self.order.labels.clone(),
            script: self.order.script.clone(),
            workflow: self.order.workflow.clone(),
            env: self.order.env.clone(),
        }
    }

    /// GitHub's word for where it stands. It is queued until a runner starts it.
    pub(super) const fn status(&self) -> &'static str {
        match self.stage {
            JobStage::Held => "waiting",
            JobStage::Queued | JobStage::Given { .. } => "queued",
            JobStage::Running => "in_progress",
            JobStage::Over(_) => "completed",
        }
    }

    pub(super) const fn conclusion(&self) -> Option<Conclusion> {
        match self.stage {
            JobStage::Over(conclusion) => Some(conclusion),
            JobStage::Held | JobStage::Queued | JobStage::Given { .. } | JobStage::Running => None,
        }
    }

    pub(super) fn view(&self) -> JobView {
        JobView {
            id: self.id,
            name: self.name.clone(),
            repository: self.order.repository.clone(),
            run_id: self.run,
            run_attempt: self.attempt,
            labels: self.order.labels.clone(),
            status: self.status().to_owned(),
            conclusion: self.conclusion(),
            runner: self.runner.as_ref().map(|(_, name)| name.clone()),
            created_at: self.created,
            started_at: self.started,
            completed_at: self.completed,
        }
    }

    /// Whether this runner may have it.
    fn fits(&self, runner: &Runner) -> bool {
        let (owner, name) = self.order.repository.split_once('/').unwrap_or_default();
        let visible = match &runner.scope {
            Scope::Organization(organization) => organization.eq_ignore_ascii_case(owner),
            Scope::Repository { owner: theirs, name: its } => {
                theirs.eq_ignore_ascii_case(owner) && its.eq_ignore_ascii_case(name)
            }
        };
        let has = |label: &String| runner.labels.iter().any(|it| it.eq_ignore_ascii_case(label));
        visible && self.order.labels.iter().all(has)
    }
}

/// What a workflow writes into a label to make it its own run's.
const RUN_ID: &str = "${{ github.run_id }}";

impl State {
    /// Queues a job.
    pub(super) fn submit(&mut self, mut order: JobOrder, now: Timestamp) -> JobView {
        let run = order.run_id.unwrap_or_else(|| self.next());
        for label in &mut order.labels {
            *label = label.replace(RUN_ID, &run.to_string());
        }
        let id = self.next();
        let job = Job {
            id,
            run,
            attempt: order.run_attempt.unwrap_or(1),
            name: order.name.clone().unwrap_or_else(|| format!("job-{id}")),
            stage: if order.held { JobStage::Held } else { JobStage::Queued },
            order,
            cancelling: false,
            runner: None,
            created: now,
            started: None,
            completed: None,
        };
        let is_held = job.stage == JobStage::Held;
        let (attempt, repository) = (job.attempt, job.order.repository.clone());
        let is_first = self.jobs_of(&repository, run, Some(attempt)).is_empty();
        self.jobs.insert(id, job);
        if is_first {
            self.announce_run(id, now);
        }
        if is_held {
            self.announce(id, "waiting", now);
        }
        // With a gate as well: as `queued`, with a status that says otherwise.
        self.announce(id, "queued", now);
        self.assign(now);
        self.jobs[&id].view()
    }

    /// A reviewer opens the gate.
    pub(super) fn approve(&mut self, id: u64, now: Timestamp) -> Result<(), Refused> {
        let job = self.jobs.get_mut(&id).ok_or(Refused::Missing)?;
        if job.stage != JobStage::Held {
            return Err(Refused::Conflict);
        }
        job.stage = JobStage::Queued;
        self.announce(id, "queued", now);
        self.assign(now);
        Ok(())
    }

    /// What the passing of time has done, then [`State::assign`].
    pub(super) fn settle(&mut self, now: Timestamp) {
        let mut overdue = Vec::new();
        for runner in self.runners.values() {
            let Some(job) = runner.job.and_then(|id| self.jobs.get(&id)) else { continue };
            let lost = match job.stage {
                JobStage::Given { at } => now.since(at) >= STARTED_WITHIN,
                JobStage::Running => runner.polls == 0 && now.since(runner.seen) >= LOST_AFTER,
                JobStage::Held | JobStage::Queued | JobStage::Over(_) => false,
            };
            if lost {
                overdue.push((runner.id, job.id));
            }
        }
        for (runner, job) in overdue {
            self.abandon(runner, job, now);
        }
        self.assign(now);
    }

    /// Gives queued jobs to runners. While GitHub is down it gives none.
    pub(super) fn assign(&mut self, now: Timestamp) {
        if self.levers.outage.is_some() {
            return;
        }
        let queued: Vec<u64> = self
            .jobs
            .values()
            .filter(|job| job.stage == JobStage::Queued)
            .map(|job| job.id)
            .collect();
        for id in queued {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let free = self
                .runners
                .values_mut()
                .filter(|runner| runner.job.is_none() && runner.is_online(now) && job.fits(runner));
            let Some(runner) = free.min_by_key(|runner| (runner.polls == 0, runner.id)) else {
                continue;
            };
            runner.job = Some(id);
            job.runner = Some((runner.id, runner.name.clone()));
            job.stage = JobStage::Given { at: now };
        }
    }

    pub(super) fn requeue(&mut self, runner: u64, job: u64) {
        if let Some(runner) = self.runners.get_mut(&runner) {
            runner.job = None;
        }
        if let Some(job) = self.jobs.get_mut(&job)
            && matches!(job.stage, JobStage::Given { .. })
        {
            job.stage = JobStage::Queued;
            job.runner = None;
        }
    }

    /// The runner starts the job it was given.
    pub(super) fn start(
        &mut self,
        runner: u64,
        session: &str,
        job: u64,
        now: Timestamp,
    ) -> Result<(), Refused> {
        if self.connected(runner, session)?.job != Some(job) {
            return Err(Refused::Conflict);
        }
        let job = self.jobs.get_mut(&job).ok_or(Refused::Missing)?;
        match job.stage {
            JobStage::Given { .. } => {
                job.stage = JobStage::Running;
                job.started = Some(now);
                let id = job.id;
                self.announce(id, "in_progress", now);
                Ok(())
            }
            // Its first answer was lost.
            JobStage::Running => Ok(()),
            JobStage::Held | JobStage::Queued | JobStage::Over(_) => Err(Refused::Conflict),
        }
    }

    /// The runner's job is over.
    pub(super) fn complete(
        &mut self,
        runner: u64,
        session: &str,
        job: u64,
        conclusion: Conclusion,
        now: Timestamp,
    ) -> Result<(), Refused> {
        if self.connected(runner, session)?.job != Some(job) {
            return Err(Refused::Conflict);
        }
        self.finish(runner, job, conclusion, now);
        self.assign(now);
        Ok(())
    }

    pub(super) fn finish(&mut self, runner: u64, job: u64, conclusion: Conclusion, now: Timestamp) {
        if let Some(row) = self.jobs.get_mut(&job) {
            row.stage = JobStage::Over(conclusion);
            row.completed = Some(now);
            self.announce(job, "completed", now);
        }
        if let Some(row) = self.runners.get_mut(&runner) {
            row.job = None;
            if row.ephemeral {
                self.runners.remove(&runner);
            }
        }
    }

    /// Cancels a job: at once if it does not run, else by asking its runner.
    pub(super) fn cancel(&mut self, id: u64, now: Timestamp) -> Result<(), Refused> {
        let job = self.jobs.get_mut(&id).ok_or(Refused::Missing)?;
        match job.stage {
            JobStage::Over(_) => return Err(Refused::Conflict),
            JobStage::Running => job.cancelling = true,
            JobStage::Held | JobStage::Queued | JobStage::Given { .. } => {
                let runner = job.runner.take();
                job.stage = JobStage::Over(Conclusion::Cancelled);
                job.completed = Some(now);
                if let Some(runner) = runner.and_then(|(id, _)| self.runners.get_mut(&id)) {
                    runner.job = None;
                }
                self.announce(id, "completed", now);
            }
        }
        self.assign(now);
        Ok(())
    }

    /// The jobs of one attempt of a run, or of its latest.
    pub(super) fn jobs_of(&self, repository: &str, run: u64, attempt: Option<u32>) -> Vec<&Job> {
        let of_run = |job: &&Job| job.run == run && job.order.repository == repository;
        let latest = self.jobs.values().filter(of_run).map(|job| job.attempt).max();
        let attempt = attempt.or(latest);
        self.jobs.values().filter(of_run).filter(|job| Some(job.attempt) == attempt).collect()
    }

    /// The runs of a repository.
    pub(super) fn runs_of(&self, repository: &str) -> BTreeSet<u64> {
        let jobs = self.jobs.values().filter(|job| job.order.repository == repository);
        jobs.map(|job| job.run).collect()
    }
}
