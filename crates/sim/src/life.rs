//! The life of a world: workflow runs, calamities, upkeep, healing, and the quiet at the end.
//!
//! Not here: the report of a run ([`crate::kernel`]), or what a seed draws ([`crate::load`]).

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ids::{InstanceId, QueueName, Repository, RequestId, SpecHash};
use bullpen_core::instance::Owner;
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::job::{Job, JobState};
use bullpen_core::parameters::Parameters;
use bullpen_core::ports::{Machine, MachineState, Ports, QueueKind, QueueSpec, Queues};
use bullpen_core::request::Request;
use bullpen_core::request::entry::split;
use bullpen_engine::Stack;
use bullpen_engine::advertise;
use bullpen_engine::branch::branch;
use bullpen_engine::progress::unobserved;
use bullpen_engine::provision::worker::AcquiredBy;
use bullpen_engine::provision::{Call, ProvisionError, Provisioned, provision};
use bullpen_engine::refresh::{DesiredStack, refresh};
use bullpen_engine::release::request::release_request;
use futures_util::future::{Either, join_all};

use crate::checker::{Checker, ProvisionOutcome};
use crate::clock::pass;
use crate::dice::Dice;
use crate::kernel::Stats;
use crate::load::{self, Calamity, Workflow};
use crate::odd_cloud;
use crate::service::{self, plan::ServicePlan};
use crate::storm_plan::StormPlan;
use crate::world::{SimPorts, World};

/// How long faults occur and workflow runs arrive.
pub(crate) const FAULTY: Duration = Duration::from_secs(90 * 60);
/// How long a world lasts at least.
pub(crate) const LASTS: Duration = Duration::from_secs(2 * 3_600);
/// How long the world may take to become quiet after its last workflow: the longest deadline that
/// can still be running, and the graces after it.
const QUIET_WITHIN: Duration = Duration::from_secs(90 * 60);
/// How long pools may take to converge: the longest quarantine, then one machine launched as a
/// trial, then the others.
const CONVERGED_WITHIN: Duration = Duration::from_secs(80 * 60);
/// A run is cancelled when no job of it has ended for this long.
const CANCEL_AFTER: Duration = Duration::from_secs(40 * 60);
/// How long calls and processes that began under faults may go on.
const AFTER_HEALING: Duration = Duration::from_secs(2 * 60);
/// How often upkeep runs: reaping, reconciling, advertising again.
const UPKEEP: Duration = Duration::from_secs(30);

/// Runs the world to its end.
pub(crate) async fn live(
    world: &Arc<World>,
    checker: &Checker,
    (workflows, calamities, storms): (Vec<Workflow>, Vec<(Duration, Calamity)>, &StormPlan),
    service: Option<&ServicePlan>,
) -> Stats {
    make_queues(world).await;
    let runs = workflows.into_iter().map(|workflow| branch(follow(world, checker, workflow)));
    let runs = join_all(runs);
    let jobs = service.map(|plan| plan.jobs.as_slice()).unwrap_or_default();
    let work = async {
        let ((), (), (), (), (), (), (), runs) = tokio::join!(
            heal_later(world, checker),
            branch(run_calamities(world, calamities)),
            branch(odd_cloud::play(world, FAULTY)),
            branch(odd_cloud::play_neighbours(world, FAULTY)),
            branch(storms.run(world)),
            change_image_later(world),
            branch(service::follow_all(world, jobs)),
            branch(runs)
        );
        let mut stats = Stats::default();
        for run in runs {
            stats += run;
        }
        if let Some(plan) = service.filter(|plan| plan.timeline.is_kept()) {
            converge(world, checker, plan).await;
            plan.timeline.remove_pools();
        }
        become_quiet(world, checker, |world| unsettled(world).or_else(|| unquiet(world))).await;
        pass(LASTS.saturating_sub(world.outside.clock().elapsed())).await;
        stats
    };
    tokio::select! {
        biased;
        stats = branch(work) => stats,
        never = branch(serve(world, service)) => match never {},
        never = branch(keep_up(world)) => match never {},
    }
}

