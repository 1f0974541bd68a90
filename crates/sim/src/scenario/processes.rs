//! Processes of the engine, as a scenario starts them: each has its own wire and faults, and ends
//! in one of a few ways.
//!
//! Not here: when the scenario starts and awaits them (`runner`).

use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bullpen_core::class::RunnerClass;
use bullpen_core::ids::{ClassName, Repository, SpecHash};
use bullpen_core::instance::Owner;
use bullpen_core::parameters::Parameters;
use bullpen_core::ports::Ports;
use bullpen_core::request::Request;
use bullpen_engine::Stack;
use bullpen_engine::advertise::AdvertMemory;
use bullpen_engine::progress::unobserved;
use bullpen_engine::provision::undo::{Abandoned, dump};
use bullpen_engine::provision::worker::{AcquiredBy, HeldMachine};
use bullpen_engine::provision::{Call, ProvisionError, Provisioned, provision};
use bullpen_engine::refresh::{DesiredStack, StepReport, refresh};
use bullpen_engine::release::Released;
use bullpen_engine::release::request::release_request;

use super::expect::StateCounts;
use super::names::Names;
use super::verb::{Death, Process, Provision, Task};
use crate::checker::Checker;
use crate::clock::pass;
use crate::wire::{Planned, Wire};
use crate::world::{SimPorts, World};

/// How a process ended, for an expectation; the second is only there for `Word::one_of`.
pub(super) const HOW_ENDED: [(&str, &str); 8] = [
    ("fulfilled", "fulfilled"),
    ("unfulfilled", "unfulfilled"),
    ("cancelled", "cancelled"),
    ("died", "died"),
    ("released", "released"),
    ("dumped", "dumped"),
    ("refreshed", "refreshed"),
    ("failed", "failed"),
];

/// The result of a process.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    Fulfilled(Vec<HeldMachine>),
    Unfulfilled(String),
    Cancelled(Abandoned),
    Died,
    Released(Released),
    Dumped(usize),
    Refreshed(Vec<StepReport>),
    Failed(String),
}

/// A process that has ended.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    pub(super) ended: Ended,
    pub(super) took: Duration,
    pub(super) calls: StateCounts,
}

impl Finished {
    pub(super) const fn how(&self) -> &'static str {
        match &self.ended {
            Ended::Fulfilled(_) => "fulfilled",
            Ended::Unfulfilled(_) => "unfulfilled",
            Ended::Cancelled(_) => "cancelled",
            Ended::Died => "died",
            Ended::Released(_) => "released",
            Ended::Dumped(_) => "dumped",
            Ended::Refreshed(_) => "refreshed",
            Ended::Failed(_) => "failed",
        }
    }

    /// Its report for people, with the cloud's ids.
    pub(super) fn report(&self) -> String {
        let how = self.how();
        match &self.ended {
            Ended::Fulfilled(_) | Ended::Cancelled(_) | Ended::Released(_) => {
                format!("{how}: {}", counts_line(&self.counts()))
            }
            Ended::Unfulfilled(why) | Ended::Failed(why) => format!("{how}: {why}"),
            Ended::Died => how.to_owned(),
            Ended::Dumped(count) => format!("{how}: {count} machines"),
            Ended::Refreshed(reports) => refresh_lines(reports),
        }
    }

    pub(super) fn lines(&self, names: &Names) -> Vec<String> {
        names.put_into(&self.report()).lines().map(str::to_owned).collect()
    }

    pub(super) fn counts(&self) -> StateCounts {
        match &self.ended {
            Ended::Fulfilled(runners) => {
                let of =
                    |how: AcquiredBy| runners.iter().filter(|held| held.how == how).count() as u64;
                StateCounts::from([
                    ("runners", runners.len() as u64),
                    ("reused", of(AcquiredBy::Reused)),
                    ("started", of(AcquiredBy::Started)),
                    ("created", of(AcquiredBy::Created)),
                ])
            }
            Ended::Cancelled(Abandoned { returning, ending }) => StateCounts::from([
                ("returned", returning.len() as u64),
                ("ended", ending.len() as u64),
            ]),
            Ended::Released(Released { returned, ended, waiting, .. }) => StateCounts::from([
                ("returned", returned.len() as u64),
                ("ended", ended.len() as u64),
                ("waiting", waiting.len() as u64),
            ]),
            Ended::Dumped(count) => StateCounts::from([("ended", *count as u64)]),
            Ended::Unfulfilled(_) | Ended::Died | Ended::Refreshed(_) | Ended::Failed(_) => {
                StateCounts::new()
            }
        }
    }
}

