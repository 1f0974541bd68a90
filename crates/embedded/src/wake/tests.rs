//! Tests of wake-ups: by topic, before the first look, with dead waiters and full sockets.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tempfile::TempDir;

use super::*;

struct World {
    sender: WakeSender,
    listener: WakeListener,
    wake: PathBuf,
    database: PathBuf,
    _directory: TempDir,
}

fn world() -> World {
    let directory = TempDir::new().unwrap();
    let database = directory.path().join("ledger.db");
    World {
        sender: WakeSender::new(&database).unwrap(),
        listener: WakeListener::new(&database).unwrap(),
        wake: directory.path().join("wake"),
        database,
        _directory: directory,
    }
}

fn is_woken(watch: &TopicWatch) -> bool {
    pin!(watch.woken()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Waits for a wake-up with a limit, so that a test fails and does not hang.
async fn woken(watch: &TopicWatch) {
    tokio::time::timeout(Duration::from_secs(30), watch.woken()).await.expect("no wake-up came");
}

#[tokio::test]
async fn the_directory_of_the_sockets_is_closed_whatever_it_was_before() {
    for before in [None, Some(0o755)] {
        let World { listener, wake, .. } = &world();
        if let Some(mode) = before {
            fs::create_dir(wake).unwrap();
            fs::set_permissions(wake, fs::Permissions::from_mode(mode)).unwrap();
        }
        let _watch = listener.watch(Topic::new("queue", "one")).unwrap();
        assert_eq!(fs::metadata(wake).unwrap().mode() & 0o777, 0o700, "{before:?}");
    }
}

#[tokio::test]
async fn a_wake_up_before_the_wait_is_kept_and_wakes_no_other_topic() {
    let World { sender, listener, .. } = &world();
    let (one, two) = (Topic::new("queue", "one"), Topic::new("queue", "two"));
    let watches = [listener.watch(one).unwrap(), listener.watch(one).unwrap()];
    let other = listener.watch(two).unwrap();
    sender.wake_all(vec![one, one]);
    woken(&watches[0]).await;
    woken(&watches[1]).await;
    assert!(!is_woken(&watches[0]), "once each");
    assert!(!is_woken(&other));
}

#[tokio::test]
async fn a_waiter_that_left_leaves_nothing_behind() {
    let World { sender, listener, wake, .. } = world();
    let topic = Topic::new("queue", "one");
    sender.wake_all(vec![topic]);
    assert!(!wake.exists(), "no waiter has registered yet");
    let (first, second) = (listener.watch(topic).unwrap(), listener.watch(topic).unwrap());
    drop(first);
    sender.wake_all(vec![topic]);
    woken(&second).await;
    drop(second);
    assert!(!topic.directory(&wake).exists());
    assert_eq!(fs::read_dir(&wake).unwrap().count(), 1, "the socket");
    drop(listener);
    assert_eq!(fs::read_dir(&wake).unwrap().count(), 0);
}

#[tokio::test]
async fn dead_waiters_are_removed_by_senders_and_sweeps() {
    let World { sender, wake, database, .. } = &world();
    let topic = Topic::new("queue", "one");
    let entry = topic.directory(wake).join("1-1");
    for finder in ["sender", "sweep"] {
        fs::create_dir_all(topic.directory(wake)).unwrap();
        // Leave a socket file without a process: bind it and close it.
        drop(UnixDatagram::bind(wake.join("1-1")).unwrap());
        File::create(&entry).unwrap();
        if finder == "sender" {
            sender.wake_all(vec![topic]);
        } else {
            let living = WakeListener::new(database).unwrap();
            drop(living.watch(Topic::new("queue", "another")).unwrap());
        }
        assert!(!wake.join("1-1").exists(), "{finder}");
        assert!(!entry.exists(), "{finder}");
    }
}

#[tokio::test]
async fn a_full_socket_loses_no_wake_up() {
    let World { sender, wake, .. } = &world();
    fs::create_dir_all(wake).unwrap();
    let path = wake.join("1-1");
    let socket = UnixDatagram::bind(&path).unwrap();
    let (loud, quiet) = (Topic::new("queue", "loud"), Topic::new("queue", "quiet"));
    for topic in [loud, quiet] {
        register(&topic.directory(wake).join("1-1")).unwrap();
    }
    while !overflow_mark(&path).exists() {
        sender.wake_all(vec![loud]);
    }
    fs::remove_file(overflow_mark(&path)).unwrap();
    sender.wake_all(vec![quiet]);
    // Start the listener only now; it must wake the quiet topic too.
    let shared = Arc::new(Shared::default());
    let woken = Arc::new(Notify::new());
    lock(&shared.watches).insert(quiet, vec![Arc::clone(&woken)]);
    let for_thread = Arc::clone(&shared);
    let thread = thread::spawn(move || listen(&socket, &overflow_mark(&path), &for_thread));
    tokio::time::timeout(Duration::from_secs(30), woken.notified()).await.expect("lost");
    shared.ended.store(true, Ordering::Release);
    sender.wake_all(vec![loud]);
    thread.join().unwrap();
}

#[test]
fn a_path_that_no_socket_can_have_is_refused_with_a_hint() {
    let deep = Path::new("/").join("d".repeat(90)).join("ledger.db");
    let Err(error) = WakeSender::new(&deep) else { panic!("accepted") };
    assert!(matches!(error, OpenError::PathTooLong { .. }), "{error}");
    assert_eq!(error.hint(), "name a state directory with a shorter path");
}
