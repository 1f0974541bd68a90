//! Measures writes of many processes: their number per second, and how long each waits.
//!
//! First the throughput of conditional writes, from one process and from four, beside a bare SQLite
//! loop of the same durability. Then the waits of 200 agents that beat ten times a second and of 8
//! claimers without pause, and the same load in one file, which the system never does. The parent
//! starts this program again for each child, with its role, number and directory as arguments.
//!
//! Not here: the figures (`docs/benchmarks.md`).

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bullpen_core::ids::{JobId, MailboxKey, Revision};
use bullpen_core::instance::Record;
use bullpen_core::mailbox::{AgentPhase, Beat};
use bullpen_core::ports::{JobRow, Ledger as _, Mailbox as _, Written};
use bullpen_embedded::{SqliteLedger, SqliteMailbox};
use common::{NOW, StandingClock, claim, idle, store_idle, won};
use futures_util::future::join_all;
use rusqlite::{Connection, params};
use tokio::time::{MissedTickBehavior, interval};

#[path = "../tests/common/mod.rs"]
mod common;

/// How long a child writes per run.
const MEASURED: Duration = Duration::from_secs(2);
/// Runs of each throughput, in alternation: a disk's speed varies.
const ROUNDS: u64 = 5;
const PROCESSES: [usize; 2] = [1, 4];
const BEAT: Duration = Duration::from_millis(100);
const AGENT_PROCESSES: usize = 5;
const AGENTS_PER_PROCESS: usize = 40;
const CLAIMER_PROCESSES: usize = 4;
const CLAIMERS_PER_PROCESS: usize = 2;

type Ledger = SqliteLedger<StandingClock>;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|it| it != "--bench").collect();
    match &arguments[..] {
        [role, number, directory] => child(role, number, Path::new(directory)),
        _ => parent(),
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}

fn parent() {
    throughput();
    for (agents, title) in [
        ("beats", "200 beating agents (mailbox.db), 8 claimers (ledger.db)"),
        ("rows", "200 row writers and 8 claimers, all in ledger.db"),
    ] {
        println!("\n{title}: time per write in milliseconds\n");
        println!(
            "{:<12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>22}",
            "", "writes", "p50", "p99", "p99.9", "max", "slowest process (p99)"
        );
        contention(agents);
    }
}

fn throughput() {
    let roles = [
        ("bare", "bare SQLite, one write a transaction"),
        ("one", "ledger, one caller a process"),
        ("sixteen", "ledger, sixteen callers a process"),
    ];
    let mut written = [[0; 2]; 3];
    for _ in 0..ROUNDS {
        for (column, processes) in PROCESSES.into_iter().enumerate() {
            for (line, (role, _)) in roles.into_iter().enumerate() {
                written[line][column] += writes(role, processes);
            }
        }
    }
    println!("conditional writes per second\n");
    println!("{:<40} {:>10} {:>8} {:>12} {:>8}", "", "1 process", "", "4 processes", "");
    for (line, (_, title)) in roles.into_iter().enumerate() {
        let cell = |column: usize| {
            let share = written[line][column] * 100 / written[0][column].max(1);
            (written[line][column] / (MEASURED.as_secs() * ROUNDS), format!("{share} %"))
        };
        let ((one, one_share), (four, four_share)) = (cell(0), cell(1));
        println!("{title:<40} {one:>10} {one_share:>8} {four:>12} {four_share:>8}");
    }
}

/// The number of writes that the processes make together.
fn writes(role: &str, processes: usize) -> u64 {
    let directory = tempfile::tempdir().expect("a directory can be made");
    prepare(directory.path());
    let children = (0..processes).map(|number| spawn(role, number, directory.path())).collect();
    start(children).into_iter().flatten().sum()
}

fn contention(agents: &str) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    prepare(directory.path());
    let mut children = Vec::new();
    for number in 0..AGENT_PROCESSES {
        children.push(spawn(agents, number, directory.path()));
    }
    for number in 0..CLAIMER_PROCESSES {
        children.push(spawn("claims", number, directory.path()));
    }
    let mut answers = start(children);
    let claims = answers.split_off(AGENT_PROCESSES);
    report(agents, answers);
    report("claims", claims);
}

