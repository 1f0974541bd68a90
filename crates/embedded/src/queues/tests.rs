//! Tests of both kinds of queue: when a receiver sees a message, how often, and waiting for one.

use std::future::Future as _;
use std::path::PathBuf;
use std::task::{Context, Waker};

use bullpen_core::ports::{Fifo, QueueKind};
use tempfile::TempDir;

use super::*;
use crate::testing::{ManualClock, clock, secs};

struct World {
    clock: Arc<ManualClock>,
    queues: SqliteQueues<ManualClock>,
    path: PathBuf,
    _directory: TempDir,
}

fn world() -> World {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ledger.db");
    let clock = clock();
    let queues = SqliteQueues::open(&path, Arc::clone(&clock)).unwrap();
    World { clock, queues, path, _directory: directory }
}

fn spec(name: &str, kind: QueueKind) -> QueueSpec {
    QueueSpec {
        name: QueueName::new(name),
        kind,
        visibility: secs(30),
        retention: secs(3600),
        dead_letters: None,
    }
}

async fn standard(queues: &SqliteQueues<ManualClock>) -> QueueName {
    let spec = spec("standard", QueueKind::Standard);
    queues.ensure(&spec).await.unwrap();
    spec.name
}

async fn fifo(queues: &SqliteQueues<ManualClock>) -> QueueName {
    let spec = spec("fifo", QueueKind::Fifo);
    queues.ensure(&spec).await.unwrap();
    spec.name
}

fn plain(body: &str) -> Outgoing {
    Outgoing::now(body.to_owned())
}

fn grouped(body: &str, group: &str) -> Outgoing {
    let fifo = Fifo { group: group.to_owned(), deduplication: body.to_owned() };
    Outgoing { fifo: Some(fifo), ..plain(body) }
}

async fn send(queues: &SqliteQueues<ManualClock>, queue: &QueueName, messages: &[Outgoing]) {
    let answers = queues.send(queue, messages).await.unwrap();
    assert_eq!(answers, vec![Ok(()); messages.len()]);
}

async fn take(queues: &SqliteQueues<ManualClock>, queue: &QueueName) -> Vec<Delivery> {
    queues.receive(queue, 10, Duration::ZERO).await.unwrap()
}

fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.body.as_str()).collect()
}

fn depth(visible: u64, delayed: u64, in_flight: u64) -> Depth {
    Depth { visible, delayed, in_flight }
}

#[tokio::test]
async fn a_message_is_hidden_while_it_is_in_flight_and_comes_again() {
    let World { queues, clock, .. } = &world();
    let queue = standard(queues).await;
    send(queues, &queue, &[plain("täglich\n\"1\"")]).await;
    let first = take(queues, &queue).await;
    assert_eq!((bodies(&first), first[0].receives), (vec!["täglich\n\"1\""], 1));
    assert_eq!(take(queues, &queue).await, []);
    assert_eq!(queues.depth(&queue).await, Ok(depth(0, 0, 1)));
    clock.advance(secs(30));
    assert_eq!(queues.depth(&queue).await, Ok(depth(1, 0, 0)));
    let second = take(queues, &queue).await;
    assert_eq!(second[0].receives, 2);

    queues.delete(&queue, &[first[0].receipt.clone()]).await.unwrap();
    assert_eq!(queues.depth(&queue).await.unwrap().total(), 1, "a stale receipt changes nothing");
    queues.defer(&queue, &first[0].receipt, Duration::ZERO).await.unwrap();
    assert_eq!(queues.depth(&queue).await, Ok(depth(0, 0, 1)));
    queues.delete(&queue, &[second[0].receipt.clone(), Receipt::new("odd")]).await.unwrap();
    assert_eq!(queues.depth(&queue).await, Ok(Depth::default()));
}

