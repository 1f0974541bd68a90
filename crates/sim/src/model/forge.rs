//! The model of GitHub: credentials, runners, and jobs, which it gives to any listening runner with
//! the job's labels.
//!
//! A runner with a JIT credential is known, offline, from the credential on, and removed after its
//! job. The model remembers every job that our code interrupts, by ending its listener or its
//! machine: our code must never do that.
//!
//! Not here: what GitHub reports about jobs ([`super::job_forge`]), or its limits
//! (`forge_limits`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::forge_rates::{CallCounts, CallPurpose};
use bullpen_core::ids::{InstanceId, Repository, RequestId, RunAttempt, RunnerGroup, RunnerName};
use bullpen_core::labels::request_of;
use bullpen_core::mailbox::{Credential, Secret};
use bullpen_core::ports::{Fault, Forge, Runner, RunnerSpec, RunnerTokens};
use bullpen_core::request::stranger::RanJob;
use bullpen_core::time::Timestamp;
use tokio::sync::Notify;

use super::forge_limits::{Call, ForgeLimits};
use super::{Witness, locked};
use crate::clock::{instant, pass};
use crate::wire::{GITHUB_METHOD, Wire, detach};

/// How many items a page has.
pub(super) const PAGE: usize = 100;

/// A queued job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub number: u64,
    /// The label it asks for.
    pub label: String,
    /// How long it runs.
    pub lasts: Duration,
    /// The run and job that the runner's hook reports, if it does.
    pub of: Option<RanJob>,
}

impl Job {
    /// Whether a runner with these labels may take the job: it must have all of the job's labels. A
    /// request's jobs name the request without its random bits, although a real workflow knows the
    /// full label from `provision`; a job of a named run names its full labels.
    fn fits(&self, label: &str) -> bool {
        has_all(label, &self.label) || (self.of.is_none() && without_bits(label) == self.label)
    }
}

/// A request's label without its random bits, as derived from its id; other labels unchanged.
fn without_bits(label: &str) -> String {
    request_of(&[label]).map_or_else(|| label.to_owned(), |id| format!("warm-{id}"))
}

/// A message of GitHub to a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerMessage {
    /// The listener is connected; jobs may come.
    Connected,
    /// The listener has this job.
    JobStarted(u64),
    /// The listener's job belongs to this run.
    JobOf(RanJob),
    /// The job is over.
    JobFinished(u64),
    /// The runner's one job is over, and GitHub has removed the runner.
    Served,
    /// GitHub has removed the runner.
    Removed,
}

/// An event of a followed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobNews {
    /// The job.
    pub number: u64,
    /// Its runner.
    pub runner: RunnerName,
    /// The runner's machine.
    pub machine: Option<InstanceId>,
    /// The event.
    pub happened: JobHappening,
}

/// The kinds of events of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobHappening {
    /// A runner has taken the job.
    Started,
    /// The job ran to its end.
    Finished,
    /// The job was cancelled while it ran.
    Cancelled,
    /// The job's runner went away during the job.
    Dropped,
}

/// A job whose code ran on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RanCode {
    /// The machine.
    pub machine: InstanceId,
    /// The job.
    pub number: u64,
    /// The job's labels.
    pub label: String,
    /// The name of the runner.
    pub runner: RunnerName,
    /// All labels of the runner.
    pub runner_has: String,
    /// The run and job that the runner's hook reported, if it did.
    pub of: Option<RanJob>,
}

/// A listener, as the receiver of GitHub's messages.
pub trait ListenerPort: fmt::Debug + Send + Sync {
    /// Receives one message.
    fn receive(&self, message: ListenerMessage);
}

#[derive(Debug)]
struct Entry {
    label: String,
    /// None until the listener of a minted runner connects.
    machine: Option<InstanceId>,
    online: bool,
    /// Whether it serves one job only.
    ephemeral: bool,
    job: Option<u64>,
    port: Option<Arc<dyn ListenerPort>>,
}

