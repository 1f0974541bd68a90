//! The model of GitHub's jobs: their reported states, and the notices to their authors.
//!
//! [`ForgeModel`] gives jobs to runners; jobs of one label go to its runners in the order of the
//! queue. [`JobForgeModel::observe`] turns those events into facts, as webhooks would report them;
//! the sender of the webhooks may lose, double and reorder them. Outages and point limits are those
//! of [`ForgeModel`].
//!
//! Not here: runners, credentials.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_core::forge_rates::{CallCounts, CallPurpose, HOUR};
use bullpen_core::ids::{InstanceId, JobId, Repository, RunAttempt, RunnerName};
use bullpen_core::job::{
    Conclusion, JobDetails, JobFact, Origin, Provenance, ReportedStatus, Visibility,
};
use bullpen_core::ports::{Fault, FileRead, JobForge, LostDelivery, Notice, UnfinishedRun};
use bullpen_core::request::stranger::RanJob;
use bullpen_core::time::Timestamp;

use super::forge::{ForgeModel, JobHappening, PAGE, in_time};
use super::forge_limits::Call;
use super::locked;
use crate::clock::instant;
use crate::dice::fnv1a;
use crate::wire::Wire;

#[derive(Debug)]
struct Job {
    number: u64,
    about: JobDetails,
    said: ReportedStatus,
    queued: Timestamp,
    began: Option<(Timestamp, InstanceId)>,
    ended: Option<Timestamp>,
    /// What GitHub reported before, and when that changed; none before the job.
    before: (Option<ReportedStatus>, tokio::time::Instant),
    /// Whether a process has asked about it.
    is_asked_about: bool,
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
    /// How far listings lag behind.
    lag: Duration,
    /// Whether GitHub answers the first question about a new job with "not found".
    hides_new_jobs: bool,
    /// The repository in which the search has no answer.
    failing: Option<Repository>,
    refuses_redelivery: bool,
    /// When webhooks were sent, within the last hour.
    sent: VecDeque<Timestamp>,
    /// Of each process, the pages that it has read, by a hash of their content.
    seen: BTreeMap<(Arc<str>, String), u64>,
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
        let job = Job {
            number,
            about,
            said,
            queued: now,
            began: None,
            ended: None,
            before: (None, instant()),
            is_asked_about: false,
        };
        state.jobs.insert(id, job);
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
        state.note_sent(facts.len(), now);
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

    /// Lever: how far listings lag behind.
    pub fn set_lag(&self, lag: Duration) {
        locked(&self.state).lag = lag;
    }

    /// Lever: whether GitHub answers the first question about a job with "not found", while the job
    /// is new.
    pub fn hide_new_jobs(&self, hides: bool) {
        locked(&self.state).hides_new_jobs = hides;
    }

    /// Lever: GitHub does not answer the search in this repository.
    pub fn fail_repository(&self, repository: Option<Repository>) {
        locked(&self.state).failing = repository;
    }

    /// Lever: whether GitHub sends no webhook again.
    pub fn refuse_redelivery(&self, refuses: bool) {
        locked(&self.state).refuses_redelivery = refuses;
    }

    /// Forgets the jobs that ended this long ago or longer, so that a long simulation stays fast.
    pub fn forget_over(&self, ago: Duration) {
        let mut state = locked(&self.state);
        state.jobs.retain(|_, job| {
            let is_over = matches!(job.said, ReportedStatus::Completed { .. });
            !is_over || instant() - job.before.1 < ago
        });
        let JobForgeState { jobs, numbers, .. } = &mut *state;
        numbers.retain(|_, id| jobs.contains_key(id));
    }

    /// The calls of all processes so far, by purpose.
    pub fn calls_of_all(&self) -> CallCounts {
        self.runners.calls()
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

    /// Makes one call.
    async fn call<T: Send + 'static>(
        &self,
        call: Call,
        effect: impl FnOnce(&mut JobForgeState) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        self.conditional(call, move |state| (effect(state), None)).await
    }

