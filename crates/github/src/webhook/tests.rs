//! Tests of verifying and parsing webhooks.
//!
//! Not here: GitHub's own examples and GitHub's own signer (`tests/conformance`).

use bullpen_core::job::{Conclusion, ReportedStatus};
use bullpen_core::mailbox::Secret;
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "It's a Secret to Everybody";

fn secret() -> Secret {
    Secret::new(SECRET)
}

fn secrets() -> Secrets {
    Secrets::new(&secret(), None).unwrap()
}

fn head(event: &str, body: &[u8]) -> WebhookHead {
    WebhookHead {
        event: Some(event.to_owned()),
        delivery: Some("72d3162e-cc78-11e3-81ab-4c9367dc0958".to_owned()),
        signature: Some(sign(&secret(), body)),
        content_type: Some("application/json".to_owned()),
        content_length: Some(body.len() as u64),
    }
}

fn judged(event: &str, body: &Value) -> Verdict {
    let body = body.to_string().into_bytes();
    judge(&head(event, &body), &body, &secrets())
}

fn job(status: &str, conclusion: Option<&str>) -> Value {
    json!({
        "action": "queued", "installation": {"id": 7, "node_id": "x"}, "sender": {},
        "repository": {"full_name": "acme/app", "private": true},
        "workflow_job": {
            "id": 4242, "run_id": 77, "run_attempt": 2, "name": "build", "status": status,
            "conclusion": conclusion, "labels": ["runs-on"], "runner_id": 0, "runner_name": "",
            "head_sha": "0a1b", "created_at": "2026-05-31T12:00:00Z",
            "started_at": "2026-05-31T12:00:05Z", "completed_at": null, "steps": [],
        },
    })
}

fn said(body: &Value) -> ReportedStatus {
    match judged("workflow_job", body) {
        Verdict::Accepted(Event::Job(event)) => event.fact.said,
        other => panic!("{other:?}"),
    }
}

/// The example is from GitHub's documentation.
#[test]
fn the_signature_is_githubs() {
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    assert_eq!(sign(&secret(), b"Hello, World!"), signature);
    assert!(secrets().verify(b"Hello, World!", signature));
    assert!(secrets().verify(b"Hello, World!", &signature.to_uppercase().replace("SHA", "sha")));
}

#[test]
fn only_the_signature_over_these_bytes_is_valid() {
    let body = b"Hello, World!";
    let good = sign(&secret(), body);
    assert!(!secrets().verify(b"Hello, World?", &good));
    for end in 0..good.len() {
        assert!(!secrets().verify(body, &good[..end]), "{end} characters");
    }
    let other = sign(&Secret::new("another"), body);
    let sha1 = good.replace("sha256=", "sha1=");
    let bare = good.replace("sha256=", "");
    let longer = format!("{good}00");
    let sign = "sha256=".to_owned() + &"+1".repeat(32);
    for bad in ["", "sha256=", &other, &sha1, &bare, &longer, &sign, &"ä".repeat(40)] {
        assert!(!secrets().verify(body, bad), "{bad}");
    }
}

#[test]
fn both_secrets_are_valid_during_a_replacement() {
    let (new, old) = (Secret::new("new"), Secret::new("old"));
    let both = Secrets::new(&new, Some(&old)).unwrap();
    assert!(both.verify(b"x", &sign(&new, b"x")) && both.verify(b"x", &sign(&old, b"x")));
    let one = Secrets::new(&new, None).unwrap();
    assert!(!one.verify(b"x", &sign(&old, b"x")));
    assert_eq!(Secrets::new(&new, Some(&Secret::new(""))).unwrap_err(), BadSecret);
    assert_eq!(Secrets::new(&Secret::new(""), None).unwrap_err(), BadSecret);
    assert_eq!(format!("{both:?}"), "Secrets(2 ***)");
}

