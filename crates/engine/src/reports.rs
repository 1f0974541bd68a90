//! Reading what machines report, for every use case: the one way from the mailbox to a decision.
//!
//! A report that cannot be read counts as none, for its own machine alone; it is counted
//! ([`UnreadableReports`]) and logged once per machine. What a report cannot know is dropped
//! (`Report::believed`).
//!
//! Not here: what a report is evidence of (`core::mailbox`, `core::claim`).

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

/// Machines whose unreadable report was logged; beyond that the log may repeat itself.
const LOGGED_MAX: usize = 1_024;

/// What one process has met of reports that it could not read.
#[derive(Debug, Default)]
pub struct UnreadableReports {
    met: Mutex<Met>,
}

#[derive(Debug, Default)]
struct Met {
    reads: u64,
    logged: BTreeSet<InstanceId>,
}

impl UnreadableReports {
    /// How many reads found something that is no report.
    pub fn reads(&self) -> u64 {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).reads
    }

    fn note(&self, instance: &InstanceId, why: &UnreadableReport) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.reads += 1;
        if met.logged.len() >= LOGGED_MAX {
            met.logged.clear();
        }
        if met.logged.insert(instance.clone()) {
            tracing::warn!(instance_id = %instance, %why, "its report is unreadable, and counts as none");
        }
    }
}

/// What these machines have reported, in their order.
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

/// What one machine has reported.
pub async fn of<P: Ports>(
    stack: &Stack<P>,
    record: &Record,
    until: Timestamp,
) -> Result<Option<Report>, Fault> {
    Ok(of_each(stack, &[record], until).await?.pop().flatten())
}

/// The same for those who show it: what is no report is told apart from none.
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

/// What is believed of what one machine's agent wrote.
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
