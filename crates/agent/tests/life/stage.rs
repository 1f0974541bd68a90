//! The setup for one agent under virtual time: the model of the mailbox, a scripted runner, and a
//! host that records its calls.
//!
//! Not here: real processes.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_agent::host::{Host, Notebook, Scripts, Watchdog};
use bullpen_agent::notes::Notes;
use bullpen_agent::runner::{EndOutcome, LeftListener, ListenerRefusal, Observed, Runner};
use bullpen_agent::warm_up::{Step, StepFailed};
use bullpen_agent::{Agent, AgentTask, Interrupter, SelfEndReason};
use bullpen_core::ids::{Generation, MailboxKey, RequestId, RunnerName};
use bullpen_core::instance::Owner;
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::{
    AgentPhase, Assignment, Beat, Credential, Order, Secret, Signal, SignalKind, Withdrawal,
    WithdrawalMode,
};
use bullpen_core::ports::{Clock, Mailbox, Written};
use bullpen_core::time::Timestamp;
use bullpen_sim::clock::{SimClock, pass};
use bullpen_sim::model::mailbox::MailboxModel;
use bullpen_sim::wire::Wire;

/// The runner model's behaviour and its record of calls.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) found: LeftListener,
    pub(crate) register_takes: Duration,
    pub(crate) register: Result<(), ListenerRefusal>,
    /// Whether the listener listens at once after its start.
    pub(crate) listens: bool,
    pub(crate) busy: bool,
    /// The calls, in order.
    pub(crate) done: Vec<String>,
    seen: VecDeque<Observed>,
}

#[derive(Clone, Debug)]
pub(crate) struct RunnerModel(Arc<Mutex<Script>>);

impl RunnerModel {
    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sees(&self, seen: Observed) {
        self.script().seen.push_back(seen);
    }

    pub(crate) fn did(&self) -> Vec<String> {
        self.script().done.clone()
    }

    pub(crate) fn starts_job(&self, name: &str) {
        self.script().busy = true;
        self.sees(Observed::JobStarted { name: name.to_owned() });
    }

    pub(crate) fn finishes_job(&self, name: &str) {
        self.script().busy = false;
        let result = String::from("Succeeded");
        self.sees(Observed::JobFinished { name: name.to_owned(), result });
    }

    fn note(&self, what: &str, to: &Assignment) {
        self.script().done.push(format!("{what} {}", to.generation));
    }
}

impl Runner for RunnerModel {
    async fn find(&self) -> io::Result<LeftListener> {
        Ok(self.script().found.clone())
    }

    async fn register(&self, to: &Assignment) -> Result<(), ListenerRefusal> {
        let takes = self.script().register_takes;
        pass(takes).await;
        self.note("registered", to);
        self.script().register.clone()
    }

    async fn listen(&self, to: &Assignment) -> Result<(), ListenerRefusal> {
        self.note("listens", to);
        let mut script = self.script();
        let assignment = Assignment { credential: None, ..to.clone() };
        script.found = LeftListener::Alive { assignment, listening: script.listens, job: None };
        if script.listens {
            script.seen.push_back(Observed::Listening { id: Some(String::from("17")) });
        }
        Ok(())
    }

    async fn adopt(&self, to: &Assignment) -> io::Result<()> {
        self.note("adopted", to);
        Ok(())
    }

    async fn observe(&self) -> Observed {
        loop {
            if let Some(seen) = self.script().seen.pop_front() {
                return seen;
            }
            pass(Duration::from_millis(50)).await;
        }
    }

    async fn end(&self, unless_busy: bool) -> io::Result<EndOutcome> {
        if unless_busy && self.script().busy {
            return Ok(EndOutcome::Busy);
        }
        pass(Duration::from_millis(100)).await;
        let mut script = self.script();
        script.done.push(String::from("ended"));
        script.found = LeftListener::Nothing;
        Ok(EndOutcome::Gone)
    }

    async fn kill(&self) -> io::Result<()> {
        let mut script = self.script();
        script.busy = false;
        script.done.push(String::from("killed"));
        Ok(())
    }

    async fn deregister(&self, token: &Secret) -> Result<(), ListenerRefusal> {
        self.script().done.push(format!("deregistered with {}", token.reveal()));
        Ok(())
    }

    async fn clean(&self) -> io::Result<()> {
        pass(Duration::from_millis(100)).await;
        self.script().done.push(String::from("cleaned"));
        Ok(())
    }
}

/// The model of a machine's host.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) runner: RunnerModel,
    pub(crate) shortened: Arc<Mutex<Vec<Timestamp>>>,
    pub(crate) notes: Arc<Mutex<Option<Notes>>>,
    /// The steps that ran, in order.
    pub(crate) ran: Arc<Mutex<Vec<String>>>,
}

impl Watchdog for Machine {
    async fn shorten(&self, to: Timestamp) -> io::Result<()> {
        self.shortened.lock().expect("no test panics while it holds the lock").push(to);
        Ok(())
    }
}

/// A step with the program `fails` fails, a step with `hangs` hangs, every other step succeeds.
impl Scripts for Machine {
    async fn run(&self, step: &Step) -> Result<(), StepFailed> {
        self.ran.lock().expect("no test panics while it holds the lock").push(step.name.clone());
        match step.program.to_str() {
            Some("fails") => {
                let (how, tail) = ("exit status: 3".into(), "no such package".into());
                Err(StepFailed { how, tail })
            }
            Some("hangs") => pending().await,
            _ => Ok(()),
        }
    }

    async fn end(&self, _step: &Step) -> String {
        String::from("still waiting")
    }
}

impl Notebook for Machine {
    fn load(&self) -> Option<Notes> {
        self.notes.lock().expect("no test panics while it holds the lock").clone()
    }

