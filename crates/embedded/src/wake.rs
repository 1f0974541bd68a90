//! Wake-ups between processes, so that a waiter need not poll for a write.
//!
//! In the directory `wake` each waiting process has one Unix datagram socket, and each *topic* (a
//! queue, a mailbox) has a directory with an empty file per waiting socket. After a commit a writer
//! sends the topic's number to these sockets. A wake-up means "look now" and may be spurious. None
//! is lost: a waiter registers before it looks, and beside a full socket the sender leaves a mark.
//!
//! Not here: the looks, or how long to wait.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::Notify;

use crate::open::OpenError;

/// The longest path of a socket on macOS; Linux allows four more bytes.
const SOCKET_PATH_BYTES_MAX: usize = 103;
/// `/` and the longest name: a process id, a dash, a counter, and the suffix of a draft.
const SOCKET_NAME_BYTES_MAX: usize = 1 + 10 + 1 + 8 + 4;

/// The subject of a wake-up, as a number. Two topics with the same number wake each other's
/// waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Topic(u64);

impl Topic {
    /// FNV-1a, because the processes of every build must compute the same number.
    pub(crate) fn new(kind: &str, name: &str) -> Self {
        let bytes = kind.bytes().chain([0]).chain(name.bytes());
        Self(bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        }))
    }

    fn directory(self, wake: &Path) -> PathBuf {
        wake.join(format!("t{:016x}", self.0))
    }
}

fn wake_directory(database: &Path) -> Result<PathBuf, OpenError> {
    let wake = database.with_file_name("wake");
    let bytes_max = SOCKET_PATH_BYTES_MAX - SOCKET_NAME_BYTES_MAX;
    if wake.as_os_str().as_bytes().len() > bytes_max {
        return Err(OpenError::PathTooLong { path: wake, bytes_max });
    }
    Ok(wake)
}

/// The writer's side.
pub(crate) struct WakeSender {
    wake: PathBuf,
    socket: UnixDatagram,
}

