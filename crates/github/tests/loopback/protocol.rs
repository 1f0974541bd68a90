//! Tests of the stand-in: its protocol for runner programs, its interface for tests, and its
//! likeness to GitHub.
//!
//! Not here: tests of the client (`client`, `jobs`, `levers`).

use std::sync::Arc;
use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_github::stand_in::protocol::{Conclusion, Register, Registered};
use bullpen_github::stand_in::{ONLINE_FOR, Options, StandIn};
use futures_util::future::join;
use hyper::Request;
use serde_json::{Value, json};

use crate::world::{TOKEN, World, order, pat, spec};

const MINUTE: Duration = Duration::from_secs(60);

async fn jit(world: &World, name: &str) -> Registered {
    let made = world.client("acme", pat()).jit(&spec(name, true)).await;
    let config = made.expect("the stand-in answers").config;
    let request = Register { jit: Some(config), ..Register::default() };
    world.register(&request).await.expect("the configuration is unused")
}

fn runner_of(world: &World, job: u64) -> Option<String> {
    world.stand_in.job(job).expect("the job was queued").runner
}

#[tokio::test]
async fn a_waiting_runner_gets_a_job_and_runs_it() {
    let world = World::new().await;
    let runner = world.runner("acme", "bp-1", &["self-hosted", "X"]).await;
    let submit = async {
        tokio::task::yield_now().await;
        let mut order = order(&["x"]);
        order.script = "echo hello".to_owned();
        world.stand_in.submit(order)
    };
    let ((status, message), job) = join(world.message(&runner, 50), submit).await;
    assert_eq!((status, &message["kind"]), (200, &json!("job")));
    assert_eq!((&message["job"], &message["script"]), (&json!(job.id), &json!("echo hello")));
    assert_eq!(world.message(&runner, 0).await.0, 200, "the message repeats until the job starts");
    assert_eq!(world.started(&runner, job.id).await, 204);
    assert_eq!(world.started(&runner, job.id).await, 204, "the first answer may have been lost");
    assert_eq!(world.message(&runner, 0).await.0, 204);
    let (done, over) =
        join(world.completed(&runner, job.id, "success"), world.stand_in.over(job.id)).await;
    assert_eq!((done, over.conclusion), (204, Some(Conclusion::Success)));
    assert_eq!(world.completed(&runner, job.id, "failure").await, 409);
    assert!(world.stand_in.runners()[0].online, "the runner stays for the next job");
}

#[tokio::test]
async fn a_runner_for_one_job_disappears_when_the_job_ends() {
    let world = World::new().await;
    let runner = jit(&world, "bp-1").await;
    let job = world.job(&["self-hosted"]);
    world.started(&runner, job.id).await;
    assert_eq!(world.completed(&runner, job.id, "success").await, 204);
    assert_eq!(world.message(&runner, 0).await.0, 410);
    assert_eq!(world.stand_in.runners(), []);
}

#[tokio::test]
async fn a_waiting_runner_learns_that_it_was_deleted() {
    let world = World::new().await;
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let path = format!("/orgs/acme/actions/runners/{}", runner.runner_id);
    let (message, deleted) =
        join(world.message(&runner, 50), world.rest("DELETE", &path, None)).await;
    assert_eq!((deleted.0, message.0), (204, 410));
    assert_eq!(world.rest("DELETE", &path, None).await.0, 404);
}

#[tokio::test]
async fn a_wait_without_a_job_ends_empty() {
    let world = World::new().await;
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let advance = async {
        while !world.stand_in.runners()[0].waiting {
            tokio::task::yield_now().await;
        }
        world.clock.advance(Duration::from_secs(50));
    };
    let ((status, body), ()) = join(world.message(&runner, 50), advance).await;
    assert_eq!((status, body), (204, Value::Null));
}

#[tokio::test]
async fn a_runner_that_disconnects_goes_offline_later() {
    let world = World::new().await;
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let waiting = async |wanted: bool| {
        while world.stand_in.runners()[0].waiting != wanted {
            tokio::task::yield_now().await;
        }
    };
    let message = Box::pin(world.message(&runner, 50));
    let select = futures_util::future::select(message, Box::pin(waiting(true)));
    drop(select.await);
    waiting(false).await;
    assert!(world.stand_in.runners()[0].online);
    world.clock.advance(ONLINE_FOR);
    assert!(!world.stand_in.runners()[0].online);
    assert_eq!(world.job(&["x"]).runner, None);
}

