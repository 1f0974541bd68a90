//! Hostile machines: a process with root forges their reports. The engine checks each report
//! against the ledger and the clock, ends such a machine at its cap, and serves other jobs
//! meanwhile.
//!
//! Not here: decoding of such a report (`core::mailbox`), or the store it is in (`contract`).

use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ids::{
    ClaimId, Generation, MailboxKey, Repository, RequestId, Revision, RunAttempt, RunnerName,
};
use bullpen_core::instance::{EndReason, InstanceEvent, Owner, Record, State, Tier};
use bullpen_core::mailbox::{
    AgentPhase, Assignment, Beat, Order, Report, SYSTEMIC, Signal, SignalKind,
};
use bullpen_core::ports::{Document, Ledger, Mailbox, Ports, Written};
use bullpen_core::request::stranger::RanJob;
use bullpen_core::time::Timestamp;
use bullpen_engine::provision::{Call, provision};
use bullpen_engine::reap::reap;
use bullpen_engine::release::request::release_request;
use bullpen_engine::release::{self, Released};
use bullpen_engine::{Stack, progress};
use bullpen_sim::calm_world;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::model::mailbox::Forgery;
use bullpen_sim::pool_world::PoolWorld;
use bullpen_sim::world::{SimPorts, World};

use super::{LONG, MINUTE, ci, end, fill, two_and_one};

fn garbage() -> Forgery {
    Forgery { signals: vec![("UD_OK".to_owned(), "{".to_owned())], ..Forgery::default() }
}

fn huge() -> Forgery {
    Forgery { beat: Some("x".repeat(300 * 1024)), ..Forgery::default() }
}

fn signalled(kinds: &[SignalKind], generation: Generation, at: Timestamp) -> Report {
    let signal = Signal { generation, owner: None, at, detail: "\u{1b}[2J".to_owned(), ran: None };
    let signals = kinds.iter().map(|kind| (*kind, signal.clone()));
    Report { beat: None, signals: signals.collect() }
}

/// A report, dated in the future, that claims every success and every failure at once.
fn contradiction(record: &Record) -> Forgery {
    let at = "9999-12-30T00:00:00Z".parse().expect("it is RFC 3339");
    let said = signalled(
        &[
            SignalKind::WarmUpFailed,
            SignalKind::RegistrationFailed,
            SignalKind::JobStarted,
            SignalKind::ListenerEnded,
            SignalKind::Removed,
        ],
        Generation(record.generation.0 + 1_000),
        at,
    );
    let beat = Beat { seq: u64::MAX, at, phase: AgentPhase::Busy, boot: "b".to_owned() };
    Forgery::of(&Report { beat: Some(beat), ..said })
}

/// A machine turns hostile while it runs a job: the keeper refills the pool, the service serves
/// another job, every invariant holds, and the machine ends with its job.
#[test]
pub(crate) fn hostile_machines_cost_nobody_else_anything() {
    for kind in 0..3 {
        on_virtual_time(one_hostile_machine(kind));
    }
}

async fn one_hostile_machine(kind: usize) {
    let sim = PoolWorld::new(10, &two_and_one()).await;
    fill(&sim, 2, 1).await;
    sim.queue("7", "pool=ci", 20 * MINUTE);
    let running = async || {
        let mut records = sim.records("ci").await;
        records.retain(|record| matches!(record.state, State::Running { .. }));
        records.pop()
    };
    let runs = async || running().await.is_some();
    assert!(sim.until(LONG, runs, sim.serving("one")).await);
    let hostile = running().await.expect("a machine runs the job");
    let forged = vec![garbage(), huge(), contradiction(&hostile)].swap_remove(kind);
    sim.world.outside.mailbox().forge_report(&hostile.facts.mailbox, Some(forged));
    let full = async || sim.ready("ci").await == (2, 1) && sim.has_converged().await;
    assert!(sim.until(LONG, full, sim.serving("two")).await, "{kind}: {:?}", sim.look().await);
    sim.queue("8", "pool=ci", MINUTE);
    let over = async || sim.world.jobs.is_over(&"8".into());
    assert!(sim.until(LONG, over, sim.serving("three")).await, "{kind}: the other job still waits");
    let gone = async || sim.machines().iter().all(|machine| machine.id != hostile.id);
    let ended = sim.until(3 * LONG, gone, sim.serving("four")).await;
    assert!(ended, "{kind}: {:?} {:?}", sim.checker.verdict(), sim.machines());
    end(&sim).await;
}