#[tokio::test]
async fn a_delayed_message_is_seen_when_its_time_has_come() {
    let World { queues, clock, .. } = &world();
    let queue = standard(queues).await;
    send(queues, &queue, &[Outgoing { delay: secs(3), ..plain("late") }, plain("now")]).await;
    assert_eq!(queues.depth(&queue).await, Ok(depth(1, 1, 0)));
    assert_eq!(bodies(&take(queues, &queue).await), ["now"]);
    clock.advance(secs(3));
    assert_eq!(bodies(&take(queues, &queue).await), ["late"]);
}

#[tokio::test]
async fn deferring_hides_longer_or_shows_at_once() {
    let World { queues, clock, .. } = &world();
    let queue = standard(queues).await;
    send(queues, &queue, &[plain("a")]).await;
    let first = take(queues, &queue).await.remove(0);
    queues.defer(&queue, &first.receipt, secs(60)).await.unwrap();
    clock.advance(secs(59));
    assert_eq!(take(queues, &queue).await, []);
    queues.defer(&queue, &first.receipt, Duration::ZERO).await.unwrap();
    assert_eq!(take(queues, &queue).await[0].receives, 2);
}

#[tokio::test]
async fn a_message_moves_when_its_receives_are_used_up() {
    let World { queues, clock, .. } = &world();
    let dead = QueueName::new("dead");
    let moving =
        QueueSpec { dead_letters: Some((dead.clone(), 2)), ..spec("source", QueueKind::Standard) };
    queues.ensure(&moving).await.unwrap();
    send(queues, &moving.name, &[plain("a")]).await;
    for receives in 1..=3 {
        let again = take(queues, &moving.name).await;
        assert_eq!(again[0].receives, receives, "there is no queue to move it to");
        clock.advance(secs(30));
    }
    queues.ensure(&spec("dead", QueueKind::Standard)).await.unwrap();
    assert_eq!(take(queues, &moving.name).await, []);
    assert_eq!(queues.depth(&moving.name).await, Ok(Depth::default()));
    let letter = take(queues, &dead).await.remove(0);
    assert_eq!((letter.body.as_str(), letter.receives), ("a", 1));
}

#[tokio::test]
async fn a_message_is_kept_for_its_retention_and_no_longer() {
    let World { queues, clock, .. } = &world();
    let queue = standard(queues).await;
    send(queues, &queue, &[plain("a"), plain("b")]).await;
    clock.advance(secs(3599));
    assert_eq!(take(queues, &queue).await.len(), 2);
    clock.advance(secs(1));
    assert_eq!(queues.depth(&queue).await, Ok(Depth::default()));
    clock.advance(secs(60));
    assert_eq!(take(queues, &queue).await, []);
}

#[tokio::test]
async fn sends_to_any_queue_remove_expired_messages_and_keys() {
    let World { queues, clock, path, .. } = &world();
    let (queue, other) = (standard(queues).await, fifo(queues).await);
    send(queues, &queue, &[plain("a"), plain("b")]).await;
    send(queues, &other, &[grouped("a", "g"), grouped("b", "g")]).await;
    clock.advance(secs(3600));
    send(queues, &queue, &[plain("c")]).await;
    let db = rusqlite::Connection::open(path).unwrap();
    let count = |table| -> u64 {
        db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("messages"), count("deduplications")), (1, 0));
}

#[tokio::test]
async fn a_group_is_delivered_in_order_one_at_a_time() {
    let World { queues, clock, .. } = &world();
    let queue = fifo(queues).await;
    send(queues, &queue, &[grouped("a1", "a"), grouped("a2", "a"), grouped("b1", "b")]).await;
    let first = take(queues, &queue).await;
    assert_eq!(bodies(&first), ["a1", "b1"]);
    assert_eq!(take(queues, &queue).await, [], "a2 waits for a1");
    clock.advance(secs(30));
    let again = take(queues, &queue).await;
    assert_eq!(bodies(&again), ["a1", "b1"], "a1 comes again before a2");
    queues.delete(&queue, &[first[0].receipt.clone()]).await.unwrap();
    assert_eq!(take(queues, &queue).await, [], "a stale receipt unblocks nothing");
    queues.delete(&queue, &[again[0].receipt.clone()]).await.unwrap();
    assert_eq!(bodies(&take(queues, &queue).await), ["a2"]);
}

