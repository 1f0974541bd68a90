//! A model of the runner program on one machine: it registers at the model GitHub, listens,
//! receives jobs, and ends.
//!
//! It runs on without the agent that started it: a registration continues when its agent is gone,
//! and a listener outlives its agent. Both end by [`Runner::end`], by [`Runner::find`], or with the
//! machine ([`Program::die`]). An *era* is the time between two such ends; effects of an earlier
//! era are ignored.
//!
//! Not here: jobs ([`crate::model::forge`]), or the agent's decisions.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bullpen_agent::runner::{EndOutcome, LeftListener, ListenerRefusal, Observed, Runner};
use bullpen_core::claim::Deletion;
use bullpen_core::ids::{InstanceId, RunnerName};
use bullpen_core::mailbox::{Assignment, Credential, Secret};
use bullpen_core::ports::{Clock as _, Ports as _};
use bullpen_core::request::stranger::RanJob;
use tokio::sync::{Notify, oneshot};

use crate::clock::pass;
use crate::dice::Dice;
use crate::model::ForgeModel;
use crate::model::forge::{ListenerMessage, ListenerPort};
use crate::wire::detach;
use crate::world::World;

/// A machine may end a job this long before the job's hard cap: its clock may be ahead by the
/// tolerated skew, and the end by the owner's deadline is no mistake of our code.
const CAP_TOLERANCE: Duration = Duration::from_secs(60);
/// The latest time at which a listener exits or is forgotten, from its start.
const MISHAP_WITHIN: Duration = Duration::from_secs(600);
/// How long a program listens until it ends to update itself.
const UPDATES_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));
/// The exit code of a program that updates itself.
const UPDATING: i32 = 4;
/// How often a listener retries when it cannot reach GitHub.
const RECONNECT: Duration = Duration::from_secs(5);

/// The runner program.
#[derive(Debug)]
pub(super) struct Program {
    machine: InstanceId,
    forge: ForgeModel,
    world: Weak<World>,
    dice: Dice,
    /// A stream of its own, for updates.
    versions: Dice,
    state: Mutex<State>,
    /// A new event was added for the agent.
    news: Notify,
    registering: Notify,
    /// This program, for its detached tasks.
    me: Weak<Program>,
}

#[derive(Debug, Default)]
struct State {
    era: u64,
    /// The state file: the last listener's assignment, without its credential.
    file: Option<Assignment>,
    /// The registration's files: the registered runner.
    registered: Option<RunnerName>,
    /// The running listener.
    listener: Option<Listener>,
    /// The events that the agent has not observed yet.
    observed: VecDeque<Observed>,
    /// The run of the last job; every new agent receives it.
    ran: Option<RanJob>,
    /// Whether the program is of the newest version; none before its first listener.
    is_new: Option<bool>,
}

#[derive(Debug)]
struct Listener {
    runner: RunnerName,
    listening: bool,
}