/// Runs the world's service, if the world has one.
async fn serve(world: &Arc<World>, service: Option<&ServicePlan>) -> std::convert::Infallible {
    let Some(plan) = service else { return std::future::pending().await };
    service::make_queues(world).await;
    service::serve(world, plan, FAULTY).await
}

/// Lets each calamity occur at its time; the world's healing ends all of them.
async fn run_calamities(world: &World, calamities: Vec<(Duration, Calamity)>) {
    let dice = Dice::new(world.seed, "calamities");
    let occurring = calamities.into_iter().map(|(at, calamity)| {
        let dice = &dice;
        async move {
            pass(at).await;
            let (fleet, forge) = (world.outside.fleet(), world.outside.forge());
            match calamity {
                Calamity::Outage(length) => {
                    world.happened("GitHub down");
                    forge.set_outage(true);
                    pass(length).await;
                    forge.set_outage(false);
                }
                Calamity::Shortage => {
                    if let Some(offering) = dice.pick(&fleet.offerings()) {
                        world.happened("offering depleted");
                        fleet.deplete(offering.clone());
                    }
                }
                Calamity::NoCapacity(left, length) => {
                    world.happened("capacity exhausted");
                    fleet.limit_capacity(Some(left));
                    pass(length).await;
                    fleet.limit_capacity(None);
                }
                Calamity::Quota(usage, vcpu_max) => {
                    world.happened("quota cut");
                    fleet.set_quota(usage, vcpu_max);
                }
                Calamity::LostMachine => {
                    if let Some(machine) = dice.pick(&living(world, |_| true)) {
                        world.happened("machine lost");
                        fleet.lose(machine);
                    }
                }
                Calamity::Points(a_minute, length) => {
                    forge.limit_points(Some(a_minute));
                    pass(length).await;
                    forge.limit_points(None);
                }
                Calamity::SpotReclaim(per_mille) => {
                    let spot = living(world, |machine| machine.usage == Usage::Spot);
                    let unlucky = spot.iter().filter(|_| dice.chance(per_mille));
                    join_all(unlucky.map(|id| {
                        world.happened("spot machine reclaimed");
                        fleet.reclaim(id)
                    }))
                    .await;
                }
            }
        }
    });
    join_all(occurring).await;
}

fn living(world: &World, which: impl Fn(&Machine) -> bool) -> Vec<InstanceId> {
    let machines = world.outside.fleet().snapshot().into_iter();
    let living = machines.filter(|it| it.state != MachineState::Gone && which(it));
    living.map(|machine| machine.id).collect()
}

async fn heal_later(world: &World, checker: &Checker) {
    pass(FAULTY).await;
    world.heal();
    pass(AFTER_HEALING).await;
    checker.is_calm_since(world.outside.clock().true_now());
}

/// Changes the image once, in some worlds.
async fn change_image_later(world: &World) {
    if let Some(after) = load::new_image(&Dice::new(world.seed, "image"), FAULTY) {
        pass(after).await;
        world.build_from(SpecHash::new("1:bb"));
    }
}

/// Makes the queues that advertise the load's classes.
pub async fn make_queues(world: &World) {
    for class in load::classes() {
        let spec = QueueSpec {
            name: QueueName::new(format!("sim-{}", class.name)),
            kind: QueueKind::Standard,
            visibility: Duration::from_secs(30),
            retention: world.limits.pool_queue_retention,
            dead_letters: None,
        };
        world.outside.queues().ensure(&spec).await.expect("the outside's wire is calm");
    }
}

/// One workflow run, and in some cases a second attempt of it.
async fn follow(world: &Arc<World>, checker: &Checker, workflow: Workflow) -> Stats {
    pass(workflow.arrives).await;
    let mut stats = Box::pin(attempt(world, checker, &workflow)).await;
    if let Some(after) = workflow.rerun_after
        && let Some(again) = next_attempt(&workflow)
    {
        pass(after).await;
        stats.reruns += 1;
        stats += Box::pin(attempt(world, checker, &again)).await;
    }
    stats
}

/// The run as GitHub starts it again: with another attempt, and so with another request.
fn next_attempt(workflow: &Workflow) -> Option<Workflow> {
    let (run, name) = split(&workflow.request.id)?;
    let run = run.as_str().strip_suffix(".1")?;
    let id = RequestId::new(format!("{run}.2.{name}"));
    let request = Request { id, ..workflow.request.clone() };
    Some(Workflow { request, ..workflow.clone() })
}

