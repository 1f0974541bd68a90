//! The mailbox in SQLite: orders to agents, heartbeats and signals from them.
//!
//! The heartbeat and each kind of signal have their own row, so writing one never changes another.
//! `wait` returns at once if a process wrote to the mailbox since this handle last read it, so that
//! a caller that reads and then waits misses nothing. Of two tasks that share a handle and a
//! mailbox, the slower one may wait in full.
//!
//! Not here: whether an order is newer (`Inbox::accept`), or how agents follow it.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::ids::{Generation, MailboxKey};
use bullpen_core::limits::{Limits, REPORT_PART_BYTES_MAX, REPORT_SIGNALS_MAX};
use bullpen_core::mailbox::{
    Beat, Inbox, Order, RawReport, ReportRead, Signal, SignalKind, UnreadableReport, wire,
};
use bullpen_core::ports::{Clock, Consistency, Fault, ItemKind, Mailbox, Unreadable, Written};
use bullpen_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::open::{MAILBOX, OpenError};
use crate::statement_fault::StatementFault;
use crate::store::{Store, Writing};
use crate::wait::{First, first};
use crate::wake::{Topic, WakeListener};
use crate::watch::StoreWatch;
use crate::write_gate::PATIENCE_MAX;

/// The most mailboxes whose last reading a handle remembers. Forgetting one only costs a read.
const REMEMBERED_MAX: usize = 4096;
/// The most expired mailboxes that one order removes.
const FORGOTTEN_PER_WRITE_MAX: i64 = 4;
const HOUR_MILLIS: i64 = 3_600_000;

/// The mailboxes in one SQLite file.
pub struct SqliteMailbox<C> {
    store: Store,
    listener: WakeListener,
    clock: Arc<C>,
    seen: Mutex<BTreeMap<MailboxKey, Changes>>,
}

/// The write counters of a mailbox's two records; `None` for a record that was not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Changes {
    inbox: Option<i64>,
    report: Option<i64>,
}

impl<C: Clock> SqliteMailbox<C> {
    /// Opens the file at `path`; makes or migrates it if necessary. By the clock waits end and
    /// mailboxes expire.
    pub fn open(path: &Path, clock: Arc<C>) -> Result<Self, OpenError> {
        let store = Store::open(path, &MAILBOX, PATIENCE_MAX)?;
        Ok(Self { store, listener: WakeListener::new(path)?, clock, seen: Mutex::default() })
    }

    /// Tells when this process can no longer use the file.
    pub fn watch(&self) -> StoreWatch {
        self.store.watch()
    }

    fn remember(&self, key: &MailboxKey, read: Changes) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= REMEMBERED_MAX && !seen.contains_key(key) {
            seen.clear();
        }
        let entry = seen.entry(key.clone()).or_default();
        entry.inbox = read.inbox.or(entry.inbox);
        entry.report = read.report.or(entry.report);
    }

    fn remembered(&self, key: &MailboxKey) -> Changes {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(key).copied().unwrap_or_default()
    }

    async fn changes(&self, key: &MailboxKey) -> Result<Changes, Fault> {
        let key = key.clone();
        self.store.read(move |db| changes(db, &key)).await
    }

    async fn write(
        &self,
        key: &MailboxKey,
        work: impl FnOnce(&mut Writing<'_>, &MailboxKey) -> Result<(), StatementFault> + Send + 'static,
    ) -> Result<(), Fault> {
        let (key, now) = (key.clone(), self.clock.now());
        self.store
            .write(move |writing| {
                keep(writing.db, &key, now)?;
                writing.wake(topic(&key));
                work(writing, &key)
            })
            .await
            .plain()
    }
}

fn topic(key: &MailboxKey) -> Topic {
    Topic::new("mailbox", key.as_str())
}

impl<C: Clock> Mailbox for SqliteMailbox<C> {
    async fn post(&self, key: &MailboxKey, order: &Order) -> Result<Written<Inbox>, Fault> {
        let (key, order, now) = (key.clone(), order.clone(), self.clock.now());
        self.store.write(move |writing| accept(writing, &key, order, now)).await.written()
    }

    async fn post_all(&self, orders: &[(MailboxKey, Order)]) -> Vec<Result<Written<Inbox>, Fault>> {
        let (all, count, now) = (orders.to_vec(), orders.len(), self.clock.now());
        let written = self.store.write(move |writing| {
            let posted = all.into_iter();
            posted
                .map(|(key, order)| match accept(writing, &key, order, now) {
                    // An unreadable inbox refuses its own order only.
                    Err(StatementFault(fault @ Fault::Unreadable(_))) => Ok(Err(fault)),
                    accepted => accepted.map(Ok),
                })
                .collect::<Result<Vec<_>, _>>()
        });
        written.await.written_each(count)
    }

    async fn redact(&self, key: &MailboxKey, generation: Generation) -> Result<(), Fault> {
        self.write(key, move |writing, key| {
            let stored = load_inbox(writing.db, key)?.map(|(_, inbox)| inbox);
            match stored.and_then(|inbox| inbox.redacted(generation)) {
                Some(inbox) => store_inbox(writing.db, key, &inbox),
                None => Ok(()),
            }
        })
        .await
    }

