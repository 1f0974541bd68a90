//! Requests that are cancelled, resumed, run twice, or that wait for capacity: in calm worlds, so
//! that each test shows one thing. A comment names the defect (`D1` ...) that its test prevents.
//!
//! Not here: requests under faults (the seeds).

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::creation::Intent;
use bullpen_core::ids::{InstanceId, IntentId, Revision};
use bullpen_core::instance::{EndReason, Owner, State};
use bullpen_core::ports::{Fault, Ledger, Ports, Reserved, Written};
use bullpen_core::request::{OnPartial, Request};
use bullpen_engine::progress::unobserved;
use bullpen_engine::provision::creation::CreationError;
use bullpen_engine::provision::entry::CannotBegin;
use bullpen_engine::provision::undo::dump;
use bullpen_engine::provision::worker::AcquiredBy;
use bullpen_engine::provision::{Call, ProvisionError, Provisioned, provision};
use bullpen_engine::release::request::{release_request, requests_of};
use bullpen_sim::calm_world;
use bullpen_sim::checker::Checker;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::provision_silently;
use bullpen_sim::wire::{Planned, Trouble, Weather};
use bullpen_sim::world::World;
use std::sync::Arc;

/// The ledger's records of a request's machines, with their states.
async fn owned(world: &World, request: &Request) -> Vec<(InstanceId, &'static str)> {
    let owner = Owner::Request(request.id.clone());
    let records = world.outside.ledger().owned_by(&owner).await.expect("the outside is calm");
    records.items.into_iter().map(|record| (record.id, record.state.name().as_str())).collect()
}

fn ids(provisioned: &Provisioned) -> BTreeSet<InstanceId> {
    provisioned.runners.iter().map(|held| held.record.id.clone()).collect()
}

async fn wanted(count: u32, idle: u32, max: u32) -> (Arc<World>, Checker, Request) {
    let world = calm_world::new(11, max).await;
    let checker = Checker::watch(&world, false);
    if idle > 0 {
        calm_world::add_idle(&world, Usage::OnDemand, idle).await;
    }
    let now = world.outside.clock().true_now();
    let request = calm_world::request("7.1.build", count, now);
    checker.attempt_begins(Owner::Request(request.id.clone()), request.clone(), now);
    (world, checker, request)
}

/// D1, D16, D21: a process dies at any await; the next process of the same request gets exactly the
/// wanted runners, and none twice.
#[test]
fn a_provision_that_died_at_any_await_is_resumed_and_never_doubled() {
    let mut fuse = 0;
    loop {
        let died = on_virtual_time(async {
            let (world, checker, request) = wanted(2, 1, 10).await;
            let first = world
                .run("first", Some(fuse), async |stack| provision_silently(stack, &request).await)
                .await;
            let again = world
                .run("again", None, async |stack| provision_silently(stack, &request).await)
                .await;
            let runners = again.expect("it does not die").expect("the world is calm").runners;
            assert_eq!(runners.len(), 2, "died at {fuse}");
            let owned = owned(&world, &request).await;
            let running = owned.iter().filter(|(_, state)| *state == "running").count();
            assert_eq!(running, 2, "died at {fuse}: {owned:?}");
            let until = world.outside.clock().true_now().after(Duration::from_secs(600));
            world
                .run("release", None, async |stack| {
                    release_request(stack, &request.id, until, &unobserved).await
                })
                .await;
            calm_world::end(&world, &checker)
                .await
                .unwrap_or_else(|why| panic!("at {fuse}: {why}"));
            first.is_none()
        });
        if !died {
            break;
        }
        // Every third await; `crash_anywhere` covers the others without a resumption.
        fuse += 3;
    }
    assert!(fuse > 20, "only {fuse} awaits: the provision did nothing");
}

