//! An open database: a thread that writes and a thread that reads, because SQLite blocks.
//!
//! One writer does all writes of a process: it puts the queued ones into one transaction with one
//! disk flush; each has its own savepoint, condition and answer. A queued write happens completely
//! or not at all, also if the caller drops its future. The writer answers after the commit; a
//! failed commit leaves open whether the write landed. A panic costs its own caller alone.
//!
//! Not here: statements (`ledger`, `queues`, `mailbox`), or taking turns ([`crate::write_gate`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bullpen_core::ports::Fault;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::open::{OpenError, Schema, version_of};
use crate::statement_fault::{StatementFault, WriteOutcome, classify};
use crate::wake::{Topic, WakeSender};
use crate::watch::{LossNote, OpenFile, StoreLost, StoreWatch};
use crate::write_gate::{GateClosed, WriteGate};

/// The most waiting writes, or reads, of one process; further callers get [`Fault::Throttled`].
const QUEUED_MAX: usize = 4096;
/// The most writes in one transaction: enough to make the flush cheap for each, and few enough that
/// the first does not wait long for the last.
const BATCH_MAX: usize = 64;

/// How often the writer looks for another write before it sleeps.
const YIELDS_MAX: usize = 256;

/// A database, open in this process.
pub(crate) struct Store {
    path: PathBuf,
    // `drop` takes both to end the threads.
    writes: Option<SyncSender<Box<dyn Job>>>,
    reads: Option<SyncSender<ReadJob>>,
    threads: Vec<JoinHandle<()>>,
    loss: LossNote,
}

type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// The tools of a write.
pub(crate) struct Writing<'a> {
    /// The connection, inside the transaction.
    pub(crate) db: &'a Connection,
    wakes: &'a mut Vec<Topic>,
}

impl Writing<'_> {
    /// Wakes the waiters of this topic after the commit.
    pub(crate) fn wake(&mut self, topic: Topic) {
        self.wakes.push(topic);
    }
}

/// The fault if the database's thread is gone.
fn closed() -> Fault {
    Fault::unavailable("the store is closed")
}

impl Store {
    /// Opens the database at `path`; makes or migrates it if necessary. It refuses a write that
    /// waited for its turn longer than `patience`.
    pub(crate) fn open(
        path: &Path,
        schema: &'static Schema,
        patience: Duration,
    ) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: path.into(), source };
        let waker = WakeSender::new(path)?;
        schema.prepare(path)?;
        let loss = LossNote::new();
        // Noted before the connection opens it: a file that is replaced in between is found out at
        // the first write.
        let file = OpenFile::at(path).map_err(io)?;
        let mut writer = Writer {
            schema,
            db: schema.connect(path, patience)?,
            gate: WriteGate::open(path, patience).map_err(io)?,
            waker,
            file,
            loss: loss.clone(),
        };
        let reader = schema.connect(path, patience)?;
        let (write_sender, write_jobs) = mpsc::sync_channel::<Box<dyn Job>>(QUEUED_MAX);
        let (read_sender, read_jobs) = mpsc::sync_channel::<ReadJob>(QUEUED_MAX);
        let spawn = |role, body: Box<dyn FnOnce() + Send>| {
            spawn((schema.name, role), (path, &loss), body).map_err(io)
        };
        let threads = vec![
            spawn("writer", Box::new(move || writer.serve(&write_jobs)))?,
            spawn(
                "reader",
                Box::new(move || {
                    while let Ok(job) = read_jobs.recv() {
                        job(&reader);
                    }
                }),
            )?,
        ];
        Ok(Self {
            path: path.into(),
            writes: Some(write_sender),
            reads: Some(read_sender),
            threads,
            loss,
        })
    }

    /// Tells when this process can no longer use the database.
    pub(crate) fn watch(&self) -> StoreWatch {
        self.loss.watch()
    }

    /// The database's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in a transaction, and returns the outcome. An error undoes the work.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writing<'_>) -> Result<T, StatementFault> + Send + 'static,
    ) -> WriteOutcome<T> {
        let (reply, answer) = oneshot::channel();
        let job = Task { work: Some(work), result: None, reply };
        let writes = self.writes.as_ref().expect("only `drop` takes it");
        match writes.try_send(Box::new(job)) {
            Ok(()) => answer.await.unwrap_or(WriteOutcome::Unknown),
            Err(TrySendError::Full(_)) => WriteOutcome::Refused(Fault::Throttled),
            Err(TrySendError::Disconnected(_)) => WriteOutcome::Refused(closed()),
        }
    }

    /// Runs `work` on the reader. It sees every write that was answered before.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StatementFault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (reply, answer) = oneshot::channel();
        let job: ReadJob = Box::new(move |db| {
            // The caller may have dropped its future.
            let _ = reply.send(caught(|| work(db)));
        });
        let reads = self.reads.as_ref().expect("only `drop` takes it");
        match reads.try_send(job) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(closed())),
            Err(TrySendError::Full(_)) => Err(Fault::Throttled),
            Err(TrySendError::Disconnected(_)) => Err(closed()),
        }
    }
}