/// The model's state, shared by all processes and all agents.
#[derive(Debug, Default)]
pub struct ForgeState {
    runners: BTreeMap<RunnerName, Entry>,
    queued: VecDeque<Job>,
    serial: u64,
    /// Jobs whose news are kept, and the news that have not been taken yet.
    followed: BTreeSet<u64>,
    news: Vec<JobNews>,
    /// Code that ran, not taken yet.
    ran: Vec<RanCode>,
    outage: bool,
    completed: u64,
    interrupted: Vec<(InstanceId, u64)>,
    over: BTreeSet<RunAttempt>,
    /// Runs with a fork's code.
    forks: BTreeSet<RunAttempt>,
    /// Machines that may be without a listener although their owners made no mistake.
    left: Vec<InstanceId>,
    /// The runner group that each runner named, if it named one.
    groups: BTreeMap<RunnerName, RunnerGroup>,
    limits: ForgeLimits,
    /// Whether it gives no job to any listener.
    gives_nothing: bool,
    /// The label's part at which the client panics.
    breaks_at: Option<String>,
    witness: Witness,
}

/// One process's view of GitHub.
#[derive(Clone, Debug)]
pub struct ForgeModel {
    state: Arc<Mutex<ForgeState>>,
    wire: Wire,
    news: Arc<Notify>,
}

impl ForgeModel {
    /// A GitHub without runners.
    pub fn new(wire: Wire) -> Self {
        Self { state: Arc::default(), wire, news: Arc::default() }
    }

    /// The same GitHub for another process.
    #[must_use]
    pub fn for_process(&self, wire: Wire) -> Self {
        Self { wire, ..self.clone() }
    }