/// D28: the cancellation of a run must not destroy warm machines.
#[test]
fn a_cancelled_request_gives_its_warm_machines_back() {
    for cancel_after in [0, 5, 20, 60, 200, 1_000, 5_000, 20_000] {
        on_virtual_time(async {
            let (world, checker, request) = wanted(4, 2, 10).await;
            let idle_before = idle_of(&world, &request).await;
            let cancelled = pass(Duration::from_millis(cancel_after));
            let began = world.outside.clock().elapsed();
            let ended = world
                .run("provision", None, async |stack| {
                    Box::pin(provision(stack, Call::silent(&request), cancelled)).await
                })
                .await;
            let took = world.outside.clock().elapsed().saturating_sub(began);
            let within = Duration::from_millis(cancel_after) + Duration::from_secs(6);
            assert!(took < within, "{cancel_after} ms: {took:?}");
            if let Some(Err(ProvisionError::Cancelled(_))) = ended {
                let owned = owned(&world, &request).await;
                let held = |state: &str| ["created", "claimed", "running"].contains(&state);
                assert!(!owned.iter().any(|(_, state)| held(state)), "{cancel_after}: {owned:?}");
            } else {
                assert!(cancel_after >= 20_000, "{cancel_after} ms: {ended:?}");
            }
            let until = world.outside.clock().true_now().after(Duration::from_secs(600));
            world
                .run("release", None, async |stack| {
                    release_request(stack, &request.id, until, &unobserved).await
                })
                .await;
            let idle_after = idle_of(&world, &request).await;
            assert!(
                idle_after.is_superset(&idle_before),
                "{cancel_after} ms: a warm machine is lost"
            );
            calm_world::end(&world, &checker)
                .await
                .unwrap_or_else(|why| panic!("{cancel_after}: {why}"));
        });
    }
}

async fn idle_of(world: &World, request: &Request) -> BTreeSet<InstanceId> {
    let idle = world.outside.ledger().idle_in(&request.class.name).await;
    idle.expect("the outside is calm").items.into_iter().map(|advert| advert.id).collect()
}

/// D32: each request has its own runners, and its release takes no others; a run attempt lists all
/// its requests.
#[test]
fn d32_requests_of_one_run_are_released_apart_and_together() {
    on_virtual_time(async {
        let world = calm_world::new(3, 10).await;
        let now = world.outside.clock().true_now();
        let one = calm_world::request("7.1.one", 1, now);
        let other = calm_world::request("7.1.other", 1, now);
        let (_, stack) = world.process("p");
        let first = provision_silently(&stack, &one).await.expect("calm");
        let second = provision_silently(&stack, &other).await.expect("calm");
        assert_ne!(first.label, second.label);
        assert!(ids(&first).is_disjoint(&ids(&second)));
        let until = stack.now().after(Duration::from_secs(600));
        release_request(&stack, &one.id, until, &unobserved).await.expect("calm");
        assert_eq!(owned(&world, &one).await, []);
        assert_eq!(owned(&world, &other).await.len(), 1, "the other keeps its runner");
        let run = bullpen_core::ids::RunAttempt::new("7.1");
        let requests = requests_of(&stack, &run).await.expect("calm");
        assert_eq!(requests, [one.id, other.id]);
    });
}

#[test]
fn a_live_request_with_other_parameters_is_refused_and_touches_nothing() {
    on_virtual_time(async {
        let (world, _, request) = wanted(2, 2, 10).await;
        let (_, stack) = world.process("p");
        provision_silently(&stack, &request).await.expect("calm");
        let before = owned(&world, &request).await;
        let more = Request { count: 3, ..request.clone() };
        let refused = provision_silently(&stack, &more).await.expect_err("it is live");
        let differs = CannotBegin::Differs { id: request.id.clone(), field: "count" };
        assert_eq!(refused, ProvisionError::CannotBegin(differs));
        assert_eq!(owned(&world, &request).await, before);
    });
}

