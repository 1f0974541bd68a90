//! A survey: the state of each pool now, and its plan. It changes nothing.
//!
//! The order of the reads makes it safe. The survey reads journals and launches before records, so
//! it may count a machine twice that moves from a launch to a record, but never misses it. It reads
//! records before the cloud's list, so a record is never younger than the cloud's answer.
//!
//! Not here: planning (`core::pool`), or doing anything ([`super::execute`]).

use std::collections::{BTreeMap, BTreeSet};

use bullpen_core::claim::CheckFailure;
use bullpen_core::class::Usage;
use bullpen_core::creation::{Intent, Scope};
use bullpen_core::ids::{InstanceId, IntentId, PoolName, Revision};
use bullpen_core::instance::standby::{StandbyStatus, standby_status};
use bullpen_core::instance::{EndReason, Owner, Record, State, Tier};
use bullpen_core::mailbox::{Report, SignalKind};
use bullpen_core::pool::{
    Allowance, Blueprint, Blueprints, DesiredPool, Journal, ObservedPool, Plan, PoolMachine,
    WarmUp, plan,
};
use bullpen_core::ports::{Fault, Ledger, Machine, Ports};
use bullpen_core::sabotage;

use super::journals::{self, Journals, StoredJournal};
use crate::Stack;
use crate::at_once::at_once;
use crate::reports;
use crate::retry::retry_until;

/// The state of one pool, with its plan.
#[derive(Clone, Debug)]
pub struct SurveyedPool {
    /// The pool.
    pub pool: PoolName,
    /// Its configuration; none if it is no longer configured.
    pub blueprint: Option<Blueprint>,
    /// Its journal, without launches that are accounted for.
    pub journal: Journal,
    /// Its journal as it is stored.
    pub(super) stored: Journal,
    /// The journal's revision; none if the pool has no journal yet.
    pub(super) revision: Option<Revision>,
    /// Whether the store is to forget the journal.
    pub(super) is_expiring: bool,
    /// Its launches in the journal for which the ledger has no reservation.
    pub(super) unreserved: Vec<Intent>,
    /// Its observed state.
    pub observed: ObservedPool,
    /// Its desired state.
    pub desired: DesiredPool,
    /// The actions that lead from the observed to the desired state.
    pub plan: Plan,
    /// The cloud's view of its machines.
    pub(super) machines: BTreeMap<InstanceId, Machine>,
    /// Those of its machines on which a job has begun.
    pub(super) begun_jobs: BTreeSet<InstanceId>,
    /// The reports of failed warm-ups, by machine.
    pub(super) warm_up_failures: BTreeMap<InstanceId, String>,
}

impl SurveyedPool {
    /// How many machines it has, by their status for operators.
    pub fn statuses(&self) -> BTreeMap<StandbyStatus, u32> {
        let mut statuses = BTreeMap::new();
        for one in &self.observed.instances {
            if let Some(status) = standby_status(&one.record) {
                *statuses.entry(status).or_default() += 1;
            }
        }
        statuses
    }
}

/// Lists every pool that is configured or has a journal, in the order of their names. It leaves out
/// a pool whose configuration cannot be built: the desired state of such a pool is unknown.
pub async fn known<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
) -> Result<Vec<PoolName>, Fault> {
    let KnownPools { readable: mut names, unreadable } = list(stack, configured).await?;
    names.extend(unreadable);
    names.sort();
    Ok(names)
}

/// The known pools.
pub(super) struct KnownPools {
    /// Those that this program can keep.
    pub(super) readable: Vec<PoolName>,
    /// Those whose journal it cannot read.
    pub(super) unreadable: BTreeSet<PoolName>,
}

/// Lists the pools that [`known`] names.
pub(super) async fn list<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
) -> Result<KnownPools, Fault> {
    let Journals { readable: journals, unreadable } = journals::all(stack).await?;
    let now = stack.now();
    let remembered = journals.iter().filter(|(_, read)| read.forget_at.is_none_or(|at| now < at));
    let remembered = remembered.map(|(name, _)| name);
    let mut names: BTreeSet<&PoolName> = configured.pools.keys().chain(remembered).collect();
    names.retain(|name| {
        !configured.unbuildable.contains_key(*name) && !unreadable.contains_key(*name)
    });
    let readable = names.into_iter().cloned().collect();
    let mut unreadable: BTreeSet<PoolName> = unreadable.into_keys().collect();
    unreadable.retain(|name| !configured.unbuildable.contains_key(name));
    Ok(KnownPools { readable, unreadable })
}

/// The result of a survey.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The surveyed pools, in the order of their names.
    pub pools: Vec<SurveyedPool>,
    /// Why each of the other pools could not be read.
    pub failed: BTreeMap<PoolName, Fault>,
}

impl Survey {
    /// All pools; the fault of one of them if any could not be read.
    pub fn complete(self) -> Result<Vec<SurveyedPool>, Fault> {
        self.failed.into_values().next().map_or(Ok(self.pools), Err)
    }
}

