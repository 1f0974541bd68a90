//! Playing a scenario: line by line, on virtual time, under the checker.
//!
//! Processes in the background run whenever time passes. The first unmet expectation or violated
//! invariant stops the scenario.
//!
//! Not here: reading lines (`parse`), counts (`looks`), processes (`processes`).

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::RunnerClass;
use bullpen_core::ids::{InstanceId, JobId, RequestId};
use bullpen_core::pool::journal;
use bullpen_core::ports::{ItemKind, Ports};
use bullpen_engine::advertise::AdvertMemory;
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;

use super::changes::apply;
use super::expect::{
    Expectation, StateCounts, Subject, Unmet, compare, compare_process, compare_state,
};
use super::looks;
use super::names::Names;
use super::parse::{Line, Script};
use super::played::{Broken, Played, Why};
use super::pools;
use super::processes::{Finished, Start, class, plain_spec};
use super::service::{self, Served};
use super::serving::Serving;
use super::transcript::Transcript;
use super::verb::{Item, JobVerb, Look, Process, Put, Setting, Task, Verb};
use crate::calm_world::{IdleMachines, add_machines};
use crate::checker::Checker;
use crate::clock::{on_virtual_time, pass};
use crate::life::{unquiet, unsettled};
use crate::load;
use crate::model::mailbox::Forgery;
use crate::wire::Planned;
use crate::world::{CALM, Climate, World};

/// How often the checker looks at the whole world.
const LOOK: Duration = Duration::from_secs(30);
/// How often upkeep refreshes.
const UPKEEP: Duration = Duration::from_secs(30);
/// How long a world may take to become quiet: the longest deadline that can still be running, and
/// the graces after it.
const QUIET_WITHIN: Duration = Duration::from_secs(90 * 60);
/// No process that a scenario awaits lasts longer.
const AWAIT_MAX: Duration = Duration::from_secs(3 * 3_600);

/// Plays a scenario.
pub fn run(script: &Script, trace: bool) -> Played {
    on_virtual_time(play(script, trace))
}

async fn play(script: &Script, trace: bool) -> Played {
    let mut scenario = RunningScenario::build(&script.setting, trace).await;
    let mut transcript = Transcript::default();
    let mut broken = None;
    for line in &script.lines {
        transcript.script(&line.text);
        match scenario.line(line).await {
            Ok(results) => transcript.results(&results),
            Err(why) => {
                let at = scenario.world.outside.clock().elapsed();
                broken = Some(Broken { line: line.number, at, why });
                break;
            }
        }
    }
    Played { transcript: transcript.text(), broken, trace: scenario.checker.take_trace() }
}

type Meanwhile = LocalBoxFuture<'static, (RequestId, Finished)>;

/// The world of a scenario, and its state so far.
struct RunningScenario {
    world: Arc<World>,
    checker: Checker,
    classes: Vec<RunnerClass>,
    memory: AdvertMemory,
    faults: Vec<Planned>,
    started: BTreeMap<String, u32>,
    meanwhile: FuturesUnordered<Meanwhile>,
    under_way: Vec<RequestId>,
    finished: BTreeMap<RequestId, Finished>,
    last: Option<Finished>,
    jobs: BTreeSet<RequestId>,
    served: Served,
}

impl RunningScenario {
    async fn build(setting: &Setting, trace: bool) -> Self {
        let climate = Climate { weak: setting.weak, skew_max: setting.skew, ..CALM.clone() };
        let (limits, ceilings) = (setting.limits.clone(), setting.ceilings.clone());
        let world = World::new(setting.seed, limits, ceilings, climate);
        let mut scenario = Self {
            checker: Checker::watch(&world, trace),
            world,
            classes: load::classes(),
            memory: AdvertMemory::default(),
            faults: Vec::new(),
            started: BTreeMap::new(),
            meanwhile: FuturesUnordered::new(),
            under_way: Vec::new(),
            finished: BTreeMap::new(),
            last: None,
            jobs: BTreeSet::new(),
            served: Served::default(),
        };
        // The first refresh sets the stack up; its output belongs to no scenario.
        scenario.refresh_silently().await.expect("nothing goes wrong in an empty world");
        scenario
    }

    async fn line(&mut self, line: &Line) -> Result<Vec<String>, Why> {
        let Some(verb) = &line.verb else { return Ok(Vec::new()) };
        let results = self.verb(verb).await;
        self.checker.look(&self.world);
        if let Some(defect) = self.world.defect() {
            return Err(Why::Unmet(format!("a process caught a panic: {defect}")));
        }
        match self.checker.verdict() {
            Some((violation, history)) => Err(Why::Violated(violation, history)),
            None => results.map_err(Why::Unmet),
        }
    }