/// Two processes work on one request: together they get exactly its runners.
#[test]
fn of_two_processes_of_one_request_one_stands_down() {
    for apart in [0, 3, 10, 40, 200, 2_000, 15_000, 40_000] {
        on_virtual_time(async {
            let (world, checker, request) = wanted(3, 1, 10).await;
            let (_, one) = world.process("one");
            let (_, other) = world.process("other");
            let (first, second) = tokio::join!(provision_silently(&one, &request), async {
                pass(Duration::from_millis(apart)).await;
                provision_silently(&other, &request).await
            });
            let fulfilled = [&first, &second].into_iter().filter(|one| one.is_ok()).count();
            assert!(fulfilled >= 1, "{apart} ms: {first:?} {second:?}");
            for stood_down in [first, second].into_iter().filter_map(Result::err) {
                assert_eq!(stood_down, ProvisionError::Superseded, "{apart} ms");
            }
            let owned = owned(&world, &request).await;
            // Claims of the process that stood down, which the other did not see, lapse.
            let of = |wanted: &str| owned.iter().filter(|(_, state)| *state == wanted).count();
            assert_eq!(of("running"), 3, "{apart} ms: {owned:?}");
            assert_eq!(of("running") + of("claimed"), owned.len(), "{apart} ms: {owned:?}");
            let until = one.now().after(Duration::from_secs(600));
            release_request(&one, &request.id, until, &unobserved).await.expect("calm");
            calm_world::end(&world, &checker).await.unwrap_or_else(|why| panic!("{apart}: {why}"));
        });
    }
}

/// The process that stands down claims machines late, for the request: the other process uses them
/// and launches none.
#[test]
fn a_request_begun_twice_launches_nothing_beside_the_claims_of_the_slower_process() {
    let slow =
        |millis| Weather { latency_max: Duration::from_millis(millis), ..Weather::default() };
    for apart in (0..4_000).step_by(40) {
        on_virtual_time(async {
            let (world, _checker, request) = wanted(3, 3, 10).await;
            let ((wire, one), (other_wire, other)) = (world.process("one"), world.process("other"));
            wire.set_weather(slow(1_000));
            other_wire.set_weather(slow(200));
            let _ended = tokio::join!(provision_silently(&one, &request), async {
                pass(Duration::from_millis(apart)).await;
                provision_silently(&other, &request).await
            });
            let machines = world.outside.fleet().snapshot().len();
            assert_eq!(machines, 3, "{apart} ms: {:?}", owned(&world, &request).await);
        });
    }
}

/// Ten requests for four runners each, under a ceiling of twenty: five get all, five fail and say
/// why.
#[test]
fn a_ceiling_serves_whole_requests_and_fails_the_others() {
    on_virtual_time(async {
        let world = calm_world::new(5, 20).await;
        let checker = Checker::watch(&world, false);
        let now = world.outside.clock().true_now();
        let requests: Vec<Request> = (1..=10)
            .map(|run| {
                let mut request = calm_world::request(&format!("{run}.1.build"), 4, now);
                request.deadline = now.after(Duration::from_secs(120));
                request
            })
            .collect();
        let stacks: Vec<_> = (0..10).map(|number| world.process(&format!("p{number}")).1).collect();
        let all = requests.iter().zip(&stacks).map(|(one, stack)| provision_silently(stack, one));
        let ended = futures_util::future::join_all(all).await;
        let (fulfilled, failed): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
        assert_eq!((fulfilled.len(), failed.len()), (5, 5));
        for error in failed.into_iter().filter_map(Result::err) {
            let ProvisionError::Creation { missing: 4, source: CreationError::Ceiling(_), .. } =
                &error
            else {
                panic!("{error:?}");
            };
        }
        for request in &requests {
            let held = owned(&world, request).await;
            assert!(held.is_empty() || held.len() == 4, "{}: {held:?}", request.id);
        }
        assert!(checker.verdict().is_none());
    });
}

