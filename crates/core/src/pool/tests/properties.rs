//! Properties of every plan, for random pools.
//!
//! The tests judge by themselves, without the tested code, which machines a plan may touch and how
//! many there are.

use std::collections::BTreeSet;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::world::World;
use super::*;
use crate::config::pool::Rollout;
use crate::instance::EndReason;
use crate::samples::{claimed, created, job_owner, releasing, running};

/// More looks than a pool of these sizes ever needs: the longest quarantine, and then four quarters
/// of both kinds.
const LOOKS_MAX: u32 = 240;

fn any_state() -> impl Strategy<Value = State> {
    let when = || (0..200_u64).prop_map(at);
    let deadline = || prop_oneof![(0..400_u64).prop_map(at), Just(at(1_000_000))];
    let tier = || select(vec![Tier::Released, Tier::Hot, Tier::Stopped]);
    prop_oneof![
        3 => deadline().prop_map(|deadline| State::Created { owner: pool_owner(), deadline }),
        6 => (tier(), when(), deadline()).prop_map(|(tier, since, deadline)| {
            State::Idle { tier, since, deadline, shared: false }
        }),
        2 => (when(), deadline()).prop_map(|(until, deadline)| {
            State::Stopping { op: samples::stop_op(), until, deadline }
        }),
        1 => Just(created(job_owner())),
        1 => tier().prop_map(|tier| claimed(job_owner(), tier)),
        1 => Just(running(job_owner())),
        1 => tier().prop_map(|tier| releasing(job_owner(), tier)),
        1 => select(vec![EndReason::FailedWarmUp, EndReason::Surplus])
            .prop_map(|why| State::Terminating { why, since: at(10) }),
        1 => Just(State::Terminated { why: EndReason::Surplus, at: at(1), forget_at: at(9_999) }),
    ]
}

fn any_standby() -> impl Strategy<Value = PoolMachine> {
    let machine = option::weighted(
        0.9,
        select(vec![
            MachineState::Pending,
            MachineState::Running,
            MachineState::Running,
            MachineState::Stopping,
            MachineState::Stopped,
            MachineState::Stopped,
            MachineState::Gone,
        ]),
    );
    let warm_up = select(vec![WarmUp::Underway, WarmUp::Complete, WarmUp::Failed]);
    let hash = select(vec![NEW, NEW, OLD, OTHER_VERSION]);
    let rarely = || prop::bool::weighted(0.08);
    let flags = (rarely(), rarely(), rarely(), rarely(), prop::bool::weighted(0.2));
    (any_state(), machine, warm_up, hash, flags, 0..100_u64).prop_map(
        |(state, machine, warm_up, hash, flags, launched)| {
            let (job_started, interrupted, tainted, foreign, spot) = flags;
            let mut one = built(hash, standby("i", state));
            one.record.tainted = tainted;
            one.record.facts.launched_at = at(launched);
            if foreign {
                one.record.facts.pool = Some("other".into());
            }
            if spot {
                one.record.facts.usage = Usage::Spot;
            }
            PoolMachine { machine, warm_up, job_started, interrupted, ..one }
        },
    )
}

fn any_observed() -> impl Strategy<Value = ObservedPool> {
    let launch_of = (select(vec![Usage::Spot, Usage::OnDemand]), 1..4_u32, any::<bool>());
    let launches = prop::collection::vec(launch_of, 0..3);
    let failures = prop::collection::vec((0..4_usize, 0..100_u64), 0..5);
    let booted = option::weighted(0.3, (0..100_u64).prop_map(at));
    let instances = prop::collection::vec(any_standby(), 0..16);
    let short_until = option::weighted(0.2, (0..200_u64).prop_map(at));
    (instances, launches, failures, booted, short_until).prop_map(
        |(mut instances, launches, failures, booted, short_until)| {
            for (n, one) in instances.iter_mut().enumerate() {
                one.record.id = InstanceId::new(format!("i-{n:02}"));
            }
            let launches = launches.into_iter().enumerate().map(|(n, (usage, count, ours))| {
                let launch = launch(&format!("l-{n}"), usage, count);
                if ours { launch } else { Intent { owner: job_owner(), ..launch } }
            });
            let failures =
                failures.into_iter().map(|(n, seconds)| failure(&format!("f-{n}"), seconds));
            ObservedPool {
                unreadable: 0,
                instances,
                launches: launches.collect(),
                failures: failures.collect(),
                booted,
                short_until,
            }
        },
    )
}

