//! Strangers: jobs of other runs name the label of a request, in calm worlds, also while releases
//! die. A stranger cannot guess the label, and a machine on which a stranger started is not used
//! again.
//!
//! Not here: the runner program's hook, which keeps a stranger's steps from running
//! (`bullpen-agent`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ids::{InstanceId, Repository, RunAttempt};
use bullpen_core::instance::Owner;
use bullpen_core::ports::Ports;
use bullpen_core::request::Request;
use bullpen_core::request::stranger::RanJob;
use bullpen_engine::advertise::AdvertMemory;
use bullpen_engine::progress::unobserved;
use bullpen_engine::provision::{Call, Provisioned, provision};
use bullpen_engine::release::Released;
use bullpen_engine::release::request::release_request;
use bullpen_sim::calm_world;
use bullpen_sim::checker::Checker;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::upkeep;
use bullpen_sim::world::World;

const MINUTE: Duration = Duration::from_secs(60);

/// A job of this run.
fn of_run(run: u64) -> RanJob {
    RanJob {
        repository: Repository::new("octo/main"),
        run,
        attempt: 1,
        job: String::from("test"),
        event: String::from("pull_request"),
    }
}

async fn begun(seed: u64) -> (Arc<World>, Checker, Request, Provisioned) {
    let world = calm_world::new(seed, 10).await;
    let checker = Checker::watch(&world, false);
    let (request, provisioned) = provisioned(&world, &checker, "7.1.build").await;
    (world, checker, request, provisioned)
}

async fn provisioned(world: &Arc<World>, checker: &Checker, name: &str) -> (Request, Provisioned) {
    let now = world.outside.clock().true_now();
    let request = calm_world::request(name, 1, now);
    checker.attempt_begins(Owner::Request(request.id.clone()), request.clone(), now);
    let repository = Repository::new("octo/main");
    let call = Call { repository: Some(&repository), ..Call::silent(&request) };
    let provisioned = world
        .run(&format!("provision {name}"), None, async |stack| {
            Box::pin(provision(stack, call, std::future::pending())).await
        })
        .await;
    (request, provisioned.expect("it does not die").expect("the world is calm"))
}

async fn released(world: &Arc<World>, request: &Request, fuse: Option<u64>) -> Option<Released> {
    let until = world.outside.clock().true_now().after(10 * MINUTE);
    let name = format!("release {} {fuse:?}", request.id);
    let released = world
        .run(&name, fuse, async |stack| {
            release_request(stack, &request.id, until, &unobserved).await
        })
        .await;
    released.map(|released| released.expect("the world is calm"))
}

fn ids(provisioned: &Provisioned) -> BTreeSet<InstanceId> {
    provisioned.runners.iter().map(|held| held.record.id.clone()).collect()
}

/// A stranger can compute a request's id, but no runner has the id as its label.
#[test]
pub(crate) fn a_guessed_label_gets_no_runner() {
    on_virtual_time(async {
        let (world, checker, request, _) = begun(11).await;
        let forge = world.outside.forge();
        forge.submit_of(&format!("warm-{}", request.id), MINUTE, of_run(8));
        pass(MINUTE).await;
        assert_eq!(forge.completed(), 0, "a stranger's job was given a runner");
        forge.submit(&format!("warm-{}", request.id), Duration::from_secs(1));
        pass(MINUTE).await;
        assert_eq!(forge.completed(), 1, "the run's own job got no runner");
        forge.cancel(&format!("warm-{}", request.id));
        released(&world, &request, None).await;
        calm_world::end(&world, &checker).await.unwrap_or_else(|why| panic!("{why}"));
    });
}