/// Two half-served requests hold all machines: the engine gives the first request what both hold.
#[test]
fn under_a_ceiling_half_served_requests_do_not_lock_each_other() {
    on_virtual_time(async {
        // Six idle machines fill the ceiling: two requests for four each could claim three each.
        let world = calm_world::new(6, 6).await;
        calm_world::add_idle(&world, Usage::OnDemand, 6).await;
        let now = world.outside.clock().true_now();
        let (_, one) = world.process("one");
        let (_, other) = world.process("other");
        let (first, second) =
            (calm_world::request("1.1.build", 4, now), calm_world::request("2.1.build", 4, now));
        let served = async |stack: &bullpen_engine::Stack<_>, request: &Request| {
            let provisioned = provision_silently(stack, request).await.expect("its turn must come");
            assert_eq!(provisioned.runners.len(), 4);
            let until = stack.now().after(Duration::from_secs(600));
            release_request(stack, &request.id, until, &unobserved).await.expect("calm");
        };
        tokio::join!(served(&one, &first), served(&other, &second));
    });
}

/// D26: with `on-partial: fail` a partial launch fails the request; otherwise the request keeps the
/// machines and launches the rest.
#[test]
fn d26_partial_capacity_is_topped_up_unless_the_request_says_otherwise() {
    for (on_partial, fulfilled) in [(OnPartial::TopUp, true), (OnPartial::Fail, false)] {
        on_virtual_time(async {
            let world = calm_world::new(9, 10).await;
            let checker = Checker::watch(&world, false);
            let now = world.outside.clock().true_now();
            let mut request = calm_world::request("1.1.build", 4, now);
            request.on_partial = on_partial;
            world.outside.fleet().limit_capacity(Some(2));
            let (_, stack) = world.process("p");
            let (ended, ()) = tokio::join!(provision_silently(&stack, &request), async {
                pass(Duration::from_secs(10)).await;
                world.outside.fleet().limit_capacity(None);
            });
            assert_eq!(ended.is_ok(), fulfilled, "{on_partial:?}: {ended:?}");
            if let Ok(provisioned) = ended {
                let created =
                    provisioned.runners.iter().filter(|held| held.how == AcquiredBy::Created);
                assert_eq!(created.count(), 4);
                let until = stack.now().after(Duration::from_secs(600));
                release_request(&stack, &request.id, until, &unobserved).await.expect("calm");
            }
            calm_world::end(&world, &checker).await.expect("the world must become quiet");
        });
    }
}

/// D23: a dump writes first and then calls the cloud; it returns the ids of the machines.
#[test]
fn d23_a_dump_ends_everything_the_request_holds_and_names_it() {
    on_virtual_time(async {
        let (world, checker, request) = wanted(3, 1, 10).await;
        let (_, stack) = world.process("p");
        let held = ids(&provision_silently(&stack, &request).await.expect("calm"));
        let dumped = dump(&stack, &request.id).await.expect("calm");
        assert_eq!(dumped.into_iter().collect::<BTreeSet<_>>(), held);
        for id in &held {
            let record = world.outside.ledger().read(id).await.expect("calm").expect("recorded");
            let State::Terminating { why, .. } = record.state else { panic!("{record:?}") };
            assert_eq!(why, EndReason::Dumped);
        }
        calm_world::end(&world, &checker).await.expect("the world must become quiet");
    });
}

/// A dump whose write comes late ends no machine that another owner may have by then.
#[test]
fn a_dump_that_is_overtaken_ends_nothing() {
    on_virtual_time(async {
        let (world, checker, request) = wanted(2, 2, 10).await;
        let (_, stack) = world.process("p");
        provision_silently(&stack, &request).await.expect("calm");
        let (wire, slow) = world.process("dump");
        for call in 2..=10 {
            let trouble = Trouble::Refuse(Fault::Throttled);
            wire.plan(Planned { port: "ledger".to_owned(), call, trouble });
        }
        let until = stack.now().after(Duration::from_secs(60));
        let (dumped, released) = tokio::join!(
            dump(&slow, &request.id),
            release_request(&stack, &request.id, until, &unobserved)
        );
        assert_eq!(released.expect("calm").returned.len(), 2);
        assert_eq!(dumped, Ok(vec![]));
        assert_eq!(idle_of(&world, &request).await.len(), 2);
        calm_world::end(&world, &checker).await.expect("the world must become quiet");
    });
}