/// All machines of a pool report a failed warm-up after they were warm, and disappear: the planner
/// must not quarantine the pool for that.
#[test]
pub(crate) fn machines_that_were_warm_do_not_quarantine_their_pool() {
    on_virtual_time(async {
        // The pool is full: the keeper can launch a replacement only once a machine is gone.
        let sim = PoolWorld::new(3, &ci("{name: always, hot: 3, stopped: 0}", "", "")).await;
        fill(&sim, 3, 0).await;
        let at = sim.world.outside.clock().true_now();
        let lie = Forgery::of(&signalled(&[SignalKind::WarmUpFailed], Generation(0), at));
        for hostile in sim.idle("ci", Tier::Hot).await {
            let key = &hostile.facts.mailbox;
            sim.world.outside.mailbox().forge_report(key, Some(lie.clone()));
            sim.world.outside.fleet().lose(&hostile.id);
        }
        let refilled = async || sim.launched() == 6 && sim.ready("ci").await == (3, 0);
        let filled = sim.keep("second", 4 * MINUTE, refilled).await;
        assert!(filled, "{:?} {:?}", sim.notes("ci"), sim.look().await);
        end(&sim).await;
    });
}

/// A machine without an agent, running for an owner, with an assignment in its mailbox: the test
/// writes its reports.
struct Puppet {
    world: Arc<World>,
    stack: Stack<SimPorts>,
    record: Record,
    owner: Owner,
}

impl Puppet {
    async fn new() -> Self {
        Self::of_request("r-1", true).await
    }

    /// A machine of this request; its record is *running*, or still *claimed*.
    async fn of_request(request: &str, is_running: bool) -> Self {
        let world = calm_world::new(7, 5).await;
        let (_, stack) = world.process("puppet");
        let idle = calm_world::add_idle(&world, Usage::OnDemand, 1).await.swap_remove(0);
        let owner = Owner::Request(RequestId::new(request));
        let (now, claim) = (stack.now(), ClaimId::new("c-1"));
        let mut record = idle.clone();
        record.facts.mailbox = MailboxKey::new("no-agent");
        record = record
            .on(&InstanceEvent::Claimed {
                owner: owner.clone(),
                claim: claim.clone(),
                trust: "octo/main".into(),
                seen: idle.generation,
                at: now,
                margin: Duration::ZERO,
                lease: now.after(MINUTE),
            })
            .expect("it is idle");
        if is_running {
            let registered = InstanceEvent::Registered {
                owner: owner.clone(),
                generation: record.generation,
                claim: Some(claim),
                at: now,
                deadline: now.after(stack.max_runtime(&owner)),
                cap: now.after(stack.limits.hard_cap),
            };
            record = record.on(&registered).expect("it is claimed");
        }
        let replaced = stack.ports.ledger().replace(&idle, &record).await;
        let Ok(Written::Won(record)) = replaced else { panic!("{replaced:?}") };
        let order = Order::Assigned(Assignment {
            generation: record.generation,
            owner: owner.clone(),
            runner: RunnerName::new("stack-r-1"),
            label: "warm-r-1".to_owned(),
            credential: None,
            register_by: None,
            hard_cap: now.after(stack.limits.hard_cap),
            issued_at: None,
            own_run: None,
            group: None,
            ephemeral: true,
        });
        let posted = stack.ports.mailbox().post(&record.facts.mailbox, &order).await;
        assert!(matches!(posted, Ok(Written::Won(_))), "{posted:?}");
        Self { world, stack, record, owner }
    }

    fn report(&self, forged: Forgery) {
        self.world.outside.mailbox().forge_report(&self.record.facts.mailbox, Some(forged));
    }

    /// A heartbeat of this moment that reports a running job.
    fn busy(&self) -> Forgery {
        let at = self.stack.now();
        let seq = u64::try_from(at.as_millis()).expect("it is after 1970");
        let beat = Beat { seq, at, phase: AgentPhase::Busy, boot: "b".to_owned() };
        Forgery::of(&Report { beat: Some(beat), ..Report::default() })
    }

    async fn state(&self) -> State {
        let read = self.stack.ports.ledger().read(&self.record.id).await.expect("calm");
        read.expect("it has a record").state
    }