#[tokio::test]
async fn any_runner_with_the_labels_may_get_the_job() {
    let world = World::new().await;
    world.runner("acme/other", "elsewhere", &["a", "b"]).await;
    world.runner("acme", "bp-ab", &["A", "b"]).await;
    world.runner("acme", "bp-a", &["a"]).await;
    let stolen = world.job(&["a"]);
    assert_eq!(stolen.runner.as_deref(), Some("bp-ab"), "a runner meant for jobs with both labels");
    let both = world.job(&["a", "b"]);
    assert_eq!(both.runner, None);
    assert_eq!(world.job(&["a"]).runner.as_deref(), Some("bp-a"));
    world.runner("acme/app", "bp-late", &["b", "c", "a"]).await;
    assert_eq!(runner_of(&world, both.id).as_deref(), Some("bp-late"));
}

#[tokio::test]
async fn a_job_that_its_runner_does_not_start_goes_to_another() {
    let world = World::new().await;
    let silent = world.runner("acme", "bp-1", &["x"]).await;
    let job = world.job(&["x"]);
    assert_eq!(job.runner.as_deref(), Some("bp-1"));
    world.clock.advance(MINUTE);
    world.runner("acme", "bp-2", &["x"]).await;
    assert_eq!(runner_of(&world, job.id).as_deref(), Some("bp-2"));
    assert_eq!(world.started(&silent, job.id).await, 409);
    assert!(!world.stand_in.runners()[0].online);
}

#[tokio::test]
async fn a_running_job_ends_with_its_runner() {
    let world = World::new().await;
    let lost = world.runner("acme", "bp-1", &["x"]).await;
    let job = world.job(&["x"]);
    world.started(&lost, job.id).await;
    world.clock.advance(9 * MINUTE);
    assert_eq!(world.stand_in.job(job.id).unwrap().status, "in_progress");
    world.clock.advance(MINUTE);
    assert_eq!(world.stand_in.job(job.id).unwrap().conclusion, Some(Conclusion::Failure));
    let stopped = world.runner("acme", "bp-2", &["x"]).await;
    let job = world.job(&["x"]);
    world.started(&stopped, job.id).await;
    let path = format!("/runners/{}/session", stopped.runner_id);
    assert_eq!(world.ask("DELETE", &path, stopped.session.reveal(), None).await.0, 204);
    assert_eq!(world.stand_in.job(job.id).unwrap().conclusion, Some(Conclusion::Failure));
    assert_eq!(world.message(&stopped, 0).await.0, 401);
    assert_eq!(world.stand_in.runners().len(), 2, "both are still registered");
}

#[tokio::test]
async fn a_cancelled_job_ends_or_its_runner_gets_a_message() {
    let world = World::new().await;
    let queued = world.job(&["x"]);
    assert!(world.stand_in.cancel(queued.id));
    assert!(!world.stand_in.cancel(queued.id), "the job has ended");
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let job = world.job(&["x"]);
    world.started(&runner, job.id).await;
    let path = format!("/repos/acme/app/actions/runs/{}/cancel", job.run_id);
    assert_eq!(world.rest("POST", &path, None).await.0, 202);
    let (status, message) = world.message(&runner, 0).await;
    assert_eq!((status, message), (200, json!({"kind": "cancel", "job": job.id})));
    world.completed(&runner, job.id, "cancelled").await;
    assert_eq!(world.stand_in.job(job.id).unwrap().conclusion, Some(Conclusion::Cancelled));
}

#[tokio::test]
async fn a_token_is_valid_only_for_its_purpose() {
    let world = World::new().await;
    let github = world.client("acme", pat());
    let registration = github.registration_token().await.unwrap().token;
    let removal = github.removal_token().await.unwrap().token;
    let request = |token: &bullpen_core::mailbox::Secret| Register {
        token: Some(token.clone()),
        name: "bp-1".to_owned(),
        labels: vec!["x".to_owned()],
        ..Register::default()
    };
    assert_eq!(world.register(&request(&removal)).await.unwrap_err(), 401);
    let runner = world.register(&request(&registration)).await.unwrap();
    assert_eq!(world.register(&request(&registration)).await.unwrap_err(), 409);
    let replace = Register { replace: true, ..request(&registration) };
    let second = world.register(&replace).await.unwrap();
    assert_eq!(world.message(&runner, 0).await.0, 410);
    let path = format!("/runners/{}/remove", second.runner_id);
    for (token, status) in [(&registration, 401), (&removal, 204), (&removal, 404)] {
        let body = json!({"token": token.reveal()});
        assert_eq!(world.ask("POST", &path, "", Some(body)).await.0, status);
    }
    world.clock.advance(60 * MINUTE);
    assert_eq!(world.register(&request(&registration)).await.unwrap_err(), 401);
}