    /// Every read here is consistent: an eventual read would cost the same.
    async fn inbox(&self, key: &MailboxKey, _read: Consistency) -> Result<Option<Inbox>, Fault> {
        let wanted = key.clone();
        let stored = self.store.read(move |db| load_inbox(db, &wanted)).await?;
        let change = stored.as_ref().map_or(0, |(change, _)| *change);
        self.remember(key, Changes { inbox: Some(change), report: None });
        Ok(stored.map(|(_, inbox)| inbox))
    }

    async fn reports(&self, keys: &[MailboxKey]) -> Result<Vec<ReportRead>, Fault> {
        let wanted = keys.to_vec();
        let stored: Vec<(i64, ReportRead)> = self
            .store
            .read(move |db| wanted.iter().map(|key| load_report(db, key)).collect())
            .await?;
        for (key, (change, _)) in keys.iter().zip(&stored) {
            self.remember(key, Changes { inbox: None, report: Some(*change) });
        }
        Ok(stored.into_iter().map(|(_, found)| found).collect())
    }

    async fn beat(&self, key: &MailboxKey, beat: &Beat) -> Result<(), Fault> {
        let beat = beat.clone();
        self.write(key, move |writing, key| store_beat(writing.db, key, &beat)).await
    }

    async fn signal(
        &self,
        key: &MailboxKey,
        kind: SignalKind,
        signal: &Signal,
    ) -> Result<(), Fault> {
        let signal = signal.clone();
        self.write(key, move |writing, key| store_signal(writing.db, key, kind, &signal)).await
    }

    async fn wait(&self, key: &MailboxKey, at_most: Duration) {
        let mut end = pin!(self.clock.sleep(at_most));
        // Register before the first look: every later write then wakes this waiter.
        let watch = match self.listener.watch(topic(key)) {
            Ok(watch) => watch,
            Err(error) => {
                tracing::warn!(%error, "could not register for wake-ups; waiting in full");
                return end.await;
            }
        };
        let mut known = self.remembered(key);
        let was_read = known.inbox.is_some() && known.report.is_some();
        // Return after a failed look: the caller reads next and handles the fault.
        while let Ok(found) = self.changes(key).await {
            // For a record that this handle has never read, count from now on.
            known.inbox = known.inbox.or(found.inbox);
            known.report = known.report.or(found.report);
            if known != found || first(pin!(watch.woken()), end.as_mut()).await == First::Right {
                return;
            }
            if !was_read {
                // The first look may have come after the write that woke this waiter.
                return;
            }
        }
    }
}

/// Stores an order if it is newer than the stored order, and wakes its agent.
fn accept(
    writing: &mut Writing<'_>,
    key: &MailboxKey,
    order: Order,
    now: Timestamp,
) -> Result<Option<Inbox>, StatementFault> {
    let stored = load_inbox(writing.db, key)?.map(|(_, inbox)| inbox);
    let Ok(inbox) = Inbox::accept(stored.as_ref(), order) else { return Ok(None) };
    forget(writing.db, now)?;
    keep(writing.db, key, now)?;
    store_inbox(writing.db, key, &inbox)?;
    writing.wake(topic(key));
    Ok(Some(inbox))
}

fn load_inbox(db: &Connection, key: &MailboxKey) -> Result<Option<(i64, Inbox)>, StatementFault> {
    let stored = db
        .prepare_cached("SELECT change, body FROM inboxes WHERE key = ?1")?
        .query_row([key.as_str()], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    let Some((change, body)) = stored else { return Ok(None) };
    let inbox = wire::decode_inbox(body.as_bytes())
        .map_err(|error| Unreadable::of(ItemKind::Inbox, key, &body, error))?;
    Ok(Some((change, inbox)))
}

fn store_inbox(db: &Connection, key: &MailboxKey, inbox: &Inbox) -> Result<(), StatementFault> {
    db.prepare_cached(
        "INSERT INTO inboxes (key, change, body) VALUES (?1, 1, ?2) \
         ON CONFLICT DO UPDATE SET change = change + 1, body = excluded.body",
    )?
    .execute(params![key.as_str(), wire::encode_inbox(inbox)])?;
    Ok(())
}

/// An agent's report, and its write counter. Every process that can write the file can put any
/// bytes there, so SQLite does not even load a text that is too long to be an agent's.
fn load_report(db: &Connection, key: &MailboxKey) -> Result<(i64, ReportRead), StatementFault> {
    let stored = db
        .prepare_cached(
            "SELECT change, iif(octet_length(beat) <= ?2, beat, NULL), beat IS NULL \
             FROM reports WHERE key = ?1",
        )?
        .query_row(params![key.as_str(), REPORT_PART_BYTES_MAX], |row| {
            let beat = if row.get(2)? { Some(None) } else { text(row, 1)?.map(Some) };
            Ok((row.get(0)?, beat))
        })
        .optional()?;
    let Some((change, beat)) = stored else { return Ok((0, ReportRead::Absent)) };
    let Some(beat) = beat else { return Ok((change, no_text("its beat"))) };
    let mut signals = Vec::new();
    let mut statement = db.prepare_cached(
        "SELECT iif(octet_length(kind) <= ?2, kind, NULL), \
         iif(octet_length(body) <= ?2, body, NULL) FROM signals WHERE key = ?1 LIMIT ?3",
    )?;
    // Read one more than allowed, to see that there are too many.
    let most = REPORT_SIGNALS_MAX + 1;
    let mut rows = statement.query(params![key.as_str(), REPORT_PART_BYTES_MAX, most])?;
    while let Some(row) = rows.next()? {
        let (Some(kind), Some(body)) = (text(row, 0)?, text(row, 1)?) else {
            return Ok((change, no_text("one of its signals")));
        };
        signals.push((kind, body));
    }
    let raw = RawReport {
        beat: beat.as_deref(),
        signals: signals.iter().map(|(kind, body)| (kind.trim_matches('"'), &**body)).collect(),
    };
    Ok((change, raw.read().into()))
}

/// A column's text; `None` if it is too long or no text.
fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(row.get_ref(column)?.as_str().ok().map(str::to_owned))
}