    /// Makes one call for a page of this name and content, which is free if the page is as this
    /// process saw it last.
    async fn conditional<T: Send + 'static>(
        &self,
        call: Call,
        effect: impl FnOnce(&mut JobForgeState) -> (Result<T, Fault>, Option<(String, u64)>)
        + Send
        + 'static,
    ) -> Result<T, Fault> {
        self.runners.turn(call).await?;
        let (state, runners) = (Arc::clone(&self.state), self.runners.clone());
        let wire = self.wire.clone();
        let reply = self.wire.call("job-forge", move || {
            let mut state = locked(&state);
            if state.outage {
                return Err(Fault::unavailable("GitHub is down"));
            }
            let (answer, page) = effect(&mut state);
            let page = page.map(|(name, hash)| ((Arc::clone(wire.name()), name), hash));
            let free = page.as_ref().is_some_and(|(key, hash)| state.seen.get(key) == Some(hash));
            runners.admits(call, free, &wire)?;
            state.seen.extend(page);
            answer
        });
        reply.await.or_unavailable()?
    }

    /// Reads a listing, page by page, and pays for the pages that have changed.
    async fn listing<T: Clone + fmt::Debug + Send + 'static>(
        &self,
        call: Call,
        name: String,
        items: impl Fn(&JobForgeState) -> Vec<T> + Clone + Send + 'static,
    ) -> Result<Vec<T>, Fault> {
        let mut all = Vec::new();
        loop {
            let (items, page) = (items.clone(), all.len() / PAGE);
            let key = format!("{name} {page}");
            let read = self.conditional(call, move |state| {
                let listed = items(state);
                let shown: Vec<T> = listed.iter().skip(page * PAGE).take(PAGE).cloned().collect();
                let hash = fnv1a(format!("{shown:?}").as_bytes());
                (Ok((shown, listed.len() > (page + 1) * PAGE)), Some((key, hash)))
            });
            let (shown, has_more) = read.await?;
            all.extend(shown);
            if !has_more {
                return Ok(all);
            }
        }
    }
}

impl JobForgeState {
    fn note_sent(&mut self, webhooks: usize, now: Timestamp) {
        while self.sent.front().is_some_and(|at| now.since(*at) > HOUR) {
            self.sent.pop_front();
        }
        self.sent.extend(std::iter::repeat_n(now, webhooks));
    }

    fn sent_since(&self, since: Timestamp) -> usize {
        self.sent.len() - self.sent.partition_point(|at| *at < since)
    }

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
        job.before = (Some(job.said.clone()), instant());
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
        entry.before = (Some(std::mem::replace(&mut entry.said, said)), instant());
        self.fact(&job)
    }

    fn fact(&self, job: &JobId) -> Option<JobFact> {
        let entry = self.jobs.get(job)?;
        let (about, said) = (entry.about.clone(), entry.said.clone());
        Some(JobFact { job: job.clone(), about, said })
    }

    /// The facts about jobs as a listing shows them, which may lag.
    fn listed(&self, wanted: impl Fn(&Job) -> bool) -> Vec<JobFact> {
        let jobs = self.jobs.iter().filter(|(_, job)| wanted(job));
        jobs.filter_map(|(id, job)| {
            let (before, changed) = &job.before;
            let said =
                if instant() - *changed < self.lag { before.clone()? } else { job.said.clone() };
            Some(JobFact { job: id.clone(), about: job.about.clone(), said })
        })
        .collect()
    }

    /// The runs of a repository that are queued, or in progress.
    fn unfinished(&self, repository: &Repository, in_progress: bool) -> Vec<UnfinishedRun> {
        let is_over = |fact: &JobFact| matches!(fact.said, ReportedStatus::Completed { .. });
        let is_queued = |fact: &JobFact| matches!(fact.said, ReportedStatus::Queued { .. });
        let mut runs: BTreeMap<RunAttempt, Vec<JobFact>> = BTreeMap::new();
        for fact in self.listed(|job| job.about.repository == *repository) {
            runs.entry(fact.about.run.clone()).or_default().push(fact);
        }
        runs.retain(|_, jobs| {
            !jobs.iter().all(is_over) && jobs.iter().all(is_queued) != in_progress
        });
        let began = |jobs: &[JobFact]| {
            jobs.iter().filter_map(|fact| Some(self.jobs.get(&fact.job)?.queued)).min()
        };
        runs.into_iter().map(|(run, jobs)| UnfinishedRun { run, began: began(&jobs) }).collect()
    }
}

impl JobForge for JobForgeModel {
    async fn job(&self, _: &Repository, job: &JobId) -> Result<JobFact, Fault> {
        let job = job.clone();
        self.call(Call::read(CallPurpose::Job), move |state| {
            let hides = state.hides_new_jobs;
            if let Some(entry) = state.jobs.get_mut(&job)
                && !std::mem::replace(&mut entry.is_asked_about, true)
                && hides
                && entry.before.0.is_none()
            {
                return Err(Fault::NotFound);
            }
            state.fact(&job).ok_or(Fault::NotFound)
        })
        .await
    }