#[tokio::test]
async fn a_jit_configuration_is_packed_as_githubs() {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    let world = World::new().await;
    let made = world.client("acme", pat()).jit(&spec("bp-1", true)).await.unwrap();
    let decoded = |text: &str| -> Value {
        serde_json::from_slice(&BASE64_STANDARD.decode(text).unwrap()).unwrap()
    };
    let files = decoded(made.config.reveal());
    let runner = decoded(files[".runner"].as_str().unwrap());
    assert_eq!(runner["AgentName"], "bp-1");
    assert_eq!(runner["AgentId"], made.runner_id.to_string());
    assert_eq!(runner["ServerUrl"], format!("{}/_stand-in", world.stand_in.url()));
}

#[tokio::test]
async fn answers_look_like_githubs() {
    let world = World::new().await;
    let runner = world.runner("acme", "bp-1", &["self-hosted", "x"]).await;
    world.job(&["x"]);
    let path = format!("/orgs/acme/actions/runners/{}", runner.runner_id);
    let (status, headers, body) = world.rest("GET", &path, None).await;
    let expected = json!({
        "id": runner.runner_id, "runner_group_id": 1, "name": "bp-1", "os": "linux",
        "status": "online", "busy": true, "ephemeral": false,
        "labels": [
            {"id": 1, "name": "self-hosted", "type": "read-only"},
            {"id": 2, "name": "x", "type": "custom"},
        ],
    });
    assert_eq!((status, body), (200, expected));
    assert_eq!(headers["x-ratelimit-limit"], "5000");
    assert_eq!(headers["x-ratelimit-remaining"], "4998");
    let (status, _, body) = world.rest("DELETE", &path, None).await;
    assert_eq!((status, &body["status"]), (422, &json!("422")));
    assert!(body["message"].as_str().unwrap().contains("is still running a job"), "{body}");
    let (status, _, body) = world.rest("GET", "/orgs/acme/actions/runners/0", None).await;
    let missing = json!({
        "message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404",
    });
    assert_eq!((status, body), (404, missing));
    let bad = json!({"name": "bp-2", "runner_group_id": 1, "labels": []});
    let path = "/orgs/acme/actions/runners/generate-jitconfig";
    assert_eq!(world.rest("POST", path, Some(bad)).await.0, 422);
    let anonymous = Request::builder().header("user-agent", "test");
    assert_eq!(world.raw(anonymous, "/orgs/acme/actions/runners", None).await.0, 401);
    let without_agent = Request::builder().header("authorization", format!("Bearer {TOKEN}"));
    assert_eq!(world.raw(without_agent, "/orgs/acme/actions/runners", None).await.0, 403);
}

#[tokio::test]
async fn pages_are_linked_as_githubs() {
    let world = World::new().await;
    for number in 0..5 {
        world.runner("acme", &format!("bp-{number}"), &["x"]).await;
    }
    let path = "/orgs/acme/actions/runners?per_page=2&page=2";
    let (_, headers, body) = world.rest("GET", path, None).await;
    assert_eq!(body["total_count"], 5);
    let names: Vec<&Value> =
        body["runners"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["bp-2", "bp-3"]);
    let url = format!("{}/orgs/acme/actions/runners?per_page=2&page=", world.stand_in.url());
    let link = |page, rel| format!("<{url}{page}>; rel=\"{rel}\"");
    let links = [link(1, "prev"), link(3, "next"), link(3, "last"), link(1, "first")].join(", ");
    assert_eq!(headers["link"], links);
}

#[tokio::test]
async fn jobs_are_queued_and_awaited_over_http() {
    let world = World::new().await;
    let order = json!({"repository": "acme/app", "labels": ["x"], "script": "true"});
    let (status, job) = world.ask("POST", "/jobs", TOKEN, Some(order)).await;
    assert_eq!((status, &job["status"]), (201, &json!("queued")));
    let path = format!("/jobs/{}", job["id"]);
    assert_eq!(world.ask("GET", &path, TOKEN, None).await.1["status"], "queued");
    let over = format!("{path}?wait=50");
    let cancel = format!("{path}/cancel");
    let (over, cancelled) =
        join(world.ask("GET", &over, TOKEN, None), world.ask("POST", &cancel, TOKEN, None)).await;
    assert_eq!((cancelled.0, &over.1["conclusion"]), (202, &json!("cancelled")));
    assert_eq!(world.ask("GET", "/jobs", TOKEN, None).await.1.as_array().unwrap().len(), 1);
    let bad = json!({"repository": "acme", "labels": []});
    assert_eq!(world.ask("POST", "/jobs", TOKEN, Some(bad)).await.0, 422);
    assert_eq!(world.ask("GET", "/runners", TOKEN, None).await.1, json!([]));
}