    /// Runs the reaper every minute for this long; the machine reports before each pass.
    async fn reaped_for(&self, time: Duration, forged: impl Fn(&Self) -> Forgery) {
        let until = self.stack.now().after(time);
        while self.stack.now() < until {
            self.report(forged(self));
            reap(&self.stack).await.expect("one machine must not fail the reaper's pass");
            pass(MINUTE).await;
        }
    }

    async fn ended_for(&self) -> Option<EndReason> {
        match self.state().await {
            State::Terminating { why, .. } | State::Terminated { why, .. } => Some(why),
            _ => None,
        }
    }

    async fn released(&self) -> Released {
        let until = self.stack.now().after(MINUTE);
        release::release(&self.stack, &self.owner, until, &progress::unobserved)
            .await
            .expect("calm")
    }
}

/// Forged heartbeats keep a machine alive up to its cap, and not one pass of the reaper longer.
#[test]
pub(crate) fn forged_beats_keep_a_machine_no_longer_than_its_cap() {
    on_virtual_time(async {
        let puppet = Puppet::new().await;
        let (cap, skew) = (puppet.stack.limits.hard_cap, puppet.stack.limits.clock_skew);
        puppet.reaped_for(cap.saturating_sub(5 * MINUTE), Puppet::busy).await;
        assert!(
            matches!(puppet.state().await, State::Running { .. }),
            "{:?}",
            puppet.state().await
        );
        puppet.reaped_for(5 * MINUTE + skew + 3 * MINUTE, Puppet::busy).await;
        assert_eq!(puppet.ended_for().await, Some(EndReason::DeadlinePassed));
    });
}

/// Neither an unreadable report nor a heartbeat from the future keeps a machine or fails the
/// reaper.
#[test]
pub(crate) fn an_unreadable_machine_ends_by_its_deadline() {
    on_virtual_time(async {
        for (what, forged) in [("garbage", garbage()), ("300 KB", huge())] {
            let puppet = Puppet::new().await;
            let deadline = puppet.stack.max_runtime(&puppet.owner);
            puppet.reaped_for(deadline + LONG, |_| forged.clone()).await;
            assert_eq!(puppet.ended_for().await, Some(EndReason::NotAcknowledged), "{what}");
            assert!(
                puppet.stack.unreadable_reports.reads() > 0,
                "no unreadable report was counted"
            );
        }
        let puppet = Puppet::new().await;
        let deadline = puppet.stack.max_runtime(&puppet.owner);
        puppet.reaped_for(deadline + LONG, |puppet| contradiction(&puppet.record)).await;
        assert_eq!(puppet.ended_for().await, Some(EndReason::NotAcknowledged));
    });
}

/// An acknowledged removal returns no machine if the control plane did not order it.
#[test]
pub(crate) fn a_forged_removal_returns_no_machine() {
    on_virtual_time(async {
        let puppet = Puppet::new().await;
        let (at, ahead) = (puppet.stack.now(), Generation(puppet.record.generation.0 + 50));
        let forged = Forgery::of(&signalled(&[SignalKind::Removed], ahead, at));
        puppet.report(forged.clone());
        let released = puppet.released().await;
        assert!(released.returned.is_empty(), "{released:?}");
        puppet.reaped_for(LONG, |_| forged.clone()).await;
        assert_eq!(puppet.ended_for().await, Some(EndReason::NotAcknowledged));
    });
}

/// A machine reports its own assignment as removed: it returns with the trust group of its owner,
/// and not as a machine that was never used.
#[test]
pub(crate) fn a_machine_cannot_deny_its_owner() {
    on_virtual_time(async {
        let puppet = Puppet::of_request("r-1", false).await;
        let (at, own) = (puppet.stack.now(), puppet.record.generation);
        puppet.report(Forgery::of(&signalled(&[SignalKind::Removed], own, at)));
        let released = puppet.released().await;
        assert_eq!(released.returned.len(), 1, "{released:?}");
        let read = puppet.stack.ports.ledger().read(&puppet.record.id).await.expect("calm");
        let record = read.expect("it has a record");
        assert_eq!(record.trust, Some("octo/main".into()));
        assert!(matches!(record.state, State::Idle { tier: Tier::Released, .. }), "{record:?}");
    });
}

