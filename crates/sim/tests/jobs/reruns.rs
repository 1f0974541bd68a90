//! Failed jobs that GitHub runs again after the release of their request: each gets one runner.
//!
//! Not here: requests themselves (`tests/requests.rs`).

use std::time::Duration;

use bullpen_core::ids::{Repository, RunAttempt, RunnerGroup};
use bullpen_core::job::search::WEBHOOKS_WITHIN;
use bullpen_core::job::{JobDetails, JobFact, JobStep, MachineSource};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::request::Request;
use bullpen_engine::jobs::{FindMemory, Ingested, find, ingest};
use bullpen_engine::progress::unobserved;
use bullpen_engine::provision::{Call, provision};
use bullpen_engine::release::request::release_request;
use bullpen_sim::calm_world;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::keep_up;

use super::service_world::{ServiceWorld, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);

/// A fulfilled request, and the label that its workflow got.
async fn provisioned(sim: &ServiceWorld) -> (Request, String) {
    let request = calm_world::request("77.1.build", 1, sim.world.outside.clock().true_now());
    let (_, stack) = sim.world.process("provision");
    let repository = Repository::new("acme/app");
    let group = sim.config.labels.groups.all.as_ref();
    let call = Call { repository: Some(&repository), group, ..Call::silent(&request) };
    let provisioned = Box::pin(provision(&stack, call, std::future::pending())).await;
    let label = provisioned.expect("the world is calm").label;
    (request, label)
}

async fn released(sim: &ServiceWorld, request: &Request) {
    let (_, stack) = sim.world.process("release");
    let until = stack.now().after(Duration::from_secs(300));
    let released = release_request(&stack, &request.id, until, &unobserved).await.expect("calm");
    assert_eq!(released.returned.len(), 1);
}

/// A job that runs again: the same label in this run attempt.
fn rerun(repository: &str, run: &str, label: &str) -> JobDetails {
    let run = RunAttempt::new(run);
    JobDetails { run, ..about_in("7", repository, label) }
}

async fn ingested(sim: &ServiceWorld, fact: &JobFact) -> Ingested {
    let webhook = sim.process("webhook", None, async |service| ingest(service, fact).await);
    webhook.await.expect("it has no fuse").expect("calm")
}

async fn is_served(sim: &ServiceWorld, how: MachineSource) {
    let done = async || sim.is_settled("7").await;
    assert!(sim.serve_until("serve", LONG, |_| true, done).await, "{:?}", sim.row("7").await);
    assert!(sim.is_over("7") && sim.github.notices().is_empty(), "{:?}", sim.github.notices());
    assert_eq!(sim.machine_source("7").await, Some(how));
}

#[test]
fn a_job_of_a_released_request_gets_a_machine_that_the_request_returned() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let (request, label) = provisioned(&sim).await;
        released(&sim, &request).await;
        let fact = sim.submit("7", rerun("acme/app", "77.2", &label));
        assert_eq!(ingested(&sim, &fact).await, Ingested::Stored);
        is_served(&sim, MachineSource::Reused).await;
        assert_eq!(sim.launched(), 1);
        let idle = sim.world.outside.ledger().idle_in(&request.class.name).await.expect("calm");
        assert_eq!(idle.items.len(), 1, "the job did not return the machine");
        sim.end().await;
    });
}

#[test]
fn a_job_of_a_released_request_gets_a_new_machine_if_none_is_idle() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let (request, label) = provisioned(&sim).await;
        released(&sim, &request).await;
        tokio::select! {
            biased;
            () = pass(Duration::from_secs(3600)) => {}
            never = keep_up(&sim.world) => match never {},
        }
        let fact = sim.submit("7", rerun("acme/app", "77.2", &label));
        assert_eq!(ingested(&sim, &fact).await, Ingested::Stored);
        is_served(&sim, MachineSource::Created).await;
        assert_eq!(sim.launched(), 2);
        sim.end().await;
    });
}

#[test]
fn the_runners_of_a_request_and_of_its_jobs_join_the_group_that_is_configured() {
    on_virtual_time(async {
        let mut sim = ServiceWorld::new(5).await;
        let groups = &mut sim.config.labels.groups;
        groups.all = Some(RunnerGroup::new("all"));
        groups.repositories.insert(Repository::new("acme/app"), RunnerGroup::new("own"));
        let (request, label) = provisioned(&sim).await;
        let joined = || sim.world.outside.forge().groups();
        assert_eq!(joined(), [RunnerGroup::new("all")], "an agent that registers by token");
        released(&sim, &request).await;
        let fact = sim.submit("7", rerun("acme/app", "77.2", &label));
        assert_eq!(ingested(&sim, &fact).await, Ingested::Stored);
        is_served(&sim, MachineSource::Reused).await;
        let own = RunnerGroup::new("own");
        assert!(joined().contains(&own), "the job's own runner: {:?}", joined());
        sim.end().await;
    });
}

#[test]
pub(crate) fn a_strangers_job_does_not_get_a_requests_machine() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let (request, label) = provisioned(&sim).await;
        released(&sim, &request).await;
        for (repository, run) in [("acme/other", "77.2"), ("acme/app", "78.1")] {
            let fact = sim.submit("7", rerun(repository, run, &label));
            assert_eq!(ingested(&sim, &fact).await, Ingested::NotOurs, "{repository} {run}");
        }
        let mut greedy = rerun("acme/app", "77.2", &label);
        greedy.labels.push("prod-deploy".to_owned());
        let fact = sim.submit("9", greedy);
        assert_eq!(ingested(&sim, &fact).await, Ingested::NotOurs, "one label too many");
        let guessed = sim.submit("8", rerun("acme/app", "77.2", "warm-77.1.build"));
        assert_eq!(ingested(&sim, &guessed).await, Ingested::NotOurs, "without the random bits");
    });
}

/// A live request serves its jobs with its own runners; after its release the service searches
/// GitHub and finds the waiting job.
#[test]
fn a_job_that_waits_when_its_request_is_released_is_found() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let (request, label) = provisioned(&sim).await;
        let fact = sim.submit("7", rerun("acme/app", "77.2", &label));
        // GitHub does not give it the request's runner, so it waits.
        sim.world.outside.forge().cancel(&label);
        assert_eq!(ingested(&sim, &fact).await, Ingested::NotOurs);
        released(&sim, &request).await;
        pass(WEBHOOKS_WITHIN).await;
        let found = sim
            .process("find", None, async |service| {
                find(service, &[], &mut FindMemory::default()).await
            })
            .await
            .expect("it has no fuse");
        assert_eq!(found.unannounced, 1);
        assert!(!sim.row("7").await.is_over());
    });
}

/// A webhook about the request's own job comes after the job ended and the request was released.
#[test]
fn a_late_webhook_about_an_ended_job_launches_nothing() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let (request, label) = provisioned(&sim).await;
        let fact = sim.submit("7", rerun("acme/app", "77.1", &label));
        sim.github.cancel_queued("7", sim.world.outside.clock().true_now());
        released(&sim, &request).await;
        assert_eq!(ingested(&sim, &fact).await, Ingested::Stored);
        let over = async || sim.is_settled("7").await;
        assert!(sim.serve_until("serve", LONG, |_| true, over).await);
        let begun = sim.row("7").await.steps.iter().any(|step| step.step == JobStep::Begun);
        assert!(!begun, "a worker took the job on before it asked GitHub");
        assert_eq!(sim.launched(), 1);
        sim.end().await;
    });
}
