//! A small world that carries plans out: machines boot, stop and end some looks later, and the
//! instance's own rules must allow every action.
//!
//! Not here: faults of the cloud and of stores (the simulator).

use std::time::Duration;

use super::*;
use crate::config::pool::Rollout;
use crate::ids::{JobId, StopOp};
use crate::instance::{AfterWarmUp, Authority, EndReason, InstanceEvent, Record};
use crate::time::Timestamp;

/// How often the world is looked at and planned for.
const LOOK: Duration = LIMITS.converge;
/// How many looks a boot takes.
const BOOT_LOOKS: u32 = 3;

pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) seen: ObservedPool,
    pub(super) desired: DesiredPool,
    /// Whether machines of the wanted specification boot.
    pub(super) boots: bool,
    pub(super) launched: u32,
}

impl World {
    pub(super) fn of(seen: ObservedPool, desired: DesiredPool, now: Timestamp) -> Self {
        Self { now, seen, desired, boots: true, launched: 0 }
    }

    /// Plans, carries the plan out, and lets the world go on until the next look.
    pub(super) fn step(&mut self) -> Plan {
        let plan = plan(&self.seen, &self.desired, self.now);
        for action in &plan.actions {
            self.carry_out(action);
        }
        self.now = self.now.after(LOOK);
        self.go_on();
        plan
    }

