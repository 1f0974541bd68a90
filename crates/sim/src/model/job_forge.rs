//! A model of GitHub's jobs: what it says of them, and what is said to their authors.
//!
//! Which runner a job goes to is the other model's doing ([`ForgeModel`]): jobs of one label go to
//! its runners in the order they were queued. [`JobForgeModel::observe`] turns what happened there
//! into facts, as webhooks would say them; whoever hands them on may lose, double and reorder them.
//!
//! Not here: runners, credentials, rate limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::ids::{JobId, Repository, RunAttempt, RunnerName};
use bullpen_core::job::{About, Conclusion, Fact, Said, runner_name};
use bullpen_core::ports::{Fault, FileRead, JobForge, LostDelivery, Notice};
use bullpen_core::time::Timestamp;

use super::forge::ForgeModel;
use super::locked;
use crate::wire::Wire;

/// Attempts of one job that a runner may be named after.
const ATTEMPTS_WATCHED: u32 = 8;

#[derive(Debug)]
struct Job {
    about: About,
    said: Said,
}

/// Everything GitHub knows of jobs, and was told about them.
#[derive(Debug, Default)]
struct JobForgeState {
    jobs: BTreeMap<JobId, Job>,
    /// The same jobs, by the numbers that the runners know them by.
    numbers: BTreeMap<u64, JobId>,
    /// Which job each busy runner was last seen with.
    busy: BTreeMap<RunnerName, u64>,
    told: Vec<Notice>,
    cancelled: Vec<RunAttempt>,
    forks: BTreeSet<RunAttempt>,
    lost: Vec<(LostDelivery, Fact)>,
    redelivered: Vec<Fact>,
    outage: bool,
}

/// One process's handle on GitHub's jobs.
#[derive(Clone, Debug)]
pub struct JobForgeModel {
    state: Arc<Mutex<JobForgeState>>,
    runners: ForgeModel,
    wire: Wire,
}

impl JobForgeModel {
    /// A GitHub without jobs, whose runners are these.
    pub fn new(wire: Wire, runners: ForgeModel) -> Self {
        Self { state: Arc::default(), runners, wire }
    }

    /// Another process's handle on the same GitHub.
    #[must_use]
    pub fn for_process(&self, wire: Wire) -> Self {
        Self { wire, ..self.clone() }
    }

    /// Queues a job and returns what a webhook would say of it.
    pub fn queue(&self, job: &str, about: About, lasts: Duration, now: Timestamp) -> Fact {
        let (id, label) = (JobId::new(job), about.labels.join(","));
        let said = Said::Queued { at: Some(now) };
        let fact = Fact { job: id.clone(), about: about.clone(), said: said.clone() };
        let number = self.runners.submit(&label, lasts);
        let mut state = locked(&self.state);
        state.numbers.insert(number, id.clone());
        state.jobs.insert(id, Job { about, said });
        drop(state);
        fact
    }

    /// Somebody cancels a job that waits; returns what a webhook would say. Its label must be its own.
    pub fn cancel_queued(&self, job: &str, now: Timestamp) -> Fact {
        let id = JobId::new(job);
        let mut state = locked(&self.state);
        let entry = state.jobs.get_mut(&id).expect("the job was queued");
        let conclusion = Conclusion::new("cancelled");
        entry.said = Said::Completed { conclusion, runner: None, at: Some(now) };
        let label = entry.about.labels.join(",");
        let fact = Fact { job: id, about: entry.about.clone(), said: entry.said.clone() };
        drop(state);
        self.runners.cancel(&label);
        fact
    }

    /// What happened since the last time, as webhooks would say it; to be asked several times a second.
    pub fn observe(&self, stack: &str, now: Timestamp) -> Vec<Fact> {
        let mut state = locked(&self.state);
        let jobs = state.jobs.keys();
        let runners: Vec<RunnerName> = jobs
            .flat_map(|id| (0..ATTEMPTS_WATCHED).map(move |name| runner_name(stack, id, name)))
            .collect();
        let mut facts = Vec::new();
        for runner in runners {
            let (was, is) = (state.busy.get(&runner).copied(), self.runners.job(&runner));
            if was == is {
                continue;
            }
            if let Some(over) = was {
                state.busy.remove(&runner);
                let (conclusion, runner) = (Conclusion::new("success"), Some(runner.clone()));
                facts
                    .extend(state.say(over, Said::Completed { conclusion, runner, at: Some(now) }));
            }
            if let Some(started) = is {
                state.busy.insert(runner.clone(), started);
                let said = Said::Started { runner: Some(runner), at: Some(now) };
                facts.extend(state.say(started, said));
            }
        }
        facts
    }

    /// Lever: GitHub answers nothing about jobs.
    pub fn set_outage(&self, outage: bool) {
        locked(&self.state).outage = outage;
    }