impl Drop for Store {
    /// Runs all queued writes, then closes both connections.
    fn drop(&mut self) {
        drop((self.writes.take(), self.reads.take()));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(path = %self.path.display(), "database thread panicked");
            }
        }
    }
}

/// Runs a caller's work. A panic is its fault alone, and the thread goes on.
fn caught<T>(work: impl FnOnce() -> Result<T, StatementFault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Fault::Unclassified("a defect in a statement".to_owned()).into()))
        .map_err(|StatementFault(fault)| fault)
}

/// Starts a thread of a database, and notes the database as lost if the thread panics.
fn spawn(
    (database, role): (&str, &'static str),
    (path, note): (&Path, &LossNote),
    body: Box<dyn FnOnce() + Send>,
) -> std::io::Result<JoinHandle<()>> {
    let (note, lost) = (note.clone(), StoreLost::ThreadEnded { path: path.to_owned(), role });
    thread::Builder::new().name(format!("{database}-{role}")).spawn(move || {
        if catch_unwind(AssertUnwindSafe(body)).is_err() {
            note.note(lost);
        }
    })
}

/// One caller's write, without its type.
trait Job: Send {
    /// Does the work; false if the writer must undo it.
    fn run(&mut self, writing: &mut Writing<'_>) -> bool;
    /// Answers the caller.
    fn answer(self: Box<Self>, fate: &Fate);
}

/// The outcome of a transaction.
enum Fate {
    Committed,
    Never(Fault),
    Unknown,
}

struct Task<T, W> {
    work: Option<W>,
    result: Option<Result<T, Fault>>,
    reply: oneshot::Sender<WriteOutcome<T>>,
}

impl<T, W> Job for Task<T, W>
where
    T: Send,
    W: FnOnce(&mut Writing<'_>) -> Result<T, StatementFault> + Send,
{
    fn run(&mut self, writing: &mut Writing<'_>) -> bool {
        let work = self.work.take().expect("a job is run once");
        let result = caught(|| work(writing));
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn answer(self: Box<Self>, fate: &Fate) {
        let outcome = match (self.result, fate) {
            // The write's own fault; its savepoint was undone.
            (Some(Err(fault)), _) => WriteOutcome::Refused(fault),
            (Some(Ok(value)), Fate::Committed) => WriteOutcome::Done(value),
            (Some(Ok(_)), Fate::Unknown) => WriteOutcome::Unknown,
            (_, Fate::Never(fault)) => WriteOutcome::Refused(fault.clone()),
            (None, Fate::Committed | Fate::Unknown) => WriteOutcome::Refused(closed()),
        };
        // The caller may have dropped its future.
        let _ = self.reply.send(outcome);
    }
}

struct Writer {
    schema: &'static Schema,
    db: Connection,
    gate: WriteGate,
    waker: WakeSender,
    file: OpenFile,
    loss: LossNote,
}

impl Writer {
    fn serve(&mut self, jobs: &Receiver<Box<dyn Job>>) {
        while let Some(first) = next(jobs) {
            let entered = self.enter();
            // Include the writes that came while the writer waited for its turn.
            let mut batch = vec![first];
            batch.extend(jobs.try_iter().take(BATCH_MAX - 1));
            let mut wakes = Vec::new();
            let fate = match entered {
                Ok(()) => self.run(&mut batch, &mut wakes),
                Err(fault) => Fate::Never(fault),
            };
            for job in batch {
                job.answer(&fate);
            }
            self.waker.wake_all(wakes);
        }
    }

    /// Waits for the turn and begins a transaction.
    fn enter(&mut self) -> Result<(), Fault> {
        let db = &self.db;
        let begun = self.gate.pass(|| statement(db, "BEGIN IMMEDIATE"));
        match begun {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(classify(&error)),
            Err(GateClosed::Busy) => return Err(Fault::Throttled),
            Err(GateClosed::Io(error)) => return Err(Fault::Denied(error.to_string())),
        }
        match self.still_ours() {
            Ok(None) => Ok(()),
            Ok(Some(lost)) => {
                self.leave();
                let fault = Fault::Denied(lost.to_string());
                self.loss.note(lost);
                Err(fault)
            }
            Err(fault) => {
                self.leave();
                Err(fault)
            }
        }
    }

    /// Why this program must not write, inside a transaction: what it wrote would be read by no
    /// process, or a newer program has migrated the file, and it does not know what it may write.
    fn still_ours(&mut self) -> Result<Option<StoreLost>, Fault> {
        let io = |error: std::io::Error| Fault::Unavailable(error.to_string());
        if let Err(lost) = self.file.check().map_err(io)? {
            return Ok(Some(lost));
        }
        let version = version_of(&self.db).map_err(|error| classify(&error))?;
        let path = || self.file.path().to_owned();
        let is_migrated = version != self.schema.version();
        Ok(is_migrated.then(|| StoreLost::Migrated { path: path(), version }))
    }

    fn run(&self, batch: &mut [Box<dyn Job>], wakes: &mut Vec<Topic>) -> Fate {
        for job in batch {
            if let Err(error) = self.run_one(job.as_mut(), wakes) {
                wakes.clear();
                self.leave();
                return Fate::Never(classify(&error));
            }
        }
        match statement(&self.db, "COMMIT") {
            Ok(()) => Fate::Committed,
            Err(error) => {
                tracing::warn!(database = self.schema.name, %error, "commit failed");
                wakes.clear();
                self.leave();
                Fate::Unknown
            }
        }
    }

    /// Runs one write under its own savepoint. An error is an error of the whole transaction.
    fn run_one(&self, job: &mut dyn Job, wakes: &mut Vec<Topic>) -> rusqlite::Result<()> {
        let woken = wakes.len();
        statement(&self.db, "SAVEPOINT job")?;
        if !job.run(&mut Writing { db: &self.db, wakes }) {
            wakes.truncate(woken);
            statement(&self.db, "ROLLBACK TO job")?;
        }
        // Fails if SQLite rolled the whole transaction back, for example because the disk is full.
        statement(&self.db, "RELEASE job")
    }

    /// Rolls the transaction back, if there still is one.
    fn leave(&self) {
        if !self.db.is_autocommit()
            && let Err(error) = statement(&self.db, "ROLLBACK")
        {
            tracing::error!(database = self.schema.name, %error, "rollback failed");
        }
    }
}

/// The next write; `None` when the store is closing. A caller that writes one thing after the other
/// comes back within microseconds: yielding for a moment costs less than sleeping and waking.
fn next(jobs: &Receiver<Box<dyn Job>>) -> Option<Box<dyn Job>> {
    for _ in 0..YIELDS_MAX {
        match jobs.try_recv() {
            Ok(job) => return Some(job),
            Err(TryRecvError::Empty) => thread::yield_now(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
    jobs.recv().ok()
}

fn statement(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute([]).map(|_| ())
}

#[cfg(test)]
mod tests;