/// D18: an outage of GitHub fails the attempt and costs no machine.
#[test]
fn d18_an_outage_of_github_costs_no_machine() {
    on_virtual_time(async {
        let (world, _, request) = wanted(3, 3, 10).await;
        let before = idle_of(&world, &request).await;
        world.outside.forge().set_outage(true);
        let (_, stack) = world.process("p");
        let began = world.outside.clock().elapsed();
        let error = provision_silently(&stack, &request).await.expect_err("GitHub is down");
        assert!(matches!(error, ProvisionError::NoCredential(_)), "{error:?}");
        assert!(world.outside.clock().elapsed() < began + Duration::from_secs(60));
        assert_eq!(idle_of(&world, &request).await, before);
        world.outside.forge().set_outage(false);
        let provisioned = provision_silently(&stack, &request).await.expect("it is back");
        assert_eq!(ids(&provisioned), before, "the request must reuse all of them");
    });
}

/// A reservation whose answer was lost can land late, when fewer machines are missing. Its count
/// must not become the count of the launch.
#[test]
fn a_reservation_that_landed_late_makes_no_launch_larger() {
    on_virtual_time(async {
        let (world, checker, request) = wanted(1, 0, 10).await;
        let (_, stack) = world.process("p");
        let late = Intent {
            id: IntentId::new(format!("{}.1.1", request.id)),
            owner: Owner::Request(request.id.clone()),
            trust: Some(request.trust.clone()),
            class: request.class.name.clone(),
            pool: None,
            usage: request.usage,
            spec_hash: stack.spec_hash.clone(),
            count: 3,
            avoid: BTreeSet::new(),
            outstanding: 3,
            deadline: request.deadline,
            revision: Revision(1),
        };
        let reserved = world.outside.ledger().reserve(&late, &world.ceilings).await;
        assert_eq!(reserved, Ok(Written::Won(Reserved::Granted)));
        let provisioned = provision_silently(&stack, &request).await.expect("calm");
        assert_eq!(provisioned.runners.len(), 1);
        assert_eq!(world.outside.fleet().snapshot().len(), 1);
        let known = world.outside.ledger().intent(&late.id).await.expect("calm");
        assert_eq!(known.map_or(0, |intent| intent.outstanding), 0, "the rest is still reserved");
        let until = stack.now().after(Duration::from_secs(600));
        release_request(&stack, &request.id, until, &unobserved).await.expect("calm");
        calm_world::end(&world, &checker).await.expect("the world must become quiet");
    });
}

/// An operator changes the script of a class: machines that ran the old script are not used, and
/// machines that ran the new script are.
#[test]
fn a_machine_that_ran_another_script_of_its_class_is_not_used() {
    on_virtual_time(async {
        let world = calm_world::new(11, 10).await;
        let mut known = BTreeSet::new();
        let scripts = [("one", true), ("one", false), ("two", true), ("two", false)];
        for (attempt, (script, is_new)) in (1_u32..).zip(scripts) {
            let now = world.outside.clock().true_now();
            let name = format!("7.{attempt}.build");
            let mut request = calm_world::request(&name, 1, now);
            request.class.scripts.prerun = Some(script.to_owned());
            let provisioned = world.run(&name, None, async |stack| {
                request.spec_hash = Some(stack.built(&request.class));
                provision_silently(stack, &request).await
            });
            let runners = ids(&provisioned.await.expect("it lives").expect("the world is calm"));
            let until = world.outside.clock().true_now().after(Duration::from_secs(60));
            let process = format!("release of {name}");
            let released = world.run(&process, None, async |stack| {
                release_request(stack, &request.id, until, &unobserved).await
            });
            let released = released.await.expect("it lives").expect("the world is calm");
            assert_eq!(BTreeSet::from_iter(released.returned), runners, "all must be returned");
            assert_eq!(known.is_disjoint(&runners), is_new, "{script}: {known:?}, {runners:?}");
            known.extend(runners);
        }
    });
}