/// One attempt: provision, jobs, release.
async fn attempt(world: &Arc<World>, checker: &Checker, workflow: &Workflow) -> Stats {
    let began = world.outside.clock().true_now();
    let mut request = workflow.request.clone();
    request.deadline = began.after(world.limits.request_deadline);
    request.spec_hash = Some(world.spec_hash());
    let owner = Owner::Request(request.id.clone());
    let label = format!("warm-{}", request.id);
    if workflow.eager {
        submit(world, &label, &workflow.jobs);
    }
    checker.attempt_begins(owner.clone(), request.clone(), began);
    let mut stats = Stats { workflows: 1, ..Stats::default() };
    let watched = Watched { world, checker };
    let mut fulfilled =
        Box::pin(provision_perhaps_twice(watched, workflow, &request, &mut stats)).await;
    if !fulfilled && workflow.again {
        stats.resumed += 1;
        let now = world.outside.clock().true_now();
        request.deadline = now.after(world.limits.request_deadline);
        request.spec_hash = Some(world.spec_hash());
        checker.attempt_begins(owner.clone(), request.clone(), now);
        fulfilled = provision_once(watched, "again", None, None, &request, &mut stats).await;
    }
    if fulfilled {
        if !workflow.eager {
            submit(world, &label, &workflow.jobs);
        }
        if !await_jobs(world, &label).await && stats.cancelled == 0 {
            checker.jobs_given_up(&owner);
        }
    } else {
        // The jobs that depend on a failed provision are skipped.
        world.outside.forge().cancel(&label);
    }
    if fulfilled || workflow.releases_after_failure {
        let name = format!("release {}", request.id);
        let until = world.outside.clock().true_now().after(Duration::from_secs(600));
        checker.release_begins(&name, &owner);
        let released = world
            .run(&name, workflow.release_fuse, async |stack| {
                release_request(stack, &request.id, until, &unobserved).await
            })
            .await;
        if let Some(Ok(_)) = released {
            checker.is_released(&owner, world.outside.clock().true_now());
        }
    }
    if let Some((run, _)) = split(&request.id) {
        // Only GitHub's own runs report their end.
        if run.at_github().is_some() {
            checker.run_ends(&owner);
        }
        world.outside.forge().end_run(run);
    }
    stats
}

/// Provisions, in some worlds with two processes that do not know each other. Each may be
/// superseded by the other; the result says whether one of them fulfilled the request.
async fn provision_perhaps_twice(
    watched: Watched<'_>,
    workflow: &Workflow,
    request: &Request,
    stats: &mut Stats,
) -> bool {
    let (fuse, cancel) = (workflow.provision_fuse, workflow.cancelled_after);
    let Some(after) = workflow.doubled_after else {
        return provision_once(watched, "first", fuse, cancel, request, stats).await;
    };
    let mut rivals = Stats { doubled: 1, ..Stats::default() };
    let (first, second) =
        tokio::join!(provision_once(watched, "first", fuse, cancel, request, stats), async {
            pass(after).await;
            provision_once(watched, "second", None, None, request, &mut rivals).await
        });
    *stats += rivals;
    first || second
}

/// A world and its checker.
#[derive(Clone, Copy)]
struct Watched<'w> {
    world: &'w Arc<World>,
    checker: &'w Checker,
}

async fn provision_once(
    watched: Watched<'_>,
    which: &str,
    fuse: Option<u64>,
    cancel: Option<Duration>,
    request: &Request,
    stats: &mut Stats,
) -> bool {
    let Watched { world, checker } = watched;
    let name = format!("provision {} {which}", request.id);
    let owner = Owner::Request(request.id.clone());
    checker.provision_begins(&name, &owner, request.deadline);
    let cancelled = async {
        let Some(after) = cancel else { return std::future::pending().await };
        pass(after).await;
        checker.is_cancelled(&name, &owner);
    };
    let provisioned = world
        .run(&name, fuse, async |stack| Box::pin(provision(stack, call(request), cancelled)).await)
        .await;
    checker.provision_ends(world, &name, &outcome(provisioned.as_ref()));
    match provisioned {
        Some(Ok(provisioned)) => {
            count(stats, &provisioned);
            true
        }
        Some(Err(ProvisionError::Cancelled(_))) => {
            stats.cancelled += 1;
            false
        }
        Some(Err(_)) | None => false,
    }
}

