//! Tests with checked-in texts of every stored version: each text must keep parsing to the same
//! value, and the present version must be written to the same bytes.
//!
//! If a test here fails, a message, an inbox or a report would change its form while older and
//! newer programs share one stack. Add a version and a file; do not edit these.
//!
//! Not here: random texts (`fuzz`).

use bullpen_core::class::Usage;
use bullpen_core::ids::{
    ClassName, Generation, InstanceId, InstanceType, JobId, PoolName, Repository, RequestId,
    RunnerGroup, RunnerName, SpecHash, TrustGroup,
};
use bullpen_core::instance::{Owner, Tier};
use bullpen_core::mailbox::wire::{self, WireError};
use bullpen_core::mailbox::{
    AgentPhase, Assignment, Beat, Credential, Inbox, Order, Report, Secret, Signal, SignalKind,
    Withdrawal, WithdrawalMode,
};
use bullpen_core::message::{self, Advert, Decoded};
use bullpen_core::request::stranger::{OwnRun, RanJob};
use bullpen_core::time::Timestamp;

macro_rules! fixture {
    ($path:literal) => {
        include_str!(concat!("../fixtures/", $path)).trim_end()
    };
}

fn time(text: &str) -> Timestamp {
    text.parse().expect("a valid instant")
}

fn read(text: &str) -> Advert {
    match message::decode(text).expect("a readable message") {
        Decoded::Advert(advert) => advert,
        Decoded::Newer { version } => panic!("version {version} is not newer"),
    }
}

/// The machine in `seed-threshold.json`; the other adverts differ from it.
fn seed() -> Advert {
    Advert {
        id: InstanceId::new("i-12345678"),
        class: ClassName::new("medium"),
        instance_type: InstanceType::new("c6i.large"),
        vcpu: 2,
        memory_mib: 4_096,
        usage: Usage::OnDemand,
        deadline: time("2025-05-31T12:20:00Z"),
        generation: None,
        tier: Tier::Released,
        pool: None,
        trust: None,
        spec_hash: None,
    }
}

fn least() -> Advert {
    Advert {
        id: InstanceId::new("i-0a1b2c3d4e5f60718"),
        class: ClassName::new("large"),
        deadline: time("2026-01-01T12:07:00.250Z"),
        generation: Some(Generation(5)),
        ..seed()
    }
}

fn full() -> Advert {
    Advert {
        usage: Usage::Spot,
        deadline: time("2026-01-01T12:07:00Z"),
        tier: Tier::Stopped,
        pool: Some(PoolName::new("ci")),
        trust: Some(TrustGroup::new("acme/app")),
        spec_hash: Some(SpecHash::new("1-0a1b2c")),
        ..least()
    }
}

fn job() -> Owner {
    Owner::Job(JobId::new("4242"))
}

fn assignment() -> Assignment {
    Assignment {
        generation: Generation(5),
        owner: job(),
        runner: RunnerName::new("bullpen-4242-1"),
        label: "warm-4242".into(),
        credential: Some(Credential::Jit(Secret::new("example-jit"))),
        register_by: None,
        hard_cap: time("2026-01-02T12:00:00Z"),
        issued_at: None,
        own_run: None,
        group: None,
        ephemeral: false,
    }
}

fn inbox(order: Order) -> Inbox {
    Inbox { assigned: Generation(5), order }
}