#[test]
fn a_refused_request_gets_a_status() {
    let body = job("queued", None).to_string().into_bytes();
    let good = head("workflow_job", &body);
    let refused = |head: &WebhookHead, body: &[u8]| match judge(head, body, &secrets()) {
        Verdict::Refused(refusal) => refusal.status(),
        Verdict::Accepted(event) => panic!("{event:?}"),
    };
    assert_eq!(refused(&WebhookHead { signature: None, ..good.clone() }, &body), 401);
    assert_eq!(refused(&good, b"{}"), 401, "another body");
    assert_eq!(refused(&WebhookHead { event: None, ..good.clone() }, &body), 400);
    let form = Some("application/x-www-form-urlencoded".to_owned());
    assert_eq!(refused(&WebhookHead { content_type: form, ..good.clone() }, &body), 400);
    for nonsense in ["", "{", "[]", "{\"action\":1}"] {
        let head = head("workflow_job", nonsense.as_bytes());
        assert_eq!(refused(&head, nonsense.as_bytes()), 400, "{nonsense}");
    }
    let huge = Some(WEBHOOK_BODY_BYTES_MAX as u64 + 1);
    let head = WebhookHead { content_length: huge, ..good.clone() };
    assert_eq!(admit(&head), Err(Refusal::TooLarge), "before a byte is read");
    let unsaid = WebhookHead { content_length: None, ..good };
    assert_eq!(admit(&unsaid), Ok(()));
    assert_eq!(refused(&unsaid, &vec![b' '; WEBHOOK_BODY_BYTES_MAX + 1]), 413);
}

/// The signature is verified before the body is parsed.
#[test]
fn an_unsigned_body_is_not_parsed() {
    let unsigned =
        WebhookHead { signature: Some("sha256=00".to_owned()), ..head("workflow_job", b"{") };
    assert_eq!(judge(&unsigned, b"{", &secrets()), Verdict::Refused(Refusal::Unsigned));
}

/// A signed body that was cut or damaged is parsed or refused, and never causes a panic.
#[test]
fn a_damaged_body_is_parsed_or_refused() {
    let body = job("completed", Some("success")).to_string().into_bytes();
    let judged = |body: &[u8]| judge(&head("workflow_job", body), body, &secrets());
    for end in 0..body.len() {
        let verdict = judged(&body[..end]);
        assert_eq!(verdict.status(), Some(400), "the first {end} bytes");
    }
    for place in 0..body.len() {
        for byte in [b'"', b'0', b'{', 0xff] {
            let mut damaged = body.clone();
            damaged[place] = byte;
            let status = judged(&damaged).status();
            assert!(matches!(status, None | Some(400)), "{byte} at {place}: {status:?}");
        }
    }
}

#[test]
fn unknown_events_are_accepted_and_ignored() {
    let ping = judged("ping", &json!({"zen": "Design for failure.", "hook_id": 1, "hook": {}}));
    assert_eq!((&ping, ping.status()), (&Verdict::Accepted(Event::Ping), Some(204)));
    let star = judged("star", &json!({"action": "created"}));
    assert_eq!(star, Verdict::Accepted(Event::Other("star".to_owned())));
    assert_eq!(star.status(), Some(204));
    let push = |reference: &str| {
        let repository = json!({"full_name": "acme/app", "default_branch": "main"});
        match judged("push", &json!({"ref": reference, "repository": repository})) {
            Verdict::Accepted(Event::Push(push)) => push.to_default_branch,
            other => panic!("{other:?}"),
        }
    };
    assert!(push("refs/heads/main"));
    assert!(!push("refs/heads/main/x") && !push("refs/tags/main"));
}

#[test]
fn a_job_is_a_fact_and_is_not_answered_yet() {
    let verdict = judged("workflow_job", &job("queued", None));
    assert_eq!(verdict.status(), None, "the service answers when the row is durable");
    let Verdict::Accepted(Event::Job(event)) = verdict else { panic!("{verdict:?}") };
    assert_eq!(event.installation, Some(7));
    assert_eq!(event.delivery.as_deref(), Some("72d3162e-cc78-11e3-81ab-4c9367dc0958"));
    let fact = event.fact;
    assert_eq!((fact.job.as_str(), fact.about.run.as_str()), ("4242", "77.2"));
    assert_eq!((fact.about.repository.as_str(), fact.about.commit.as_str()), ("acme/app", "0a1b"));
    let at = Some("2026-05-31T12:00:05Z".parse().unwrap());
    assert_eq!(fact.said, ReportedStatus::Queued { at });
}

