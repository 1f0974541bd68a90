//! Wake-ups between processes: how a writer tells a waiter to look, without anyone polling.
//!
//! In the directory `wake` beside the databases each process that waits has one Unix datagram
//! socket, and for each *topic* it waits for (a queue, a mailbox) an empty file of the socket's
//! name in that topic's directory. After a commit a writer lists the topic's directory and sends
//! the topic's number to each socket it names. Nobody waits: no directory, and one failed system
//! call.
//!
//! A wake-up says when to look, never what changed. It may be spurious. It is not lost by a race,
//! because a waiter registers before it looks; and not by a full socket, because a sender that
//! finds it full leaves a mark that says "look at everything", and tries once more.
//!
//! Not here: what to look at, or for how long.

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

/// What a socket's whole path may have, on macOS; Linux allows four more.
const SOCKET_PATH_BYTES_MAX: usize = 103;
/// `/` and the longest name: a process id, a dash, a counter, and the suffix of a draft.
const SOCKET_NAME_BYTES_MAX: usize = 1 + 10 + 1 + 8 + 4;

/// What somebody can wait for, as a number. Two topics of one number only wake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Topic(u64);

impl Topic {
    /// FNV-1a, because every process, of whatever build, must come to the same number.
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

    /// Wakes everyone who waits for one of these.
    pub(crate) fn ring(&self, mut topics: Vec<Topic>) {
        topics.sort_unstable();
        topics.dedup();
        for topic in topics {
            if let Err(error) = self.ring_one(topic) {
                // The waiters' own time limit is what is left to them.
                tracing::warn!(%error, "could not wake waiting processes");
            }
        }
    }

    fn ring_one(&self, topic: Topic) -> io::Result<()> {
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
                File::create(overflow_mark(socket))?;
                // Either it is full again, and the mark is seen with what is in it; or it is not.
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
    // macOS says "no buffer space", which has no kind of its own.
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(55)
}

/// The socket's process has ended, whether or not it could tidy up.
fn is_dead(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

fn forget(socket: &Path, waiter: &Path) {
    for path in [waiter, socket, &overflow_mark(socket)] {
        // Somebody else may be tidying up the same; what stays is found again.
        let _ = fs::remove_file(path);
    }
}

fn overflow_mark(socket: &Path) -> PathBuf {
    socket.with_extension("all")
}

/// The waiter's side: one socket and one thread, both made when somebody first waits.
pub(crate) struct WakeListener {
    wake: PathBuf,
    ear: Mutex<Option<Ear>>,
}

struct Ear {
    socket: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    watches: Mutex<BTreeMap<Topic, Vec<Arc<Notify>>>>,
    ended: AtomicBool,
}

/// Somebody who waits for one topic. Wake-ups from its making on are kept until asked for.
pub(crate) struct TopicWatch {
    topic: Topic,
    woken: Arc<Notify>,
    shared: Arc<Shared>,
    entry: PathBuf,
}

impl WakeListener {
    pub(crate) fn new(database: &Path) -> Result<Self, OpenError> {
        Ok(Self { wake: wake_directory(database)?, ear: Mutex::new(None) })
    }

    /// Registers. What is written after this returns wakes the watch.
    pub(crate) fn watch(&self, topic: Topic) -> io::Result<TopicWatch> {
        let mut ear = lock(&self.ear);
        let ear = match &mut *ear {
            Some(ear) => ear,
            none => none.insert(Ear::open(&self.wake)?),
        };
        let name = ear.socket.file_name().expect("a socket has a name");
        let entry = topic.directory(&self.wake).join(name);
        let woken = Arc::new(Notify::new());
        let mut watches = lock(&ear.shared.watches);
        let same = watches.entry(topic).or_default();
        if same.is_empty()
            && let Err(error) = register(&entry)
        {
            watches.remove(&topic);
            return Err(error);
        }
        same.push(Arc::clone(&woken));
        Ok(TopicWatch { topic, woken, shared: Arc::clone(&ear.shared), entry })
    }
}

/// A few attempts, because whoever leaves a topic last takes its directory away.
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
    /// Returns when the topic was rung since the watch was made, or since this last returned.
    pub(crate) async fn rung(&self) {
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
            // What cannot be removed costs a writer one wasted wake-up.
            let _ = fs::remove_file(&self.entry);
            if let Some(directory) = self.entry.parent() {
                let _ = fs::remove_dir(directory);
            }
        }
    }
}

impl Ear {
    fn open(wake: &Path) -> io::Result<Self> {
        static OPENED: AtomicU64 = AtomicU64::new(1);
        private(wake)?;
        sweep(wake)?;
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let socket = wake.join(format!("{}-{number}", process::id()));
        // Bound under another name first: between the making of the file and the binding of the
        // socket it looks like a dead process's, and would be swept.
        let draft = socket.with_extension("new");
        let _ = fs::remove_file(&draft);
        let bound = UnixDatagram::bind(&draft)?;
        fs::rename(&draft, &socket)?;
        let shared = Arc::new(Shared::default());
        let (heard, path) = (Arc::clone(&shared), socket.clone());
        let thread = thread::Builder::new()
            .name("wake-listener".to_owned())
            .spawn(move || listen(&bound, &overflow_mark(&path), &heard))?;
        Ok(Self { socket, shared, thread: Some(thread) })
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        let rung = UnixDatagram::unbound().and_then(|it| it.send_to(&[], &self.socket));
        match rung {
            Ok(_) => {
                if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
                    tracing::error!("wake listener had panicked");
                }
            }
            // It cannot be told to end; it ends with the process.
            Err(error) => tracing::warn!(%error, "wake listener left behind"),
        }
        let _ = fs::remove_file(&self.socket);
    }
}

fn listen(socket: &UnixDatagram, overflow: &Path, shared: &Shared) {
    let mut number = [0; 8];
    loop {
        let heard = socket.recv(&mut number);
        if shared.ended.load(Ordering::Acquire) {
            return;
        }
        match heard {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                tracing::error!(%error, "wake listener cannot listen any more");
                return;
            }
            _ => {}
        }
        let watches = lock(&shared.watches);
        // A mark, or anything odd, means: look at everything.
        let all = fs::remove_file(overflow).is_ok() || !matches!(heard, Ok(8));
        let topic = Topic(u64::from_be_bytes(number));
        for (_, woken) in watches.iter().filter(|(other, _)| all || **other == topic) {
            for one in woken {
                one.notify_one();
            }
        }
    }
}

/// The directory of the sockets is this user's alone, whoever made it.
fn private(wake: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(wake)?;
    if fs::metadata(wake)?.mode() & 0o077 != 0 {
        fs::set_permissions(wake, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Removes what processes left that were killed.
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
        // Only succeeds if nobody is left in it.
        let _ = fs::remove_dir(&topic);
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics while it holds one, and a list of waiters is never half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