#[tokio::test]
async fn a_dead_letter_unblocks_its_group() {
    let World { queues, clock, .. } = &world();
    let dead = spec("dead", QueueKind::Fifo);
    queues.ensure(&dead).await.unwrap();
    let source =
        QueueSpec { dead_letters: Some((dead.name.clone(), 1)), ..spec("s", QueueKind::Fifo) };
    queues.ensure(&source).await.unwrap();
    send(queues, &source.name, &[grouped("a1", "a"), grouped("a2", "a")]).await;
    assert_eq!(bodies(&take(queues, &source.name).await), ["a1"]);
    clock.advance(secs(30));
    assert_eq!(take(queues, &source.name).await, [], "a1 moves");
    assert_eq!(bodies(&take(queues, &source.name).await), ["a2"]);
    assert_eq!(bodies(&take(queues, &dead.name).await), ["a1"]);
}

#[tokio::test]
async fn a_fifo_queue_drops_a_duplicate_within_five_minutes() {
    let World { queues, clock, .. } = &world();
    let queue = fifo(queues).await;
    send(queues, &queue, &[grouped("a", "g"), grouped("a", "g")]).await;
    let first = take(queues, &queue).await.remove(0);
    queues.delete(&queue, &[first.receipt]).await.unwrap();
    clock.advance(secs(299));
    send(queues, &queue, &[grouped("a", "g")]).await;
    assert_eq!(take(queues, &queue).await, [], "also after it was deleted");
    clock.advance(secs(1));
    send(queues, &queue, &[grouped("a", "g")]).await;
    assert_eq!(bodies(&take(queues, &queue).await), ["a"]);
}

#[tokio::test]
async fn invalid_calls_are_refused() {
    let World { queues, .. } = &world();
    let unknown = QueueName::new("unknown");
    let receipt = Receipt::new("1.1");
    assert_eq!(queues.send(&unknown, &[plain("a")]).await, Err(Fault::NotFound));
    assert_eq!(queues.receive(&unknown, 1, secs(1)).await, Err(Fault::NotFound));
    assert_eq!(queues.delete(&unknown, &[]).await, Err(Fault::NotFound));
    assert_eq!(queues.defer(&unknown, &receipt, secs(1)).await, Err(Fault::NotFound));
    assert_eq!(queues.depth(&unknown).await, Err(Fault::NotFound));
    assert_eq!(queues.remove(&unknown).await, Err(Fault::NotFound));

    let queue = fifo(queues).await;
    let answers = queues.send(&queue, &[plain("a"), grouped("b", "g")]).await.unwrap();
    assert!(matches!(&answers[..], [Err(Fault::Denied(_)), Ok(())]), "{answers:?}");
    assert!(matches!(queues.send(&queue, &vec![plain("a"); 11]).await, Err(Fault::Denied(_))));
    let turned = spec(queue.as_str(), QueueKind::Standard);
    assert!(matches!(queues.ensure(&turned).await, Err(Fault::Denied(_))));
    queues.ensure(&spec(queue.as_str(), QueueKind::Fifo)).await.unwrap();
    assert_eq!(queues.depth(&queue).await.unwrap().total(), 1, "nothing happened");
    queues.remove(&queue).await.unwrap();
    assert_eq!(queues.depth(&queue).await, Err(Fault::NotFound));
}

#[tokio::test]
async fn a_receive_gives_no_more_than_asked_and_no_more_than_ten() {
    let World { queues, .. } = &world();
    let queue = standard(queues).await;
    for _ in 0..2 {
        send(queues, &queue, &vec![plain("a"); 10]).await;
    }
    assert_eq!(queues.receive(&queue, 3, Duration::ZERO).await.unwrap().len(), 3);
    assert_eq!(queues.receive(&queue, 50, Duration::ZERO).await.unwrap().len(), 10);
}