/// Surveys these pools, with one list of the cloud's machines for all of them. It leaves out a pool
/// whose journal this program cannot read.
pub async fn survey<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
    pools: &[PoolName],
) -> Result<Survey, Fault> {
    let mut survey = Survey::default();
    if pools.is_empty() {
        return Ok(survey);
    }
    let mut journals = journals::all(stack).await?;
    let readable = pools.iter().filter(|pool| !journals.unreadable.contains_key(*pool));
    let journaled: Vec<(&PoolName, StoredJournal)> =
        readable.map(|pool| (pool, journals.readable.remove(pool).unwrap_or_default())).collect();
    let answers = at_once(journaled, async |(pool, read): (&PoolName, StoredJournal)| {
        (pool.clone(), recorded(stack, pool, read).await)
    });
    let mut recorded = Vec::new();
    for (pool, answer) in answers.await {
        match answer {
            Ok(one) => recorded.push(one),
            Err(fault) if sabotage!("one-unread-pool-stops-the-survey") => return Err(fault),
            Err(fault) => drop(survey.failed.insert(pool, fault)),
        }
    }
    recorded.sort_by(|one, other| one.pool.cmp(&other.pool));
    let until = stack.now().after(stack.limits.release_retry);
    let machines = if recorded.iter().all(|one| one.records.is_empty()) {
        Vec::new()
    } else {
        stack.readable(retry_until(stack, until, async || stack.fleet().list().await).await?)
    };
    let mut machines: BTreeMap<InstanceId, Machine> =
        machines.into_iter().map(|machine| (machine.id.clone(), machine)).collect();

    let reports = reports(stack, &recorded, &machines).await.unwrap_or_else(|fault| {
        // Only the pools that need no report can be judged.
        recorded.retain(|one| {
            let needs = needed_reports(one, &machines).next().is_some();
            if needs {
                survey.failed.insert(one.pool.clone(), fault.clone());
            }
            !needs
        });
        BTreeMap::new()
    });
    let used = used(stack, configured, pools).await?;
    let found = recorded.into_iter().map(|recorded| {
        let own = recorded.records.iter();
        let own = own.filter_map(|record| machines.remove_entry(&record.id)).collect();
        let blueprint = configured.pools.get(&recorded.pool);
        judge(stack, recorded, blueprint, own, &reports, &used)
    });
    survey.pools = found.collect();
    Ok(survey)
}

/// The ledger's view of one pool.
struct Recorded {
    pool: PoolName,
    read: StoredJournal,
    launches: Vec<Intent>,
    unreserved: Vec<Intent>,
    records: Vec<Record>,
    /// How many of its records this program cannot read.
    unreadable: usize,
}

async fn recorded<P: Ports>(
    stack: &Stack<P>,
    pool: &PoolName,
    read: StoredJournal,
) -> Result<Recorded, Fault> {
    let (ledger, now) = (stack.ports.ledger(), stack.now());
    let until = now.after(stack.limits.release_retry);
    let (mut launches, mut unreserved) = (Vec::new(), Vec::new());
    for begun in &read.journal.open {
        match retry_until(stack, until, || ledger.intent(&begun.id)).await {
            Ok(Some(intent)) if intent.outstanding > 0 => launches.push(intent),
            // The process that began it may still reserve it, so it counts, and is continued.
            Ok(None) if now < begun.deadline => unreserved.push(begun.clone()),
            Ok(Some(_) | None) => {}
            // Its machines may still come, so it counts as it was begun.
            Err(Fault::Unreadable(_)) => launches.push(begun.clone()),
            Err(fault) => return Err(fault),
        }
    }
    let records = retry_until(stack, until, || ledger.standing_by(pool)).await?;
    let unreadable = records.unreadable.len();
    let records = stack.readable(records);
    Ok(Recorded { pool: pool.clone(), read, launches, unreserved, records, unreadable })
}

/// Reads the reports of machines that cannot be judged by their state alone.
async fn reports<P: Ports>(
    stack: &Stack<P>,
    recorded: &[Recorded],
    machines: &BTreeMap<InstanceId, Machine>,
) -> Result<BTreeMap<InstanceId, Report>, Fault> {
    let asked: Vec<&Record> =
        recorded.iter().flat_map(|one| needed_reports(one, machines)).collect();
    if asked.is_empty() {
        return Ok(BTreeMap::new());
    }
    let until = stack.now().after(stack.limits.release_retry);
    let reports = reports::of_each(stack, &asked, until).await?;
    let named = asked.iter().zip(reports);
    Ok(named.filter_map(|(record, report)| Some((record.id.clone(), report?))).collect())
}

/// The machines of a pool that cannot be judged by their state alone.
fn needed_reports<'r>(
    recorded: &'r Recorded,
    machines: &BTreeMap<InstanceId, Machine>,
) -> impl Iterator<Item = &'r Record> {
    let records = recorded.records.iter();
    records.filter(|record| needs_report(record, machines.get(&record.id)))
}