impl WakeSender {
    pub(crate) fn new(database: &Path) -> Result<Self, OpenError> {
        let wake = wake_directory(database)?;
        let unbound = || {
            let socket = UnixDatagram::unbound()?;
            // A writer never waits for a waiter.
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        match unbound() {
            Ok(socket) => Ok(Self { wake, socket }),
            Err(source) => Err(OpenError::Io { path: wake, source }),
        }
    }

    /// Wakes all waiters of these topics.
    pub(crate) fn wake_all(&self, mut topics: Vec<Topic>) {
        topics.sort_unstable();
        topics.dedup();
        for topic in topics {
            if let Err(error) = self.wake_topic(topic) {
                // The waiters then wait until their own time limit.
                tracing::warn!(%error, "could not wake waiting processes");
            }
        }
    }

    fn wake_topic(&self, topic: Topic) -> io::Result<()> {
        let waiters = match fs::read_dir(topic.directory(&self.wake)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            waiters => waiters?,
        };
        for waiter in waiters {
            let waiter = waiter?;
            let socket = self.wake.join(waiter.file_name());
            match self.send(&socket, topic) {
                Err(error) if is_dead(&error) => forget(&socket, &waiter.path()),
                sent => sent?,
            }
        }
        Ok(())
    }

    fn send(&self, socket: &Path, topic: Topic) -> io::Result<()> {
        match self.socket.send_to(&topic.0.to_be_bytes(), socket) {
            Err(error) if is_full(&error) => {
                // The mark tells the waiting process to look at every topic.
                File::create(overflow_mark(socket))?;
                // If the socket is full again, its reader sees the mark with the next datagram.
                match self.socket.send_to(&topic.0.to_be_bytes(), socket) {
                    Err(error) if is_full(&error) => Ok(()),
                    sent => sent.map(|_| ()),
                }
            }
            sent => sent.map(|_| ()),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    // macOS reports "no buffer space", which has no `ErrorKind`.
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(55)
}

/// Whether the socket's process has ended.
fn is_dead(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

fn forget(socket: &Path, waiter: &Path) {
    for path in [waiter, socket, &overflow_mark(socket)] {
        // Another process may remove the same files; a later sender finds a file that stays.
        let _ = fs::remove_file(path);
    }
}

fn overflow_mark(socket: &Path) -> PathBuf {
    socket.with_extension("all")
}

/// The waiter's side: one socket and one thread, both made for the first watch.
pub(crate) struct WakeListener {
    wake: PathBuf,
    bound: Mutex<Option<BoundSocket>>,
}

struct BoundSocket {
    socket: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    watches: Mutex<BTreeMap<Topic, Vec<Arc<Notify>>>>,
    ended: AtomicBool,
}

/// A waiter for one topic. It keeps wake-ups since its creation until the caller asks.
pub(crate) struct TopicWatch {
    topic: Topic,
    woken: Arc<Notify>,
    shared: Arc<Shared>,
    entry: PathBuf,
}

impl WakeListener {
    pub(crate) fn new(database: &Path) -> Result<Self, OpenError> {
        Ok(Self { wake: wake_directory(database)?, bound: Mutex::new(None) })
    }

    /// Registers a waiter. Every write after this returns wakes it.
    pub(crate) fn watch(&self, topic: Topic) -> io::Result<TopicWatch> {
        let mut bound = lock(&self.bound);
        let bound = match &mut *bound {
            Some(bound) => bound,
            none => none.insert(BoundSocket::open(&self.wake)?),
        };
        let name = bound.socket.file_name().expect("a socket has a name");
        let entry = topic.directory(&self.wake).join(name);
        let woken = Arc::new(Notify::new());
        let mut watches = lock(&bound.shared.watches);
        let same = watches.entry(topic).or_default();
        if same.is_empty()
            && let Err(error) = register(&entry)
        {
            watches.remove(&topic);
            return Err(error);
        }
        same.push(Arc::clone(&woken));
        Ok(TopicWatch { topic, woken, shared: Arc::clone(&bound.shared), entry })
    }
}

/// Makes a waiter's file. It retries, because the last waiter that leaves a topic removes its
/// directory.
fn register(entry: &Path) -> io::Result<()> {
    const ATTEMPTS_MAX: usize = 16;
    let directory = entry.parent().expect("an entry is in its topic's directory");
    let mut last = Ok(());
    for _ in 0..ATTEMPTS_MAX {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        last = File::create(entry).map(|_| ());
        match &last {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => break,
        }
    }
    last
}

impl TopicWatch {
    /// Waits for a wake-up since the watch was made, or since this last returned.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for TopicWatch {
    fn drop(&mut self) {
        let mut watches = lock(&self.shared.watches);
        let Some(same) = watches.get_mut(&self.topic) else { return };
        same.retain(|other| !Arc::ptr_eq(other, &self.woken));
        if same.is_empty() {
            watches.remove(&self.topic);
            // A file that stays costs a writer one wasted wake-up.
            let _ = fs::remove_file(&self.entry);
            if let Some(directory) = self.entry.parent() {
                let _ = fs::remove_dir(directory);
            }
        }
    }
}

impl BoundSocket {
    fn open(wake: &Path) -> io::Result<Self> {
        static OPENED: AtomicU64 = AtomicU64::new(1);
        private(wake)?;
        sweep(wake)?;
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let socket = wake.join(format!("{}-{number}", process::id()));
        // Bind under another name first: between making the file and binding the socket it looks
        // like a dead process's, and another process would remove it.
        let draft = socket.with_extension("new");
        let _ = fs::remove_file(&draft);
        let bound = UnixDatagram::bind(&draft)?;
        fs::rename(&draft, &socket)?;
        let shared = Arc::new(Shared::default());
        let (for_thread, path) = (Arc::clone(&shared), socket.clone());
        let thread = thread::Builder::new()
            .name("wake-listener".to_owned())
            .spawn(move || listen(&bound, &overflow_mark(&path), &for_thread))?;
        Ok(Self { socket, shared, thread: Some(thread) })
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        let sent = UnixDatagram::unbound().and_then(|it| it.send_to(&[], &self.socket));
        match sent {
            Ok(_) => {
                if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
                    tracing::error!("wake listener thread panicked");
                }
            }
            // The thread did not get the message; it ends with the process.
            Err(error) => tracing::warn!(%error, "could not end the wake listener"),
        }
        let _ = fs::remove_file(&self.socket);
    }
}

fn listen(socket: &UnixDatagram, overflow: &Path, shared: &Shared) {
    let mut number = [0; 8];
    loop {
        let received = socket.recv(&mut number);
        if shared.ended.load(Ordering::Acquire) {
            return;
        }
        match received {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                tracing::error!(%error, "wake listener stopped after an error");
                return;
            }
            _ => {}
        }
        let watches = lock(&shared.watches);
        // A mark, or a datagram of another length, means: wake all.
        let all = fs::remove_file(overflow).is_ok() || !matches!(received, Ok(8));
        let topic = Topic(u64::from_be_bytes(number));
        for (_, woken) in watches.iter().filter(|(other, _)| all || **other == topic) {
            for watch in woken {
                watch.notify_one();
            }
        }
    }
}

/// Makes the directory of the sockets, or closes an existing one to other users.
fn private(wake: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(wake)?;
    if fs::metadata(wake)?.mode() & 0o077 != 0 {
        fs::set_permissions(wake, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Removes the files of killed processes.
fn sweep(wake: &Path) -> io::Result<()> {
    let probe = UnixDatagram::unbound()?;
    let mut topics = Vec::new();
    for entry in fs::read_dir(wake)? {
        let path = entry?.path();
        if path.is_dir() {
            topics.push(path);
        } else if path.extension().is_none()
            && probe.connect(&path).is_err_and(|error| is_dead(&error))
        {
            forget(&path, &path);
        }
    }
    for topic in topics {
        let Ok(entries) = fs::read_dir(&topic) else { continue };
        for entry in entries.flatten() {
            if !wake.join(entry.file_name()).exists() {
                let _ = fs::remove_file(entry.path());
            }
        }
        // Only succeeds if the topic has no waiters.
        let _ = fs::remove_dir(&topic);
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code here panics while it holds a lock, so a list of waiters is never half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
