//! The counters of one process and the gauges of its stack, as Prometheus reads them.
//!
//! Counters and waits are this process's own, to be added up over replicas; machines and queues are
//! the stack's, the same at every replica, and are read at most every [`FRESH`].
//!
//! Not here: the events that are counted (`bullpen_engine::jobs::observer`).

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::http::StatusCode;
use bullpen_core::forge_rates::CallCounts;
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::job::MachineSource;
use bullpen_core::ports::{Clock as _, Fault, Ports, Queues as _};
use bullpen_engine::Stack;
use bullpen_engine::jobs::observer::JobEnding;
use bullpen_engine::jobs::{ServiceEvent, dead_letter_queue, launch_queue, pool_queue};
use bullpen_engine::pools::CycleReport;
use bullpen_engine::reconcile::live_records;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;

/// The content type of what [`Metrics::text`] returns.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How old the stack's gauges may be: reading them reads every record.
const FRESH: Duration = Duration::from_secs(15);
/// From a warm machine to an hour.
const BUCKETS_S: [f64; 15] =
    [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStatus {
    status: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByHow {
    how: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByEnd {
    end: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct OfClass {
    class: String,
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPool {
    pool: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Promised {
    pool: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutside {
    outside: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPurpose {
    purpose: &'static str,
    hour: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAction {
    pool: String,
    action: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTask {
    task: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    queue: String,
}

/// All metrics.
pub(super) struct Metrics {
    registry: Registry,
    webhooks: Family<ByStatus, Counter>,
    foreign: Family<ByOutside, Counter>,
    assigned: Family<ByHow, Counter>,
    setbacks: Family<ByReason, Counter>,
    ended: Family<ByEnd, Counter>,
    waited: Family<ByHow, Histogram>,
    startup: Histogram,
    instances: Family<OfClass, Gauge>,
    queued: Family<OfQueue, Gauge>,
    standing_by: Family<OfPool, Gauge>,
    promised: Family<Promised, Gauge>,
    actions: Family<ByAction, Counter>,
    unreadable: Counter,
    unreadable_items: Family<OfKind, Counter>,
    defects: Family<OfTask, Counter>,
    set_aside: Counter,
    clock_ahead: Gauge<f64, AtomicU64>,
    ends_denied: Gauge,
    github_calls: Family<ByPurpose, Counter>,
    /// When the stack's gauges were read last, by the process's monotonic clock.
    looked: Mutex<Option<Duration>>,
}

fn waits() -> Histogram {
    Histogram::new(BUCKETS_S)
}

impl Metrics {
    /// All counters at zero.
    pub(super) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("bullpen"),
            webhooks: Family::default(),
            foreign: Family::default(),
            assigned: Family::default(),
            setbacks: Family::default(),
            ended: Family::default(),
            waited: Family::new_with_constructor(waits),
            startup: waits(),
            instances: Family::default(),
            queued: Family::default(),
            standing_by: Family::default(),
            promised: Family::default(),
            actions: Family::default(),
            unreadable: Counter::default(),
            unreadable_items: Family::default(),
            defects: Family::default(),
            set_aside: Counter::default(),
            clock_ahead: Gauge::default(),
            ends_denied: Gauge::default(),
            github_calls: Family::default(),
            looked: Mutex::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let known = &mut self.registry;
        known.register("webhooks", "Deliveries by the status of our answer", self.webhooks.clone());
        let help = "Webhooks and answers about jobs outside the scope, by what is not ours";
        known.register("jobs_foreign", help, self.foreign.clone());
        let help = "Jobs whose runner listens, by how its machine was come by";
        known.register("jobs_assigned", help, self.assigned.clone());
        let help = "Attempts at a job that came to nothing, by reason";
        known.register("job_setbacks", help, self.setbacks.clone());
        let help = "Jobs that are over, by how they ended, and if we gave them up, why";
        known.register("jobs_ended", help, self.ended.clone());
        let help = "From GitHub's queueing to a runner that listens: our share of the wait";
        known.register("job_wait_seconds", help, self.waited.clone());
        let help = "From queued to started, both by GitHub's clock";
        known.register("job_startup_seconds", help, self.startup.clone());
        let help = "Machines of the stack, by class and state";
        known.register("instances", help, self.instances.clone());
        let help = "Messages in the stack's queues, received ones among them";
        known.register("queue_messages", help, self.queued.clone());
        let help = "Machines of the pools that this process keeps, by status";
        known.register("pool_instances", help, self.standing_by.clone());
        let help = "Machines that the schedules of those pools promise now";
        known.register("pool_desired", help, self.promised.clone());
        let help = "Machines of pools that something was done to, and why";
        known.register("pool_actions", help, self.actions.clone());
        let help = "Reads of a machine's report that found something else, and counted it as none";
        known.register("reports_unreadable", help, self.unreadable.clone());
        let help =
            "Reads of the store that found an item which this version cannot read, by its kind";
        known.register("items_unreadable", help, self.unreadable_items.clone());
        let help = "Panics that ended one task of the process, by its kind";
        known.register("defects", help, self.defects.clone());
        let help = "Rows that this process set aside, because it failed at them again and again";
        known.register("rows_set_aside", help, self.set_aside.clone());
        let help = "By how much this machine's clock is ahead of the service's whose answers date it, at least; negative: behind";
        known.register("clock_ahead_seconds", help, self.clock_ahead.clone());
        let help = "Machines that the cloud denies this process to end";
        known.register("ends_denied", help, self.ends_denied.clone());
        let help = "Calls to GitHub by purpose, and whether they counted towards its hourly limit";
        known.register("github_calls", help, self.github_calls.clone());
    }

    /// Counts an answer to a delivery.
    pub(super) fn webhook(&self, status: StatusCode) {
        self.webhooks.get_or_create(&ByStatus { status: status.as_u16().into() }).inc();
    }

    /// Counts an event of the service.
    pub(super) fn note(&self, noted: &ServiceEvent) {
        match noted {
            ServiceEvent::Listens { how, waited } => {
                let how = ByHow { how: word(*how) };
                self.assigned.get_or_create(&how).inc();
                self.waited.get_or_create(&how).observe(waited.as_secs_f64());
            }
            ServiceEvent::SetBack(setback) => {
                self.setbacks.get_or_create(&ByReason { reason: setback.code() }).inc();
            }
            ServiceEvent::Foreign(outside) => {
                self.foreign.get_or_create(&ByOutside { outside: outside.as_str() }).inc();
            }
            ServiceEvent::Started { waited } => self.startup.observe(waited.as_secs_f64()),
            ServiceEvent::Ended(ending) => {
                let (end, reason) = match ending {
                    JobEnding::Completed => ("completed", ""),
                    JobEnding::Cancelled => ("cancelled", ""),
                    JobEnding::Failed(reason) => ("failed", reason.code()),
                };
                self.ended.get_or_create(&ByEnd { end, reason }).inc();
            }
            ServiceEvent::Kept(kept) => self.kept(kept),
            ServiceEvent::SetAside => {
                self.set_aside.inc();
            }
        }
    }

    fn kept(&self, kept: &CycleReport) {
        let pool = kept.pool.to_string();
        for status in StandbyStatus::ALL {
            let count = kept.machines.get(&status).copied().unwrap_or(0);
            let of = OfPool { pool: pool.clone(), state: status.as_str() };
            self.standing_by.get_or_create(&of).set(count.into());
        }
        for (kind, count) in [("hot", kept.target.hot), ("stopped", kept.target.stopped)] {
            let of = Promised { pool: pool.clone(), kind };
            self.promised.get_or_create(&of).set(count.into());
        }
        for deed in &kept.deeds {
            let (action, reason) = (deed.act.clone(), deed.why.clone());
            let by = ByAction { pool: pool.clone(), action, reason };
            self.actions.get_or_create(&by).inc_by(deed.done.into());
        }
    }

    /// All metrics, as text. Gauges that cannot be read now stay as they were.
    pub(super) async fn text<P: Ports>(&self, stack: &Stack<P>, calls: CallCounts) -> String {
        if let Err(fault) = self.look(stack).await {
            tracing::info!(%fault, "could not read the stack's gauges");
        }
        // Only this function counts here, so the difference is what came since the last time.
        let reads = stack.unreadable_reports.reads();
        self.unreadable.inc_by(reads.saturating_sub(self.unreadable.get()));
        for (kind, reads) in stack.unreadable_items.reads() {
            let of = OfKind { kind: kind.name() };
            let counted = self.unreadable_items.get_or_create(&of);
            counted.inc_by(reads.saturating_sub(counted.get()));
        }
        for (task, panics) in stack.defects.counts() {
            let counted = self.defects.get_or_create(&OfTask { task });
            counted.inc_by(panics.saturating_sub(counted.get()));
        }
        self.clock_ahead.set(seconds(stack.clock.ahead_millis()));
        let denied = stack.denied_ends().count(stack.ports.clock().monotonic());
        self.ends_denied.set(i64::try_from(denied).unwrap_or(i64::MAX));
        for (purpose, count) in calls {
            for (hour, calls) in [("counted", count.sent - count.free), ("free", count.free)] {
                let of = ByPurpose { purpose: purpose.as_str(), hour };
                let counted = self.github_calls.get_or_create(&of);
                counted.inc_by(calls.saturating_sub(counted.get()));
            }
        }
        let mut all = String::new();
        // Writing into a text does not fail.
        let _ = text::encode(&mut all, &self.registry);
        all
    }

    async fn look<P: Ports>(&self, stack: &Stack<P>) -> Result<(), Fault> {
        let mut looked = self.looked.lock().await;
        let now = stack.ports.clock().monotonic();
        if looked.is_some_and(|at| now.saturating_sub(at) < FRESH) {
            return Ok(());
        }
        let mut counts: BTreeMap<OfClass, i64> = BTreeMap::new();
        for record in live_records(stack).await? {
            let class = record.facts.class.to_string();
            let state = record.state.name().as_str().to_owned();
            *counts.entry(OfClass { class, state }).or_default() += 1;
        }
        // A state without machines must not keep its last number.
        self.instances.clear();
        for (of, count) in counts {
            self.instances.get_or_create(&of).set(count);
        }
        for (queue, name) in [
            ("pool", pool_queue(stack)),
            ("launch", launch_queue(stack)),
            ("dead-letters", dead_letter_queue(stack)),
        ] {
            let depth = stack.ports.queues().depth(&name).await?;
            let total = i64::try_from(depth.total()).unwrap_or(i64::MAX);
            self.queued.get_or_create(&OfQueue { queue: queue.to_owned() }).set(total);
        }
        *looked = Some(now);
        Ok(())
    }
}

/// Milliseconds as seconds. A difference of clocks is far below what a float has exactly.
#[expect(clippy::cast_precision_loss, reason = "a number for people")]
fn seconds(millis: i64) -> f64 {
    millis as f64 / 1_000.0
}

const fn word(how: MachineSource) -> &'static str {
    match how {
        MachineSource::Created => "created",
        MachineSource::Continued => "continued",
        MachineSource::Reused => "reused",
        MachineSource::Picked => "picked",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The registry writes no family without a member, so the names are those in the source.
    const SOURCE: &str = include_str!("metrics.rs");
    const SERVICE: &str = include_str!("../../../../docs/service.md");
    const POOLS: &str = include_str!("../../../../docs/pools.md");

    /// The metrics that a page names, without their labels and a counter's suffix.
    fn documented(page: &str) -> BTreeSet<&str> {
        let names = page.split('`').skip(1).step_by(2);
        let names = names.filter_map(|name| name.strip_prefix("bullpen_")?.split('{').next());
        names.map(|name| name.strip_suffix("_total").unwrap_or(name)).collect()
    }

    #[test]
    fn the_documents_name_every_metric_and_no_other() {
        let registered = SOURCE.split("known.register(\"").skip(1);
        let registered: BTreeSet<&str> =
            registered.filter_map(|rest| rest.split('"').next()).collect();
        assert!(registered.contains("webhooks"), "{registered:?}");
        assert_eq!(registered, &documented(SERVICE) | &documented(POOLS));
    }
}