fn report(title: &str, processes: Vec<Vec<u64>>) {
    let slowest = processes.iter().cloned().map(|it| quantile(it, 990)).max().unwrap_or(0);
    let all: Vec<u64> = processes.into_iter().flatten().collect();
    let millis = |micros: u64| format!("{}.{:02}", micros / 1000, micros % 1000 / 10);
    println!(
        "{title:<12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>22}",
        all.len(),
        millis(quantile(all.clone(), 500)),
        millis(quantile(all.clone(), 990)),
        millis(quantile(all.clone(), 999)),
        millis(quantile(all.clone(), 1000)),
        millis(slowest),
    );
}

fn quantile(mut micros: Vec<u64>, permille: usize) -> u64 {
    micros.sort_unstable();
    let index = (micros.len() * permille / 1000).min(micros.len().saturating_sub(1));
    micros.get(index).copied().unwrap_or(0)
}

fn prepare(directory: &Path) {
    drop(
        Ledger::open(&directory.join("ledger.db"), StandingClock::new())
            .expect("the database opens"),
    );
}

fn spawn(role: &str, number: usize, directory: &Path) -> Child {
    Command::new(env::current_exe().expect("this program has a path"))
        .args([role, &number.to_string()])
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be run again")
}

/// Starts all children at once when all are ready, and collects the numbers that each prints.
fn start(mut children: Vec<Child>) -> Vec<Vec<u64>> {
    let mut outputs = Vec::new();
    for child in &mut children {
        let mut output = BufReader::new(child.stdout.take().expect("the stream is piped"));
        let mut ready = String::new();
        output.read_line(&mut ready).expect("a child prints when it is ready");
        outputs.push(output);
    }
    for child in &mut children {
        writeln!(child.stdin.as_mut().expect("the stream is piped"), "go")
            .expect("a child reads its input");
    }
    let answers = outputs
        .into_iter()
        .map(|output| {
            let lines = output.lines().map(|line| line.expect("a child prints text"));
            lines.map(|line| line.parse().expect("a child prints numbers")).collect()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("a child ends").success());
    }
    answers
}

fn ready() {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).expect("the parent sends a line");
}

fn child(role: &str, number: &str, directory: &Path) {
    let ledger = directory.join("ledger.db");
    if role == "bare" {
        println!("{}", bare(&ledger, number));
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        let numbers = if role == "beats" {
            beats(&directory.join("mailbox.db"), number).await
        } else {
            let ledger = Ledger::open(&ledger, StandingClock::new()).expect("the database opens");
            match role {
                "one" => vec![replace(&ledger, number, 1).await],
                "sixteen" => vec![replace(&ledger, number, 16).await],
                "rows" => rows(&ledger, number).await,
                _ => claims(&ledger, number).await,
            }
        };
        for number in numbers {
            println!("{number}");
        }
    });
}

/// The SQL of the ledger's write, without the ledger.
fn bare(path: &Path, number: &str) -> u64 {
    let db = Connection::open(path).expect("the database opens");
    db.execute_batch("PRAGMA synchronous = FULL").expect("the pragma is valid");
    let id = format!("bare-{number}");
    let body = "x".repeat(600);
    db.execute(
        "INSERT INTO records (id, revision, state, live, class, deadline, body) \
         VALUES (?1, 1, 'idle', 1, 'small', 1, ?2)",
        params![id, body],
    )
    .expect("the record is new");
    ready();
    let (begin, mut revision) = (now(), 1_u64);
    while begin.elapsed() < MEASURED {
        let step = |sql: &str| db.prepare_cached(sql).and_then(|mut it| it.execute([])).map(|_| ());
        step("BEGIN IMMEDIATE").expect("the lock is free in time");
        let changed = db
            .prepare_cached(
                "UPDATE records SET revision = ?2, state = 'idle', live = 1, owner = NULL, \
                 idle_since = 1, deadline = ?2, body = ?4 WHERE id = ?1 AND revision = ?3",
            )
            .and_then(|mut it| it.execute(params![id, revision + 1, revision, body]))
            .expect("the record exists");
        step("COMMIT").expect("the disk has space");
        assert_eq!(changed, 1);
        revision += 1;
    }
    revision - 1
}

