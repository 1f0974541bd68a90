//! We parse every webhook example that GitHub publishes, with those of old servers.
//!
//! Not here: bodies for which GitHub has no example (`webhook::tests`).

use bullpen_core::ids::RunAttempt;
use bullpen_core::job::{JobFact, JobKnowledge, JobPhase, ReportedStatus};
use bullpen_core::mailbox::Secret;
use bullpen_github::webhook::{Event, Secrets, Verdict, WebhookHead, judge, sign};
use serde_json::{Value, json};

use crate::tools::ask;

const SERVERS: &[&str] = &["api.github.com", "ghes-31", "ghes-32", "ghes-33", "ghes-34", "ghes-35"];

fn judged(event: &str, body: &Value) -> Event {
    let (secret, body) = (Secret::new("s"), body.to_string());
    let head = WebhookHead {
        event: Some(event.to_owned()),
        delivery: Some("0b989ba4-242f-11e5-81e1-c7b6966d2516".to_owned()),
        signature: Some(sign(&secret, body.as_bytes())),
        content_type: Some("application/json; charset=utf-8".to_owned()),
        content_length: Some(body.len() as u64),
    };
    let secrets = Secrets::new(&secret, None).expect("the secret is not empty");
    match judge(&head, body.as_bytes(), &secrets) {
        Verdict::Accepted(event) => event,
        Verdict::Refused(refusal) => panic!("{refusal}: {body}"),
    }
}

fn examples(event: &str) -> Vec<Value> {
    let questions: Vec<Value> = SERVERS
        .iter()
        .map(|server| json!({"ask": "examples", "server": server, "event": event}))
        .collect();
    let answers = ask(&questions);
    answers.iter().flat_map(|list| list.as_array().expect("an array").clone()).collect()
}

fn fact(example: &Value) -> JobFact {
    match judged("workflow_job", example) {
        Event::Job(event) => event.fact,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_example_of_a_job_becomes_the_same_fact() {
    let examples = examples("workflow_job");
    assert_eq!(examples.len(), 11, "GitHub changed the number of examples");
    for example in &examples {
        let (fact, job) = (fact(example), &example["workflow_job"]);
        assert_eq!(fact.job.as_str(), job["id"].to_string());
        assert_eq!(fact.about.repository.as_str(), example["repository"]["full_name"]);
        let attempt = job["run_attempt"].as_u64().unwrap_or(1);
        let run = RunAttempt::new(format!("{}.{attempt}", job["run_id"]));
        assert_eq!(fact.about.run, run);
        assert_eq!(json!(fact.about.labels), job["labels"]);
        assert_eq!(fact.about.commit, job["head_sha"].as_str().unwrap());
        let expected = match job["status"].as_str().unwrap() {
            "waiting" => JobPhase::Held,
            "queued" => JobPhase::Queued,
            "in_progress" => JobPhase::Started,
            "completed" => JobPhase::Completed,
            other => panic!("unknown status {other}"),
        };
        assert_eq!(JobKnowledge::of(&fact).phase(), expected);
        if let ReportedStatus::Started { runner, .. } = fact.said {
            assert_eq!(json!(runner), job["runner_name"]);
        }
    }
}

#[test]
fn every_example_of_a_ping_and_a_push_is_parsed() {
    let pings = examples("ping");
    assert!(pings.len() >= 4, "{}", pings.len());
    for ping in &pings {
        assert_eq!(judged("ping", ping), Event::Ping);
    }
    let pushes = examples("push");
    assert!(pushes.len() >= 7, "{}", pushes.len());
    for push in &pushes {
        assert!(matches!(judged("push", push), Event::Push(_)));
    }
    for other in examples("installation") {
        assert_eq!(judged("installation", &other), Event::Other("installation".to_owned()));
    }
}