#[test]
fn the_status_decides_and_the_action_does_not() {
    assert_eq!(
        said(&job("waiting", None)),
        ReportedStatus::Held,
        "its action is `queued`, but a protection rule holds it back"
    );
    let unknown = said(&job("brand_new", None));
    assert_eq!(unknown, ReportedStatus::Held, "an unknown status launches nothing");
    let at = Some("2026-05-31T12:00:05Z".parse().unwrap());
    assert_eq!(said(&job("in_progress", None)), ReportedStatus::Started { runner: None, at });
    let conclusion = Conclusion::new("skipped");
    let skipped = ReportedStatus::Completed { conclusion, runner: None, at: None };
    assert_eq!(said(&job("completed", Some("skipped"))), skipped);
}

fn run(event: &str, head: Option<&str>, actor: &str) -> Value {
    json!({
        "action": "requested", "installation": {"id": 7}, "sender": {}, "workflow": {},
        "repository": {"full_name": "acme/app", "private": false},
        "workflow_run": {
            "id": 77, "run_attempt": 2, "status": "queued", "conclusion": null, "head_sha": "0a1b",
            "event": event, "head_repository": head.map(|name| json!({"full_name": name})),
            "repository": {"full_name": "acme/app"}, "actor": {"login": actor},
        },
    })
}

#[test]
fn a_run_tells_where_its_code_comes_from() {
    use bullpen_core::job::{Origin, Visibility};
    for (event, head, actor, origin) in [
        ("push", Some("acme/app"), "ann", Origin::Own),
        ("push", Some("ACME/App"), "ann", Origin::Own),
        ("pull_request", Some("acme/app"), "ann", Origin::PullRequest),
        ("pull_request", Some("acme/app"), "dependabot[bot]", Origin::Dependabot),
        ("pull_request", Some("mallory/app"), "mallory", Origin::Fork),
        ("pull_request", Some("mallory/app"), "dependabot[bot]", Origin::Fork),
        ("pull_request_target", Some("mallory/app"), "mallory", Origin::Fork),
        ("pull_request", None, "mallory", Origin::Fork),
    ] {
        let Verdict::Accepted(Event::Run(said)) = judged("workflow_run", &run(event, head, actor))
        else {
            panic!("the event is not a run");
        };
        assert_eq!((said.fact.run.as_str(), said.installation), ("77.2", Some(7)));
        let known = said.fact.provenance;
        assert_eq!(known.origin, Some(origin), "{event} {head:?} {actor}");
        assert_eq!(known.visibility, Some(Visibility::Public));
    }
    let mut again = run("push", Some("acme/app"), "ann");
    again["workflow_run"]["triggering_actor"] = json!({"login": "dependabot[bot]"});
    let Verdict::Accepted(Event::Run(said)) = judged("workflow_run", &again) else { panic!() };
    assert_eq!(said.fact.provenance.origin, Some(Origin::Dependabot));
    let mut reopened = run("pull_request", Some("acme/app"), "ann");
    reopened["workflow_run"]["head_branch"] = json!("dependabot/cargo/serde-2");
    let Verdict::Accepted(Event::Run(said)) = judged("workflow_run", &reopened) else { panic!() };
    assert_eq!(said.fact.provenance.origin, Some(Origin::Dependabot), "a person reopened it");
}

#[test]
fn a_job_tells_whether_its_repository_is_private() {
    use bullpen_core::job::Visibility;
    let seen = |private: Value| {
        let mut body = job("queued", None);
        body["repository"]["private"] = private;
        match judged("workflow_job", &body) {
            Verdict::Accepted(Event::Job(event)) => event.fact.about.provenance.visibility,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(seen(json!(true)), Some(Visibility::Private));
    assert_eq!(seen(json!(false)), Some(Visibility::Public));
    assert_eq!(seen(Value::Null), None);
}