impl Program {
    pub(super) fn new(machine: InstanceId, world: &Arc<World>, dice: Dice) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            forge: world.outside.forge().clone(),
            world: Arc::downgrade(world),
            dice,
            versions: Dice::new(world.seed, &format!("version {machine}")),
            machine,
            state: Mutex::default(),
            news: Notify::new(),
            registering: Notify::new(),
            me: me.clone(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the next registration begins.
    pub(super) async fn registers(&self) {
        self.registering.notified().await;
    }

    async fn take_up_to(&self, most_millis: u64) {
        let most = Duration::from_millis(most_millis);
        pass(self.dice.between(most / 10, most)).await;
    }

    /// The machine is gone, and its listener with it.
    pub(super) fn die(&self) {
        let listener = {
            let mut state = self.state();
            state.era += 1;
            state.listener.take()
        };
        if let Some(listener) = listener {
            self.forge.disconnect(&listener.runner);
        }
    }

    /// Ends the listener and any registration.
    fn kill(&self) {
        let (listener, file) = {
            let mut state = self.state();
            state.era += 1;
            state.observed.clear();
            (state.listener.take(), state.file.clone())
        };
        let Some(listener) = listener else { return };
        let now = self.world.upgrade().map(|world| world.outside.clock().now());
        let due = file.zip(now).is_some_and(|(to, now)| now.after(CAP_TOLERANCE) >= to.hard_cap);
        if due {
            self.forge.drop_out(&listener.runner);
        } else {
            self.forge.disconnect(&listener.runner);
        }
    }

    fn report(&self, seen: Observed) {
        self.state().observed.push_back(seen);
        self.news.notify_one();
    }

    /// The listener exits.
    fn exit(&self, why: Option<ListenerRefusal>) {
        let gone = self.state().listener.take();
        if let Some(listener) = gone {
            // A listener whose registration was deleted is not excused: it did not leave by itself.
            match &why {
                Some(refused) if !refused.systemic => self.forge.drop_out(&listener.runner),
                _ => self.forge.leave(&listener.runner, &self.machine),
            }
            if let Some(refused) = why {
                self.report(Observed::Trouble(refused));
            }
            self.report(Observed::Ended { code: Some(1) });
        }
    }

    /// Whether this is the current era.
    fn is_current(&self, era: u64) -> bool {
        self.state().era == era
    }

    /// Connects a started listener; it retries while GitHub is down.
    async fn connect(self: Arc<Self>, era: u64, runner: RunnerName) {
        self.take_up_to(2_000).await;
        if self.must_update() {
            self.update(era).await;
            return;
        }
        loop {
            if !self.is_current(era) {
                return;
            }
            let port: Arc<dyn ListenerPort> = self.clone();
            match self.forge.listen(&runner, &self.machine, &port) {
                Ok(true) => break,
                Ok(false) => {
                    self.exit(Some(ListenerRefusal::here("the registration was deleted")));
                    return;
                }
                Err(fault) => {
                    let refused = ListenerRefusal { detail: fault.to_string(), systemic: true };
                    if self.dice.chance(300) {
                        self.exit(Some(refused));
                        return;
                    }
                    self.report(Observed::Trouble(refused));
                }
            }
            pass(RECONNECT).await;
        }
        self.misbehave(era, &runner).await;
    }

    /// Whether GitHub tells this listener to update the program before it gets a job.
    fn must_update(&self) -> bool {
        let temper = self.world.upgrade().map(|world| world.climate().temper);
        let updates = temper.map_or(0, |temper| temper.updates);
        let mut state = self.state();
        let is_new = state.is_new.unwrap_or_else(|| !self.versions.chance(updates));
        state.is_new = Some(true);
        !is_new
    }

    /// The listener says that it listens, and ends to update the program; its registration stays.
    async fn update(&self, era: u64) {
        // Its owner is told that it listens, and GitHub gives it no job.
        self.forge.excuse(&self.machine);
        self.receive(ListenerMessage::Connected);
        pass(self.versions.between(UPDATES_AFTER.0, UPDATES_AFTER.1)).await;
        if !self.is_current(era) || self.state().listener.take().is_none() {
            return;
        }
        if let Some(world) = self.world.upgrade() {
            world.happened("runner program updated itself");
        }
        self.report(Observed::Ended { code: Some(UPDATING) });
    }

    /// Lets a connected listener exit or be forgotten, by chance.
    async fn misbehave(&self, era: u64, runner: &RunnerName) {
        let Some(temper) = self.world.upgrade().map(|world| world.climate().temper) else { return };
        let (exits, forgotten) =
            (self.dice.chance(temper.exits), self.dice.chance(temper.forgotten));
        if !exits && !forgotten {
            return;
        }
        pass(self.dice.between(Duration::ZERO, MISHAP_WITHIN)).await;
        let Some(world) = self.world.upgrade() else { return };
        let now = world.climate().temper;
        if !self.is_current(era) || self.state().listener.is_none() {
            return;
        }
        if exits && now.exits > 0 {
            let is_busy = self.forge.job(runner).is_some();
            world.happened(if is_busy { "listener exited with a job" } else { "listener exited" });
            self.exit(None);
        } else if forgotten && now.forgotten > 0 && self.forge.forget(runner, &self.machine) {
            world.happened("listener forgotten");
            world.ailing().note(&self.machine);
        }
    }
}

impl ListenerPort for Program {
    fn receive(&self, message: ListenerMessage) {
        match message {
            ListenerMessage::Connected => {
                if let Some(listener) = &mut self.state().listener {
                    listener.listening = true;
                }
                self.report(Observed::Listening { id: None });
            }
            ListenerMessage::JobOf(ran) => {
                self.state().ran = Some(ran.clone());
                self.report(Observed::JobOf(ran));
            }
            ListenerMessage::JobStarted(job) => {
                self.report(Observed::JobStarted { name: job.to_string() });
            }
            ListenerMessage::JobFinished(job) => self.report(Observed::JobFinished {
                name: job.to_string(),
                result: String::from("Succeeded"),
            }),
            ListenerMessage::Served => {
                if self.state().listener.take().is_some() {
                    self.report(Observed::Ended { code: Some(0) });
                }
            }
            ListenerMessage::Removed => {
                self.exit(Some(ListenerRefusal::here("the registration was deleted")));
            }
        }
    }
}

impl Runner for Program {
    async fn find(&self) -> io::Result<LeftListener> {
        self.take_up_to(100).await;
        let mut state = self.state();
        state.observed.clear();
        let last_run = state.ran.clone().map(Observed::JobOf);
        state.observed.extend(last_run);
        self.news.notify_one();
        let Some(assignment) = state.file.clone() else {
            state.era += 1;
            return Ok(LeftListener::Nothing);
        };
        let Some(listener) = &state.listener else {
            state.era += 1;
            return Ok(LeftListener::Dead { assignment });
        };
        let job = self.forge.job(&listener.runner).map(|job| job.to_string());
        Ok(LeftListener::Alive { assignment, listening: listener.listening, job })
    }