fn any_desired() -> impl Strategy<Value = DesiredPool> {
    let mode = prop_oneof![
        6 => Just(PoolMode::Kept),
        1 => select(vec![PoolMode::Paused, PoolMode::Draining, PoolMode::Removed]),
    ];
    let rollout = option::of(select(vec![Rollout::Immediate, Rollout::Rolling]));
    let usage = select(vec![Usage::OnDemand, Usage::Spot]);
    let pool_max = option::of(0..20_u32);
    let stack = option::of((0..30_u32, 0..30_u32));
    (0..6_u32, 0..6_u32, mode, rollout, usage, pool_max, stack).prop_map(
        |(hot, stopped, mode, rollout, hot_usage, pool_max, stack)| {
            let own = pool_max.map(|max| allowance(Scope::Pool(pool()), max, 0));
            let shared = stack.map(|(max, used)| allowance(Scope::Stack, max, used));
            let allowances = own.into_iter().chain(shared).collect();
            DesiredPool { mode, rollout, hot_usage, allowances, ..desired(hot, stopped) }
        },
    )
}

/// Whether no plan may touch the machine: its job has started, it is detached, it has another
/// owner, it is another pool's, or it has ended.
fn untouchable(one: &PoolMachine) -> bool {
    let ours = one.record.facts.pool == Some(pool());
    let state = &one.record.state;
    let owned = state.owner().is_some_and(|owner| *owner != pool_owner());
    let leaving = matches!(
        state,
        State::Releasing { .. } | State::Terminating { .. } | State::Terminated { .. }
    );
    one.job_started || !ours || owned || leaving
}

/// How many machines a ceiling has left, counted by hand.
fn left(observed: &ObservedPool, allowance: &Allowance) -> u32 {
    let everywhere = allowance.ceiling.scope == Scope::Stack;
    let mut used = 0;
    for one in &observed.instances {
        let counts = everywhere || one.record.facts.pool == Some(pool());
        used += u32::from(counts && !matches!(one.record.state, State::Terminated { .. }));
    }
    used += observed.launches.iter().map(|launch| launch.outstanding).sum::<u32>();
    allowance.ceiling.max.saturating_sub(used.max(allowance.used))
}

fn created_by(plan: &Plan) -> u32 {
    let created = |action: &Action| match action {
        Action::Create { hot, stopped, .. } => hot + stopped,
        _ => 0,
    };
    plan.actions.iter().map(created).sum()
}

/// The kind of an action: a plan has at most one of each.
fn kind(action: &Action) -> (u8, Option<Cause>, Option<Usage>) {
    match action {
        Action::Terminate { cause, .. } => (0, Some(*cause), None),
        Action::KeepHot(_) => (1, None, None),
        Action::Stop(_) => (2, None, None),
        Action::KeepStopped(_) => (3, None, None),
        Action::Create { usage, .. } => (4, None, Some(*usage)),
    }
}

