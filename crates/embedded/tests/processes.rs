//! Several processes at one file: who wins, who is woken, and what is left of one that is killed.
//!
//! Each test runs this test program again, with only itself selected, as its children. A child is
//! told what to do on the command line: the last argument of `--skip`, which the harness takes for
//! the name of a test to leave out, and which names none.
//!
//! Not here: how fast any of it is (`benches/contention.rs`).

#![expect(
    clippy::unwrap_used,
    reason = "all of this is a test, also what is outside of its functions"
)]

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use bullpen_core::ids::{Generation, JobId, MailboxKey, QueueName, Revision};
use bullpen_core::instance::Record;
use bullpen_core::mailbox::{Order, Withdrawal, WithdrawalMode};
use bullpen_core::ports::{
    Consistency, JobRow, Ledger as _, Mailbox as _, Outgoing, QueueKind, QueueSpec, Queues as _,
    Written,
};
use bullpen_embedded::{SqliteLedger, SqliteMailbox, SqliteQueues};
use common::{NOW, StandingClock, claim, idle, stock, won};
use futures_util::future::join_all;
use tempfile::TempDir;

mod common;

type Ledger = SqliteLedger<StandingClock>;

/// What a line from a child begins with; everything else on its output is the harness's.
const MARK: &str = "child says:";

/// The directory a child works in, if this process is one.
fn role() -> Option<PathBuf> {
    let mut arguments = env::args().skip_while(|argument| argument != "--skip");
    arguments.nth(1)?.strip_prefix("child in ").map(PathBuf::from)
}

struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Runs `test` of this program again, as a child.
    fn start(test: &str, directory: &Path) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1", "--skip"])
            .arg(format!("child in {}", directory.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next thing the child says; nothing if it has ended.
    fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if let Some((_, said)) = line.split_once(MARK) {
                return Some(said.trim().to_owned());
            }
            line.clear();
        }
        None
    }

    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    /// A test that failed leaves no child behind.
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn say(what: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{MARK} {what}").unwrap();
    output.flush().unwrap();
}

/// The parent's next line; nothing if it has closed its side.
fn listen() -> Option<String> {
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

/// In each round sixty-four claimers of four processes want the same machine.
#[tokio::test]
async fn exactly_one_of_many_claimers_wins_each_round() {
    if let Some(directory) = role() {
        return claim_rounds(&directory).await;
    }
    let directory = TempDir::new().unwrap();
    let ledger = open(directory.path());
    let mut record = stock(&ledger, "i-1").await;
    let test = "exactly_one_of_many_claimers_wins_each_round";
    let mut children: Vec<_> =
        (0..PROCESSES).map(|_| Process::start(test, directory.path())).collect();
    for child in &mut children {
        assert_eq!(child.hear().as_deref(), Some("ready"));
    }
    for round in 0..ROUNDS {
        for (number, child) in children.iter_mut().enumerate() {
            child.tell(&format!("{} {number}", record.generation));
        }
        let wins: Vec<String> =
            children.iter_mut().map(|child| child.hear().expect("it lives")).collect();
        let winners: Vec<&str> = wins.iter().flat_map(|line| line.split_whitespace()).collect();
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let claimed = ledger.read(&record.id).await.unwrap().unwrap();
        assert_eq!(claimed.generation, record.generation.next(), "round {round}");
        let written = serde_json::to_string(&claimed.state).unwrap();
        assert!(written.contains(&format!("\"{}\"", winners[0])), "{written}");
        record = won(ledger.replace(&claimed, &idle(&claimed)).await.unwrap());
    }
    for child in children {
        child.end();
    }
}

/// Told a generation, claims it sixteen times at once and says which claims won.
async fn claim_rounds(directory: &Path) {
    let ledger = open(directory);
    let seen = ledger.live(None).await.unwrap().items.remove(0);
    say("ready");
    while let Some(line) = listen() {
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
        say(&winners.collect::<Vec<_>>().join(" "));
    }
}

/// Killed again and again in the middle of writing; every write that was answered is there.
#[tokio::test]
async fn what_was_answered_before_a_kill_is_there_after_it() {
    if let Some(directory) = role() {
        return write_for_ever(&directory).await;
    }
    let directory = TempDir::new().unwrap();
    let test = "what_was_answered_before_a_kill_is_there_after_it";
    let mut answered: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..5 {
        let mut child = Process::start(test, directory.path());
        child.tell(&round.to_string());
        for _ in 0..200 + round * 37 {
            note(&mut answered, &child.hear().expect("it lives"));
        }
        // Whatever it is doing now, it is doing for the last time.
        child.child.kill().unwrap();
        while let Some(line) = child.hear() {
            note(&mut answered, &line);
        }
        child.child.wait().unwrap();

        let ledger = open(directory.path());
        for (job, revision) in &answered {
            let row = ledger.row(&JobId::new(job)).await.unwrap().expect("it was answered");
            assert!(row.revision.0 >= *revision, "{job}: {} < {revision}", row.revision);
            assert_eq!(row.body, body(job, row.revision.0), "whole, whichever it is");
        }
    }
    assert!(answered.len() >= 5 * CLAIMERS);
}

fn note(answered: &mut BTreeMap<String, u64>, line: &str) {
    let (job, revision) = line.split_once(' ').unwrap();
    answered.insert(job.to_owned(), revision.parse().unwrap());
}

/// Long enough for several pages, so that there is a middle to be killed in.
fn body(job: &str, revision: u64) -> String {
    format!("{job} {revision} ").repeat(500)
}

async fn write_for_ever(directory: &Path) {
    let ledger = &open(directory);
    let round = listen().unwrap();
    let writers = (0..CLAIMERS).map(|writer| write_one(ledger, format!("{round}-{writer}")));
    join_all(writers).await;
}

/// Says each revision once it was answered.
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
        say(&format!("{job} {revision}"));
    }
}

/// The clocks stand, so nothing but a wake-up can end these waits.
#[tokio::test]
async fn whoever_waits_is_woken_by_another_process() {
    if let Some(directory) = role() {
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
    let mut child = Process::start("whoever_waits_is_woken_by_another_process", directory.path());
    assert_eq!(child.hear().as_deref(), Some("waiting for a message"));
    let sent = queues.send(&queue, &[Outgoing::now("hello".to_owned())]).await.unwrap();
    assert_eq!(sent, [Ok(())]);
    assert_eq!(child.hear().as_deref(), Some("hello"));

    assert_eq!(child.hear().as_deref(), Some("waiting for an order"));
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
    assert_eq!(child.hear().as_deref(), Some("7"));
    child.end();
}

async fn wait_twice(directory: &Path) {
    let queues = SqliteQueues::open(&directory.join("ledger.db"), StandingClock::new()).unwrap();
    let wait = Duration::from_secs(20);
    let queue = QueueName::new("q");
    let mut receive = pin!(queues.receive(&queue, 1, wait));
    // Said once it waits, not before.
    assert!(futures_util::poll!(receive.as_mut()).is_pending());
    say("waiting for a message");
    say(&receive.await.unwrap()[0].body);

    let mailbox = SqliteMailbox::open(&directory.join("mailbox.db"), StandingClock::new()).unwrap();
    let key = MailboxKey::new("i-1");
    assert_eq!(mailbox.inbox(&key, Consistency::Consistent).await, Ok(None));
    say("waiting for an order");
    mailbox.wait(&key, wait).await;
    let inbox = mailbox.inbox(&key, Consistency::Consistent).await.unwrap().unwrap();
    say(&inbox.order.rank().generation.to_string());
}