    fn state(&self) -> MutexGuard<'_, ForgeState> {
        locked(&self.state)
    }

    /// Sets the witness of runners' registrations, removals and jobs.
    pub fn set_witness(&self, witness: impl FnMut(&InstanceId, &str) + Send + 'static) {
        self.state().witness = Witness(Some(Box::new(witness)));
    }

    /// Lever: whether it gives no job to any listener.
    pub fn set_gives_nothing(&self, gives_nothing: bool) {
        self.state().gives_nothing = gives_nothing;
        self.assign();
    }

    /// Lever: limits the points of a minute; `None` removes the limit.
    pub fn limit_points(&self, a_minute: Option<u32>) {
        self.state().limits.points_a_minute = a_minute;
    }

    /// Lever: limits the calls of an hour, to which the callers keep as the real client does; `None`
    /// removes the limit.
    pub fn limit_calls(&self, an_hour: Option<u64>) {
        self.state().limits.limit_calls(an_hour);
    }

    /// The calls of all processes so far, by purpose.
    pub fn calls(&self) -> CallCounts {
        self.state().limits.calls()
    }

    /// The calls of one process so far.
    pub(super) fn calls_of(&self, process: &str) -> CallCounts {
        self.state().limits.calls_of(process)
    }

    /// How many calls the callers postponed because of GitHub's limits, by purpose.
    pub fn postponed(&self) -> BTreeMap<CallPurpose, u64> {
        self.state().limits.postponed()
    }

    /// Lever: the callers spend at most this many points in every window of this length, as the
    /// real client does: a call waits for its turn, and fails if the turn is too far off.
    pub fn budget(&self, points: u32, window: Duration) {
        self.state().limits.set_budget(points, window);
    }

    /// Waits for a call's turn.
    pub(super) async fn turn(&self, call: Call) -> Result<(), Fault> {
        let latest = instant() + call.patience();
        let mut has_waited = false;
        loop {
            let now = instant();
            let wait = {
                let limits = &mut self.state().limits;
                let wait = limits.wait(call, now);
                if wait.is_zero() {
                    limits.sent(call, now);
                    return Ok(());
                }
                if !std::mem::replace(&mut has_waited, true) {
                    limits.postpone(call);
                }
                if now + wait > latest {
                    return Err(Fault::Throttled);
                }
                wait
            };
            pass(wait).await;
        }
    }

    /// Lever: GitHub is down, or up again. While it is down it starts no jobs either.
    pub fn set_outage(&self, outage: bool) {
        self.state().outage = outage;
        self.assign();
    }

    /// Whether GitHub is down.
    pub(crate) fn is_down(&self) -> bool {
        self.state().outage
    }

    /// Queues a job and returns its number.
    pub fn submit(&self, label: &str, lasts: Duration) -> u64 {
        self.queue(label, lasts, false, None)
    }

    /// Queues a job of this run and returns its number; the runner's hook reports the run.
    pub fn submit_of(&self, label: &str, lasts: Duration, of: RanJob) -> u64 {
        self.queue(label, lasts, false, Some(of))
    }

    /// Queues a job whose news are kept until they are taken; returns its number. No runner gets it
    /// before [`ForgeModel::assign`].
    pub(super) fn submit_followed(&self, label: &str, lasts: Duration, of: Option<RanJob>) -> u64 {
        self.queue(label, lasts, true, of)
    }

    fn queue(&self, label: &str, lasts: Duration, followed: bool, of: Option<RanJob>) -> u64 {
        let mut state = self.state();
        state.serial += 1;
        let number = state.serial;
        state.queued.push_back(Job { number, label: label.to_owned(), lasts, of });
        if followed {
            state.followed.insert(number);
        }
        drop(state);
        if !followed {
            self.assign();
        }
        number
    }

    /// Takes the news of followed jobs that `wanted` selects, in order.
    pub(super) fn take_news(&self, wanted: impl Fn(&JobNews) -> bool) -> Vec<JobNews> {
        self.state().news.extract_if(.., |news| wanted(news)).collect()
    }

    /// Wakes the task that waits for news.
    pub(super) fn notify(&self) {
        self.news.notify_one();
    }

    /// Returns when there may be news.
    pub(super) async fn has_news(&self) {
        self.news.notified().await;
    }

    /// Takes the code that ran since the last take.
    pub fn take_ran(&self) -> Vec<RanCode> {
        std::mem::take(&mut self.state().ran)
    }

    /// Cancels a job: it leaves the queue, or its runner.
    pub(super) fn cancel_job(&self, number: u64) {
        let mut state = self.state();
        state.queued.retain(|job| job.number != number);
        let mut runners = state.runners.iter();
        let runs = runners.find(|(_, entry)| entry.job == Some(number));
        let runs = runs.map(|(name, _)| name.clone());
        drop(state);
        if let Some(name) = runs {
            self.finish(&name, number, JobHappening::Cancelled);
        }
    }

    /// Removes a label's jobs from the queue, as cancelling a run does.
    pub fn cancel(&self, label: &str) {
        self.state().queued.retain(|job| job.label != label);
    }

    /// Ends a workflow run's attempt.
    pub fn end_run(&self, run: RunAttempt) {
        self.state().over.insert(run);
    }

    /// Lever: a workflow run has a fork's code.
    pub fn is_of_a_fork(&self, run: RunAttempt) {
        self.state().forks.insert(run);
    }

    /// How many jobs of this label are queued or running.
    pub fn pending(&self, label: &str) -> usize {
        let state = self.state();
        let runs = |runner: &&Entry| without_bits(&runner.label) == label && runner.job.is_some();
        state.queued.iter().filter(|job| job.label == label).count()
            + state.runners.values().filter(runs).count()
    }

    /// Whether any job of this label is queued or running.
    pub fn is_pending(&self, label: &str) -> bool {
        self.pending(label) > 0
    }

    /// How many jobs ran to their end.
    pub fn completed(&self) -> u64 {
        self.state().completed
    }

    /// Takes the jobs that were interrupted, each with the machine it ran on.
    pub fn take_interrupted(&self) -> Vec<(InstanceId, u64)> {
        std::mem::take(&mut self.state().interrupted)
    }

    /// Registers a runner, offline. An error is GitHub's fault, not the machine's.
    pub fn register(
        &self,
        name: &RunnerName,
        label: &str,
        machine: &InstanceId,
    ) -> Result<(), Fault> {
        let mut state = self.state();
        if state.outage {
            return Err(Fault::unavailable("GitHub is down"));
        }
        state.witness.see(machine, format_args!("{name} registers"));
        let (label, machine) = (label.to_owned(), Some(machine.clone()));
        let entry =
            Entry { label, machine, online: false, ephemeral: false, job: None, port: None };
        state.runners.insert(name.clone(), entry);
        Ok(())
    }

    /// Notes the runner group that a registering runner names.
    pub fn join(&self, name: &RunnerName, group: Option<&RunnerGroup>) {
        let named = group.map(|group| (name.clone(), group.clone()));
        self.state().groups.extend(named);
    }

    /// The groups that runners named, in the order of the runners' names.
    pub fn groups(&self) -> Vec<RunnerGroup> {
        self.state().groups.values().cloned().collect()
    }

    /// Connects a runner's listener on a machine; from now on it takes jobs. The result says
    /// whether GitHub knows the runner.
    pub fn listen(
        &self,
        name: &RunnerName,
        machine: &InstanceId,
        port: &Arc<dyn ListenerPort>,
    ) -> Result<bool, Fault> {
        let mut state = self.state();
        if state.outage {
            return Err(Fault::unavailable("GitHub is down"));
        }
        let Some(entry) = state.runners.get_mut(name) else { return Ok(false) };
        entry.online = true;
        entry.port = Some(Arc::clone(port));
        entry.machine = Some(machine.clone());
        state.witness.see(machine, format_args!("{name} listens"));
        drop(state);
        port.receive(ListenerMessage::Connected);
        self.assign();
        Ok(true)
    }

    /// Ends a listener's connection because our code ended the listener; its job is interrupted.
    pub fn disconnect(&self, name: &RunnerName) {
        if let Some(interrupted) = self.close_connection(name) {
            self.state().interrupted.push(interrupted);
        }
    }

    /// Ends a listener's connection, and its job, without a mistake of our code.
    pub fn drop_out(&self, name: &RunnerName) {
        self.close_connection(name);
    }

    /// A listener exits by itself, and its job ends with it.
    pub fn leave(&self, name: &RunnerName, machine: &InstanceId) {
        self.close_connection(name);
        self.excuse(machine);
    }

    /// Removes a runner unless it runs a job; says whether it did.
    pub fn forget(&self, name: &RunnerName, machine: &InstanceId) -> bool {
        let forgotten = self.remove(name) == Deletion::Deleted;
        if forgotten {
            self.excuse(machine);
        }
        forgotten
    }

    /// Excuses a machine whose agent hung: it may end its listener because it saw an order late.
    pub fn excuse(&self, machine: &InstanceId) {
        self.state().left.push(machine.clone());
    }

    /// Takes the machines that may be without a listener although their owners made no mistake.
    pub fn take_left(&self) -> Vec<InstanceId> {
        std::mem::take(&mut self.state().left)
    }

    fn close_connection(&self, name: &RunnerName) -> Option<(InstanceId, u64)> {
        let mut state = self.state();
        let entry = state.runners.get_mut(name)?;
        entry.online = false;
        entry.port = None;
        let (machine, job) = (entry.machine.clone()?, entry.job.take());
        state.witness.see(&machine, format_args!("{name} hangs up, with job {job:?}"));
        let job = job?;
        state.add_news(job, name, JobHappening::Dropped);
        drop(state);
        self.notify();
        Some((machine, job))
    }

    /// Removes a runner, unless it runs a job.
    pub fn remove(&self, name: &RunnerName) -> Deletion {
        remove(&self.state, name)
    }

    /// The job that a runner of this name runs.
    pub fn job(&self, name: &RunnerName) -> Option<u64> {
        self.state().runners.get(name)?.job
    }

    /// The machine and the label of every connected listener, without a call; a request's label
    /// without its bits.
    pub fn listeners(&self) -> Vec<(InstanceId, String)> {
        let state = self.state();
        let online = state.runners.values().filter(|entry| entry.online);
        online
            .filter_map(|entry| Some((entry.machine.clone()?, without_bits(&entry.label))))
            .collect()
    }

    /// The full label of a request's runners, as GitHub shows it to readers of the repository.
    pub fn label_of(&self, request: &RequestId) -> Option<String> {
        let state = self.state();
        let mut labels = state.runners.values().map(|entry| &entry.label);
        labels.find(|label| request_of(&[label]).as_ref() == Some(request)).cloned()
    }

    /// Every registered runner: its machine, once a listener has connected, and whether it is
    /// connected. Makes no call.
    pub fn registered(&self) -> Vec<(RunnerName, Option<InstanceId>, bool)> {
        let state = self.state();
        let all = state.runners.iter();
        all.map(|(name, entry)| (name.clone(), entry.machine.clone(), entry.online)).collect()
    }

    /// Gives queued jobs to listening runners with their label.
    pub(super) fn assign(&self) {
        let mut started = Vec::new();
        let mut state = self.state();
        if state.outage || state.gives_nothing {
            return;
        }
        let (mut waiting, mut seen) = (VecDeque::new(), Vec::new());
        while let Some(job) = state.queued.pop_front() {
            let free = state.runners.iter_mut().find(|(_, runner)| {
                runner.online && runner.job.is_none() && job.fits(&runner.label)
            });
            match free {
                Some((name, runner)) => {
                    runner.job = Some(job.number);
                    let has = runner.label.clone();
                    seen.push((name.clone(), has, runner.machine.clone(), job.clone()));
                    started.push((name.clone(), runner.port.clone(), job));
                }
                None => waiting.push_back(job),
            }
        }
        state.queued = waiting;
        for (name, has, machine, job) in seen {
            let Some(machine) = machine else { continue };
            state.witness.see(&machine, format_args!("{name} starts job {}", job.number));
            state.add_news(job.number, &name, JobHappening::Started);
            let (number, label, of) = (job.number, job.label, job.of);
            state.ran.push(RanCode { machine, number, label, runner: name, runner_has: has, of });
        }
        drop(state);
        self.notify();
        for (name, port, job) in started {
            send(port.as_ref(), ListenerMessage::JobStarted(job.number));
            if let Some(of) = job.of {
                send(port.as_ref(), ListenerMessage::JobOf(of));
            }
            let model = self.clone();
            detach(async move {
                pass(job.lasts).await;
                model.finish(&name, job.number, JobHappening::Finished);
            });
        }
    }

    fn finish(&self, name: &RunnerName, job: u64, happened: JobHappening) {
        let mut state = self.state();
        if let Some(entry) = state.runners.get_mut(name)
            && entry.job == Some(job)
        {
            entry.job = None;
            let (port, ephemeral, machine) =
                (entry.port.clone(), entry.ephemeral, entry.machine.clone());
            state.completed += u64::from(happened == JobHappening::Finished);
            state.add_news(job, name, happened);
            if ephemeral {
                state.runners.remove(name);
                state.left.extend(machine);
            }
            drop(state);
            self.notify();
            send(port.as_ref(), ListenerMessage::JobFinished(job));
            if ephemeral {
                send(port.as_ref(), ListenerMessage::Served);
            }
        } else {
            drop(state);
        }
        self.assign();
    }
}

