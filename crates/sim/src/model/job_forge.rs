//! The model of GitHub's jobs: their reported states, and the notices to their authors.
//!
//! [`ForgeModel`] gives jobs to runners; jobs of one label go to its runners in the order of the
//! queue. [`JobForgeModel::observe`] turns those events into facts, as webhooks would report them;
//! the sender of the webhooks may lose, double and reorder them. Outages and point limits are those
//! of [`ForgeModel`].
//!
//! Not here: runners, credentials.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::ids::{InstanceId, JobId, Repository, RunAttempt, RunnerName};
use bullpen_core::job::{
    Conclusion, JobDetails, JobFact, Origin, Provenance, ReportedStatus, Visibility,
};
use bullpen_core::ports::{Fault, FileRead, JobForge, LostDelivery, Notice};
use bullpen_core::request::stranger::RanJob;
use bullpen_core::time::Timestamp;

use super::forge::{ForgeModel, JobHappening, READ, WRITE};
use super::locked;
use crate::wire::Wire;

#[derive(Debug)]
struct Job {
    number: u64,
    about: JobDetails,
    said: ReportedStatus,
    queued: Timestamp,
    began: Option<(Timestamp, InstanceId)>,
    ended: Option<Timestamp>,
}

/// A job, as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenJob {
    /// Its id.
    pub job: JobId,
    /// Its details.
    pub about: JobDetails,
    /// The status that GitHub reports.
    pub said: ReportedStatus,
    /// When it was queued.
    pub queued: Timestamp,
    /// When it began, and on which machine.
    pub began: Option<(Timestamp, InstanceId)>,
    /// When it ended on its runner.
    pub ended: Option<Timestamp>,
    /// Whether its author got a notice that it cannot be served.
    pub has_notice: bool,
}

/// GitHub's state of all jobs, and the notices it received about them.
#[derive(Debug, Default)]
struct JobForgeState {
    jobs: BTreeMap<JobId, Job>,
    /// The same jobs by the numbers of [`ForgeModel`].
    numbers: BTreeMap<u64, JobId>,
    notices: Vec<Notice>,
    cancelled: Vec<RunAttempt>,
    /// The installation that the webhooks about each job name, if they name one.
    installations: BTreeMap<JobId, u64>,
    /// Runs whose origin is not [`Origin::Own`].
    origins: BTreeMap<RunAttempt, Origin>,
    /// The public repositories; all others are private.
    public: BTreeSet<Repository>,
    lost: Vec<(LostDelivery, JobFact)>,
    /// The number of lost deliveries so far; it names the next one.
    losses: u64,
    redelivered: Vec<JobFact>,
    /// News since the last observation, apart from the runners' events.
    news: Vec<JobFact>,
    outage: bool,
}

/// One process's handle on GitHub's jobs.
#[derive(Clone, Debug)]
pub struct JobForgeModel {
    state: Arc<Mutex<JobForgeState>>,
    runners: ForgeModel,
    wire: Wire,
}

/// The run and job that the runner program's hook reports.
fn ran(about: &JobDetails) -> Option<RanJob> {
    let (run, attempt) = about.run.at_github()?;
    let (repository, job) = (about.repository.clone(), about.name.clone());
    Some(RanJob { repository, run, attempt, job, event: String::from("push") })
}

impl JobForgeModel {
    /// A GitHub without jobs, with these runners.
    pub fn new(wire: Wire, runners: ForgeModel) -> Self {
        Self { state: Arc::default(), runners, wire }
    }

    /// Another process's handle on the same GitHub.
    #[must_use]
    pub fn for_process(&self, wire: Wire) -> Self {
        Self { wire, ..self.clone() }
    }

