//! Tests of several processes with one database: claims, wake-ups, and writes of a killed process.
//!
//! Not here: starting the children (`child`), or performance (`benches/contention.rs`).

#![expect(clippy::unwrap_used, reason = "this file is a test, including its helper functions")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use bullpen_core::ids::{Generation, JobId, MailboxKey, QueueName, Revision};
use bullpen_core::instance::Record;
use bullpen_core::mailbox::{Order, Withdrawal, WithdrawalMode};
use bullpen_core::ports::{
    Consistency, JobRow, Ledger as _, Mailbox as _, Outgoing, QueueKind, QueueSpec, Queues as _,
    Written,
};
use bullpen_embedded::{SqliteLedger, SqliteMailbox, SqliteQueues};
use child::{Process, child_directory, print_marked};
use common::{NOW, StandingClock, claim, idle, store_idle, won};
use futures_util::future::join_all;
use tempfile::TempDir;

#[path = "common/child.rs"]
mod child;
mod common;

type Ledger = SqliteLedger<StandingClock>;

fn send(child: &mut Process, line: &str) {
    writeln!(child.child.stdin.as_mut().unwrap(), "{line}").unwrap();
}

/// Closes the child's input, and waits for its success.
fn end(mut child: Process) {
    drop(child.child.stdin.take());
    assert!(child.child.wait().unwrap().success());
}

/// The parent's next line; `None` if the parent has closed the pipe.
fn read_command() -> Option<String> {
    let mut line = String::new();
    let bytes = std::io::stdin().read_line(&mut line).unwrap();
    (bytes > 0).then(|| line.trim_end().to_owned())
}

fn open(directory: &Path) -> Ledger {
    Ledger::open(&directory.join("ledger.db"), StandingClock::new()).unwrap()
}

const PROCESSES: usize = 4;
const CLAIMERS: usize = 16;
const ROUNDS: usize = 200;

/// In each round sixty-four claimers of four processes claim the same machine.
#[tokio::test]
async fn exactly_one_of_many_claimers_wins_each_round() {
    if let Some(directory) = child_directory() {
        return claim_rounds(&directory).await;
    }
    let directory = TempDir::new().unwrap();
    let ledger = open(directory.path());
    let mut record = store_idle(&ledger, "i-1").await;
    let test = "exactly_one_of_many_claimers_wins_each_round";
    let mut children: Vec<_> =
        (0..PROCESSES).map(|_| Process::start(test, directory.path())).collect();
    for child in &mut children {
        assert_eq!(child.receive().as_deref(), Some("ready"));
    }
    for round in 0..ROUNDS {
        for (number, child) in children.iter_mut().enumerate() {
            send(child, &format!("{} {number}", record.generation));
        }
        let wins: Vec<String> =
            children.iter_mut().map(|child| child.receive().expect("the child runs")).collect();
        let winners: Vec<&str> = wins.iter().flat_map(|line| line.split_whitespace()).collect();
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let claimed = ledger.read(&record.id).await.unwrap().unwrap();
        assert_eq!(claimed.generation, record.generation.next(), "round {round}");
        let written = serde_json::to_string(&claimed.state).unwrap();
        assert!(written.contains(&format!("\"{}\"", winners[0])), "{written}");
        record = won(ledger.replace(&claimed, &idle(&claimed)).await.unwrap());
    }
    for child in children {
        end(child);
    }
}

/// For each generation that the parent sends, claims it sixteen times at once and prints which
/// claims won.
async fn claim_rounds(directory: &Path) {
    let ledger = open(directory);
    let seen = ledger.live(None).await.unwrap().items.remove(0);
    print_marked("ready");
    while let Some(line) = read_command() {
        let (generation, number) = line.split_once(' ').unwrap();
        let seen = Record { generation: Generation(generation.parse().unwrap()), ..seen.clone() };
        let nonces: Vec<String> =
            (0..CLAIMERS).map(|claimer| format!("c-{number}-{claimer}")).collect();
        let claims: Vec<_> = nonces.iter().map(|nonce| claim(&seen, nonce)).collect();
        let answers = join_all(claims.iter().map(|claim| ledger.claim(claim))).await;
        let winners = nonces.iter().zip(answers).filter_map(|(nonce, answer)| match answer {
            Ok(Written::Won(_)) => Some(nonce.as_str()),
            Ok(Written::Lost) => None,
            other => panic!("{other:?}"),
        });
        print_marked(&winners.collect::<Vec<_>>().join(" "));
    }
}