fn no_text(what: &str) -> ReportRead {
    let why = format_args!("{what} is no text of at most {REPORT_PART_BYTES_MAX} bytes");
    ReportRead::Unreadable(UnreadableReport::because(why))
}

/// Stores a heartbeat if it follows the stored one; the SQL repeats `Beat::follows`.
fn store_beat(db: &Connection, key: &MailboxKey, beat: &Beat) -> Result<(), StatementFault> {
    let text = serde_json::to_string(beat).expect("a beat has string keys only");
    db.prepare_cached(
        "INSERT INTO reports (key, change, boot, seq, at, beat) VALUES (?1, 1, ?2, ?3, ?4, ?5) \
         ON CONFLICT DO UPDATE SET change = change + 1, boot = excluded.boot, \
         seq = excluded.seq, at = excluded.at, beat = excluded.beat \
         WHERE beat IS NULL OR boot <> excluded.boot OR seq < excluded.seq",
    )?
    .execute(params![key.as_str(), beat.boot, beat.seq, beat.at.as_millis(), text,])?;
    Ok(())
}

fn store_signal(
    db: &Connection,
    key: &MailboxKey,
    kind: SignalKind,
    signal: &Signal,
) -> Result<(), StatementFault> {
    let kind = serde_json::to_string(&kind).expect("a kind is a string");
    let body = serde_json::to_string(signal).expect("a signal has string keys only");
    let stored = db
        .prepare_cached(
            "INSERT INTO signals (key, kind, generation, body) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT DO UPDATE SET generation = excluded.generation, body = excluded.body \
             WHERE generation <= excluded.generation",
        )?
        .execute(params![key.as_str(), kind, signal.generation.0, body,])?;
    if stored == 1 {
        db.prepare_cached(
            "INSERT INTO reports (key, change) VALUES (?1, 1) \
             ON CONFLICT DO UPDATE SET change = change + 1",
        )?
        .execute([key.as_str()])?;
    }
    Ok(())
}

/// Both write counters; zero for an absent record.
fn changes(db: &Connection, key: &MailboxKey) -> Result<Changes, StatementFault> {
    let changes = db
        .prepare_cached(
            "SELECT ifnull((SELECT change FROM inboxes WHERE key = ?1), 0), \
             ifnull((SELECT change FROM reports WHERE key = ?1), 0)",
        )?
        .query_row([key.as_str()], |row| Ok(Changes { inbox: row.get(0)?, report: row.get(1)? }))?;
    Ok(changes)
}

/// Moves a mailbox's expiry: every write keeps it for its whole time again.
fn keep(db: &Connection, key: &MailboxKey, now: Timestamp) -> Result<(), StatementFault> {
    let until = now.after(Limits::DEFAULT.mailbox_ttl).as_millis() / HOUR_MILLIS + 1;
    db.prepare_cached(
        "INSERT INTO keepings (key, keep_until) VALUES (?1, ?2) \
         ON CONFLICT DO UPDATE SET keep_until = excluded.keep_until \
         WHERE keep_until <> excluded.keep_until",
    )?
    .execute(params![key.as_str(), until])?;
    Ok(())
}

/// Removes a few mailboxes that had no write for their whole time.
fn forget(db: &Connection, now: Timestamp) -> Result<(), StatementFault> {
    let over: Vec<String> = db
        .prepare_cached(
            "SELECT key FROM keepings WHERE keep_until <= ?1 ORDER BY keep_until LIMIT ?2",
        )?
        .query_map(params![now.as_millis() / HOUR_MILLIS, FORGOTTEN_PER_WRITE_MAX], |row| {
            row.get(0)
        })?
        .collect::<rusqlite::Result<_>>()?;
    for key in over {
        for sql in [
            "DELETE FROM inboxes WHERE key = ?1",
            "DELETE FROM reports WHERE key = ?1",
            "DELETE FROM signals WHERE key = ?1",
            "DELETE FROM keepings WHERE key = ?1",
        ] {
            db.prepare_cached(sql)?.execute([&key])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