#[tokio::test]
async fn other_machines_and_web_pages_are_refused() {
    let world = World::new().await;
    let anywhere = "0.0.0.0:0".parse().unwrap();
    let refused =
        StandIn::start(anywhere, Options::new(Secret::new(TOKEN)), Arc::clone(&world.clock)).await;
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let rebound = Request::builder().header("host", "evil.example");
    assert_eq!(world.raw(rebound, "/_stand-in/jobs", None).await.0, 403);
    let form = Request::builder().method("POST").header("content-type", "text/plain");
    let body = json!({"repository": "acme/app", "labels": []});
    assert_eq!(world.raw(form, "/_stand-in/jobs", Some(body)).await.0, 403);
    assert_eq!(world.stand_in.jobs(), []);
}

/// A process of another user of this machine can reach the port, but has to guess the credentials.
#[tokio::test]
async fn a_stranger_on_this_machine_is_refused_everything() {
    let world = World::new().await;
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let id = runner.runner_id;
    let script = json!({"repository": "acme/app", "labels": ["x"], "script": "id"});
    let own = format!("/runners/{id}");
    let register = |token: &str| json!({"token": token, "name": "bp-2", "labels": ["x"]});
    let before = world.stand_in.runners();
    for guess in ["", "ghp_any", "session-2", "registration-1", "x.y.z", "ghs_installation_1"] {
        for (method, path, body) in [
            ("POST", "/jobs".to_owned(), Some(script.clone())),
            ("GET", "/jobs".to_owned(), None),
            ("GET", "/notices".to_owned(), None),
            ("GET", "/runners".to_owned(), None),
            ("GET", "/levers".to_owned(), None),
            ("PUT", "/levers".to_owned(), Some(json!({}))),
            ("PUT", "/hook".to_owned(), Some(json!({"url": "http://127.0.0.1:9", "secret": "s"}))),
            ("GET", "/no/such/thing".to_owned(), None),
            ("POST", "/runners/register".to_owned(), Some(register(guess))),
            ("POST", "/runners/register".to_owned(), Some(json!({"jit": guess}))),
            ("GET", format!("{own}/message?wait=0"), None),
            ("GET", "/runners/999/message?wait=0".to_owned(), None),
            ("POST", format!("{own}/jobs/1/started"), None),
            ("POST", format!("{own}/jobs/1/completed"), Some(json!({"conclusion": "success"}))),
            ("DELETE", format!("{own}/session"), None),
            ("POST", format!("{own}/remove"), Some(json!({"token": guess}))),
            ("GET", format!("{own}/no/such/thing"), None),
        ] {
            let (status, _) = world.ask(method, &path, guess, body).await;
            assert_eq!(status, 401, "{method} {path} with {guess:?}");
        }
        for path in ["/orgs/acme/actions/runners", "/api/v3/orgs/acme/actions/runners", "/no"] {
            let request = Request::builder().header("user-agent", "test");
            let request = request.header("authorization", format!("Bearer {guess}"));
            assert_eq!(world.raw(request, path, None).await.0, 401, "{path} with {guess:?}");
        }
    }
    assert_eq!(world.stand_in.runners(), before);
    assert_eq!(world.stand_in.jobs(), []);
}

/// A runner's credentials are valid for nothing else, and earlier ones do not predict later ones.
#[tokio::test]
async fn credentials_of_runners_serve_one_purpose_and_cannot_be_guessed() {
    let world = World::new().await;
    let runner = world.runner("acme", "bp-1", &["x"]).await;
    let session = runner.session.reveal();
    assert_eq!(world.ask("GET", "/jobs", session, None).await.0, 401);
    let other = World::with(|options| options.token = Secret::new("another")).await;
    let client = other.client("acme", bullpen_github::Login::Token(Secret::new("another")));
    let theirs = client.registration_token().await.expect("the stand-in answers").token;
    let ours = world.client("acme", pat()).registration_token().await;
    let ours = ours.expect("the stand-in answers").token;
    assert_ne!(theirs, ours, "another process made the same calls");
    assert!(ours.reveal().len() > 40, "as long as a digest");
}
