//! A survey: what pools are like now, and what is to be done about it. It changes nothing.
//!
//! The order of reading makes it safe. Journals and launches come before records, so that a machine
//! that moves from one to the other is counted twice and never not at all; records come before the
//! cloud's list, so that what a record says is never younger than what the cloud says of its machine.
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
use futures_util::future::try_join_all;

use super::journals::{self, StoredJournal};
use crate::Stack;
use crate::reports;
use crate::retry::retry_until;

/// One pool as it was found, with its plan.
#[derive(Clone, Debug)]
pub struct SurveyedPool {
    /// Which pool.
    pub pool: PoolName,
    /// What is configured of it; nothing if it no longer is.
    pub blueprint: Option<Blueprint>,
    /// What is remembered of it.
    pub journal: Journal,
    /// The same as it is stored.
    pub(super) stored: Journal,
    /// The journal's revision; none if it has none yet.
    pub(super) revision: Option<Revision>,
    /// Whether its journal is to be forgotten.
    pub(super) is_leaving: bool,
    /// Its launches that were begun and not reserved, as far as anybody knows.
    pub(super) unreserved: Vec<Intent>,
    /// What was seen of it.
    pub observed: ObservedPool,
    /// What is wanted of it.
    pub desired: DesiredPool,
    /// What to do.
    pub plan: Plan,
    /// The cloud's own words on its machines.
    pub(super) machines: BTreeMap<InstanceId, Machine>,
    /// Those of its machines that a job has begun on.
    pub(super) at_work: BTreeSet<InstanceId>,
    /// What machines said of their warm-up that failed.
    pub(super) complaints: BTreeMap<InstanceId, String>,
}

impl SurveyedPool {
    /// How many machines it has, by what operators call their status.
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

/// Every pool that is configured or remembered, in the order of their names. A pool that cannot be
/// built is left alone: nobody knows what is wanted of it.
pub async fn known<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
) -> Result<Vec<PoolName>, Fault> {
    let journals = journals::all(stack).await?;
    let now = stack.now();
    let remembered = journals.iter().filter(|(_, read)| read.forget_at.is_none_or(|at| now < at));
    let remembered = remembered.map(|(name, _)| name);
    let names: BTreeSet<&PoolName> = configured.pools.keys().chain(remembered).collect();
    let left_alone = |name: &&PoolName| configured.unbuildable.contains_key(*name);
    Ok(names.into_iter().filter(|name| !left_alone(name)).cloned().collect())
}

/// Looks at these pools: one list of the cloud's machines for all of them.
pub async fn survey<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
    pools: &[PoolName],
) -> Result<Vec<SurveyedPool>, Fault> {
    if pools.is_empty() {
        return Ok(Vec::new());
    }
    let mut journals = journals::all(stack).await?;
    let read = pools.iter().map(|pool| {
        let read = journals.remove(pool).unwrap_or_default();
        recorded(stack, pool, read)
    });
    let recorded = try_join_all(read).await?;
    let until = stack.now().after(stack.limits.release_retry);
    let machines = if recorded.iter().all(|one| one.records.is_empty()) {
        Vec::new()
    } else {
        retry_until(stack, until, async || stack.fleet().list().await).await?
    };
    let mut machines: BTreeMap<InstanceId, Machine> =
        machines.into_iter().map(|machine| (machine.id.clone(), machine)).collect();
    let reports = reports(stack, &recorded, &machines).await?;
    let used = used(stack, configured, pools).await?;
    let found = recorded.into_iter().map(|recorded| {
        let own = recorded.records.iter();
        let own = own.filter_map(|record| machines.remove_entry(&record.id)).collect();
        let blueprint = configured.pools.get(&recorded.pool);
        judge(stack, recorded, blueprint, own, &reports, &used)
    });
    Ok(found.collect())
}

/// What the ledger says of one pool.
struct Recorded {
    pool: PoolName,
    read: StoredJournal,
    launches: Vec<Intent>,
    unreserved: Vec<Intent>,
    records: Vec<Record>,
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
        match retry_until(stack, until, || ledger.intent(&begun.id)).await? {
            Some(intent) if intent.outstanding > 0 => launches.push(intent),
            // Whoever began it may still reserve it: it counts, and is carried on.
            None if now < begun.deadline => unreserved.push(begun.clone()),
            Some(_) | None => {}
        }
    }
    let records = retry_until(stack, until, || ledger.standing_by(pool)).await?;
    Ok(Recorded { pool: pool.clone(), read, launches, unreserved, records })
}

/// The reports of machines whose state is not enough to judge them by.
async fn reports<P: Ports>(
    stack: &Stack<P>,
    recorded: &[Recorded],
    machines: &BTreeMap<InstanceId, Machine>,
) -> Result<BTreeMap<InstanceId, Report>, Fault> {
    let asked: Vec<&Record> = recorded
        .iter()
        .flat_map(|one| &one.records)
        .filter(|record| needs_report(record, machines.get(&record.id)))
        .collect();
    if asked.is_empty() {
        return Ok(BTreeMap::new());
    }
    let until = stack.now().after(stack.limits.release_retry);
    let reports = reports::of_each(stack, &asked, until).await?;
    let named = asked.iter().zip(reports);
    Ok(named.filter_map(|(record, report)| Some((record.id.clone(), report?))).collect())
}

/// Only of those that warm up, that may be taken away, that are gone and perhaps never came up, or whose
/// job has perhaps begun.
fn needs_report(record: &Record, machine: Option<&Machine>) -> bool {
    match &record.state {
        State::Created { .. } | State::Terminating { why: EndReason::MachineGone, .. } => true,
        State::Idle { tier: Tier::Hot | Tier::Released, .. } => record.facts.usage == Usage::Spot,
        State::Running { .. } => machine.is_some_and(|machine| !machine.tags.job_started),
        _ => false,
    }
}

/// How full the ceilings are that concern these pools.
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
    let Recorded { pool, read, launches, unreserved, records } = recorded;
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
    let at_work = records.iter().filter(|record| is_at_work(record, reports.get(&record.id)));
    let at_work = at_work.map(|record| record.id.clone()).collect();
    let complaints = records.iter().filter_map(|record| complaint(record, reports)).collect();
    let standby = |record: Record| standby(record, &machines, reports);
    let observed = ObservedPool {
        instances: records.into_iter().map(standby).collect(),
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
        is_leaving: forget_at.is_some(),
        unreserved,
        observed,
        desired,
        plan,
        machines,
        at_work,
        complaints,
    }
}

/// What a machine said of its warm-up, if that failed.
fn complaint(
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
    // What a stopped machine's agent said before it was stopped is over.
    let is_said = matches!(
        record.state,
        State::Created { .. } | State::Idle { .. } | State::Terminating { .. }
    );
    let interrupted = is_said
        && record.facts.usage == Usage::Spot
        && report.is_some_and(|report| report.signals.contains_key(&SignalKind::Interrupted));
    PoolMachine {
        machine: machine.map(|machine| machine.state),
        warm_up: WarmUp::of(report),
        // One that was given back has had a job, and may be used again.
        job_started: record.uses == 0 && machine.is_some_and(|machine| machine.tags.job_started),
        interrupted,
        record,
    }
}

/// Whether a job has begun on a machine for whoever has it now.
fn is_at_work(record: &Record, report: Option<&Report>) -> bool {
    let is_a_jobs = matches!(&record.state, State::Running { owner: Owner::Job(_), .. });
    let signal = report.and_then(|report| report.signal(SignalKind::JobStarted, record.generation));
    is_a_jobs && signal.is_some()
}
