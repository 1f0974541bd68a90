//! A test instance: directories with the stand-in runner, and a mailbox in memory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bullpen_agent::host::{Host, Watchdog};
use bullpen_agent::notes::FileNotebook;
use bullpen_agent::runner::confine::Confinement;
use bullpen_agent::runner::process::{EndGrace, ProcessRunner, RunnerPaths};
use bullpen_agent::runner::tree;
use bullpen_agent::runner::user::User;
use bullpen_agent::scripts::ProcessScripts;
use bullpen_agent::warm_up::Step;
use bullpen_agent::{Agent, AgentTask, SelfEndReason};
use bullpen_core::ids::{Generation, MailboxKey, RequestId, RunnerGroup, RunnerName};
use bullpen_core::instance::Owner;
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::{
    Assignment, Credential, Order, Report, Signal, SignalKind, Withdrawal, WithdrawalMode,
};
use bullpen_core::ports::{Clock, Mailbox, Written};
use bullpen_core::time::Timestamp;
use bullpen_sim::clock::SimClock;
use bullpen_sim::model::mailbox::MailboxModel;
use bullpen_sim::wire::Wire;
use rustix::fs::{CWD, FileType, Mode as Permissions, mknodat};

/// How long a test waits for a process. Longer than a listener may take to end
/// ([`EndGrace::DEFAULT`]): a bash listener ignores SIGINT if the parent of the tests ignored it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The host of the agent under test.
pub(crate) struct Machine {
    runner: ProcessRunner<SimClock>,
    scripts: ProcessScripts<SimClock>,
    notebook: FileNotebook,
    shortened: Arc<Mutex<Vec<Timestamp>>>,
}

impl Watchdog for Machine {
    async fn shorten(&self, to: Timestamp) -> io::Result<()> {
        self.shortened.lock().expect("no test panics while it holds the lock").push(to);
        Ok(())
    }
}

impl Host for Machine {
    type Runner = ProcessRunner<SimClock>;
    type Watchdog = Self;
    type Scripts = ProcessScripts<SimClock>;
    type Notebook = FileNotebook;

    fn runner(&self) -> &Self::Runner {
        &self.runner
    }

    fn watchdog(&self) -> &Self {
        self
    }

    fn scripts(&self) -> &Self::Scripts {
        &self.scripts
    }

    fn notebook(&self) -> &FileNotebook {
        &self.notebook
    }
}

/// One instance.
pub(crate) struct Instance {
    pub(crate) directory: PathBuf,
    pub(crate) clock: SimClock,
    pub(crate) mailbox: MailboxModel,
    pub(crate) steps: Vec<Step>,
    pub(crate) limits: Limits,
    pub(crate) patience: EndGrace,
    /// The runner's user; absent, the test's own user.
    pub(crate) user: Option<User>,
    /// How the runner is kept from the host, if it is.
    pub(crate) confinement: Option<Confinement>,
    /// A directory of programs that goes first in the `PATH`.
    pub(crate) programs: Option<PathBuf>,
    pub(crate) shortened: Arc<Mutex<Vec<Timestamp>>>,
}

impl Instance {
    /// Makes the directories.
    pub(crate) fn lay_out(directory: &Path) {
        let bin = directory.join("runner/bin");
        fs::create_dir_all(&bin).expect("a directory");
        fs::create_dir_all(directory.join("state")).expect("a directory");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/Runner.Listener");
        // A link, not a copy: the kernel refuses to run a file that another thread's child still
        // has open for writing.
        symlink(program, bin.join("Runner.Listener")).expect("the stand-in is beside this file");
    }

    /// An instance in these directories, with a new mailbox.
    pub(crate) fn at(directory: &Path) -> Self {
        let clock = SimClock::new(Wire::calm(), 0);
        let mailbox = MailboxModel::new(Wire::calm(), clock.clone());
        Self {
            directory: directory.to_owned(),
            clock,
            mailbox,
            steps: Vec::new(),
            limits: Limits::DEFAULT,
            patience: EndGrace::DEFAULT,
            user: None,
            confinement: None,
            programs: None,
            shortened: Arc::default(),
        }
    }

    pub(crate) fn key() -> MailboxKey {
        MailboxKey::new("i-1")
    }