/// A machine never acknowledges its withdrawal while GitHub says that it runs a job: the release
/// ends it at its cap, without its report or its mailbox.
#[test]
pub(crate) fn a_release_ends_at_its_cap_despite_forged_reports() {
    on_virtual_time(async {
        let puppet = Puppet::new().await;
        let generation = puppet.record.generation.next();
        let removed = signalled(&[SignalKind::Removed], generation, puppet.stack.now());
        let (deadline, cap) =
            (puppet.stack.max_runtime(&puppet.owner), puppet.stack.limits.hard_cap);
        puppet.reaped_for(deadline.saturating_sub(MINUTE), Puppet::busy).await;
        pass(cap).await;
        puppet.report(Forgery::of(&removed));
        puppet.reaped_for(3 * MINUTE, |_| Forgery::of(&removed)).await;
        assert_eq!(puppet.ended_for().await, Some(EndReason::DeadlinePassed));
    });
}

/// A job of another run ran on a machine whose request has an unreadable entry, so the release
/// cannot record it: the machine ends nevertheless.
#[test]
fn a_stranger_that_cannot_be_written_down_keeps_no_machine() {
    on_virtual_time(async {
        let puppet = Puppet::of_request("77.1.build", true).await;
        let entry = Document {
            collection: RunAttempt::new("77.1").collection(),
            name: "build".to_owned(),
            revision: Revision::default(),
            body: "no entry of ours".to_owned(),
            forget_at: None,
        };
        let written = puppet.stack.ports.ledger().write_document(None, &entry).await;
        assert!(matches!(written, Ok(Written::Won(_))), "{written:?}");
        let mut report =
            signalled(&[SignalKind::JobStarted], puppet.record.generation, puppet.stack.now());
        let ran = RanJob {
            repository: Repository::new("evil/app"),
            run: 666,
            attempt: 1,
            job: "test".to_owned(),
            event: "push".to_owned(),
        };
        report.signals.values_mut().for_each(|signal| signal.ran = Some(ran.clone()));
        puppet.report(Forgery::of(&report));
        let _ = puppet.released().await;
        assert_eq!(puppet.ended_for().await, Some(EndReason::Untrusted));
    });
}

/// A process that a job left on its machine answers every assignment with a failure of GitHub: that
/// fails one request, the machine ends, and the next request is served.
#[test]
pub(crate) fn a_used_machine_excuses_itself_once() {
    on_virtual_time(async {
        let world = calm_world::new(7, 5).await;
        let idle = calm_world::add_idle(&world, Usage::OnDemand, 1).await.swap_remove(0);
        let served = async |name: &str| {
            let request = calm_world::request(name, 1, world.outside.clock().true_now());
            let provisioned = world
                .run(name, None, async |stack| {
                    let call = Call::silent(&request);
                    Box::pin(provision(stack, call, std::future::pending())).await
                })
                .await
                .expect("it does not die");
            let until = world.outside.clock().true_now().after(10 * MINUTE);
            let process = format!("release {name}");
            let released = world.run(&process, None, async |stack| {
                release_request(stack, &request.id, until, &progress::unobserved).await
            });
            released.await.expect("it does not die").expect("calm");
            provisioned
        };
        let (_, reader) = world.process("reader");
        let read = async || {
            let read = reader.ports.ledger().read(&idle.id).await.expect("calm");
            read.expect("it has a record")
        };
        served("7.1.first").await.expect("calm");
        let used = read().await;
        assert!(matches!(used.state, State::Idle { tier: Tier::Released, .. }), "{used:?}");
        let next = used.generation.next();
        let at = world.outside.clock().true_now();
        let mut lie = signalled(&[SignalKind::RegistrationFailed], next, at);
        let systemic = format!("{SYSTEMIC} GitHub is down");
        lie.signals.values_mut().for_each(|signal| signal.detail = systemic.clone());
        let mailbox = world.outside.mailbox();
        mailbox.forge_report(&used.facts.mailbox, Some(Forgery::of(&lie)));
        // This request may fail: only the machine's end matters.
        let _ = served("8.1.second").await;
        let (State::Terminating { why, .. } | State::Terminated { why, .. }) = read().await.state
        else {
            panic!("{:?}", read().await)
        };
        assert_eq!(why, EndReason::Untrusted);
        served("9.1.third").await.expect("the third request needs no used machine");
    });
}