    /// Does work while background processes and the checker run. An error means that an invariant
    /// is violated; the checker has the violation.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, String> {
        let (world, checker) = (Arc::clone(&self.world), self.checker.clone());
        let looking = async {
            loop {
                pass(LOOK).await;
                checker.look(&world);
            }
        };
        tokio::pin!(work, looking);
        loop {
            tokio::select! {
                biased;
                () = self.checker.violated() => return Err(String::from("violated")),
                done = &mut work => return Ok(done),
                Some((id, finished)) = self.meanwhile.next() => self.note(id, finished),
                Some(_) = self.served.run_processes() => {}
                () = &mut looking => {}
            }
        }
    }

    fn note(&mut self, id: RequestId, finished: Finished) {
        self.under_way.retain(|other| *other != id);
        self.finished.insert(id, finished);
    }

    async fn verb(&mut self, verb: &Verb) -> Result<Vec<String>, String> {
        match verb {
            Verb::Put(put) => return self.put(put).await,
            Verb::Run(process) => return self.run(process).await,
            Verb::Meanwhile(process) => self.begin(process)?,
            Verb::Await(id) => return self.await_process(id).await,
            Verb::Upkeep(lasts) => self.upkeep(*lasts).await?,
            Verb::Pass(lasts) => self.during(pass(*lasts)).await?,
            Verb::Jobs(jobs) => self.jobs(jobs).await?,
            Verb::Serving(serving) => return self.serving(serving).await,
            Verb::Lose(name) => {
                let id = self.machine(name)?;
                self.world.outside.fleet().lose(&id);
            }
            Verb::Odd { name, oddity, is_odd } => {
                let id = self.machine(name)?;
                self.world.outside.fleet().make_odd(&id, *oddity, *is_odd);
            }
            Verb::Rewrite { item, name, newer } => self.rewrite(*item, name, *newer)?,
            Verb::Show(look) => return Ok(self.show(*look)),
            Verb::Expect(expectation) => {
                self.expect(expectation).map_err(|unmet| unmet.to_string())?;
            }
            Verb::Quiet => return self.quiet().await,
            Verb::Fault(planned) => self.faults.extend(planned.iter().cloned()),
            Verb::Class(class) => self.define(class),
            Verb::RemoveClass(name) => self.classes.retain(|class| class.name != *name),
            Verb::Change(change) => apply(&self.world, change),
        }
        Ok(Vec::new())
    }

    fn define(&mut self, class: &RunnerClass) {
        match self.classes.iter_mut().find(|known| known.name == class.name) {
            Some(known) => *known = class.clone(),
            None => self.classes.push(class.clone()),
        }
    }

    /// A repeated stem gets a number: another process has another random stream.
    fn process_name(&mut self, stem: String) -> String {
        let count = self.started.entry(stem.clone()).or_default();
        *count += 1;
        if *count == 1 { stem } else { format!("{stem} {count}") }
    }

    async fn put(&mut self, put: &Put) -> Result<Vec<String>, String> {
        let name = self.process_name(String::from("stage"));
        let mut machines = IdleMachines::plain(&name, put.usage, put.count);
        machines.class = class(&self.classes, put.class.as_ref())?;
        machines.types.clone_from(&put.types);
        machines.spec_hash = put.spec_hash.clone().unwrap_or_else(plain_spec);
        machines.lasts = put.lasts.unwrap_or(machines.lasts);
        machines.stopped = put.stopped;
        let world = Arc::clone(&self.world);
        let records = self.during(add_machines(&world, &machines)).await??;
        let ids: Vec<InstanceId> = records.into_iter().map(|record| record.id).collect();
        Ok(vec![Names::of(&self.world).list(&ids)])
    }

    fn start(&mut self, process: &Process) -> Result<Start, String> {
        let (stem, wanted) = match &process.task {
            Task::Provision(asked) => (format!("provision {}", asked.id), asked.class.as_ref()),
            Task::Release { id, .. } => (format!("release {id}"), None),
            Task::Dump(id) => (format!("dump {id}"), None),
            Task::Refresh => (String::from("refresh"), None),
        };
        Ok(Start {
            world: Arc::clone(&self.world),
            checker: self.checker.clone(),
            name: self.process_name(stem),
            process: process.clone(),
            faults: std::mem::take(&mut self.faults),
            class: class(&self.classes, wanted)?,
            classes: self.classes.clone(),
            memory: match process.task {
                Task::Refresh => std::mem::take(&mut self.memory),
                _ => AdvertMemory::default(),
            },
        })
    }

    async fn run(&mut self, process: &Process) -> Result<Vec<String>, String> {
        let start = self.start(process)?;
        let (finished, memory) = self.during(Box::pin(start.run())).await?;
        if matches!(process.task, Task::Refresh) {
            self.memory = memory;
        }
        Ok(self.done(id_of(process), finished))
    }

    fn done(&mut self, id: Option<RequestId>, finished: Finished) -> Vec<String> {
        let lines = finished.lines(&Names::of(&self.world));
        if let Some(id) = id {
            self.finished.insert(id, finished.clone());
        }
        self.last = Some(finished);
        lines
    }

    fn begin(&mut self, process: &Process) -> Result<(), String> {
        let Some(id) = id_of(process) else {
            return Err(String::from("only a process with a request id can run meanwhile"));
        };
        if self.under_way.contains(&id) {
            return Err(format!("{id} is under way already; await it first"));
        }
        let start = self.start(process)?;
        self.under_way.push(id.clone());
        self.finished.remove(&id);
        // Boxed: a whole process is a large future.
        self.meanwhile.push(Box::pin(async move { (id, Box::pin(start.run()).await.0) }));
        Ok(())
    }

    async fn await_process(&mut self, id: &RequestId) -> Result<Vec<String>, String> {
        let began = self.world.outside.clock().elapsed();
        while self.under_way.contains(id) {
            if self.world.outside.clock().elapsed() > began + AWAIT_MAX {
                return Err(format!("{id} is still under way"));
            }
            self.during(pass(Duration::from_millis(100))).await?;
        }
        match self.finished.get(id).cloned() {
            Some(finished) => Ok(self.done(Some(id.clone()), finished)),
            None => Err(format!("nothing was begun for {id}")),
        }
    }

    async fn upkeep(&mut self, lasts: Duration) -> Result<(), String> {
        let until = self.world.outside.clock().elapsed() + lasts;
        loop {
            let left = until.saturating_sub(self.world.outside.clock().elapsed());
            if left.is_zero() {
                return Ok(());
            }
            self.during(pass(left.min(UPKEEP))).await?;
            self.refresh_silently().await?;
        }
    }

    async fn refresh_silently(&mut self) -> Result<(), String> {
        let faults = std::mem::take(&mut self.faults);
        let start = self.start(&Process { task: Task::Refresh, death: None })?;
        let (_, memory) = self.during(Box::pin(start.run())).await?;
        self.memory = memory;
        self.faults = faults;
        Ok(())
    }

    async fn jobs(&mut self, jobs: &JobVerb) -> Result<(), String> {
        match jobs {
            JobVerb::Submit { count, of, lasts } => {
                self.jobs.insert(of.clone());
                for _ in 0..*count {
                    self.world.outside.forge().submit(&looks::label(of), *lasts);
                }
            }
            JobVerb::Cancel(of) => self.world.outside.forge().cancel(&looks::label(of)),
            JobVerb::Await { of, within } => {
                let (label, began) = (looks::label(of), self.world.outside.clock().elapsed());
                while self.world.outside.forge().is_pending(&label) {
                    if self.world.outside.clock().elapsed() > began + *within {
                        return Err(format!("jobs of {of} still wait or run after {within:?}"));
                    }
                    self.during(pass(Duration::from_secs(1))).await?;
                }
            }
        }
        Ok(())
    }

    async fn serving(&mut self, serving: &Serving) -> Result<Vec<String>, String> {
        let world = Arc::clone(&self.world);
        match serving {
            Serving::Configure(configured) => self.served.configure(configured, &self.checker),
            Serving::Serve(serve) => {
                let faults = std::mem::take(&mut self.faults);
                let process = self.process_name(format!("serve {}", serve.name));
                self.served.serve(&world, serve, faults, &process).await?;
            }
            Serving::Kill(name) => {
                self.served.kill(name)?;
                self.gone(name).await?;
            }
            Serving::Drain(name) => {
                self.served.drain(name)?;
                self.gone(name).await?;
            }
            Serving::Pause(name, length) => self.served.pause(name, *length)?,
            Serving::Webhooks(way) => self.served.webhooks(&world, *way),
            Serving::Queue(queue) => self.served.queue(&world, queue).await,
            Serving::Cancel(jobs) => {
                let now = world.outside.clock().true_now();
                jobs.ids().iter().for_each(|id| world.jobs.cancel_job(id, now));
            }
            Serving::Await { jobs, within } => {
                let ids = jobs.ids();
                self.during(service::over(&world, &ids, *within)).await??;
                return service::outcomes(&world, &ids);
            }
            Serving::Pool(pool_line) => self.served.pools.change(pool_line),
            Serving::AwaitPool { name, within } => {
                let pools = self.served.pools.clone();
                return self.during(pools.kept(&world, name, *within)).await?;
            }
        }
        Ok(Vec::new())
    }

    /// Waits until a process of the service has ended.
    async fn gone(&mut self, name: &str) -> Result<(), String> {
        while self.served.serves(name) {
            self.during(pass(Duration::from_millis(100))).await?;
        }
        Ok(())
    }

    /// Heals the world and runs upkeep until the world is quiet.
    async fn quiet(&mut self) -> Result<Vec<String>, String> {
        if let Some(id) = self.under_way.first() {
            return Err(format!("{id} is still under way; await it first"));
        }
        self.world.heal();
        let began = self.world.outside.clock().elapsed();
        while let Some(left) = unsettled(&self.world).or_else(|| unquiet(&self.world)) {
            if self.world.outside.clock().elapsed() > began + QUIET_WITHIN {
                self.checker.report(left);
                return Err(String::from("not quiet"));
            }
            self.upkeep(UPKEEP).await?;
        }
        let ended = self.show(Look::Ended);
        Ok(ended.into_iter().map(|counts| format!("quiet; ended: {counts}")).collect())
    }

    fn show(&self, look: Look) -> Vec<String> {
        let ends = looks::ended(&self.checker.ended());
        looks::show(&self.world, look, &self.calls(), &ends)
    }

    /// Rewrites an item as a newer program would, or makes it readable again.
    fn rewrite(&self, item: Item, name: &str, newer: bool) -> Result<(), String> {
        let (ledger, mailbox) = (self.world.outside.ledger(), self.world.outside.mailbox());
        let found = match item {
            Item::Record => {
                ledger.write_as(ItemKind::Record, self.machine(name)?.as_str(), newer);
                true
            }
            Item::Row => ledger.reword_row(&JobId::new(name), newer),
            Item::Journal => ledger.reword(journal::COLLECTION, name, newer),
            Item::Report => {
                let record = ledger.read_now(&self.machine(name)?);
                let unknown = vec![("UD_NEWER".to_owned(), "{}".to_owned())];
                let forged = Forgery { signals: unknown, ..Forgery::default() };
                record.is_some_and(|record| {
                    mailbox.forge_report(&record.facts.mailbox, newer.then_some(forged));
                    true
                })
            }
        };
        if found { Ok(()) } else { Err(format!("there is no such item of {name}")) }
    }

    fn machine(&self, name: &str) -> Result<InstanceId, String> {
        let names = Names::of(&self.world);
        names.id(name).cloned().ok_or_else(|| format!("there is no {name} yet"))
    }

    /// The calls of the last process that ended.
    fn calls(&self) -> StateCounts {
        self.last.as_ref().map(|finished| finished.calls.clone()).unwrap_or_default()
    }

    fn expect(&self, expectation: &Expectation) -> Result<(), Unmet> {
        match expectation {
            Expectation::Process { of, ended, because, within, counts } => {
                let finished = match of {
                    Some(id) => self.finished.get(id),
                    None => self.last.as_ref(),
                };
                let nothing = || Unmet(String::from("nothing has ended yet"));
                let finished = finished.ok_or_else(nothing)?;
                let expected = (*ended, because.as_deref(), *within);
                compare_process(expected, counts, finished)
            }
            Expectation::Counts { subject, of, counts } => {
                let found = looks::count(&self.world, *subject, of.as_ref());
                compare(counts, &found.unwrap_or_else(|| self.count(*subject)))
            }
            Expectation::Jobs(expected) => service::compare(&self.world, expected),
            Expectation::Pool { name, counts } => {
                compare(counts, &pools::counts(&self.world, name))
            }
            Expectation::Machine { name, state, counts } => {
                let id = self.machine(name).map_err(Unmet)?;
                let (states, found) = looks::machine(&self.world, &id);
                compare_state(name, *state, &states)?;
                compare(counts, &found)
            }
        }
    }

    fn count(&self, subject: Subject) -> StateCounts {
        match subject {
            Subject::Jobs => {
                let forge = self.world.outside.forge();
                let waiting = self.jobs.iter().filter(|id| forge.is_pending(&looks::label(id)));
                StateCounts::from([
                    ("done", forge.completed()),
                    ("waiting", waiting.count() as u64),
                ])
            }
            Subject::Ended => looks::ended(&self.checker.ended()),
            Subject::Calls
            | Subject::Records
            | Subject::Machines
            | Subject::Runners
            | Subject::Queues => self.calls(),
        }
    }
}

fn id_of(process: &Process) -> Option<RequestId> {
    match &process.task {
        Task::Provision(wanted) => Some(wanted.id.clone()),
        Task::Release { id, .. } | Task::Dump(id) => Some(id.clone()),
        Task::Refresh => None,
    }
}