    /// Queues a job and returns the fact that a webhook would report.
    pub fn queue(
        &self,
        job: &str,
        mut about: JobDetails,
        lasts: Duration,
        now: Timestamp,
    ) -> JobFact {
        let visibility = Some(locked(&self.state).visibility(&about.repository));
        about.provenance.visibility = visibility;
        let (id, label) = (JobId::new(job), about.labels.join(","));
        let said = ReportedStatus::Queued { at: Some(now) };
        let fact = JobFact { job: id.clone(), about: about.clone(), said: said.clone() };
        let number = self.runners.submit_followed(&label, lasts, ran(&about));
        let mut state = locked(&self.state);
        state.numbers.insert(number, id.clone());
        state.jobs.insert(id, Job { number, about, said, queued: now, began: None, ended: None });
        drop(state);
        self.runners.assign();
        fact
    }

    /// Sets the installation that webhooks about this job name.
    pub fn set_installation(&self, job: JobId, installation: u64) {
        locked(&self.state).installations.insert(job, installation);
    }

    /// The installation that webhooks about this job name.
    pub fn installation_of(&self, job: &JobId) -> Option<u64> {
        locked(&self.state).installations.get(job).copied()
    }

    /// Adds a fact that a webhook will report.
    pub fn announce(&self, fact: JobFact) {
        locked(&self.state).news.push(fact);
        self.runners.notify();
    }

    /// Returns when there may be something to observe, or to deliver again.
    pub async fn has_news(&self) {
        self.runners.has_news().await;
    }

    /// Cancels a waiting job; returns the fact that a webhook would report.
    pub fn cancel_queued(&self, job: &str, now: Timestamp) -> JobFact {
        self.cancel_job(&JobId::new(job), now);
        locked(&self.state).news.pop().expect("the cancelled job was waiting")
    }

    /// Cancels a job in any state; webhooks will report it.
    pub fn cancel_job(&self, job: &JobId, now: Timestamp) {
        let mut state = locked(&self.state);
        let Some(number) = state.jobs.get(job).map(|job| job.number) else { return };
        state.cancel_waiting(job, Some(now));
        drop(state);
        self.runners.cancel_job(number);
        self.runners.notify();
    }

    /// The events since the last call, as webhooks would report them, of this stack's runners and
    /// of jobs without a runner; to be called several times a second.
    pub fn observe(&self, stack: &str, now: Timestamp) -> Vec<JobFact> {
        let mut state = locked(&self.state);
        let mut facts = std::mem::take(&mut state.news);
        let is_ours = |runner: &RunnerName| {
            runner.as_str().strip_prefix(stack).is_some_and(|rest| rest.starts_with('-'))
        };
        let news = self
            .runners
            .take_news(|news| is_ours(&news.runner) && state.numbers.contains_key(&news.number));
        for news in news {
            let (runner, at) = (Some(news.runner), Some(now));
            let over = |word: &str| Conclusion::new(word);
            let said = match news.happened {
                JobHappening::Started => {
                    state.begins(news.number, now, news.machine);
                    ReportedStatus::Started { runner, at }
                }
                JobHappening::Finished => {
                    ReportedStatus::Completed { conclusion: over("success"), runner, at }
                }
                JobHappening::Dropped => {
                    ReportedStatus::Completed { conclusion: over("failure"), runner, at }
                }
                JobHappening::Cancelled => {
                    ReportedStatus::Completed { conclusion: over("cancelled"), runner, at }
                }
            };
            facts.extend(state.set_status(news.number, said));
        }
        facts
    }

    /// Every job, without a call.
    pub fn seen(&self) -> Vec<SeenJob> {
        let state = locked(&self.state);
        let noticed: BTreeSet<&JobId> = state.notices.iter().map(|notice| &notice.job).collect();
        let seen = |(id, job): (&JobId, &Job)| SeenJob {
            job: id.clone(),
            about: job.about.clone(),
            said: job.said.clone(),
            queued: job.queued,
            began: job.began.clone(),
            ended: job.ended,
            has_notice: noticed.contains(id),
        };
        state.jobs.iter().map(seen).collect()
    }

