//! Why an agent does not answer: this process compares its report with those of other machines.
//!
//! One read serves all comparisons of a few seconds, because in an outage many workers compare at once.
//! If nothing can be read, the trouble is shared.
//!
//! Not here: the judgement (`core::claim::Silence`).

use std::time::Duration;

use bullpen_core::claim::{Silence, Watch};
use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{Record, State, Tier};
use bullpen_core::mailbox::Report;
use bullpen_core::ports::{Clock, Fault, Ledger, Ports};

use crate::Stack;
use crate::reports;

/// How long one read of the witnesses is used.
const READ_LASTS: Duration = Duration::from_secs(5);
/// How many pages of the live records may be read for witnesses.
const PAGES_MAX: usize = 4;
/// How many machines are witnesses: enough that a zone without its way to the mailbox is among them.
const WITNESSES_MAX: usize = 100;
/// How long after a shared silence agents may take to obey what they missed.
const RECOVERS_WITHIN: Duration = Duration::from_secs(60);

/// What this process saw of agents' silence.
#[derive(Debug, Default)]
pub(crate) struct Witnesses(tokio::sync::Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The reports of running machines, and when they were read on the monotonic clock.
    reports: Option<(Duration, Reports)>,
    /// When several agents were last silent together, on the monotonic clock.
    shared: Option<Duration>,
}

type Reports = Vec<(InstanceId, Option<Report>)>;

/// Judges a machine whose agent does not answer.
pub(crate) async fn judge<P: Ports>(stack: &Stack<P>, silent: &Record) -> Silence {
    judge_watched(stack, silent, Watch::Not).await
}

/// Judges a machine whose agent was watched.
pub(crate) async fn judge_watched<P: Ports>(
    stack: &Stack<P>,
    silent: &Record,
    watch: Watch<'_>,
) -> Silence {
    match compare(stack, silent, watch).await {
        Ok(silence) => silence,
        Err(fault) => {
            tracing::info!(instance_id = %silent.id, %fault, "could not compare a silent agent");
            Silence::Shared
        }
    }
}

async fn compare<P: Ports>(
    stack: &Stack<P>,
    silent: &Record,
    watch: Watch<'_>,
) -> Result<Silence, Fault> {
    let until = stack.now().after(READ_LASTS);
    let own = reports::of(stack, silent, until).await?;
    let clock = stack.ports.clock();
    // Held during the read, so that workers that come meanwhile use its result.
    let mut seen = stack.witnesses().0.lock().await;
    let now = clock.monotonic();
    let reports = match seen.reports.take() {
        Some((at, reports)) if now.saturating_sub(at) < READ_LASTS => (at, reports),
        _ => (now, read(stack).await?),
    };
    let others = reports.1.iter().filter(|(id, _)| *id != silent.id);
    let others = others.map(|(_, report)| report.as_ref());
    let silence = Silence::judge((own.as_ref(), watch), others, stack.now(), &stack.limits);
    seen.reports = Some(reports);
    if silence == Silence::Shared {
        seen.shared = Some(now);
    }
    // Agents that come back need a moment, in which they beat already and have not obeyed yet.
    let is_lately = |at: Duration| now.saturating_sub(at) < RECOVERS_WITHIN;
    Ok(if seen.shared.is_some_and(is_lately) { Silence::Shared } else { silence })
}

async fn read<P: Ports>(stack: &Stack<P>) -> Result<Reports, Fault> {
    let mut witnesses: Vec<Record> = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let (records, next) =
            stack.readable_page(stack.ports.ledger().live(cursor.as_deref()).await?);
        witnesses.extend(records.into_iter().filter(|record| beats(&record.state)));
        witnesses.truncate(WITNESSES_MAX);
        match next {
            Some(next) if witnesses.len() < WITNESSES_MAX => cursor = Some(next),
            _ => break,
        }
    }
    let records: Vec<&Record> = witnesses.iter().collect();
    let reports = reports::of_each(stack, &records, stack.now().after(READ_LASTS)).await?;
    Ok(witnesses.into_iter().map(|record| record.id).zip(reports).collect())
}

/// Whether the agent of a machine in this state beats, if nothing is wrong.
const fn beats(state: &State) -> bool {
    match state {
        State::Idle { tier, .. } | State::Claimed { tier, .. } | State::Releasing { tier, .. } => {
            !matches!(tier, Tier::Stopped)
        }
        State::Running { .. } => true,
        State::Created { .. }
        | State::Stopping { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => false,
    }
}