    /// Lever: a webhook fails to arrive, and GitHub knows it.
    pub fn lose(&self, fact: Fact, at: Timestamp) {
        let mut state = locked(&self.state);
        let id = u64::try_from(state.lost.len()).unwrap_or(u64::MAX);
        let delivery = LostDelivery { id, guid: format!("guid-{id}"), at };
        state.lost.push((delivery, fact));
    }

    /// Lever: GitHub forgets a job.
    pub fn forget(&self, job: &str) {
        locked(&self.state).jobs.remove(&JobId::new(job));
    }

    /// Lever: a run is a fork's.
    pub fn from_fork(&self, run: RunAttempt) {
        locked(&self.state).forks.insert(run);
    }

    /// Webhooks that were sent again, and not taken yet.
    pub fn take_redelivered(&self) -> Vec<Fact> {
        std::mem::take(&mut locked(&self.state).redelivered)
    }

    /// What authors were told.
    pub fn told(&self) -> Vec<Notice> {
        locked(&self.state).told.clone()
    }

    /// Which runs were cancelled.
    pub fn cancelled(&self) -> Vec<RunAttempt> {
        locked(&self.state).cancelled.clone()
    }

    /// Where a job stands.
    pub fn said(&self, job: &str) -> Option<Said> {
        locked(&self.state).jobs.get(&JobId::new(job)).map(|job| job.said.clone())
    }

    async fn call<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut JobForgeState) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let state = Arc::clone(&self.state);
        let reply = self.wire.call("job-forge", move || {
            let mut state = locked(&state);
            if state.outage {
                return Err(Fault::unavailable("GitHub is down"));
            }
            effect(&mut state)
        });
        reply.await.or_unavailable()?
    }
}

impl JobForgeState {
    fn say(&mut self, number: u64, said: Said) -> Option<Fact> {
        let job = self.numbers.get(&number)?.clone();
        self.jobs.get_mut(&job)?.said = said;
        self.fact(&job)
    }

    fn fact(&self, job: &JobId) -> Option<Fact> {
        let entry = self.jobs.get(job)?;
        let (about, said) = (entry.about.clone(), entry.said.clone());
        Some(Fact { job: job.clone(), about, said })
    }

    fn facts(&self, wanted: impl Fn(&Job) -> bool) -> Vec<Fact> {
        let jobs = self.jobs.iter().filter(|(_, job)| wanted(job));
        jobs.filter_map(|(id, _)| self.fact(id)).collect()
    }
}

impl JobForge for JobForgeModel {
    async fn job(&self, _: &Repository, job: &JobId) -> Result<Fact, Fault> {
        let job = job.clone();
        self.call(move |state| state.fact(&job).ok_or(Fault::NotFound)).await
    }

    async fn jobs_of(&self, _: &Repository, run: &RunAttempt) -> Result<Vec<Fact>, Fault> {
        let run = run.clone();
        self.call(move |state| Ok(state.facts(|job| job.about.run == run))).await
    }

    async fn queued_jobs(&self, repository: &Repository) -> Result<Vec<Fact>, Fault> {
        let repository = repository.clone();
        self.call(move |state| {
            Ok(state.facts(|job| {
                job.about.repository == repository && matches!(job.said, Said::Queued { .. })
            }))
        })
        .await
    }

    async fn is_from_fork(&self, _: &Repository, run: &RunAttempt) -> Result<bool, Fault> {
        let run = run.clone();
        self.call(move |state| Ok(state.forks.contains(&run))).await
    }

    async fn tell(&self, notice: &Notice) -> Result<(), Fault> {
        let notice = notice.clone();
        self.call(move |state| {
            // The same again says it once.
            state.told.retain(|told| told.job != notice.job);
            state.told.push(notice);
            Ok(())
        })
        .await
    }

    async fn cancel(&self, _: &Repository, run: &RunAttempt) -> Result<(), Fault> {
        let run = run.clone();
        self.call(move |state| {
            if !state.cancelled.contains(&run) {
                state.cancelled.push(run);
            }
            Ok(())
        })
        .await
    }

    async fn file(&self, _: &Repository, _: &str, _: Option<&str>) -> Result<FileRead, Fault> {
        self.call(|_| Ok(FileRead::Absent)).await
    }

    async fn lost_deliveries(&self, since: Timestamp) -> Result<Vec<LostDelivery>, Fault> {
        self.call(move |state| {
            let lost = state.lost.iter().map(|(delivery, _)| delivery);
            Ok(lost.filter(|delivery| delivery.at >= since).cloned().collect())
        })
        .await
    }

    async fn redeliver(&self, delivery: &LostDelivery) -> Result<(), Fault> {
        let id = delivery.id;
        self.call(move |state| {
            let found = state.lost.iter().position(|(lost, _)| lost.id == id);
            let (_, fact) = state.lost.remove(found.ok_or(Fault::NotFound)?);
            state.redelivered.push(fact);
            Ok(())
        })
        .await
    }
}
