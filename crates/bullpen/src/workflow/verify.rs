//! `bullpen ledger verify`: checks the invariants on the stack's present state.
//!
//! Not here: the invariants (`bullpen_core::invariants`).

use std::collections::{BTreeMap, BTreeSet};

use bullpen_core::ids::{ClassName, JobId};
use bullpen_core::instance::{Owner, Record};
use bullpen_core::invariants::jobs::{JobsSnapshot, on_jobs};
use bullpen_core::invariants::{Invariant, StackSnapshot, Violation, on_world};
use bullpen_core::job::Job;
use bullpen_core::parameters::OfflineRunners;
use bullpen_core::ports::{Fault, Forge as _, JobRow, Ledger as _, Ports, Runner};
use bullpen_engine::Stack;
use bullpen_engine::reconcile::{live_records, open_intents};
use bullpen_engine::stored_parameters;
use futures_util::stream::{self, StreamExt as _};
use serde_json::json;

use super::status::{inspect, must_exist};
use super::{Failure, Loaded, load, run_command};
use crate::exit::Exit;
use crate::inputs::{CommonArgs, CommonInputs, Environment, files};
use crate::jobs::decoded;
use crate::render;
use crate::runtime::{self, Command, GithubAccess, Runtime, RuntimePlan};
use crate::table::count;

/// The most rows of jobs that are read beside those of the records' owners.
const DUE_MAX: usize = 1_000;

/// How many reads are under way at a time: those who serve jobs share the store.
const READS_AT_ONCE: usize = 16;

/// Runs `bullpen ledger verify`.
pub(crate) fn ledger_verify(args: &CommonArgs) -> Exit {
    run_command(async |environment| Box::pin(run(args, environment)).await)
}

async fn run(args: &CommonArgs, environment: &Environment) -> Result<Exit, Failure> {
    let common = CommonInputs::read(args, environment)?;
    must_exist(&common.stack)?;
    let json = common.stack.json;
    match load(&common, environment) {
        Ok(Loaded { common, file }) => {
            let config = files::config(&common.stack)?;
            let config = config.as_ref();
            let plan = RuntimePlan { common: &common, config, file: &file, environment };
            runtime::run(&plan, VerifyCommand { json }).await?
        }
        // A credential that cannot be read hides nothing that the ledger and the cloud show.
        Err(error) => {
            render::warning(&format!("GitHub is not asked: {error}"), false);
            inspect(&args.stack, environment, |json| VerifyCommand { json }).await
        }
    }
}

/// `bullpen ledger verify`, once its arguments are read.
struct VerifyCommand {
    json: bool,
}