    async fn register(&self, to: &Assignment) -> Result<(), ListenerRefusal> {
        let Some(program) = self.me.upgrade() else {
            return Err(ListenerRefusal::here("no machine"));
        };
        let most = self.world.upgrade().map(|world| world.climate().temper.register_max);
        let takes = self.dice.between(Duration::from_millis(200), most.unwrap_or_default());
        let (answer, answered) = oneshot::channel();
        self.registering.notify_waiters();
        let (era, to) = (self.state().era, to.clone());
        detach(async move {
            pass(takes).await;
            if program.is_current(era) {
                // A JIT configuration's runner is known to GitHub already.
                let done = if let Some(Credential::Jit(_)) = &to.credential {
                    Ok(())
                } else {
                    program.forge.join(&to.runner, to.group.as_ref());
                    program.forge.register(&to.runner, &to.label, &program.machine)
                };
                program.state().registered = Some(to.runner);
                // The agent that waited may be dead.
                let _ = answer.send(done);
            }
        });
        match answered.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(fault)) => Err(ListenerRefusal { detail: fault.to_string(), systemic: true }),
            Err(_) => Err(ListenerRefusal::here("the registration was ended")),
        }
    }

    async fn listen(&self, to: &Assignment) -> Result<(), ListenerRefusal> {
        let Some(program) = self.me.upgrade() else {
            return Err(ListenerRefusal::here("no machine"));
        };
        let runner = to.runner.clone();
        let era = {
            let mut state = self.state();
            state.observed.clear();
            state.file = Some(Assignment { credential: None, ..to.clone() });
            state.listener = Some(Listener { runner: runner.clone(), listening: false });
            state.era
        };
        detach(program.connect(era, runner));
        Ok(())
    }

    async fn adopt(&self, to: &Assignment) -> io::Result<()> {
        self.take_up_to(20).await;
        self.state().file = Some(Assignment { credential: None, ..to.clone() });
        Ok(())
    }

    async fn observe(&self) -> Observed {
        loop {
            if let Some(seen) = self.state().observed.pop_front() {
                return seen;
            }
            self.news.notified().await;
        }
    }

    async fn end(&self, unless_busy: bool) -> io::Result<EndOutcome> {
        self.take_up_to(300).await;
        let runner = self.state().listener.as_ref().map(|listener| listener.runner.clone());
        if unless_busy && runner.is_some_and(|runner| self.forge.job(&runner).is_some()) {
            return Ok(EndOutcome::Busy);
        }
        self.kill();
        self.take_up_to(1_000).await;
        Ok(EndOutcome::Gone)
    }

    async fn kill(&self) -> io::Result<()> {
        let listener = {
            let mut state = self.state();
            state.era += 1;
            state.observed.clear();
            state.listener.take()
        };
        if let Some(listener) = listener {
            // The job was a stranger's: ending it is no mistake of our code.
            self.forge.leave(&listener.runner, &self.machine);
        }
        self.take_up_to(300).await;
        Ok(())
    }

    async fn deregister(&self, _: &Secret) -> Result<(), ListenerRefusal> {
        self.take_up_to(1_000).await;
        let Some(runner) = self.state().registered.clone() else { return Ok(()) };
        match self.forge.remove(&runner) {
            Deletion::Deleted | Deletion::NotFound => Ok(()),
            Deletion::Busy => Err(ListenerRefusal::here("a job runs")),
            Deletion::Unavailable => {
                Err(ListenerRefusal { detail: String::from("GitHub is down"), systemic: true })
            }
        }
    }

    async fn clean(&self) -> io::Result<()> {
        self.take_up_to(1_000).await;
        let mut state = self.state();
        state.file = None;
        state.registered = None;
        state.ran = None;
        Ok(())
    }
}