/// Polls the future once, so that it registers, and checks that it waits.
macro_rules! assert_waits {
    ($future:expr) => {
        let poll = $future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_pending());
    };
}

#[tokio::test]
async fn a_waiter_is_woken_by_another_handle() {
    let World { queues, clock, path, .. } = &world();
    let queue = fifo(queues).await;
    let other = SqliteQueues::open(path, Arc::clone(clock)).unwrap();
    let mut waiting = pin!(queues.receive(&queue, 1, secs(20)));
    assert_waits!(waiting);
    send(&other, &queue, &[grouped("a1", "a"), grouped("a2", "a")]).await;
    let first = waiting.await.unwrap();
    assert_eq!(bodies(&first), ["a1"]);

    let mut blocked = pin!(queues.receive(&queue, 1, secs(20)));
    assert_waits!(blocked);
    other.delete(&queue, &[first[0].receipt.clone()]).await.unwrap();
    let second = blocked.await.unwrap();
    assert_eq!(bodies(&second), ["a2"]);

    let mut hidden = pin!(queues.receive(&queue, 1, secs(20)));
    assert_waits!(hidden);
    other.defer(&queue, &second[0].receipt, Duration::ZERO).await.unwrap();
    assert_eq!(hidden.await.unwrap()[0].receives, 2);

    let mut gone = pin!(queues.receive(&queue, 1, secs(20)));
    assert_waits!(gone);
    other.remove(&queue).await.unwrap();
    assert_eq!(gone.await, Err(Fault::NotFound));
}

#[tokio::test]
async fn a_dead_letter_wakes_its_waiter() {
    let World { queues, clock, .. } = &world();
    let dead = spec("dead", QueueKind::Standard);
    queues.ensure(&dead).await.unwrap();
    let source = QueueSpec {
        dead_letters: Some((dead.name.clone(), 1)),
        ..spec("source", QueueKind::Standard)
    };
    queues.ensure(&source).await.unwrap();
    send(queues, &source.name, &[plain("a")]).await;
    take(queues, &source.name).await;
    let mut waiting = pin!(queues.receive(&dead.name, 1, secs(60)));
    assert_waits!(waiting);
    clock.advance(secs(30));
    take(queues, &source.name).await;
    assert_eq!(bodies(&waiting.await.unwrap()), ["a"]);
}

#[tokio::test]
async fn a_waiter_is_woken_when_a_hidden_message_is_due_or_time_is_up() {
    let World { queues, clock, .. } = &world();
    let queue = standard(queues).await;
    send(queues, &queue, &[Outgoing { delay: secs(3), ..plain("late") }]).await;
    let waiting = queues.receive(&queue, 1, secs(20));
    let (received, ()) = tokio::join!(waiting, async {
        // Advance the clock only when every other future waits.
        for _ in 0..3 {
            tokio::task::yield_now().await;
            clock.advance(secs(1));
        }
    });
    assert_eq!(bodies(&received.unwrap()), ["late"]);
    let waiting = queues.receive(&queue, 1, secs(20));
    let (received, ()) = tokio::join!(waiting, async { clock.advance(secs(20)) });
    assert_eq!(received.unwrap(), []);
}

#[tokio::test]
async fn queues_beside_a_ledger_share_its_writer() {
    let World { clock, path, .. } = &world();
    let ledger = SqliteLedger::open(path, Arc::clone(clock)).unwrap();
    let queues = SqliteQueues::beside(&ledger).unwrap();
    assert!(Arc::ptr_eq(ledger.store(), &queues.store));
    let queue = standard(&queues).await;
    drop(ledger);
    send(&queues, &queue, &[plain("a")]).await;
    assert_eq!(bodies(&take(&queues, &queue).await), ["a"]);
}