/// The result that the caller of a provision has.
fn outcome(provisioned: Option<&Result<Provisioned, ProvisionError>>) -> ProvisionOutcome {
    match provisioned {
        Some(Ok(provisioned)) => {
            let runners = provisioned.runners.iter();
            ProvisionOutcome::Fulfilled(runners.map(|runner| runner.record.id.clone()).collect())
        }
        // Without a credential a provision begins nothing, and leaves earlier machines alone.
        Some(Err(
            ProvisionError::Superseded
            | ProvisionError::CannotBegin(_)
            | ProvisionError::NoCredential(_),
        ))
        | None => ProvisionOutcome::Nothing,
        Some(Err(_)) => ProvisionOutcome::Failed,
    }
}

/// The call that a workflow step makes.
fn call(request: &Request) -> Call<'_> {
    static REPOSITORY: LazyLock<Repository> = LazyLock::new(|| Repository::new("octo/main"));
    Call { repository: Some(&REPOSITORY), is_untrusted: Some(false), ..Call::silent(request) }
}

/// Provisions to the end, without progress reports and without cancelling.
pub async fn provision_silently(
    stack: &Stack<SimPorts>,
    request: &Request,
) -> Result<Provisioned, ProvisionError> {
    provision(stack, Call::silent(request), std::future::pending()).await
}

/// Waits for a run's jobs; returns whether all of them ran. A job whose runner died with its
/// machine would wait for ever, so the run is cancelled when no job has ended for long.
async fn await_jobs(world: &World, label: &str) -> bool {
    let (forge, clock) = (world.outside.forge(), world.outside.clock());
    let (mut all_ran, mut pending, mut moved) = (true, forge.pending(label), clock.elapsed());
    while pending > 0 {
        pass(Duration::from_secs(5)).await;
        let left = forge.pending(label);
        if left != pending {
            (pending, moved) = (left, clock.elapsed());
        } else if clock.elapsed() > moved + CANCEL_AFTER {
            forge.cancel(label);
            all_ran = false;
        }
    }
    all_ran
}

fn submit(world: &World, label: &str, jobs: &[Duration]) {
    for lasts in jobs {
        world.outside.forge().submit(label, *lasts);
    }
}

fn count(stats: &mut Stats, provisioned: &Provisioned) {
    stats.fulfilled += 1;
    for runner in &provisioned.runners {
        match runner.how {
            AcquiredBy::Reused | AcquiredBy::Started => stats.reused += 1,
            AcquiredBy::Created => stats.created += 1,
        }
    }
}

/// Runs `refresh` repeatedly, in one replica or in two that do not know each other; its processes
/// die like all others.
pub async fn keep_up(world: &Arc<World>) -> std::convert::Infallible {
    keep_up_beside(world, "upkeep").await
}

/// How many replicas refresh in a world.
pub(crate) fn upkeepers(seed: u64) -> u64 {
    1 + Dice::new(seed, "replicas").below(2)
}

/// Like [`keep_up`] under this name, for a world with another upkeep: the checker tells processes
/// apart by name.
pub async fn keep_up_beside(world: &Arc<World>, name: &str) -> std::convert::Infallible {
    let first = keep_up_as(world, name, 1);
    if upkeepers(world.seed) == 1 {
        return first.await;
    }
    let second = Box::pin(keep_up_as(world, name, 2));
    match futures_util::future::select(Box::pin(first), second).await {
        Either::Left((never, _)) | Either::Right((never, _)) => never,
    }
}