    pub(super) fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.step();
        }
    }

    /// A job picks a machine, if there is one.
    pub(super) fn pick_one(&mut self) -> Option<InstanceId> {
        let records: Vec<_> = self.seen.instances.iter().map(|one| one.record.clone()).collect();
        let (job, trust) = (JobId::new("4242"), samples::trust());
        let seeker = WaitingJob { job, trust, only_unused: None };
        let picked = pick(&records, &[seeker], &LIMITS, self.now).pop()?;
        let (id, seen) = (picked.record.id.clone(), picked.record.generation);
        let claimed = InstanceEvent::Claimed {
            owner: samples::job_owner(),
            claim: samples::nonce(),
            trust: samples::trust(),
            seen,
            at: self.now,
            margin: LIMITS.not_claimable_before_deadline,
            lease: self.now.after(LIMITS.claim_lease),
        };
        self.happens(&id, &claimed);
        self.instance(&id).machine = Some(MachineState::Running);
        Some(id)
    }

    fn carry_out(&mut self, action: &Action) {
        let (now, limits) = (self.now, LIMITS);
        let pool = self.desired.pool.clone();
        let until = now.after(limits.stop_fence);
        let stop = |id: &InstanceId| StopOp::new(format!("stop {id} {now}"));
        match action {
            Action::Terminate { endings, .. } => {
                for MachineEnding { id, why } in endings {
                    if *why == EndReason::FailedWarmUp {
                        self.remember_failure(id);
                    }
                    let authority = Authority::Pool { pool: pool.clone() };
                    self.happens(id, &InstanceEvent::Condemned { authority, why: *why, at: now });
                }
            }
            Action::KeepHot(ids) => {
                for id in ids {
                    let deadline = hot_deadline(id, now, self.desired.hot_lifetime, &limits);
                    let into = AfterWarmUp::Hot { deadline, shared: false };
                    self.happens(
                        id,
                        &InstanceEvent::WarmedUp { pool: pool.clone(), at: now, into },
                    );
                    self.seen.booted = Some(now);
                }
            }
            Action::KeepStopped(ids) => {
                for id in ids {
                    let deadline = now.after(limits.idle_stopped);
                    let (at, skew) = (now, limits.clock_skew);
                    self.happens(
                        id,
                        &InstanceEvent::FoundStopped { at, skew, deadline, shared: false },
                    );
                }
            }
            Action::Stop(stops) => {
                for (id, why) in stops {
                    let (op, deadline) = (stop(id), now.after(limits.warm_up));
                    let event = match why {
                        StopWhy::WarmedUp => {
                            self.seen.booted = Some(now);
                            let into = AfterWarmUp::ToStop { op, until, deadline };
                            InstanceEvent::WarmedUp { pool: pool.clone(), at: now, into }
                        }
                        StopWhy::FoundRunning => {
                            InstanceEvent::FoundRunning { op, until, deadline }
                        }
                        StopWhy::Again => InstanceEvent::StopAgain { op, until },
                    };
                    self.happens(id, &event);
                    self.instance(id).machine = Some(MachineState::Stopping);
                }
            }
            Action::Create { usage, hot, stopped } => self.launch(*usage, hot + stopped),
        }
    }

    fn instance(&mut self, id: &InstanceId) -> &mut PoolMachine {
        self.seen.instances.iter_mut().find(|one| one.record.id == *id).expect("it was observed")
    }

    fn happens(&mut self, id: &InstanceId, event: &InstanceEvent) {
        let record = &mut self.instance(id).record;
        *record = record.on(event).expect("the instance's rules allow every planned action");
    }

    fn remember_failure(&mut self, id: &InstanceId) {
        let (at, record) = (self.now, self.instance(id).record.clone());
        let Record { id, facts, .. } = record;
        let (intent, spec_hash) = (facts.intent, facts.spec_hash);
        self.seen.failures.push(BootFailure { id, intent, spec_hash, at });
    }

    fn launch(&mut self, usage: Usage, count: u32) {
        let mut intent = launch(&format!("{}-{}", usage.as_str(), self.now), usage, count);
        intent.spec_hash = self.desired.spec_hash.clone();
        intent.deadline = self.now.after(LIMITS.warm_up);
        self.launched += count;
        self.seen.launches.push(intent);
    }

    /// Lets the time of one look pass.
    fn go_on(&mut self) {
        self.seen.instances.retain(|one| !matches!(one.record.state, State::Terminating { .. }));
        let (now, boots) = (self.now, self.boots);
        for one in &mut self.seen.instances {
            one.machine = match one.machine {
                None | Some(MachineState::Gone) => Some(MachineState::Gone),
                Some(MachineState::Pending | MachineState::Running) => Some(MachineState::Running),
                Some(MachineState::Stopping | MachineState::Stopped) => Some(MachineState::Stopped),
            };
            let up = matches!(one.record.state, State::Created { .. })
                && one.warm_up == WarmUp::Underway
                && now.since(one.record.facts.launched_at) >= LOOK * BOOT_LOOKS;
            if up {
                one.warm_up = if boots { WarmUp::Complete } else { WarmUp::Failed };
            }
        }
        for intent in std::mem::take(&mut self.seen.launches) {
            for n in 0..intent.outstanding {
                self.seen.instances.push(self.born(&intent, n));
            }
        }
    }

    fn born(&self, intent: &Intent, n: u32) -> PoolMachine {
        let mut one =
            built(self.desired.spec_hash.as_str(), warming(&format!("{}-{n}", intent.id)));
        let facts = one.record.facts.clone();
        let deadline = self.now.after(LIMITS.warm_up);
        one.record = Record::born(one.record.id, facts, intent.owner.clone(), None, deadline);
        one.record.facts.launched_at = self.now;
        one.record.facts.intent = intent.id.clone();
        one.record.facts.usage = intent.usage;
        one.machine = Some(MachineState::Pending);
        one
    }

    /// How many machines there are, launches in flight included.
    pub(super) fn total(&self) -> usize {
        let launching: u32 = self.seen.launches.iter().map(|launch| launch.outstanding).sum();
        let live = self.seen.instances.iter().filter(|one| one.record.state.is_live()).count();
        live + launching as usize
    }

    /// How many machines of a tier are idle, and how many of them of the wanted specification.
    pub(super) fn idle(&self, of: Tier) -> (usize, usize) {
        let idle = self
            .seen
            .instances
            .iter()
            .filter(|one| matches!(one.record.state, State::Idle { tier, .. } if tier == of));
        let new = |one: &&PoolMachine| one.record.facts.spec_hash == self.desired.spec_hash;
        (idle.clone().count(), idle.filter(new).count())
    }
}