fn counts_line(counts: &StateCounts) -> String {
    let parts = counts.iter().filter(|(key, count)| **count > 0 && **key != "runners");
    let parts: Vec<String> = parts.map(|(key, count)| format!("{count} {key}")).collect();
    if parts.is_empty() { String::from("nothing to do") } else { parts.join(", ") }
}

/// The result of each step; a step that found nothing to do has no line.
fn refresh_lines(reports: &[StepReport]) -> String {
    let mut parts = Vec::new();
    for report in reports {
        match &report.outcome {
            Ok(done) => parts.extend(done.iter().map(|done| format!("{}: {done}", report.step))),
            Err(why) => parts.push(format!("{} failed: {why}", report.step)),
        }
    }
    if parts.is_empty() { String::from("nothing to do") } else { parts.join("\n") }
}

/// An error and its causes in one line, the outermost first.
fn chain(error: &dyn Error) -> String {
    let mut parts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        parts.push(cause.to_string());
        next = cause.source();
    }
    parts.join(": ")
}

/// The settings of a new process.
pub(super) struct Start {
    pub(super) world: Arc<World>,
    pub(super) checker: Checker,
    /// Its name; its random stream depends on it.
    pub(super) name: String,
    pub(super) process: Process,
    pub(super) faults: Vec<Planned>,
    /// The class that a request asks for.
    pub(super) class: RunnerClass,
    /// The current classes.
    pub(super) classes: Vec<RunnerClass>,
    /// The memory of earlier refreshes, if the process is a refresh.
    pub(super) memory: AdvertMemory,
}

impl Start {
    /// Runs the process to its end, or to its death.
    pub(super) async fn run(mut self) -> (Finished, AdvertMemory) {
        let (wire, mut stack) = self.world.process(&self.name);
        self.prepare(&wire, &mut stack);
        let began = self.world.outside.clock().elapsed();
        let memory = std::mem::take(&mut self.memory);
        let dies_after = match self.process.death {
            Some(Death::After(after)) => Some(after),
            _ => None,
        };
        let body = async |stack: &Stack<SimPorts>| self.task(stack, &memory).await;
        let ended = tokio::select! {
            biased;
            ended = self.world.run_on(&wire, &stack, body) => ended,
            never = kill_in_time(&wire, dies_after) => match never {},
        };
        let took = self.world.outside.clock().elapsed().saturating_sub(began);
        let mut calls: StateCounts = wire.calls();
        let troubles = wire.counts();
        calls.insert("refused", troubles.refused);
        calls.insert("lost", troubles.answers_lost + troubles.landed_late);
        (Finished { ended: ended.unwrap_or(Ended::Died), took, calls }, memory)
    }

    fn prepare(&mut self, wire: &Wire, stack: &mut Stack<SimPorts>) {
        for planned in self.faults.drain(..) {
            wire.plan(planned);
        }
        match &self.process.death {
            None | Some(Death::After(_)) => {}
            Some(Death::Await(awaits)) => wire.die_after(*awaits),
            Some(Death::Call(planned)) => wire.plan(planned.clone()),
        }
        if let Task::Provision(Provision { spec_hash: Some(spec), .. }) = &self.process.task {
            stack.spec_hash = spec.clone();
        }
    }