/// Must not run under the state's lock: the listener may call back.
fn send(port: Option<&Arc<dyn ListenerPort>>, message: ListenerMessage) {
    if let Some(port) = port {
        port.receive(message);
    }
}

/// Removes a runner and tells its listener.
fn remove(state: &Mutex<ForgeState>, name: &RunnerName) -> Deletion {
    let (deletion, port) = locked(state).delete(name);
    send(port.as_ref(), ListenerMessage::Removed);
    deletion
}

impl ForgeState {
    fn delete(&mut self, name: &RunnerName) -> (Deletion, Option<Arc<dyn ListenerPort>>) {
        if self.outage {
            return (Deletion::Unavailable, None);
        }
        match self.runners.get(name) {
            None => (Deletion::NotFound, None),
            Some(entry) if entry.job.is_some() => (Deletion::Busy, None),
            Some(_) => {
                let removed = self.runners.remove(name);
                if let Some(machine) = removed.as_ref().and_then(|entry| entry.machine.as_ref()) {
                    self.witness.see(machine, format_args!("{name} is removed"));
                }
                (Deletion::Deleted, removed.and_then(|entry| entry.port))
            }
        }
    }

    fn add_news(&mut self, number: u64, runner: &RunnerName, happened: JobHappening) {
        if self.followed.contains(&number) {
            let machine = self.runners.get(runner).and_then(|entry| entry.machine.clone());
            self.news.push(JobNews { number, runner: runner.clone(), machine, happened });
        }
    }
}