    fn save(&self, notes: &Notes) -> io::Result<()> {
        *self.notes.lock().expect("no test panics while it holds the lock") = Some(notes.clone());
        Ok(())
    }
}

impl Host for Machine {
    type Runner = RunnerModel;
    type Watchdog = Self;
    type Scripts = Self;
    type Notebook = Self;

    fn runner(&self) -> &RunnerModel {
        &self.runner
    }

    fn watchdog(&self) -> &Self {
        self
    }

    fn scripts(&self) -> &Self {
        self
    }

    fn notebook(&self) -> &Self {
        self
    }
}

/// One machine, its agent's wire, and the control plane's mailbox.
pub(crate) struct Stage {
    pub(crate) clock: SimClock,
    pub(crate) wire: Wire,
    pub(crate) mailbox: MailboxModel,
    pub(crate) machine: Machine,
    pub(crate) steps: Vec<Step>,
    pub(crate) boot: String,
    /// How far the machine's clock is off, in milliseconds.
    pub(crate) skew: i64,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let calm = Wire::calm();
        let clock = SimClock::new(calm.clone(), 0);
        let mailbox = MailboxModel::new(calm, clock.clone());
        let script = Script {
            found: LeftListener::Nothing,
            register_takes: Duration::ZERO,
            register: Ok(()),
            listens: true,
            busy: false,
            done: Vec::new(),
            seen: VecDeque::new(),
        };
        let runner = RunnerModel(Arc::new(Mutex::new(script)));
        let machine = Machine {
            runner,
            shortened: Arc::default(),
            notes: Arc::default(),
            ran: Arc::default(),
        };
        let boot = String::from("boot-1");
        Self { clock, wire: Wire::calm(), mailbox, machine, steps: Vec::new(), boot, skew: 0 }
    }

    pub(crate) fn key() -> MailboxKey {
        MailboxKey::new("i-1")
    }

    pub(crate) fn runner(&self) -> &RunnerModel {
        &self.machine.runner
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn agent(&self) -> (impl Future<Output = SelfEndReason>, Interrupter) {
        let clock = self.clock.for_process(self.wire.clone(), self.skew);
        let mailbox = self.mailbox.for_process(self.wire.clone(), clock.clone());
        let task = AgentTask {
            key: Self::key(),
            boot: self.boot.clone(),
            steps: self.steps.clone(),
            limits: Limits::DEFAULT,
        };
        let (agent, interrupter) = Agent::new(mailbox, clock, self.machine.clone(), task);
        (agent.live(), interrupter)
    }

    /// Runs `play` beside an agent, and kills the agent when `play` ends.
    pub(crate) async fn during<T>(&self, play: impl Future<Output = T>) -> T {
        let (agent, _interrupter) = self.agent();
        tokio::select! {
            biased;
            ending = agent => panic!("the agent ended: {ending:?}"),
            outcome = play => outcome,
        }
    }

    pub(crate) async fn post(&self, order: Order) {
        let written = self
            .mailbox
            .post(&Self::key(), &order)
            .await
            .expect("the control plane's wire is calm");
        assert!(matches!(written, Written::Won(_)), "{written:?}");
    }

    pub(crate) fn assignment(&self, generation: u64) -> Assignment {
        let token = Secret::new(&format!("token-{generation}"));
        Assignment {
            generation: Generation(generation),
            owner: Owner::Request(RequestId::new("1.1.a")),
            runner: RunnerName::new(format!("bp-i-1-{generation}")),
            label: String::from("warm-1.1.a"),
            credential: Some(Credential::RegistrationToken(token)),
            register_by: Some(self.now().after(Duration::from_secs(15))),
            hard_cap: self.now().after(Duration::from_secs(24 * 3_600)),
            issued_at: Some(self.now()),
            own_run: None,
            group: None,
            ephemeral: false,
        }
    }

    pub(crate) fn withdrawal(&self, generation: u64, mode: WithdrawalMode) -> Withdrawal {
        Withdrawal {
            generation: Generation(generation),
            mode,
            at: self.now(),
            idle_deadline: self.now().after(Duration::from_secs(7 * 60)),
            removal_token: None,
        }
    }

    pub(crate) async fn assign(&self, generation: u64) {
        self.post(Order::Assigned(self.assignment(generation))).await;
    }

    pub(crate) async fn withdraw(&self, generation: u64, mode: WithdrawalMode) {
        self.post(Order::Withdrawn(self.withdrawal(generation, mode))).await;
    }

    /// Waits until the mailbox has the signal of this kind for this generation.
    pub(crate) async fn signal(&self, kind: SignalKind, generation: u64) -> Signal {
        for _ in 0..36_000 {
            let report = self.mailbox.report_now(&Self::key()).unwrap_or_default();
            if let Some(signal) = report.signal(kind, Generation(generation)) {
                return signal.clone();
            }
            pass(Duration::from_millis(100)).await;
        }
        panic!("no {kind:?} of generation {generation} within an hour: {:?}", self.runner().did());
    }

    pub(crate) fn has(&self, kind: SignalKind, generation: u64) -> bool {
        let report = self.mailbox.report_now(&Self::key()).unwrap_or_default();
        report.signal(kind, Generation(generation)).is_some()
    }

    pub(crate) fn beat(&self) -> Option<Beat> {
        self.mailbox.report_now(&Self::key())?.beat
    }

    pub(crate) async fn phase(&self, phase: AgentPhase) {
        for _ in 0..36_000 {
            if self.beat().is_some_and(|beat| beat.phase == phase) {
                return;
            }
            pass(Duration::from_millis(100)).await;
        }
        panic!("never {phase:?}; {:?}", self.beat());
    }
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