fn hot_world(count: usize, desired: DesiredPool) -> World {
    let instances = (0..count).map(|n| hot(&format!("o{n}"))).collect::<Vec<_>>();
    World::of(observed(instances), desired, at(1))
}

fn long_lived(desired: DesiredPool) -> DesiredPool {
    DesiredPool { hot_lifetime: minutes(600_000), ..desired }
}

#[test]
fn from_nothing_to_the_target_and_then_nothing_more() {
    let mut world = World::of(ObservedPool::default(), long_lived(desired(3, 2)), at(0));
    let looks = (0..40).find(|_| world.step() == Plan::default());
    assert!(looks.is_some_and(|looks| looks < 15), "{looks:?}");
    assert_eq!((world.idle(Tier::Hot).0, world.idle(Tier::Stopped).0), (3, 2));
    assert_eq!(world.launched, 5, "nothing was launched that was not wanted");
}

#[test]
fn hot_machines_are_replaced_without_a_gap() {
    let mut world = World::of(ObservedPool::default(), desired(3, 0), at(0));
    world.steps(10);
    for _ in 0..480 {
        world.step();
        let ready = world.idle(Tier::Hot).0;
        assert!((3..=6).contains(&ready), "{ready} at {}", world.now);
    }
    // Three at a time live between eight and twelve minutes, and a boot longer, for four hours.
    assert!((50..=100).contains(&world.launched), "{} launches", world.launched);
}

#[test]
fn a_rollout_keeps_the_pool_ready() {
    for (max, least, most) in [(100, 8, 10), (9, 8, 9), (8, 6, 8)] {
        let allowances = vec![allowance(Scope::Pool(pool()), max, 0)];
        let wanted = DesiredPool { allowances, spec_hash: SpecHash::new(OLD), ..desired(8, 0) };
        let mut world = hot_world(8, long_lived(wanted));
        let looks = (0..200).find(|_| {
            let actions = world.step().actions;
            let (ready, _) = world.idle(Tier::Hot);
            assert!(ready >= least, "{ready} of {least} are ready under {max}");
            assert!(world.total() <= most, "{} of at most {most} under {max}", world.total());
            actions.is_empty() && world.idle(Tier::Hot) == (8, 8)
        });
        assert!(looks.is_some(), "under {max}: {:?}", world.idle(Tier::Hot));
    }
}

#[test]
fn a_bad_specification_leaves_the_old_machines_and_few_launches() {
    for rollout in [Rollout::Rolling, Rollout::Immediate] {
        let target = DesiredPool { rollout: Some(rollout), ..desired(8, 0) };
        let mut world = hot_world(8, long_lived(target));
        world.desired.spec_hash = SpecHash::new(OLD);
        world.boots = false;
        world.steps(4 * 120);
        // Two, then the third of the quarantine, then one an hour; an immediate rollout launches
        // eight first.
        let (most, ready) = match rollout {
            Rollout::Rolling => (12, 8),
            Rollout::Immediate => (16, 0),
        };
        assert!(world.launched <= most, "{rollout:?}: {} launches", world.launched);
        assert_eq!(world.idle(Tier::Hot).0, ready, "{rollout:?}");
        world.boots = true;
        world.steps(4 * 60);
        assert_eq!(world.idle(Tier::Hot), (8, 8), "{rollout:?}");
    }
}

#[test]
fn a_drained_pool_becomes_empty() {
    let mut world = World::of(ObservedPool::default(), desired(3, 3), at(0));
    world.steps(4);
    world.desired.mode = PoolMode::Draining;
    world.steps(4);
    assert_eq!(world.total(), 0);
}