    async fn task(&self, stack: &Stack<SimPorts>, memory: &AdvertMemory) -> Ended {
        match &self.process.task {
            Task::Provision(wanted) => self.provision(stack, wanted).await,
            Task::Release { id, within } => {
                let until = stack.now().after(*within);
                match release_request(stack, id, until, &unobserved).await {
                    Ok(released) => Ended::Released(released),
                    Err(fault) => Ended::Failed(fault.to_string()),
                }
            }
            Task::Dump(id) => match dump(stack, id).await {
                Ok(ids) => Ended::Dumped(ids.len()),
                Err(fault) => Ended::Failed(fault.to_string()),
            },
            Task::Refresh => {
                Ended::Refreshed(refresh(stack, &desired(&self.classes), memory).await)
            }
        }
    }

    async fn provision(&self, stack: &Stack<SimPorts>, wanted: &Provision) -> Ended {
        static REPOSITORY: LazyLock<Repository> = LazyLock::new(|| Repository::new("octo/main"));
        let request = self.request(stack, wanted);
        let now = self.world.outside.clock().true_now();
        let owner = Owner::Request(request.id.clone());
        self.checker.attempt_begins(owner, request.clone(), now);
        let cancelled = async {
            match wanted.cancel_after {
                Some(after) => pass(after).await,
                None => std::future::pending().await,
            }
        };
        // As the command reports it for a run of the repository's own code.
        let is_untrusted = Some(false);
        let call = Call { repository: Some(&REPOSITORY), is_untrusted, ..Call::silent(&request) };
        match provision(stack, call, cancelled).await {
            Ok(Provisioned { runners, .. }) => Ended::Fulfilled(runners),
            Err(ProvisionError::Cancelled(abandoned)) => Ended::Cancelled(abandoned),
            Err(error) => Ended::Unfulfilled(chain(&error)),
        }
    }

    fn request(&self, stack: &Stack<SimPorts>, wanted: &Provision) -> Request {
        let now = self.world.outside.clock().true_now();
        let mut request = crate::calm_world::request(wanted.id.as_str(), wanted.count, now);
        request.class.clone_from(&self.class);
        request.usage = wanted.usage;
        request.allowed_types.clone_from(&wanted.types);
        request.trust = bullpen_core::ids::TrustGroup::new(&wanted.trust);
        request.deadline = now.after(wanted.deadline.unwrap_or(stack.limits.request_deadline));
        request.on_partial = wanted.on_partial;
        request.on_demand_fallback = wanted.fallback;
        request.spec_hash.clone_from(&wanted.spec_hash);
        request
    }
}

/// Kills a process after this time; the caller that runs it sees it die.
pub(super) async fn kill_in_time(wire: &Wire, after: Option<Duration>) -> Infallible {
    if let Some(after) = after {
        pass(after).await;
        wire.kill();
    }
    std::future::pending().await
}

/// The class of this name, or the first.
pub(super) fn class(
    classes: &[RunnerClass],
    name: Option<&ClassName>,
) -> Result<RunnerClass, String> {
    let found = match name {
        None => classes.first(),
        Some(name) => classes.iter().find(|class| class.name == *name),
    };
    found.cloned().ok_or_else(|| {
        let known: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
        format!("there is no such class (one of: {})", known.join(", "))
    })
}

/// The desired stack of a refresh.
pub(super) fn desired(classes: &[RunnerClass]) -> DesiredStack {
    DesiredStack {
        classes: classes.to_vec(),
        are_classes_known: true,
        parameters: Parameters::default(),
        tokens_every: Some(Duration::from_secs(30 * 60)),
        reads_runs: true,
        manages_runners: true,
    }
}

/// The spec hash of machines unless a line names another.
pub(super) fn plain_spec() -> SpecHash {
    SpecHash::new(crate::world::FIRST_SPEC)
}