impl Command for VerifyCommand {
    type Outcome = Result<Exit, Failure>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let stack = &runtime.stack;
        let runners = if stack.ports.forge().manages() {
            match stack.ports.forge().runners().await {
                Ok(runners) => Some(runners),
                Err(fault) => {
                    render::warning(&format!("GitHub did not list its runners: {fault}"), false);
                    None
                }
            }
        } else {
            None
        };
        let found = findings(stack, runners.as_deref()).await;
        let found = found.map_err(|fault| Failure::of("could not read the stack", &fault))?;
        show(self.json, &found);
        Ok(if found.violations.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

/// What was checked, and what was found.
pub(crate) struct Verified {
    pub(crate) records: usize,
    jobs: usize,
    runners: Option<usize>,
    pub(crate) violations: Vec<Violation>,
}

fn show(json: bool, found: &Verified) {
    let Verified { records, jobs, runners, violations } = found;
    if json {
        let list: Vec<_> = violations
            .iter()
            .map(|violation| {
                json!({
                    "invariant": violation.invariant.number(),
                    "instance": violation.instance,
                    "what": violation.what,
                    "remedy": violation.remedy(),
                })
            })
            .collect();
        let all = json!({
            "records": records, "jobs": jobs, "runners": runners, "violations": list
        });
        render::json(&all.to_string());
        return;
    }
    for violation in violations {
        render::data(&format!("{violation}; {}", violation.remedy()));
    }
    let checked = [count(*records, "live record"), count(*jobs, "job")].join(", ");
    let runners = runners.map_or_else(
        || String::from("GitHub's runners not asked for"),
        |runners| count(runners, "runner"),
    );
    render::talk(&format!("{checked}, {runners}: {}", count(violations.len(), "violation")));
}

/// Reads what the invariants need, and checks them. `runners`: GitHub's, if it was asked before.
pub(crate) async fn findings<P: Ports>(
    stack: &Stack<P>,
    runners: Option<&[Runner]>,
) -> Result<Verified, Fault> {
    // Records first: a launch in between then only adds a machine.
    let records = live_records(stack).await?;
    let intents = open_intents(stack).await?;
    let machines = stack.readable(stack.fleet().list().await?);
    let jobs = jobs_of(stack, &records).await?;
    let until = stack.now().after(stack.limits.release_retry);
    let offline = stored_parameters::load::<P, OfflineRunners>(stack, until).await?;
    let offline = offline.unwrap_or_default();
    let world = StackSnapshot {
        now: stack.now(),
        records: &records,
        intents: &intents,
        machines: &machines,
        ceilings: &stack.ceilings,
        limits: &stack.limits,
    };
    let of_jobs = JobsSnapshot {
        stack: &stack.name,
        now: stack.now(),
        records: &records,
        jobs: &jobs,
        machines: &machines,
        runners,
        offline: &offline,
        limits: &stack.limits,
    };
    let mut violations = on_world(&world);
    violations.extend(on_jobs(&of_jobs));
    violations.extend(unlisted(stack, &records).await?);
    let runners = runners.map(<[Runner]>::len);
    Ok(Verified { records: records.len(), jobs: jobs.len(), runners, violations })
}

/// The jobs that own a record, and those at which the service should have looked by now.
async fn jobs_of<P: Ports>(stack: &Stack<P>, records: &[Record]) -> Result<Vec<Job>, Fault> {
    let owners: BTreeSet<&JobId> = records
        .iter()
        .filter_map(|record| match record.state.listed_under() {
            Some(Owner::Job(id)) => Some(id),
            _ => None,
        })
        .collect();
    let mut jobs: BTreeMap<JobId, Job> = BTreeMap::new();
    let rows = owners.into_iter().map(|id| stack.ports.ledger().row(id));
    for row in at_once(rows).await {
        note(stack, row?, &mut jobs);
    }
    let mut cursor: Option<String> = None;
    while jobs.len() < DUE_MAX + records.len() {
        let page = stack.ports.ledger().rows_due(stack.now(), cursor.as_deref()).await?;
        for row in page.items {
            note(stack, Some(row), &mut jobs);
        }
        let Some(next) = page.next else { break };
        cursor = Some(next);
    }
    Ok(jobs.into_values().collect())
}

/// The answers of these reads, a few of which are under way at a time.
async fn at_once<T>(reads: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    stream::iter(reads).buffer_unordered(READS_AT_ONCE).collect().await
}

/// Keeps a row that this version can read.
fn note<P: Ports>(stack: &Stack<P>, row: Option<JobRow>, jobs: &mut BTreeMap<JobId, Job>) {
    if let Some((_, job)) = row.and_then(|row| decoded(stack, row)) {
        jobs.insert(job.id.clone(), job);
    }
}

/// The violations of records that a directory misses: an owner or a class could not find them. Each
/// directory is read once.
async fn unlisted<P: Ports>(stack: &Stack<P>, records: &[Record]) -> Result<Vec<Violation>, Fault> {
    let ledger = stack.ports.ledger();
    let owners: BTreeSet<&Owner> =
        records.iter().filter_map(|record| record.state.listed_under()).collect();
    let classes: BTreeSet<&ClassName> = records
        .iter()
        .filter(|record| record.advert().is_some())
        .map(|record| &record.facts.class)
        .collect();
    let mut owned = BTreeSet::new();
    for listed in at_once(owners.into_iter().map(|owner| ledger.owned_by(owner))).await {
        owned.extend(listed?.items.into_iter().map(|record| record.id));
    }
    let mut idle = BTreeSet::new();
    for listed in at_once(classes.into_iter().map(|class| ledger.idle_in(class))).await {
        idle.extend(listed?.items.into_iter().map(|advert| advert.id));
    }
    let mut found = Vec::new();
    for record in records {
        let misses_owner = record.state.listed_under().is_some() && !owned.contains(&record.id);
        let misses_class = record.advert().is_some() && !idle.contains(&record.id);
        let directory = match (misses_owner, misses_class) {
            (true, _) => "owner",
            (_, true) => "class",
            (false, false) => continue,
        };
        if is_as_read(stack, record).await? {
            found.push(Violation {
                invariant: Invariant::Conservation,
                instance: Some(record.id.clone()),
                what: format!("the directory of its {directory} does not list it"),
            });
        }
    }
    Ok(found)
}

/// Whether the record is unchanged. A worker may have changed it since it was listed.
async fn is_as_read<P: Ports>(stack: &Stack<P>, record: &Record) -> Result<bool, Fault> {
    Ok(stack.ports.ledger().read(&record.id).await?.as_ref() == Some(record))
}
