//! The report watcher: reads the reports of all machines that a process waits for, in one call.
//!
//! It judges only a report that it has read: a store that does not answer proves nothing about a
//! machine.
//!
//! Not here: what a report means (`core::claim::check`).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::claim::{ReportWatch, check};
use bullpen_core::ids::MailboxKey;
use bullpen_core::instance::Record;
use bullpen_core::mailbox::ReportRead;
use bullpen_core::ports::{Mailbox, Ports};
use bullpen_core::tenure::{PrepareInput, register_by};
use bullpen_core::time::Timestamp;
use futures_util::future::select_all;
use tokio::sync::{Notify, oneshot};

use crate::Stack;
use crate::reports::believed;

/// How often it reads the reports without a wake-up: seldom enough to cost little, often enough to
/// notice a change at once.
const READ_AGAIN: Duration = Duration::from_millis(500);

/// The reports that a process waits for.
#[derive(Debug, Default)]
pub(crate) struct ReportWatcher {
    watches: Mutex<BTreeMap<MailboxKey, Watching>>,
    changed: Notify,
    /// Held by the caller that reads for all. If it leaves, the next one reads.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Watching {
    watch: ReportWatch,
    /// The record of the machine that reports.
    record: Record,
    /// Whether the report was read before. The beat that the first read finds proves nothing later.
    was_read: bool,
    /// When the watcher gives up on a store that does not answer.
    give_up: Timestamp,
    answer: oneshot::Sender<PrepareInput>,
}

impl ReportWatcher {
    /// Waits until the report shows that the agent has done its part, or that it will not.
    pub(crate) async fn watch<P: Ports>(
        &self,
        stack: &Stack<P>,
        record: &Record,
        watch: ReportWatch,
    ) -> PrepareInput {
        let give_up = register_by(watch.kind, watch.since, &stack.limits);
        let (answer, outcome) = oneshot::channel();
        let watching = Watching {
            watch,
            record: record.clone(),
            was_read: false,
            give_up: give_up.after(stack.limits.clock_skew),
            answer,
        };
        self.watches().insert(record.facts.mailbox.clone(), watching);
        self.changed.notify_one();
        tokio::select! {
            biased;
            // Another attempt at this machine took the place of this watch.
            outcome = outcome => outcome.unwrap_or(PrepareInput::Fenced),
            never = self.look(stack) => match never {},
        }
    }

    /// Reads and judges all watched reports, again and again, while no other caller does.
    async fn look<P: Ports>(&self, stack: &Stack<P>) -> Infallible {
        let _reading = self.reading.lock().await;
        let mailbox = stack.ports.mailbox();
        loop {
            let keys = self.keys();
            if keys.is_empty() {
                self.changed.notified().await;
                continue;
            }
            // The time before the read: a process that stood still during it has an old report.
            let asked = stack.now();
            let reports = mailbox.reports(&keys).await;
            match reports {
                Ok(reports) => self.judge(stack, asked, keys.iter().zip(reports)),
                Err(fault) => self.give_up(stack.now(), &fault.to_string()),
            }
            let keys = self.keys();
            if keys.is_empty() {
                continue;
            }
            let any = select_all(keys.iter().map(|key| Box::pin(mailbox.wait(key, READ_AGAIN))));
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                _ = any => {}
            }
        }
    }

    fn watches(&self) -> MutexGuard<'_, BTreeMap<MailboxKey, Watching>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keys(&self) -> Vec<MailboxKey> {
        let mut watches = self.watches();
        watches.retain(|_, watching| !watching.answer.is_closed());
        watches.keys().cloned().collect()
    }

    fn judge<'k, P: Ports>(
        &self,
        stack: &Stack<P>,
        asked: Timestamp,
        found: impl Iterator<Item = (&'k MailboxKey, ReportRead)>,
    ) {
        let mut watches = self.watches();
        for (key, found) in found {
            let Some(watching) = watches.get_mut(key) else { continue };
            let Ok(report) = believed(stack, &watching.record, found) else { continue };
            if !watching.was_read {
                watching.was_read = true;
                watching.watch.beat_seen = report.as_ref().and_then(|report| report.beat.clone());
            }
            if let Some(check) = check(&watching.watch, report.as_ref(), &stack.limits, asked) {
                answer(&mut watches, key, PrepareInput::Checked(check));
            }
        }
    }

    fn give_up(&self, now: Timestamp, why: &str) {
        let mut watches = self.watches();
        let late: Vec<_> = watches
            .iter()
            .filter(|(_, watching)| now >= watching.give_up)
            .map(|(key, _)| key.clone())
            .collect();
        for key in late {
            answer(&mut watches, &key, PrepareInput::Unanswered(format!("the mailbox is {why}")));
        }
    }
}

fn answer(watches: &mut BTreeMap<MailboxKey, Watching>, key: &MailboxKey, outcome: PrepareInput) {
    if let Some(watching) = watches.remove(key) {
        // The caller of `watch` may have stopped waiting.
        let _ = watching.answer.send(outcome);
    }
}