/// Whether a machine warms up, may be taken away by the cloud, is gone and perhaps never came up,
/// or perhaps runs a job whose start is not tagged yet.
fn needs_report(record: &Record, machine: Option<&Machine>) -> bool {
    match &record.state {
        State::Created { .. } | State::Terminating { why: EndReason::MachineGone, .. } => true,
        State::Idle { tier: Tier::Hot | Tier::Released, .. } => record.facts.usage == Usage::Spot,
        State::Running { .. } => machine.is_some_and(|machine| !machine.tags.job_started),
        _ => false,
    }
}

/// Reads how much of each ceiling that concerns these pools is used.
async fn used<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
    pools: &[PoolName],
) -> Result<BTreeMap<Scope, u32>, Fault> {
    let blueprints = pools.iter().filter_map(|pool| configured.pools.get(pool));
    let scopes: BTreeSet<Scope> = blueprints
        .flat_map(|blueprint| blueprint.ceilings(&stack.ceilings))
        .map(|ceiling| ceiling.scope)
        .collect();
    let scopes: Vec<Scope> = scopes.into_iter().collect();
    if scopes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let until = stack.now().after(stack.limits.release_retry);
    let used = retry_until(stack, until, || stack.ports.ledger().used(&scopes)).await?;
    Ok(scopes.into_iter().zip(used).collect())
}

fn judge<P: Ports>(
    stack: &Stack<P>,
    recorded: Recorded,
    blueprint: Option<&Blueprint>,
    machines: BTreeMap<InstanceId, Machine>,
    reports: &BTreeMap<InstanceId, Report>,
    used: &BTreeMap<Scope, u32>,
) -> SurveyedPool {
    let now = stack.now();
    let Recorded { pool, read, launches, unreserved, records, unreadable } = recorded;
    let StoredJournal { journal, revision, forget_at } = read;
    let open: BTreeSet<IntentId> =
        launches.iter().chain(&unreserved).map(|intent| intent.id.clone()).collect();
    let stored = journal.clone();
    let journal = journal.with_open(|id| open.contains(id));
    let mode = journal.mode(blueprint.is_some());
    let desired = match blueprint {
        Some(blueprint) => {
            let ceilings = blueprint.ceilings(&stack.ceilings).into_iter();
            let allowances = ceilings.map(|ceiling| {
                let used = used.get(&ceiling.scope).copied().unwrap_or(0);
                Allowance { ceiling, used }
            });
            blueprint.desired(mode, allowances.collect(), &stack.limits, now)
        }
        None => DesiredPool::nothing(pool.clone(), mode, &stack.limits),
    };
    let begun_jobs = records.iter().filter(|record| has_begun_job(record, reports.get(&record.id)));
    let begun_jobs = begun_jobs.map(|record| record.id.clone()).collect();
    let warm_up_failures =
        records.iter().filter_map(|record| warm_up_failure(record, reports)).collect();
    let standby = |record: Record| standby(record, &machines, reports);
    let observed = ObservedPool {
        instances: records.into_iter().map(standby).collect(),
        unreadable,
        launches: launches.into_iter().chain(unreserved.iter().cloned()).collect(),
        failures: journal.failures.clone(),
        booted: journal.booted(&desired.spec_hash),
        short_until: journal.short_until,
    };
    let plan = plan(&observed, &desired, now);
    let blueprint = blueprint.cloned();
    SurveyedPool {
        pool,
        blueprint,
        journal,
        stored,
        revision,
        is_expiring: forget_at.is_some(),
        unreserved,
        observed,
        desired,
        plan,
        machines,
        begun_jobs,
        warm_up_failures,
    }
}

/// A machine's report of its warm-up, if that failed.
fn warm_up_failure(
    record: &Record,
    reports: &BTreeMap<InstanceId, Report>,
) -> Option<(InstanceId, String)> {
    let report = reports.get(&record.id)?;
    let failed = WarmUp::of(Some(report)) == WarmUp::Failed;
    failed.then(|| (record.id.clone(), CheckFailure::WarmUpFailed.told(Some(report))))
}

fn standby(
    record: Record,
    machines: &BTreeMap<InstanceId, Machine>,
    reports: &BTreeMap<InstanceId, Report>,
) -> PoolMachine {
    let (machine, report) = (machines.get(&record.id), reports.get(&record.id));
    // What an agent reported before its machine was stopped no longer counts.
    let is_current = matches!(
        record.state,
        State::Created { .. } | State::Idle { .. } | State::Terminating { .. }
    );
    let interrupted = is_current
        && record.facts.usage == Usage::Spot
        && report.is_some_and(|report| report.signals.contains_key(&SignalKind::Interrupted));
    PoolMachine {
        machine: machine.map(|machine| machine.state),
        warm_up: WarmUp::of(report),
        // A machine that was given back has the tag of an earlier job, and may be used again.
        job_started: record.uses == 0 && machine.is_some_and(|machine| machine.tags.job_started),
        interrupted,
        record,
    }
}

/// Whether the job that owns the machine now has begun on it.
fn has_begun_job(record: &Record, report: Option<&Report>) -> bool {
    let is_a_jobs = matches!(&record.state, State::Running { owner: Owner::Job(_), .. });
    let signal = report.and_then(|report| report.signal(SignalKind::JobStarted, record.generation));
    is_a_jobs && signal.is_some()
}
