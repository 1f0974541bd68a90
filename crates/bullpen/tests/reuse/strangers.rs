//! Jobs of other runs that name a request's label, and requests with one job per runner.
//!
//! Not here: cleaning between owners (`trust`).

use std::fs;
use std::path::Path;

use bullpen_github::stand_in::protocol::{Conclusion, JobOrder};
use serde_json::Value;

use crate::call::Ran;
use crate::waiting::until;
use crate::world::{Provisioned, World};

/// The run that asks for machines, and the run of a stranger.
const OURS: u64 = 7;
const THEIRS: u64 = 4_242;

/// Queues a job of a run for runners with this label.
fn job_of(world: &World, run: u64, label: &str, script: &str) -> u64 {
    let order = JobOrder {
        repository: String::from("acme/app"),
        labels: vec![label.to_owned()],
        run_id: Some(run),
        fork: (run == THEIRS).then(|| String::from("stranger/app")),
        script: script.to_owned(),
        ..JobOrder::default()
    };
    world.github.submit(order).id
}

/// Runs a job of the request's own run to success.
async fn ours_runs(world: &World, label: &str) {
    let job = job_of(world, OURS, label, "true");
    let over = until("end of our job", async || world.github.job(job)?.conclusion).await;
    assert_eq!(over, Conclusion::Success);
}

async fn provision(world: &World, count: usize) -> Provisioned {
    let line = format!("provision --count {count} --request {OURS}.1.build --json");
    Provisioned(world.bullpen(&line).run().await.json())
}

async fn release(world: &World) -> Ran {
    world.bullpen(&format!("release --request {OURS}.1.build --json")).run().await
}

/// A step that the runner program runs even after a hook that failed.
fn always(marker: &Path) -> String {
    format!("# if: always()\ntouch {}", marker.display())
}

/// A fork can guess `warm-<run>.<attempt>.<name>`, and no runner has that label.
#[tokio::test]
async fn a_job_that_guesses_a_requests_label_gets_no_runner() {
    let world = World::new().await;
    let provisioned = provision(&world, 1).await;
    let guessed = job_of(&world, THEIRS, &format!("warm-{OURS}.1.build"), "true");
    // GitHub assigns jobs in the order in which they were queued.
    ours_runs(&world, provisioned.label()).await;
    assert_eq!(world.github.job(guessed).expect("it was queued").status, "queued");
    let bits = provisioned.label().strip_prefix("warm-7.1.build.").expect("the bits follow the id");
    assert_eq!(bits.len(), 32, "128 bits in hexadecimal: {bits}");
    release(&world).await.exits(0);
}

/// GitHub shows the label of a queued job to all readers of the repository, so a stranger can know
/// the whole label. None of the stranger's steps runs, and its machine is not used again.
#[tokio::test]
async fn a_job_of_another_run_runs_no_step_and_its_machine_ends() {
    let world = World::new().await;
    let provisioned = provision(&world, 1).await;
    let stolen = provisioned.id();
    ours_runs(&world, provisioned.label()).await;
    let marker = world.path("marker");
    let theirs = job_of(&world, THEIRS, provisioned.label(), &always(&marker));
    until("word of the stranger", async || {
        let status = world.status().await;
        let instances = status["instances"].as_array().expect("a list").clone();
        instances.into_iter().find(|one| one["stranger"]["run"] == THEIRS)
    })
    .await;
    let later = job_of(&world, THEIRS, provisioned.label(), "true");
    let released = release(&world).await;
    let told = released.json();
    assert_eq!(told["ended"], Value::from(vec![stolen.clone()]), "{told}");
    assert_eq!(told["strangers"][0]["run"], THEIRS, "{told}");
    assert_eq!(told["strangers"][0]["instance"], stolen.as_str(), "{told}");
    assert!(released.talk.contains("warning: "), "{}", released.talk);
    assert!(!marker.exists(), "a step of the stranger's ran");
    assert_eq!(world.github.job(theirs).expect("it was queued").conclusion, None);
    assert_eq!(world.github.job(later).expect("it was queued").status, "queued");
    let next = world.provision(1, "next").await;
    assert_eq!(next.counts(), (0, 1), "the stranger's machine was handed out again");
    world.verify().await;
    assert!(fs::exists(world.machine(&next.id())).expect("it can be looked at"));
}