async fn keep_up_as(world: &Arc<World>, stem: &str, replica: u64) -> std::convert::Infallible {
    let dice = Dice::new(world.seed, &format!("upkeep {replica}"));
    let mut memory = advertise::AdvertMemory::default();
    let mut round = 0_u64;
    pass(dice.between(Duration::ZERO, UPKEEP)).await;
    loop {
        pass(UPKEEP).await;
        round += 1;
        let dies = dice.chance(world.climate().crash / 4);
        let awaits = dice.below(200);
        let name = format!("{stem} {replica}.{round}");
        let body = async |stack: &Stack<SimPorts>| upkeep(stack, &memory).await;
        if world.run(&name, dies.then_some(awaits), body).await.is_none() {
            // A process that dies loses its memory.
            memory = advertise::AdvertMemory::default();
        }
    }
}

/// One refresh, as `bullpen refresh` runs it.
pub async fn upkeep(stack: &Stack<SimPorts>, memory: &advertise::AdvertMemory) {
    refresh(stack, &desired(), memory).await;
}

/// The desired settings of every world's stack.
pub fn desired() -> DesiredStack {
    DesiredStack {
        classes: load::classes(),
        are_classes_known: true,
        parameters: Parameters::default(),
        tokens_every: Some(Duration::from_secs(30 * 60)),
        reads_runs: true,
        manages_runners: true,
    }
}

/// Waits until every pool is as its schedule says and its plan is empty. Runs after the faults.
async fn converge(world: &World, checker: &Checker, plan: &ServicePlan) {
    let began = world.outside.clock().elapsed();
    loop {
        let found = service::look_at_pools(world, plan).await;
        let Some(left) = found.iter().find_map(Checker::unconverged) else { return };
        if world.outside.clock().elapsed() > began + CONVERGED_WITHIN {
            checker.report(left);
            // The checker's report ends the run.
            std::future::pending::<()>().await;
        }
        pass(Duration::from_secs(10)).await;
    }
}

/// Waits until `left` finds nothing more. Runs after the faults and after the last request.
pub async fn become_quiet(
    world: &World,
    checker: &Checker,
    left: impl Fn(&World) -> Option<Violation>,
) {
    let began = world.outside.clock().elapsed();
    while let Some(left) = left(world) {
        if world.outside.clock().elapsed() > began + QUIET_WITHIN {
            checker.report(left);
            // The checker's report ends the run.
            std::future::pending::<()>().await;
        }
        pass(Duration::from_secs(60)).await;
    }
}

/// The first live record, machine, reservation or runner, as a violation.
pub fn unquiet(world: &World) -> Option<Violation> {
    let left = |instance, what: String| Violation {
        invariant: Invariant::Conservation,
        instance,
        what: format!("not quiet: {what}"),
    };
    let (records, intents) = world.outside.ledger().snapshot();
    if let Some(record) = records.iter().find(|record| record.state.is_live()) {
        let state = record.state.name().as_str();
        return Some(left(Some(record.id.clone()), format!("a record is {state}")));
    }
    let machines = world.outside.fleet().snapshot();
    let alive = |m: &&Machine| m.state != MachineState::Gone;
    if let Some(machine) = machines.iter().find(alive) {
        return Some(left(Some(machine.id.clone()), "a machine runs".into()));
    }
    if let Some(intent) = intents.iter().find(|intent| intent.outstanding > 0) {
        let what = format!("{} machines are reserved by {}", intent.outstanding, intent.id);
        return Some(left(None, what));
    }
    let (runner, machine, _) = world.outside.forge().registered().into_iter().next()?;
    let what = format!("not quiet: the runner {runner} is registered");
    Some(Violation { invariant: Invariant::NoGhosts, instance: machine, what })
}

/// The first job that has not ended, or whose end is not settled.
pub fn unsettled(world: &World) -> Option<Violation> {
    let rows = world.outside.ledger().rows();
    let what = rows.into_iter().find_map(|row| match Job::decode(&row.body) {
        Ok(Job { state: JobState::Ended { debts, .. }, .. }) if debts.is_settled() => None,
        Ok(job) => Some(format!("the row of job {} is {}", job.id, job.state.name().as_str())),
        Err(error) => Some(format!("the row of job {} cannot be read: {error}", row.job)),
    })?;
    let what = format!("not quiet: {what}");
    Some(Violation { invariant: Invariant::EveryJobEnds, instance: None, what })
}
