//! Reads the reports of agents for every use case: the only way from the mailbox to a decision.
//!
//! An unreadable report counts as none, for its own machine only; it is counted
//! ([`UnreadableReports`]) and logged once per machine. Facts that an agent cannot know are dropped
//! from its report (`Report::believed`).
//!
//! Not here: the conclusions from a report (`core::mailbox`, `core::claim`).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bullpen_core::ids::{InstanceId, MailboxKey};
use bullpen_core::instance::Record;
use bullpen_core::mailbox::{Report, ReportRead, UnreadableReport};
use bullpen_core::ports::{Fault, Mailbox, Ports};
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use crate::Stack;
use crate::retry::retry_until;

/// For how many machines the process remembers that it logged; beyond that it may log twice.
const LOGGED_MAX: usize = 1_024;

/// The reports that one process could not read.
#[derive(Debug, Default)]
pub struct UnreadableReports {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    logged: BTreeSet<InstanceId>,
}

impl UnreadableReports {
    /// How many reads found an unreadable report.
    pub fn reads(&self) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).reads
    }

    fn note(&self, instance: &InstanceId, why: &UnreadableReport) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.reads += 1;
        if seen.logged.len() >= LOGGED_MAX {
            seen.logged.clear();
        }
        if seen.logged.insert(instance.clone()) {
            tracing::warn!(instance_id = %instance, %why, "unreadable report counts as none");
        }
    }
}

/// Reads the reports of these machines, in their order.
pub async fn of_each<P: Ports>(
    stack: &Stack<P>,
    records: &[&Record],
    until: Timestamp,
) -> Result<Vec<Option<Report>>, Fault> {
    let keys: Vec<MailboxKey> = records.iter().map(|record| record.facts.mailbox.clone()).collect();
    let found = retry_until(stack, until, || stack.ports.mailbox().reports(&keys)).await?;
    let each = records.iter().zip(found);
    each.map(|(record, found)| believed(stack, record, found)).collect()
}

/// Reads the report of one machine.
pub async fn of<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    until: Timestamp,
) -> Result<Option<Report>, Fault> {
    Ok(of_each(stack, &[record], until).await?.pop().flatten())
}

/// Reads the report of one machine for display: an unreadable report differs from an absent one.
pub async fn found<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    until: Timestamp,
) -> Result<ReportRead, Fault> {
    let key = [record.facts.mailbox.clone()];
    let found = retry_until(stack, until, || stack.ports.mailbox().reports(&key)).await?.pop();
    Ok(match found.unwrap_or(ReportRead::Absent) {
        ReportRead::Read(report) => ReportRead::Read(report.believed(record)),
        other => other,
    })
}

/// The part of an agent's report that the engine believes.
pub(crate) fn believed<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    found: ReportRead,
) -> Result<Option<Report>, Fault> {
    match found {
        ReportRead::Absent => Ok(None),
        ReportRead::Unreadable(why) if sabotage!("one-bad-report-fails-the-batch") => {
            Err(Fault::Unreadable(why.to_string()))
        }
        ReportRead::Unreadable(why) => {
            stack.unreadable_reports.note(&record.id, &why);
            Ok(None)
        }
        ReportRead::Read(report) => Ok(Some(report.believed(record))),
    }
}