/// The test kills a child while it writes, several times; every answered write must be stored.
#[tokio::test]
async fn answered_writes_survive_a_kill() {
    if let Some(directory) = child_directory() {
        return write_for_ever(&directory).await;
    }
    let directory = TempDir::new().unwrap();
    let test = "answered_writes_survive_a_kill";
    let mut answered: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..5 {
        let mut child = Process::start(test, directory.path());
        send(&mut child, &round.to_string());
        for _ in 0..200 + round * 37 {
            record_answer(&mut answered, &child.receive().expect("the child runs"));
        }
        // The child may be anywhere in a write.
        child.kill();
        while let Some(line) = child.receive() {
            record_answer(&mut answered, &line);
        }

        let ledger = open(directory.path());
        for (job, revision) in &answered {
            let row = ledger.row(&JobId::new(job)).await.unwrap();
            let row = row.expect("the ledger answered the write");
            assert!(row.revision.0 >= *revision, "{job}: {} < {revision}", row.revision);
            assert_eq!(row.body, body(job, row.revision.0), "the stored row is incomplete");
        }
    }
    assert!(answered.len() >= 5 * CLAIMERS);
}

fn record_answer(answered: &mut BTreeMap<String, u64>, line: &str) {
    let (job, revision) = line.split_once(' ').unwrap();
    answered.insert(job.to_owned(), revision.parse().unwrap());
}

/// A text of several database pages, so that a kill can interrupt its write.
fn body(job: &str, revision: u64) -> String {
    format!("{job} {revision} ").repeat(500)
}

async fn write_for_ever(directory: &Path) {
    let ledger = &open(directory);
    let round = read_command().unwrap();
    let writers = (0..CLAIMERS).map(|writer| write_one(ledger, format!("{round}-{writer}")));
    join_all(writers).await;
}

/// Prints each revision after the ledger has answered its write.
async fn write_one(ledger: &Ledger, job: String) {
    let mut seen: Option<Revision> = None;
    loop {
        let revision = seen.map_or(1, |seen| seen.0 + 1);
        let row = JobRow {
            job: JobId::new(&job),
            revision: Revision(0),
            body: body(&job, revision),
            waiting: None,
            next_look: Some(NOW),
            forget_at: NOW.after(Duration::from_secs(3600)),
        };
        seen = Some(won(ledger.write_row(seen, &row).await.unwrap()).revision);
        print_marked(&format!("{job} {revision}"));
    }
}

/// The clocks stand still, so that only a wake-up can end these waits.
#[tokio::test]
async fn a_waiting_process_is_woken_by_another() {
    if let Some(directory) = child_directory() {
        return wait_twice(&directory).await;
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ledger.db");
    let queues = SqliteQueues::open(&path, StandingClock::new()).unwrap();
    let queue = QueueName::new("q");
    let spec = QueueSpec {
        name: queue.clone(),
        kind: QueueKind::Standard,
        visibility: Duration::from_secs(30),
        retention: Duration::from_secs(3600),
        dead_letters: None,
    };
    queues.ensure(&spec).await.unwrap();
    let mut child = Process::start("a_waiting_process_is_woken_by_another", directory.path());
    assert_eq!(child.receive().as_deref(), Some("waiting for a message"));
    let sent = queues.send(&queue, &[Outgoing::now("hello".to_owned())]).await.unwrap();
    assert_eq!(sent, [Ok(())]);
    assert_eq!(child.receive().as_deref(), Some("hello"));

    assert_eq!(child.receive().as_deref(), Some("waiting for an order"));
    let path = directory.path().join("mailbox.db");
    let mailbox = SqliteMailbox::open(&path, StandingClock::new()).unwrap();
    let order = Order::Withdrawn(Withdrawal {
        generation: Generation(7),
        mode: WithdrawalMode::Stop,
        at: NOW,
        idle_deadline: NOW,
        removal_token: None,
    });
    won(mailbox.post(&MailboxKey::new("i-1"), &order).await.unwrap());
    assert_eq!(child.receive().as_deref(), Some("7"));
    end(child);
}

async fn wait_twice(directory: &Path) {
    let queues = SqliteQueues::open(&directory.join("ledger.db"), StandingClock::new()).unwrap();
    let wait = Duration::from_secs(20);
    let queue = QueueName::new("q");
    let mut receive = pin!(queues.receive(&queue, 1, wait));
    // Polled once, so that it waits before the parent sends.
    assert!(futures_util::poll!(receive.as_mut()).is_pending());
    print_marked("waiting for a message");
    print_marked(&receive.await.unwrap()[0].body);

    let mailbox = SqliteMailbox::open(&directory.join("mailbox.db"), StandingClock::new()).unwrap();
    let key = MailboxKey::new("i-1");
    assert_eq!(mailbox.inbox(&key, Consistency::Consistent).await, Ok(None));
    print_marked("waiting for an order");
    mailbox.wait(&key, wait).await;
    let inbox = mailbox.inbox(&key, Consistency::Consistent).await.unwrap().unwrap();
    print_marked(&inbox.order.rank().generation.to_string());
}