/// Each caller replaces its own record without pause.
async fn replace(ledger: &Ledger, number: &str, callers: usize) -> u64 {
    let mut records = Vec::new();
    for caller in 0..callers {
        records.push(store_idle(ledger, &format!("{number}-{caller}")).await);
    }
    ready();
    let begin = now();
    let written = join_all(records.into_iter().map(|mut record| async move {
        let mut written = 0;
        while begin.elapsed() < MEASURED {
            record =
                won(ledger.replace(&record, &idle(&record)).await.expect("the database answers"));
            written += 1;
        }
        written
    }));
    written.await.into_iter().sum()
}

/// How long each beat of forty agents of one process took.
async fn beats(path: &Path, number: &str) -> Vec<u64> {
    let mailbox = SqliteMailbox::open(path, StandingClock::new()).expect("the database opens");
    ready();
    let begin = now();
    let waits = join_all((0..AGENTS_PER_PROCESS).map(|agent| {
        let (mailbox, key) = (&mailbox, MailboxKey::new(format!("{number}-{agent}")));
        async move {
            let mut waits = Vec::new();
            let mut ticks = ticks(agent).await;
            for seq in 0.. {
                ticks.tick().await;
                if begin.elapsed() >= MEASURED {
                    break;
                }
                let beat =
                    Beat { seq, at: NOW, phase: AgentPhase::Waiting, boot: "boot".to_owned() };
                let sent = now();
                mailbox.beat(&key, &beat).await.expect("the database answers");
                waits.push(micros(sent));
            }
            waits
        }
    }));
    waits.await.concat()
}

/// How long each write of a job row by forty writers of one process took.
async fn rows(ledger: &Ledger, number: &str) -> Vec<u64> {
    ready();
    let begin = now();
    let waits = join_all((0..AGENTS_PER_PROCESS).map(|agent| async move {
        let mut waits = Vec::new();
        let mut row = JobRow {
            job: JobId::new(format!("{number}-{agent}")),
            revision: Revision(0),
            body: "x".repeat(600),
            waiting: None,
            next_look: Some(NOW),
            forget_at: NOW.after(Duration::from_secs(86_400)),
        };
        let mut ticks = ticks(agent).await;
        loop {
            ticks.tick().await;
            if begin.elapsed() >= MEASURED {
                return waits;
            }
            let seen = Some(row.revision).filter(|revision| revision.0 > 0);
            let sent = now();
            row = won(ledger.write_row(seen, &row).await.expect("the database answers"));
            waits.push(micros(sent));
        }
    }));
    waits.await.concat()
}

/// An agent's beats, with an offset: agents do not beat in step.
async fn ticks(agent: usize) -> tokio::time::Interval {
    let offset = BEAT * u32::try_from(agent).expect("few agents") / 40;
    let mut first = interval(offset.max(Duration::from_millis(1)));
    first.tick().await;
    first.tick().await;
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// How long the writes of one process's claimers took. Each claimer claims and returns its own
/// machine without pause.
async fn claims(ledger: &Ledger, number: &str) -> Vec<u64> {
    let mut records = Vec::new();
    for claimer in 0..CLAIMERS_PER_PROCESS {
        records.push(store_idle(ledger, &format!("{number}-{claimer}")).await);
    }
    ready();
    let begin = now();
    let waits = join_all(records.into_iter().map(|record| claim_on(ledger, record, begin)));
    waits.await.concat()
}

async fn claim_on(ledger: &Ledger, mut record: Record, begin: Instant) -> Vec<u64> {
    let mut waits = Vec::new();
    while begin.elapsed() < MEASURED {
        let sent = now();
        let claimed = ledger.claim(&claim(&record, "nonce")).await.expect("the database answers");
        waits.push(micros(sent));
        let Written::Won(claimed) = claimed else { panic!("another claimer won") };
        let sent = now();
        record =
            won(ledger.replace(&claimed, &idle(&claimed)).await.expect("the database answers"));
        waits.push(micros(sent));
    }
    waits
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