    /// Whether a job is over, or its author got a notice that it cannot be served.
    pub fn is_over(&self, job: &JobId) -> bool {
        let state = locked(&self.state);
        state.notices.iter().any(|notice| notice.job == *job)
            || state
                .jobs
                .get(job)
                .is_none_or(|job| matches!(job.said, ReportedStatus::Completed { .. }))
    }

    /// The job of this number, its repository, and the origin of its code.
    pub fn by_number(&self, number: u64) -> Option<(JobId, Repository, Origin)> {
        let state = locked(&self.state);
        let id = state.numbers.get(&number)?;
        let about = &state.jobs.get(id)?.about;
        Some((id.clone(), about.repository.clone(), state.origin(&about.run)))
    }

    /// Lever: GitHub answers no call about jobs.
    pub fn set_outage(&self, outage: bool) {
        locked(&self.state).outage = outage;
    }

    /// Lever: a webhook does not arrive, and GitHub lists it as failed.
    pub fn lose(&self, fact: JobFact, at: Timestamp) {
        let mut state = locked(&self.state);
        state.losses += 1;
        let id = state.losses;
        let delivery = LostDelivery { id, guid: format!("guid-{id}"), at };
        state.lost.push((delivery, fact));
    }

    /// Lever: GitHub forgets a job.
    pub fn forget(&self, job: &str) {
        locked(&self.state).jobs.remove(&JobId::new(job));
    }

    /// Lever: a run has a fork's code.
    pub fn from_fork(&self, run: RunAttempt) {
        self.comes_from(run, Origin::Fork);
    }

    /// Lever: a run's code has this origin.
    pub fn comes_from(&self, run: RunAttempt, origin: Origin) {
        locked(&self.state).origins.insert(run, origin);
    }

    /// Lever: a repository is public, so that its forks can queue jobs.
    pub fn make_public(&self, repository: &Repository) {
        locked(&self.state).public.insert(repository.clone());
    }

    /// Takes the webhooks that GitHub has sent again.
    pub fn take_redelivered(&self) -> Vec<JobFact> {
        std::mem::take(&mut locked(&self.state).redelivered)
    }

    /// The notices to authors.
    pub fn notices(&self) -> Vec<Notice> {
        locked(&self.state).notices.clone()
    }

    /// The cancelled runs.
    pub fn cancelled(&self) -> Vec<RunAttempt> {
        locked(&self.state).cancelled.clone()
    }

    /// The status that GitHub reports for a job.
    pub fn said(&self, job: &str) -> Option<ReportedStatus> {
        locked(&self.state).jobs.get(&JobId::new(job)).map(|job| job.said.clone())
    }

    /// Makes one call that costs this many points.
    async fn call<T: Send + 'static>(
        &self,
        points: u32,
        effect: impl FnOnce(&mut JobForgeState) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        self.runners.turn(points).await?;
        let (state, runners) = (Arc::clone(&self.state), self.runners.clone());
        let wire = self.wire.clone();
        let reply = self.wire.call("job-forge", move || {
            runners.admits(points, &wire)?;
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
    fn origin(&self, run: &RunAttempt) -> Origin {
        self.origins.get(run).copied().unwrap_or(Origin::Own)
    }

    fn visibility(&self, repository: &Repository) -> Visibility {
        if self.public.contains(repository) { Visibility::Public } else { Visibility::Private }
    }

    /// Cancels a job that waits; leaves any other job.
    fn cancel_waiting(&mut self, id: &JobId, at: Option<Timestamp>) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if !matches!(job.said, ReportedStatus::Queued { .. }) {
            return;
        }
        let conclusion = Conclusion::new("cancelled");
        job.said = ReportedStatus::Completed { conclusion, runner: None, at };
        let fact = self.fact(id);
        self.news.extend(fact);
    }

    fn begins(&mut self, number: u64, at: Timestamp, machine: Option<InstanceId>) {
        let job = self.numbers.get(&number).and_then(|id| self.jobs.get_mut(id));
        if let Some(job) = job {
            job.began = machine.map(|machine| (at, machine));
        }
    }

    fn set_status(&mut self, number: u64, said: ReportedStatus) -> Option<JobFact> {
        let job = self.numbers.get(&number)?.clone();
        let entry = self.jobs.get_mut(&job)?;
        if let ReportedStatus::Completed { at, .. } = &said {
            entry.ended = *at;
        }
        entry.said = said;
        self.fact(&job)
    }

    fn fact(&self, job: &JobId) -> Option<JobFact> {
        let entry = self.jobs.get(job)?;
        let (about, said) = (entry.about.clone(), entry.said.clone());
        Some(JobFact { job: job.clone(), about, said })
    }

    fn facts(&self, wanted: impl Fn(&Job) -> bool) -> Vec<JobFact> {
        let jobs = self.jobs.iter().filter(|(_, job)| wanted(job));
        jobs.filter_map(|(id, _)| self.fact(id)).collect()
    }
}

impl JobForge for JobForgeModel {
    async fn job(&self, _: &Repository, job: &JobId) -> Result<JobFact, Fault> {
        let job = job.clone();
        self.call(READ, move |state| state.fact(&job).ok_or(Fault::NotFound)).await
    }