/// Limits a port's method with all its calls, as the real client does.
pub(super) async fn in_time<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::select! {
        biased;
        done = work => done,
        () = pass(GITHUB_METHOD) => Err(Fault::unavailable("GitHub's answers took too long together")),
    }
}

/// Whether a runner's labels include all labels of a job; both are joined by commas.
fn has_all(runner: &str, job: &str) -> bool {
    runner == job || job.split(',').all(|label| runner.split(',').any(|has| has == label))
}

/// Registers a runner with a JIT credential. Replaces an idle runner of the same name.
fn mint(state: &Mutex<ForgeState>, spec: &RunnerSpec) -> Result<Credential, Fault> {
    if remove(state, &spec.name) == Deletion::Busy {
        return Err(Fault::Unclassified(format!("the runner {} runs a job", spec.name)));
    }
    let entry = Entry {
        label: spec.labels.join(","),
        machine: None,
        online: false,
        ephemeral: true,
        job: None,
        port: None,
    };
    let mut state = locked(state);
    state.runners.insert(spec.name.clone(), entry);
    state.groups.extend(spec.group.clone().map(|group| (spec.name.clone(), group)));
    Ok(Credential::Jit(Secret::new(&format!("jit-for-{}", spec.name))))
}

impl ForgeModel {
    /// Makes one call. GitHub refuses it during an outage, or when its limits are reached.
    async fn ask<T: Send + 'static>(
        &self,
        call: Call,
        effect: impl FnOnce(&Mutex<ForgeState>) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.turn(call).await?;
        let (state, wire) = (Arc::clone(&self.state), self.wire.clone());
        let reply = self.wire.call("forge", move || {
            locked(&state).admit(call, false, &wire)?;
            Ok(effect(&state))
        });
        reply.await.or_unavailable()?
    }

    async fn list_runners(&self) -> Result<Vec<Runner>, Fault> {
        let runner = |(name, entry): (&RunnerName, &Entry)| Runner {
            name: name.clone(),
            online: entry.online,
            busy: entry.job.is_some(),
        };
        let call = Call::read(CallPurpose::List);
        let all = move |state: &Mutex<ForgeState>| {
            locked(state).runners.iter().map(runner).collect::<Vec<_>>()
        };
        let listed = self.ask(call, all).await?;
        for _ in 1..listed.len().div_ceil(PAGE) {
            self.ask(call, |_| ()).await?;
        }
        Ok(listed)
    }

    /// The client panics when it asks for a credential with a label that contains this text, or for
    /// the list of runners if the text is `runners`.
    pub fn break_at(&self, text: &str) {
        self.state().breaks_at = Some(text.to_owned());
    }

    fn break_down(&self, what: &str) {
        let breaks_at = self.state().breaks_at.clone();
        let breaks = breaks_at.is_some_and(|text| what.contains(&text));
        assert!(!breaks, "a planned defect of the client");
    }

    /// Whether the client panics by a lever.
    pub fn is_breaking(&self) -> bool {
        self.state().breaks_at.is_some()
    }

    /// Whether GitHub accepts a call now; a call that is `free` costs nothing of the hour.
    pub(super) fn admits(&self, call: Call, free: bool, wire: &Wire) -> Result<(), Fault> {
        self.state().admit(call, free, wire)
    }
}