    pub(crate) fn mark(&self) -> String {
        self.directory.to_string_lossy().into_owned()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let programs = self.programs.iter().map(|path| path.to_string_lossy().into_owned());
        let programs: Vec<String> = programs.chain(["/usr/bin:/bin".to_owned()]).collect();
        let home = self.user.iter().map(|user| ("HOME", user.home.to_string_lossy().into_owned()));
        home.chain([("PATH", programs.join(":"))])
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// The runner program in these directories.
    pub(crate) fn runner(&self) -> ProcessRunner<SimClock> {
        let place = RunnerPaths {
            root: self.path("runner"),
            work: self.path("runner/_work"),
            temp: self.path("temp"),
            state: self.path("state"),
            mark: self.mark(),
            boot: String::from("boot-1"),
            url: String::from("https://github.example/octo/main"),
            environment: self.environment(),
            user: self.user.clone(),
            confinement: self.confinement.clone(),
        };
        ProcessRunner::new(self.clock.clone(), place, self.patience)
    }

    pub(crate) fn agent(&self) -> impl Future<Output = SelfEndReason> {
        let (state, environment) = (self.path("state"), self.environment());
        let scripts =
            ProcessScripts::new(self.clock.clone(), state.clone(), &self.mark(), environment);
        let machine = Machine {
            runner: self.runner(),
            scripts,
            notebook: FileNotebook::new(state.join("notes.json")),
            shortened: Arc::clone(&self.shortened),
        };
        let task = AgentTask {
            key: Self::key(),
            boot: String::from("boot-1"),
            steps: self.steps.clone(),
            limits: self.limits.clone(),
        };
        let (agent, _) = Agent::new(self.mailbox.clone(), self.clock.clone(), machine, task);
        agent.live()
    }

    /// Runs `play` beside an agent, and kills the agent when `play` ends.
    pub(crate) async fn during<T>(&self, play: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            ending = self.agent() => panic!("the agent ended: {ending:?}"),
            outcome = play => outcome,
        }
    }

    pub(crate) async fn assign(&self, generation: u64, credential: Option<Credential>) {
        let order = Order::Assigned(Assignment {
            generation: Generation(generation),
            owner: Owner::Request(RequestId::new("1.1.a")),
            runner: RunnerName::new(format!("bp-i-1-{generation}")),
            label: String::from("warm-1.1.a"),
            credential,
            register_by: None,
            hard_cap: self.clock.now().after(Duration::from_secs(3_600)),
            issued_at: None,
            own_run: None,
            group: Some(RunnerGroup::new("ci")),
            ephemeral: false,
        });
        self.post(order).await;
    }

    pub(crate) async fn stop(&self, generation: u64) {
        let order = Order::Withdrawn(Withdrawal {
            generation: Generation(generation),
            mode: WithdrawalMode::Stop,
            at: self.clock.now(),
            idle_deadline: self.clock.now().after(Duration::from_secs(3_600)),
            removal_token: None,
        });
        self.post(order).await;
    }

    async fn post(&self, order: Order) {
        let written = self.mailbox.post(&Self::key(), &order).await.expect("a calm wire");
        assert!(matches!(written, Written::Won(_)), "{written:?}");
    }

    pub(crate) fn report(&self) -> Report {
        self.mailbox.report_now(&Self::key()).unwrap_or_default()
    }

    /// Waits until `find` finds something in the report.
    pub(crate) async fn until<T>(&self, what: &str, find: impl Fn(&Report) -> Option<T>) -> T {
        let until = self.clock.monotonic() + PATIENCE;
        while self.clock.monotonic() < until {
            if let Some(found) = find(&self.report()) {
                return found;
            }
            self.mailbox.wait(&Self::key(), Duration::from_millis(100)).await;
        }
        let log = self.text("state/listener.log");
        panic!("no {what} within {PATIENCE:?}; {:?}; listener's output: {log}", self.report());
    }

    pub(crate) async fn signal(&self, kind: SignalKind, generation: u64) -> Signal {
        let generation = Generation(generation);
        let what = format!("{kind:?} {generation}");
        self.until(&what, |report| report.signal(kind, generation).cloned()).await
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A failed test must leave no process running.
        let _ = tree::kill_marked(&self.mark());
        let _ = self.user.as_ref().map(|user| tree::kill_of_user(user.uid));
        for step in &self.steps {
            let _ = tree::kill_marked(&format!("{}/warm-up/{}", self.mark(), step.name));
        }
    }
}

/// A named pipe. It keeps both sides open, so that no process waits for the other side to appear.
pub(crate) struct Pipe(File);

impl Pipe {
    pub(crate) fn new(path: &Path) -> Self {
        let permissions = Permissions::RUSR | Permissions::WUSR;
        mknodat(CWD, path, FileType::Fifo, permissions, 0).expect("a pipe can be made");
        Self(OpenOptions::new().read(true).write(true).open(path).expect("it can be opened"))
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.0, "{line}").expect("it is open");
    }
}