    async fn jobs_of(&self, _: &Repository, run: &RunAttempt) -> Result<Vec<JobFact>, Fault> {
        let run = run.clone();
        self.call(READ, move |state| Ok(state.facts(|job| job.about.run == run))).await
    }

    async fn queued_jobs(&self, repository: &Repository) -> Result<Vec<JobFact>, Fault> {
        let repository = repository.clone();
        self.call(READ, move |state| {
            Ok(state.facts(|job| {
                job.about.repository == repository
                    && matches!(job.said, ReportedStatus::Queued { .. })
            }))
        })
        .await
    }

    async fn provenance(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> Result<Provenance, Fault> {
        let (repository, run) = (repository.clone(), run.clone());
        self.call(READ, move |state| {
            let origin = Some(state.origin(&run));
            Ok(Provenance { origin, visibility: Some(state.visibility(&repository)) })
        })
        .await
    }

    async fn tell(&self, notice: &Notice) -> Result<(), Fault> {
        let notice = notice.clone();
        self.call(WRITE, move |state| {
            // A repeated notice replaces the first.
            state.notices.retain(|stored| stored.job != notice.job);
            state.notices.push(notice);
            Ok(())
        })
        .await
    }

    async fn cancel(&self, _: &Repository, run: &RunAttempt) -> Result<(), Fault> {
        let (run, runners) = (run.clone(), self.runners.clone());
        self.call(WRITE, move |state| {
            if !state.cancelled.contains(&run) {
                state.cancelled.push(run.clone());
            }
            let of_it = state.jobs.iter().filter(|(_, job)| job.about.run == run);
            let jobs: Vec<_> = of_it.map(|(id, job)| (id.clone(), job.number)).collect();
            for (id, number) in jobs {
                state.cancel_waiting(&id, None);
                runners.cancel_job(number);
            }
            runners.notify();
            Ok(())
        })
        .await
    }

    async fn file(&self, _: &Repository, _: &str, _: Option<&str>) -> Result<FileRead, Fault> {
        self.call(READ, |_| Ok(FileRead::Absent)).await
    }

    async fn lost_deliveries(&self, since: Timestamp) -> Result<Vec<LostDelivery>, Fault> {
        self.call(READ, move |state| {
            let lost = state.lost.iter().map(|(delivery, _)| delivery);
            Ok(lost.filter(|delivery| delivery.at >= since).cloned().collect())
        })
        .await
    }

    async fn redeliver(&self, delivery: &LostDelivery) -> Result<(), Fault> {
        let (id, runners) = (delivery.id, self.runners.clone());
        self.call(WRITE, move |state| {
            let found = state.lost.iter().position(|(lost, _)| lost.id == id);
            let (_, fact) = state.lost.remove(found.ok_or(Fault::NotFound)?);
            state.redelivered.push(fact);
            runners.notify();
            Ok(())
        })
        .await
    }
}
