//! Failed jobs that are run again after their request is over: each gets one runner as before.
//!
//! Not here: requests themselves (`tests/requests.rs`).

use std::time::Duration;

use bullpen_core::ids::{Repository, RunAttempt, RunnerGroup};
use bullpen_core::job::{JobDetails, JobFact, JobStep, MachineSource};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::request::Request;
use bullpen_engine::jobs::{FindMemory, Ingested, find, ingest};
use bullpen_engine::progress::unobserved;
use bullpen_engine::provision::{Call, provision};
use bullpen_engine::release::request::release_request;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::keep_up;
use bullpen_sim::stage;

use super::town::{Town, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);

/// A fulfilled request, and the label that its workflow was told.
async fn provisioned(town: &Town) -> (Request, String) {
    let request = stage::request("77.1.build", 1, town.world.outside.clock().true_now());
    let (_, stack) = town.world.process("provision");
    let repository = Repository::new("acme/app");
    let group = town.config.labels.groups.all.as_ref();
    let call = Call { repository: Some(&repository), group, ..Call::silent(&request) };
    let provisioned = provision(&stack, call, std::future::pending()).await;
    let label = provisioned.expect("the stage is calm").label;
    (request, label)
}

async fn released(town: &Town, request: &Request) {
    let (_, stack) = town.world.process("release");
    let until = stack.now().after(Duration::from_secs(300));
    let released = release_request(&stack, &request.id, until, &unobserved).await.expect("calm");
    assert_eq!(released.returned.len(), 1);
}

/// A job that was run again: the same label, a later attempt.
fn again(repository: &str, run: &str, label: &str) -> JobDetails {
    let run = RunAttempt::new(run);
    JobDetails { run, ..about_in("7", repository, label) }
}

async fn ingested(town: &Town, fact: &JobFact) -> Ingested {
    let webhook = town.process("webhook", None, async |service| ingest(service, fact).await);
    webhook.await.expect("it has no fuse").expect("calm")
}

async fn is_served(town: &Town, how: MachineSource) {
    let done = async || town.is_settled("7").await;
    assert!(town.live("serve", LONG, |_| true, done).await, "{:?}", town.row("7").await);
    assert!(town.is_over("7") && town.github.told().is_empty(), "{:?}", town.github.told());
    assert_eq!(town.came_by("7").await, Some(how));
}

#[test]
fn a_job_of_a_request_that_is_over_gets_a_machine_that_the_request_left() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let (request, label) = provisioned(&town).await;
        released(&town, &request).await;
        let fact = town.submit("7", again("acme/app", "77.2", &label));
        assert_eq!(ingested(&town, &fact).await, Ingested::Stored);
        is_served(&town, MachineSource::Reused).await;
        assert_eq!(town.launched(), 1);
        let idle = town.world.outside.ledger().idle_in(&request.class.name).await.expect("calm");
        assert_eq!(idle.len(), 1, "and leaves it to others");
        town.end().await;
    });
}

#[test]
fn a_job_of_a_request_that_is_over_gets_a_new_machine_if_none_is_left() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let (request, label) = provisioned(&town).await;
        released(&town, &request).await;
        tokio::select! {
            biased;
            () = pass(Duration::from_secs(3600)) => {}
            never = keep_up(&town.world) => match never {},
        }
        let fact = town.submit("7", again("acme/app", "77.2", &label));
        assert_eq!(ingested(&town, &fact).await, Ingested::Stored);
        is_served(&town, MachineSource::Created).await;
        assert_eq!(town.launched(), 2);
        town.end().await;
    });
}

#[test]
fn the_runners_of_a_request_and_of_its_jobs_join_the_group_that_is_configured() {
    on_virtual_time(async {
        let mut town = Town::new(5).await;
        let groups = &mut town.config.labels.groups;
        groups.all = Some(RunnerGroup::new("all"));
        groups.repositories.insert(Repository::new("acme/app"), RunnerGroup::new("own"));
        let (request, label) = provisioned(&town).await;
        let joined = || town.world.outside.forge().groups();
        assert_eq!(joined(), [RunnerGroup::new("all")], "its agent registers by token");
        released(&town, &request).await;
        let fact = town.submit("7", again("acme/app", "77.2", &label));
        assert_eq!(ingested(&town, &fact).await, Ingested::Stored);
        is_served(&town, MachineSource::Reused).await;
        let own = RunnerGroup::new("own");
        assert!(joined().contains(&own), "the job's own runner: {:?}", joined());
        town.end().await;
    });
}

#[test]
pub(crate) fn a_strangers_job_does_not_get_a_requests_machine() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let (request, label) = provisioned(&town).await;
        released(&town, &request).await;
        for (repository, run) in [("acme/other", "77.2"), ("acme/app", "78.1")] {
            let fact = town.submit("7", again(repository, run, &label));
            assert_eq!(ingested(&town, &fact).await, Ingested::NotOurs, "{repository} {run}");
        }
        let mut greedy = again("acme/app", "77.2", &label);
        greedy.labels.push("prod-deploy".to_owned());
        let fact = town.submit("9", greedy);
        assert_eq!(ingested(&town, &fact).await, Ingested::NotOurs, "one label too many");
        let guessed = town.submit("8", again("acme/app", "77.2", "warm-77.1.build"));
        assert_eq!(ingested(&town, &guessed).await, Ingested::NotOurs, "without the bits");
    });
}

/// While the request lives its own runners serve; once it is over, GitHub is asked and the job is
/// found.
#[test]
fn a_job_that_waits_when_its_request_ends_is_found() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let (request, label) = provisioned(&town).await;
        let fact = town.submit("7", again("acme/app", "77.2", &label));
        // It is not given to the request's runner, and waits.
        town.world.outside.forge().cancel(&label);
        assert_eq!(ingested(&town, &fact).await, Ingested::NotOurs);
        released(&town, &request).await;
        let found = town
            .process("find", None, async |service| {
                find(service, &[], &mut FindMemory::default()).await.expect("calm")
            })
            .await
            .expect("it has no fuse");
        assert_eq!(found.unannounced, 1);
        assert!(!town.row("7").await.is_over());
    });
}

/// A webhook of the request's own job, delivered when both are over.
#[test]
fn a_late_word_about_a_job_that_ran_launches_nothing() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let (request, label) = provisioned(&town).await;
        let fact = town.submit("7", again("acme/app", "77.1", &label));
        town.github.cancel_queued("7", town.world.outside.clock().true_now());
        released(&town, &request).await;
        assert_eq!(ingested(&town, &fact).await, Ingested::Stored);
        let over = async || town.is_settled("7").await;
        assert!(town.live("serve", LONG, |_| true, over).await);
        let begun = town.row("7").await.steps.iter().any(|step| step.step == JobStep::Begun);
        assert!(!begun, "GitHub was asked first");
        assert_eq!(town.launched(), 1);
        town.end().await;
    });
}