    async fn jobs_of(&self, _: &Repository, run: &RunAttempt) -> Result<Vec<JobFact>, Fault> {
        let run = run.clone();
        let call = Call::read(CallPurpose::Job);
        in_time(async {
            let listed = self.call(call, move |state| Ok(state.listed(|job| job.about.run == run)));
            let listed = listed.await?;
            for _ in 1..listed.len().div_ceil(PAGE) {
                self.call(call, |_| Ok(())).await?;
            }
            Ok(listed)
        })
        .await
    }

    async fn unfinished_runs(&self, repository: &Repository) -> Result<Vec<UnfinishedRun>, Fault> {
        if locked(&self.state).failing.as_ref() == Some(repository) {
            return Err(Fault::unavailable("GitHub has trouble with this repository"));
        }
        let call = Call::read(CallPurpose::Look).housekeeping();
        in_time(async {
            let mut all = BTreeMap::new();
            for in_progress in [false, true] {
                let (of, name) = (repository.clone(), format!("{repository} {in_progress}"));
                let runs = move |state: &JobForgeState| state.unfinished(&of, in_progress);
                let runs = self.listing(call, name, runs).await?;
                all.extend(runs.into_iter().map(|run| (run.run.clone(), run)));
            }
            Ok(all.into_values().collect())
        })
        .await
    }

    async fn search_run(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> Result<Vec<JobFact>, Fault> {
        let call = Call::read(CallPurpose::Look).housekeeping();
        let (of, name) = (run.clone(), format!("{repository} {run}"));
        let jobs = move |state: &JobForgeState| state.listed(|job| job.about.run == of);
        in_time(self.listing(call, name, jobs)).await
    }

    async fn provenance(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> Result<Provenance, Fault> {
        let (repository, run) = (repository.clone(), run.clone());
        self.call(Call::read(CallPurpose::Origin).urgent(), move |state| {
            let origin = Some(state.origin(&run));
            Ok(Provenance { origin, visibility: Some(state.visibility(&repository)) })
        })
        .await
    }

    async fn tell(&self, notice: &Notice) -> Result<(), Fault> {
        let notice = notice.clone();
        self.call(Call::write(CallPurpose::Tell).after_a_read(), move |state| {
            // A repeated notice replaces the first.
            state.notices.retain(|stored| stored.job != notice.job);
            state.notices.push(notice);
            Ok(())
        })
        .await
    }

    async fn cancel(&self, _: &Repository, run: &RunAttempt) -> Result<(), Fault> {
        let (run, runners) = (run.clone(), self.runners.clone());
        self.call(Call::write(CallPurpose::Cancel).after_a_read(), move |state| {
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
        self.call(Call::read(CallPurpose::Configure), |_| Ok(FileRead::Absent)).await
    }

    async fn lost_deliveries(&self, since: Timestamp) -> Result<Vec<LostDelivery>, Fault> {
        let call = Call::read(CallPurpose::Redeliver).housekeeping().as_app();
        let read = self.call(call, move |state| {
            let lost = state.lost.iter().map(|(delivery, _)| delivery);
            let lost: Vec<_> = lost.filter(|delivery| delivery.at >= since).cloned().collect();
            Ok((lost, state.sent_since(since)))
        });
        in_time(async {
            let (lost, sent) = read.await?;
            for _ in 1..sent.div_ceil(PAGE) {
                self.call(call, |_| Ok(())).await?;
            }
            Ok(lost)
        })
        .await
    }

    fn calls(&self) -> CallCounts {
        self.runners.calls_of(self.wire.name())
    }

    async fn redeliver(&self, delivery: &LostDelivery) -> Result<(), Fault> {
        let (id, runners) = (delivery.id, self.runners.clone());
        self.call(Call::write(CallPurpose::Redeliver).as_app(), move |state| {
            if state.refuses_redelivery {
                return Err(Fault::unavailable("GitHub sends no webhook again"));
            }
            let found = state.lost.iter().position(|(lost, _)| lost.id == id);
            let (_, fact) = state.lost.remove(found.ok_or(Fault::NotFound)?);
            state.redelivered.push(fact);
            runners.notify();
            Ok(())
        })
        .await
    }
}
