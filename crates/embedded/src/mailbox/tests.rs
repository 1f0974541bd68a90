//! Tests of mailboxes: fenced orders, independent rows, and waits that miss no write.

use std::future::Future as _;
use std::path::PathBuf;
use std::task::{Context, Waker};

use bullpen_core::ids::RunnerName;
use bullpen_core::mailbox::{
    AgentPhase, Assignment, Credential, Report, Secret, Withdrawal, WithdrawalMode,
};
use tempfile::TempDir;

use super::*;
use crate::testing::{ManualClock, START, clock, owner, secs, won};

struct World {
    clock: Arc<ManualClock>,
    mailbox: SqliteMailbox<ManualClock>,
    path: PathBuf,
    _directory: TempDir,
}

fn world() -> World {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("mailbox.db");
    let clock = clock();
    let mailbox = SqliteMailbox::open(&path, Arc::clone(&clock)).unwrap();
    World { clock, mailbox, path, _directory: directory }
}

fn key() -> MailboxKey {
    MailboxKey::new("i-1")
}

fn assigned(generation: u64) -> Order {
    Order::Assigned(Assignment {
        generation: Generation(generation),
        owner: owner("o"),
        runner: RunnerName::new("r"),
        label: "l".to_owned(),
        credential: Some(Credential::Jit(Secret::new("correct horse battery"))),
        register_by: None,
        hard_cap: START.after(secs(86_400)),
        issued_at: None,
        own_run: None,
        group: None,
        ephemeral: false,
    })
}

fn withdrawn(generation: u64, mode: WithdrawalMode) -> Order {
    Order::Withdrawn(Withdrawal {
        generation: Generation(generation),
        mode,
        at: START,
        idle_deadline: START.after(secs(420)),
        removal_token: None,
    })
}

fn beat(seq: u64, boot: &str, at: Timestamp) -> Beat {
    Beat { seq, at, phase: AgentPhase::Waiting, boot: boot.to_owned() }
}

fn signal(generation: u64, detail: &str) -> Signal {
    let (generation, detail) = (Generation(generation), detail.to_owned());
    Signal { generation, owner: None, at: START, detail, ran: None }
}

async fn report(mailbox: &SqliteMailbox<ManualClock>) -> Report {
    mailbox.reports(&[key()]).await.unwrap().remove(0).report().unwrap()
}

#[tokio::test]
async fn only_a_newer_order_is_stored() {
    let World { mailbox, .. } = &world();
    assert_eq!(mailbox.inbox(&key(), Consistency::Consistent).await, Ok(None));
    won(mailbox.post(&key(), &assigned(2)).await);
    assert_eq!(mailbox.post(&key(), &assigned(2)).await, Ok(Written::Lost));
    won(mailbox.post(&key(), &withdrawn(3, WithdrawalMode::Drain)).await);
    assert_eq!(mailbox.post(&key(), &assigned(3)).await, Ok(Written::Lost), "overtaken");
    let last = won(mailbox.post(&key(), &withdrawn(3, WithdrawalMode::Stop)).await);
    assert_eq!(last.assigned, Generation(2), "a withdrawal remembers what was handed out");
    assert_eq!(mailbox.inbox(&key(), Consistency::Eventual).await, Ok(Some(last)));
}

#[tokio::test]
async fn a_redacted_credential_is_in_the_file_no_more() {
    let World { mailbox, path, _directory, .. } = world();
    won(mailbox.post(&key(), &assigned(2)).await);
    mailbox.redact(&key(), Generation(1)).await.unwrap();
    let credential = |inbox: &Inbox| match &inbox.order {
        Order::Assigned(assignment) => assignment.credential.clone(),
        Order::Withdrawn(_) => None,
    };
    let inbox = mailbox.inbox(&key(), Consistency::Consistent).await.unwrap().unwrap();
    assert!(credential(&inbox).is_some(), "another generation's");
    mailbox.redact(&key(), Generation(2)).await.unwrap();
    let inbox = mailbox.inbox(&key(), Consistency::Consistent).await.unwrap().unwrap();
    assert_eq!(credential(&inbox), None);
    mailbox.redact(&MailboxKey::new("unknown"), Generation(2)).await.unwrap();
    // Closing writes the log into the file.
    drop(mailbox);
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(13).any(|window| window == b"correct horse"));
}

#[tokio::test]
async fn older_beats_are_dropped_and_a_new_boot_begins_anew() {
    let World { mailbox, .. } = &world();
    let beats = [
        (beat(5, "one", START), 5),
        (beat(4, "one", START.after(secs(5))), 5),
        (beat(6, "one", START), 6),
        (beat(1, "two", START.after(secs(90))), 1),
        (beat(1, "two", START.after(secs(91))), 1),
        (beat(2, "two", START.after(secs(95))), 2),
    ];
    for (beat, expected) in beats {
        mailbox.beat(&key(), &beat).await.unwrap();
        assert_eq!(report(mailbox).await.beat.unwrap().seq, expected, "{beat:?}");
    }
}

#[tokio::test]
async fn signals_of_one_kind_are_fenced_by_generation_and_kinds_leave_each_other_alone() {
    let World { mailbox, .. } = &world();
    mailbox.signal(&key(), SignalKind::Acknowledged, &signal(2, "a")).await.unwrap();
    mailbox.signal(&key(), SignalKind::WarmUpOk, &signal(1, "w")).await.unwrap();
    mailbox.signal(&key(), SignalKind::Acknowledged, &signal(1, "old")).await.unwrap();
    mailbox.beat(&key(), &beat(1, "one", START)).await.unwrap();
    mailbox.signal(&key(), SignalKind::Acknowledged, &signal(2, "again")).await.unwrap();
    let report = report(mailbox).await;
    assert_eq!(report.beat, Some(beat(1, "one", START)));
    let acknowledged = report.signal(SignalKind::Acknowledged, Generation(2));
    assert_eq!(acknowledged, Some(&signal(2, "again")));
    assert_eq!(report.signal(SignalKind::WarmUpOk, Generation(1)), Some(&signal(1, "w")));
}