impl ForgeState {
    fn admit(&mut self, call: Call, free: bool, wire: &Wire) -> Result<(), Fault> {
        if self.outage {
            return Err(Fault::unavailable("GitHub is down"));
        }
        self.limits.admit(call, free, wire)
    }
}

impl Forge for ForgeModel {
    async fn credential(&self, runner: &RunnerSpec) -> Result<Credential, Fault> {
        self.break_down(&runner.labels.join(","));
        if runner.ephemeral {
            let spec = runner.clone();
            let call = Call::write(CallPurpose::Mint).urgent();
            return self.ask(call, move |state| mint(state, &spec)).await?;
        }
        let token = Secret::new(&format!("token-for-{}", runner.name));
        let call = Call::write(CallPurpose::Mint).urgent();
        self.ask(call, move |_| Credential::RegistrationToken(token)).await
    }

    fn credential_wait(&self) -> Duration {
        self.state().limits.credential_wait(instant())
    }

    async fn delete(&self, runner: &RunnerName) -> Deletion {
        let name = runner.clone();
        let call = Call::write(CallPurpose::Remove).after_a_read().urgent();
        let deletion = self.ask(call, move |state| remove(state, &name));
        deletion.await.unwrap_or(Deletion::Unavailable)
    }

    async fn runners(&self) -> Result<Vec<Runner>, Fault> {
        self.break_down("runners");
        in_time(self.list_runners()).await
    }

    async fn tokens(&self) -> Result<RunnerTokens, Fault> {
        let tokens = RunnerTokens {
            registration: Secret::new("registers"),
            removal: Secret::new("removes"),
            expires_at: Timestamp::from_millis(i64::MAX),
        };
        in_time(async {
            self.ask(Call::write(CallPurpose::Mint).urgent(), |_| ()).await?;
            self.ask(Call::write(CallPurpose::Mint).urgent(), move |_| tokens).await
        })
        .await
    }

    async fn is_from_fork(&self, _: &Repository, run: &RunAttempt) -> Result<bool, Fault> {
        let run = run.clone();
        let call = Call::read(CallPurpose::Origin).urgent();
        self.ask(call, move |state| locked(state).forks.contains(&run)).await
    }

    async fn is_over(&self, _: &Repository, run: &RunAttempt) -> Result<bool, Fault> {
        let run = run.clone();
        let call = Call::read(CallPurpose::Job);
        self.ask(call, move |state| locked(state).over.contains(&run)).await
    }
}