fn inboxes() -> [(&'static str, Inbox); 5] {
    let token = Assignment {
        owner: Owner::Request(RequestId::new("77.1.build")),
        runner: RunnerName::new("bullpen-77-1"),
        label: "warm-77.1.build".into(),
        credential: Some(Credential::RegistrationToken(Secret::new("example-token"))),
        register_by: Some(time("2026-01-01T12:00:15Z")),
        ..assignment()
    };
    let repository = Some(Repository::new("acme/app"));
    let of_a_run =
        Assignment { own_run: Some(OwnRun { repository, run: Some(77) }), ..token.clone() };
    let of_a_group = Assignment { group: Some(RunnerGroup::new("ci")), ..token.clone() };
    let withdrawal = Withdrawal {
        generation: Generation(6),
        mode: WithdrawalMode::Stop,
        at: time("2026-01-01T12:30:00Z"),
        idle_deadline: time("2026-01-01T12:37:00Z"),
        removal_token: None,
    };
    [
        (fixture!("mailbox/inbox-assigned-v1.json"), inbox(Order::Assigned(assignment()))),
        (fixture!("mailbox/inbox-assigned-token-v1.json"), inbox(Order::Assigned(token))),
        (fixture!("mailbox/inbox-assigned-run-v1.json"), inbox(Order::Assigned(of_a_run))),
        (fixture!("mailbox/inbox-assigned-group-v1.json"), inbox(Order::Assigned(of_a_group))),
        (fixture!("mailbox/inbox-withdrawn-v1.json"), inbox(Order::Withdrawn(withdrawal))),
    ]
}

fn report() -> Report {
    let signal = |generation, owner, at, detail: &str| Signal {
        generation: Generation(generation),
        owner,
        at: time(at),
        detail: detail.into(),
        ran: None,
    };
    Report {
        beat: Some(Beat {
            seq: 42,
            at: time("2026-01-01T12:00:05Z"),
            phase: AgentPhase::Listening,
            boot: "boot-1".into(),
        }),
        signals: [
            (SignalKind::WarmUpOk, signal(1, None, "2026-01-01T11:59:00Z", "")),
            (SignalKind::Acknowledged, signal(5, Some(job()), "2026-01-01T12:00:01Z", "")),
            (SignalKind::Registered, signal(5, Some(job()), "2026-01-01T12:00:04Z", "runner 9")),
        ]
        .into(),
    }
}

#[test]
fn the_first_generations_messages_keep_parsing() {
    let plain = Advert {
        id: InstanceId::new("i-12345678abcdef0"),
        class: ClassName::new("medium-linux"),
        deadline: Timestamp::from_millis(i64::MAX),
        ..seed()
    };
    assert_eq!(read(fixture!("message/seed-plain.json")), plain);
    assert_eq!(read(fixture!("message/seed-threshold.json")), seed());
}

#[test]
fn a_message_of_the_first_generation_can_be_sent_again_as_one_of_ours() {
    for text in [fixture!("message/seed-plain.json"), fixture!("message/seed-threshold.json")] {
        let advert = read(text);
        assert_eq!(read(&message::encode(&advert)), advert);
    }
}

#[test]
fn version_one_of_the_message_keeps_parsing_and_is_what_is_written() {
    for (text, advert) in
        [(fixture!("message/v1.json"), full()), (fixture!("message/v1-least.json"), least())]
    {
        assert_eq!(read(text), advert);
        assert_eq!(message::encode(&advert), text);
    }
}

#[test]
fn messages_of_other_versions_are_recognised_with_any_content() {
    for (text, version) in [
        (fixture!("message/future.json"), "2"),
        (r#"{"v":2}"#, "2"),
        (r#"{"v":"2026-01","id":{}}"#, "\"2026-01\""),
        (r#"{"v":0,"id":[]}"#, "0"),
        (r#"{"v":-1}"#, "-1"),
        (r#"{"v":18446744073709551615}"#, "18446744073709551615"),
    ] {
        let decoded = message::decode(text).expect("a message of another version");
        assert_eq!(decoded, Decoded::Newer { version: version.into() }, "{text}");
    }
}

#[test]
fn unknown_fields_of_a_message_are_ignored() {
    let text = fixture!("message/v1.json").replacen('{', "{\"colour\":{\"of\":[\"it\"]},", 1);
    assert_eq!(read(&text), full());
}

#[test]
fn version_one_of_the_inbox_keeps_parsing_and_is_what_is_written() {
    for (text, inbox) in inboxes() {
        assert_eq!(wire::decode_inbox(text.as_bytes()).expect("readable"), inbox);
        assert_eq!(wire::encode_inbox(&inbox), text);
    }
}

#[test]
fn version_one_of_the_report_keeps_parsing_and_is_what_is_written() {
    let text = fixture!("mailbox/report-v1.json");
    assert_eq!(wire::decode_report(text.as_bytes()).expect("readable"), report());
    assert_eq!(wire::encode_report(&report()), text);
}

#[test]
fn a_report_that_says_which_run_its_job_is_of_keeps_parsing() {
    let ran = RanJob {
        repository: Repository::new("acme/app"),
        run: 77,
        attempt: 2,
        job: "build".into(),
        event: "push".into(),
    };
    let (generation, at) = (Generation(5), time("2026-01-01T12:01:00Z"));
    let signal = Signal { generation, owner: Some(job()), at, detail: "build".into(), ran: None };
    let signal = Signal { ran: Some(ran), ..signal };
    let report = Report { beat: None, signals: [(SignalKind::JobStarted, signal)].into() };
    let text = fixture!("mailbox/report-ran-v1.json");
    assert_eq!(wire::decode_report(text.as_bytes()).expect("readable"), report);
    assert_eq!(wire::encode_report(&report), text);
}

#[test]
fn a_newer_mailbox_record_says_so() {
    let text = fixture!("mailbox/inbox-future.json").as_bytes();
    for error in [
        wire::decode_inbox(text).expect_err("newer"),
        wire::decode_report(text).expect_err("newer"),
    ] {
        assert!(matches!(error, WireError::Newer { found: 2 }), "{error:?}");
    }
}

#[test]
fn the_text_of_an_assignment_carries_its_secret_and_its_debug_output_does_not() {
    for (text, inbox) in &inboxes()[..3] {
        assert!(text.contains("example-"), "{text}");
        assert!(!format!("{inbox:?} {inbox:#?}").contains("example-"), "{inbox:?}");
    }
}

#[test]
fn an_unreadable_record_is_refused_without_repeating_its_secret() {
    let text = fixture!("mailbox/inbox-assigned-v1.json");
    for cut in 1..text.len() {
        let error = wire::decode_inbox(&text.as_bytes()[..cut]).expect_err("the text is cut short");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let shown = format!("{error} {source:?}");
        assert!(!shown.contains("example-"), "{shown}");
    }
}