#[tokio::test]
async fn reports_come_in_the_order_of_their_keys() {
    let World { mailbox, .. } = &world();
    let keys = ["i-3", "i-1", "i-2"].map(MailboxKey::new);
    mailbox.beat(&keys[0], &beat(3, "b", START)).await.unwrap();
    mailbox.beat(&keys[2], &beat(2, "b", START)).await.unwrap();
    let reports = mailbox.reports(&keys).await.unwrap();
    let seqs: Vec<_> =
        reports.into_iter().map(|it| it.report().and_then(|it| it.beat).map(|it| it.seq)).collect();
    assert_eq!(seqs, [Some(3), None, Some(2)]);
}

#[tokio::test]
async fn a_mailbox_is_forgotten_a_week_after_its_last_write() {
    let World { mailbox, clock, .. } = &world();
    let (old, beating) = (MailboxKey::new("old"), MailboxKey::new("beating"));
    for key in [&old, &beating] {
        won(mailbox.post(key, &assigned(1)).await);
        mailbox.signal(key, SignalKind::WarmUpOk, &signal(1, "")).await.unwrap();
    }
    clock.advance(secs(4 * 86_400));
    mailbox.beat(&beating, &beat(1, "b", clock.now())).await.unwrap();
    clock.advance(secs(3 * 86_400 + 7200));
    won(mailbox.post(&key(), &assigned(1)).await);
    assert_eq!(mailbox.inbox(&old, Consistency::Consistent).await, Ok(None));
    assert_eq!(mailbox.reports(&[old]).await, Ok(vec![ReportRead::Absent]));
    assert!(mailbox.inbox(&beating, Consistency::Consistent).await.unwrap().is_some());
    assert_eq!(
        mailbox.reports(&[beating]).await.unwrap().remove(0).report().unwrap().signals.len(),
        1
    );
}

#[tokio::test]
async fn an_unreadable_mailbox_names_itself_and_stays() {
    let World { mailbox, path, .. } = &world();
    won(mailbox.post(&key(), &assigned(1)).await);
    mailbox.signal(&key(), SignalKind::WarmUpOk, &signal(1, "")).await.unwrap();
    let other = rusqlite::Connection::open(path).unwrap();
    other
        .execute_batch("UPDATE inboxes SET body = '{\"v\":9}'; UPDATE signals SET body = '{}'")
        .unwrap();
    let Err(Fault::Unreadable(text)) = mailbox.inbox(&key(), Consistency::Consistent).await else {
        panic!()
    };
    assert!(text.starts_with("inbox i-1: ") && text.contains("version 9"), "{text}");
    assert!(matches!(mailbox.post(&key(), &assigned(2)).await, Err(Fault::Unreadable(_))));
    let found = mailbox.reports(&[key()]).await.unwrap();
    let [ReportRead::Unreadable(why)] = &found[..] else { panic!("{found:?}") };
    assert!(why.to_string().starts_with("UD_OK: missing field"), "{why}");
}

#[tokio::test]
async fn a_waiter_is_woken_by_another_handles_write() {
    let World { mailbox, clock, path, .. } = &world();
    let other = SqliteMailbox::open(path, Arc::clone(clock)).unwrap();
    let key = key();
    for number in 1..4 {
        let mut waiting = pin!(mailbox.wait(&key, secs(60)));
        let poll = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_pending());
        match number {
            1 => drop(won(other.post(&key, &assigned(1)).await)),
            2 => other.beat(&key, &beat(1, "b", START)).await.unwrap(),
            _ => other.signal(&key, SignalKind::WarmUpOk, &signal(1, "")).await.unwrap(),
        }
        waiting.await;
        mailbox.inbox(&key, Consistency::Consistent).await.unwrap();
        mailbox.reports(std::slice::from_ref(&key)).await.unwrap();
    }
}

#[tokio::test]
async fn a_wait_notices_a_write_after_the_last_read() {
    let World { mailbox, clock, path, .. } = &world();
    let other = SqliteMailbox::open(path, Arc::clone(clock)).unwrap();
    assert_eq!(mailbox.inbox(&key(), Consistency::Consistent).await, Ok(None));
    won(other.post(&key(), &assigned(1)).await);
    // The clock does not advance: only the order can end this wait.
    mailbox.wait(&key(), secs(60)).await;
    mailbox.inbox(&key(), Consistency::Consistent).await.unwrap();
    mailbox.reports(&[key()]).await.unwrap();
    other.beat(&key(), &beat(1, "b", START)).await.unwrap();
    mailbox.wait(&key(), secs(60)).await;
}

#[tokio::test]
async fn a_wait_without_news_ends_when_its_time_is_up() {
    let World { mailbox, clock, .. } = &world();
    won(mailbox.post(&key(), &assigned(1)).await);
    mailbox.inbox(&key(), Consistency::Consistent).await.unwrap();
    let key = key();
    let mut waiting = pin!(mailbox.wait(&key, secs(60)));
    let elsewhere = MailboxKey::new("i-2");
    let early = async {
        won(mailbox.post(&elsewhere, &assigned(1)).await);
        clock.advance(secs(59));
    };
    // Poll the wait first: its time counts from there.
    assert_eq!(first(waiting.as_mut(), pin!(early)).await, First::Right);
    clock.advance(secs(1));
    waiting.await;
}