/// The step that an action belongs to.
fn step(action: &Action) -> u8 {
    match action {
        Action::Terminate { cause: Cause::Error, .. } => 2,
        Action::Terminate { cause: Cause::Dangling, .. } => 3,
        Action::Terminate { cause: Cause::Outdated, .. } => 4,
        Action::KeepHot(_) | Action::Stop(_) | Action::KeepStopped(_) => 5,
        Action::Create { .. } => 6,
        Action::Terminate { cause: Cause::Excess, .. } => 7,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_plan_touches_a_protected_machine(observed in any_observed(), desired in any_desired()) {
        let plan = plan(&observed, &desired, at(NOW));
        for id in plan.actions.iter().flat_map(Action::touches) {
            let one = observed.instances.iter().find(|one| one.record.id == *id).unwrap();
            prop_assert!(!untouchable(one), "{:?} in {:?}", one, plan);
        }
    }

    #[test]
    fn no_plan_goes_above_a_ceiling(observed in any_observed(), desired in any_desired()) {
        let created = created_by(&plan(&observed, &desired, at(NOW)));
        for allowance in &desired.allowances {
            prop_assert!(created <= left(&observed, allowance), "{created} under {allowance:?}");
        }
        prop_assert!(created <= desired.target.hot + desired.target.stopped);
    }

    #[test]
    fn a_plan_ignores_the_order_and_the_repetition_of_its_inputs(
        observed in any_observed(),
        desired in any_desired(),
        turn in 0..16_usize,
        stale in any::<prop::sample::Index>(),
    ) {
        let expected = plan(&observed, &desired, at(NOW));
        let mut other = observed.clone();
        if !other.instances.is_empty() {
            let mut twice = stale.get(&other.instances).clone();
            twice.record.revision = Revision(twice.record.revision.0 - 1);
            twice.record.state = created(pool_owner());
            other.instances.push(twice);
            let turn = turn % other.instances.len();
            other.instances.rotate_left(turn);
        }
        other.launches.reverse();
        other.launches.extend(observed.launches.first().cloned());
        other.failures.reverse();
        other.failures.extend(observed.failures.first().cloned());
        let turned = DesiredPool {
            allowances: desired.allowances.iter().rev().cloned().collect(),
            ..desired
        };
        prop_assert_eq!(expected, plan(&other, &turned, at(NOW)));
    }

    #[test]
    fn actions_of_one_kind_are_one_batch_in_the_order_of_the_steps(
        observed in any_observed(),
        desired in any_desired(),
    ) {
        let plan = plan(&observed, &desired, at(NOW));
        let kinds: BTreeSet<_> = plan.actions.iter().map(kind).collect();
        prop_assert_eq!(kinds.len(), plan.actions.len(), "{:?}", plan);
        prop_assert!(plan.actions.is_sorted_by_key(step), "{:?}", plan);
        let touched: Vec<_> = plan.actions.iter().flat_map(Action::touches).collect();
        let once: BTreeSet<_> = touched.iter().collect();
        prop_assert_eq!(once.len(), touched.len(), "{:?}", plan);
    }
}

/// Asserts that a pool for which nothing is left to do has its target.
fn settled(world: &World) -> Result<(), TestCaseError> {
    let ours = |one: &&PoolMachine| !untouchable(one);
    let idle = |of: Tier| {
        let is =
            |one: &&PoolMachine| matches!(one.record.state, State::Idle { tier, .. } if tier == of);
        world.seen.instances.iter().filter(ours).filter(is).count()
    };
    let empty = matches!(world.desired.mode, PoolMode::Draining | PoolMode::Removed);
    let (hot, stopped) = if empty {
        (0, 0)
    } else {
        (world.desired.target.hot as usize, world.desired.target.stopped as usize)
    };
    prop_assert!(idle(Tier::Hot) <= hot && idle(Tier::Stopped) <= stopped);
    let outdated = world.seen.instances.iter().filter(ours);
    let outdated = outdated.filter(|one| one.record.facts.spec_hash.as_str() == OLD).count();
    let full = world.desired.allowances.iter().any(|one| left(&world.seen, one) == 0);
    if !full {
        prop_assert_eq!((idle(Tier::Hot), idle(Tier::Stopped), outdated), (hot, stopped, 0));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Every pool comes to its target and then plans nothing. On the way no plan breaks a ceiling,
    /// and the instance's own rules allow every action.
    #[test]
    fn a_pool_converges_and_then_plans_nothing(
        observed in any_observed(),
        desired in any_desired(),
    ) {
        let lasting = DesiredPool { hot_lifetime: minutes(600_000), ..desired };
        let mut world = World::of(observed, lasting, at(NOW));
        // Only the pool launches here: a job's launch never becomes a machine of the pool.
        world.seen.launches.retain(|launch| launch.owner == pool_owner());
        let mut quiet = 0;
        for _ in 0..LOOKS_MAX {
            let allowances = world.desired.allowances.iter();
            let capacity: Vec<_> = allowances.map(|one| left(&world.seen, one)).collect();
            let before = world.total();
            let plan = world.step();
            let least = capacity.iter().copied().min().unwrap_or(u32::MAX);
            prop_assert!(world.total() <= before + least as usize, "{plan:?}");
            quiet = if plan.actions.is_empty() { quiet + 1 } else { 0 };
        }
        prop_assert!(quiet > 20, "quiet for {quiet} looks: {:?}", plan(&world.seen, &world.desired, world.now));
        if world.desired.mode != PoolMode::Paused {
            settled(&world)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Jobs pick while a pool is filled, rolled, shrunk or drained: no plan changes a picked
    /// machine, and the pool still comes to its target.
    #[test]
    fn what_a_job_picked_is_never_touched(
        observed in any_observed(),
        desired in any_desired(),
        picks in prop::collection::vec(prop::bool::weighted(0.3), 40),
        changes in prop::collection::vec((0..40_usize, any_desired()), 0..3),
    ) {
        let lasting = |desired| DesiredPool { hot_lifetime: minutes(600_000), ..desired };
        let mut world = World::of(observed, lasting(desired), at(NOW));
        world.seen.launches.retain(|launch| launch.owner == pool_owner());
        let mut picked = Vec::new();
        for (look, pick) in picks.into_iter().enumerate() {
            if let Some((_, desired)) = changes.iter().find(|(at, _)| *at == look) {
                world.desired = lasting(desired.clone());
            }
            picked.extend(pick.then(|| world.pick_one()).flatten());
            world.step();
        }
        let quiet = (0..LOOKS_MAX).filter(|_| world.step().actions.is_empty()).count();
        prop_assert!(quiet > 20, "quiet for {} looks", quiet);
        for id in picked {
            let one = world.seen.instances.iter().find(|one| one.record.id == id);
            let claimed = |one: &PoolMachine| matches!(one.record.state, State::Claimed { .. });
            prop_assert!(one.is_some_and(claimed), "{} was picked and is {:?}", id, one);
        }
        if world.desired.mode != PoolMode::Paused {
            settled(&world)?;
        }
    }
}