/// A stranger has read the label at GitHub: the release notices it, wherever the release dies.
#[test]
pub(crate) fn a_machine_that_a_stranger_was_started_on_is_not_used_again() {
    let mut fuse = Some(0);
    while let Some(at) = fuse {
        let died = on_virtual_time(async {
            let (world, checker, request, first) = begun(11).await;
            let forge = world.outside.forge();
            let label = forge.label_of(&request.id).expect("its runner listens");
            forge.submit_of(&label, MINUTE, of_run(8));
            forge.submit_of(&label, MINUTE, of_run(9));
            pass(MINUTE / 2).await;
            let died = released(&world, &request, Some(at)).await.is_none();
            let outcome = released(&world, &request, None).await.expect("it does not die");
            let runs: Vec<u64> =
                outcome.strangers.iter().map(|stranger| stranger.ran.run).collect();
            assert_eq!(runs, [8], "died at {at}: the release must report the first stranger once");
            assert_eq!(outcome.returned, [], "died at {at}");
            let (next, second) = provisioned(&world, &checker, "9.1.build").await;
            assert!(ids(&first).is_disjoint(&ids(&second)), "died at {at}");
            forge.cancel(&label);
            released(&world, &next, None).await;
            calm_world::end(&world, &checker).await.unwrap_or_else(|why| panic!("at {at}: {why}"));
            died
        });
        fuse = died.then_some(at + 3);
    }
}

/// A job of a later attempt is one of the run's own jobs.
#[test]
fn a_later_attempt_of_the_run_is_no_stranger() {
    on_virtual_time(async {
        let (world, checker, request, first) = begun(11).await;
        let forge = world.outside.forge();
        let label = forge.label_of(&request.id).expect("its runner listens");
        forge.submit_of(&label, Duration::from_secs(5), RanJob { attempt: 2, ..of_run(7) });
        pass(MINUTE).await;
        assert_eq!(forge.completed(), 1);
        let outcome = released(&world, &request, None).await.expect("it does not die");
        assert_eq!((outcome.returned.len(), outcome.strangers.len()), (1, 0));
        let (next, second) = provisioned(&world, &checker, "9.1.build").await;
        assert_eq!(ids(&first), ids(&second));
        released(&world, &next, None).await;
        calm_world::end(&world, &checker).await.unwrap_or_else(|why| panic!("{why}"));
    });
}

/// The machine's report names the previous owner's job until the next job starts.
#[test]
fn the_previous_owners_job_is_no_stranger() {
    on_virtual_time(async {
        let (world, checker, request, first) = begun(11).await;
        let forge = world.outside.forge();
        let label = forge.label_of(&request.id).expect("its runner listens");
        forge.submit_of(&label, Duration::from_secs(5), of_run(7));
        pass(MINUTE).await;
        assert_eq!(
            released(&world, &request, None).await.expect("it does not die").returned.len(),
            1
        );
        let (next, second) = provisioned(&world, &checker, "9.1.build").await;
        assert_eq!(ids(&first), ids(&second));
        let memory = AdvertMemory::default();
        world.run("refresh", None, async |stack| upkeep(stack, &memory).await).await;
        let label = forge.label_of(&next.id).expect("its runner still listens");
        forge.submit_of(&label, Duration::from_secs(5), of_run(9));
        pass(MINUTE).await;
        assert_eq!(forge.completed(), 2);
        assert_eq!(released(&world, &next, None).await.expect("it does not die").returned.len(), 1);
        calm_world::end(&world, &checker).await.unwrap_or_else(|why| panic!("{why}"));
    });
}

/// Code whose origin GitHub does not say counts as a fork's.
#[test]
pub(crate) fn machines_of_a_run_of_unknown_origin_end() {
    on_virtual_time(async {
        let (world, checker, request, _) = begun(11).await;
        let forge = world.outside.forge();
        forge.submit(&format!("warm-{}", request.id), Duration::from_secs(1));
        pass(MINUTE).await;
        forge.set_outage(true);
        let outcome = released(&world, &request, None).await.expect("it does not die");
        forge.set_outage(false);
        assert_eq!((outcome.returned.len(), outcome.ended.len()), (0, 1), "{outcome:?}");
        calm_world::end(&world, &checker).await.unwrap_or_else(|why| panic!("{why}"));
    });
}

/// The release of a run with a fork's code returns no machine.
#[test]
fn machines_of_a_forks_run_end() {
    on_virtual_time(async {
        let (world, checker, request, _) = begun(11).await;
        let forge = world.outside.forge();
        forge.is_of_a_fork(RunAttempt::new("7.1"));
        forge.submit(&format!("warm-{}", request.id), Duration::from_secs(1));
        pass(MINUTE).await;
        let outcome = released(&world, &request, None).await.expect("it does not die");
        assert_eq!((outcome.returned.len(), outcome.ended.len()), (0, 1));
        calm_world::end(&world, &checker).await.unwrap_or_else(|why| panic!("{why}"));
    });
}