/// In a workflow the step's own event says whose code the run has.
#[tokio::test]
async fn a_run_of_a_fork_gets_no_used_machine_and_leaves_none() {
    let world = World::new().await;
    let ours = provision(&world, 1).await;
    ours_runs(&world, ours.label()).await;
    release(&world).await.exits(0);
    let event = world.path("event.json");
    fs::write(&event, r#"{"pull_request":{"head":{"repo":{"full_name":"stranger/app"}}}}"#)
        .expect("it can be written");
    let line = format!("provision --count 1 --request {THEIRS}.1.build --json");
    let theirs = world
        .bullpen(&line)
        .with("GITHUB_ACTIONS", "true")
        .with("GITHUB_EVENT_NAME", "pull_request_target")
        .with("GITHUB_REPOSITORY", "acme/app")
        .with("GITHUB_EVENT_PATH", &event.display().to_string());
    let theirs = Provisioned(theirs.run().await.json());
    assert_eq!(theirs.counts(), (0, 1), "the warm machine has run the repository's own code");
    let released = world.bullpen(&format!("release --request {THEIRS}.1.build --json")).run().await;
    assert_eq!(released.json()["ended"], Value::from(vec![theirs.id()]), "{}", released.json());
    let next = world.provision(1, "next").await;
    assert_eq!((next.counts(), next.ids()), ((1, 0), ours.ids()));
    world.verify().await;
}

/// Running a request again, also after a kill, finds the label of its runners; a request that
/// begins anew has another label.
#[tokio::test]
async fn a_label_survives_a_resume_and_dies_with_its_incarnation() {
    let world = World::new().await;
    let first = provision(&world, 1).await;
    let again = provision(&world, 1).await;
    assert_eq!((again.label(), again.ids()), (first.label(), first.ids()));
    release(&world).await.exits(0);
    let anew = provision(&world, 1).await;
    assert_ne!(anew.label(), first.label());
    ours_runs(&world, anew.label()).await;
    release(&world).await.exits(0);
}

/// A control job on a runner that other workflows may use is warned first; and a token that is read
/// from a file is masked before that.
#[tokio::test]
async fn a_control_job_on_a_self_hosted_runner_is_warned() {
    let world = World::new().await;
    world.refresh().await;
    let file = world.path("token");
    fs::write(&file, "ghs_of-the-workflow\n").expect("it can be written");
    let line = format!("provision --ephemeral --github-token-file {} --json", file.display());
    for (actions, runner, warned) in [
        ("true", "self-hosted", true),
        ("true", "github-hosted", false),
        ("false", "self-hosted", false),
    ] {
        let call = world.bullpen(&line).without("INPUT_GITHUB_TOKEN");
        let call = call.with("GITHUB_ACTIONS", actions).with("RUNNER_ENVIRONMENT", runner);
        let talk = call.run().await.talk;
        let says = talk.contains("::warning::this job has the credential that registers runners");
        assert_eq!(says, warned, "{actions} {runner}: {talk}");
        let masked = talk.lines().next() == Some("::add-mask::ghs_of-the-workflow");
        assert_eq!(masked, actions == "true", "{talk}");
    }
}

#[tokio::test]
async fn runners_of_one_job_need_a_credential_that_outlives_the_step() {
    let world = World::new().await;
    world.refresh().await;
    let line = format!("provision --count 2 --request {OURS}.1.build --ephemeral --json");
    let refused = world.bullpen(&line).without("INPUT_GITHUB_TOKEN").with("GITHUB_TOKEN", "ghs_x");
    let refused = refused.run().await;
    refused.exits(64).says("--ephemeral");
    assert!(refused.talk.contains("hint: "), "{}", refused.talk);
    let provisioned = Provisioned(world.bullpen(&line).run().await.json());
    assert!(world.github.runners().iter().all(|runner| runner.ephemeral));
    ours_runs(&world, provisioned.label()).await;
    let left = until("leave of a runner that had its job", async || {
        let online = world.online(provisioned.label()).len();
        (online == 1).then_some(online)
    })
    .await;
    assert_eq!(left, 1);
    ours_runs(&world, provisioned.label()).await;
    assert_eq!(release(&world).await.json()["returned"].as_array().map(Vec::len), Some(2));
}
