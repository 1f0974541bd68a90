//! Judges the outcome of the service's jobs, and formats it.
//!
//! Not here: running the jobs (`play`).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::explain::span;
use bullpen_core::instance::Tier as IdleTier;
use bullpen_core::job::{End, JobState, JobStep, MachineSource, Reason};
use serde_json::{Value, json};

use super::play::{JobOutcome, ServiceOutcome};
use super::script::{BURSTS, ExpectedEnd};
use crate::pools::PoolSummary;
use crate::table::{self, Column, count, long, number, whole};

const COLUMNS: [Column; 6] = [
    whole("MACHINE"),
    number("JOBS"),
    number("FASTEST"),
    number("MEDIAN"),
    number("SLOWEST"),
    long("from queued to begun"),
];

/// How a job got its runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    /// On a hot machine of its pool.
    Hot,
    /// On a stopped machine of its pool, which the worker started.
    Started,
    Reused,
    Created,
    Continued,
    /// GitHub gave it another job's runner.
    Taken,
    /// It never got a runner.
    None,
}

impl Tier {
    fn of(row: &JobOutcome) -> Self {
        let steps = || row.job.steps.iter().rev().map(|step| &step.step);
        let how = steps().find_map(|step| match step {
            JobStep::Assigned { how, .. } => Some(*how),
            _ => None,
        });
        let idle_tier = steps().find_map(|step| match step {
            JobStep::Claimed { tier, .. } => Some(*tier),
            _ => None,
        });
        match how {
            _ if row.view.started_at.is_none() => Self::None,
            Some(MachineSource::Picked) if idle_tier == Some(IdleTier::Hot) => Self::Hot,
            Some(MachineSource::Picked) if idle_tier == Some(IdleTier::Stopped) => Self::Started,
            Some(MachineSource::Reused | MachineSource::Picked) => Self::Reused,
            Some(MachineSource::Created) => Self::Created,
            Some(MachineSource::Continued) => Self::Continued,
            None => Self::Taken,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Started => "started",
            Self::Reused => "reused",
            Self::Created => "created",
            Self::Continued => "continued",
            Self::Taken => "taken",
            Self::None => "no runner",
        }
    }
}

/// The report of a demo.
#[derive(Debug)]
pub(super) struct ServiceReport {
    outcome: ServiceOutcome,
    /// The pretended time of a boot.
    boot: Duration,
    /// The duration of the demo.
    took: Duration,
}

impl ServiceReport {
    /// The report of this outcome.
    pub(super) const fn new(outcome: ServiceOutcome, boot: Duration, took: Duration) -> Self {
        Self { outcome, boot, took }
    }

    /// The differences from the expected outcome.
    pub(super) fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> =
            self.outcome.rows.iter().flat_map(|row| self.wrong_with(row)).collect();
        let refused =
            self.outcome.webhooks.iter().filter(|code| !(200..300).contains(*code)).count();
        if refused > 0 {
            wrong.push(format!("the service refused {refused} webhooks"));
        }
        wrong.extend(self.outcome.violations.iter().cloned());
        wrong.extend((0..BURSTS.len()).flat_map(|burst| self.missing_standby(burst)));
        wrong
    }

    /// The standby machines that the jobs of a burst should have got and did not get.
    fn missing_standby(&self, burst: usize) -> Vec<String> {
        let (hot, started) = BURSTS[burst].standby;
        let got = |tier: Tier| {
            let rows = self.outcome.rows.iter().filter(|row| row.burst == burst);
            rows.filter(|row| Tier::of(row) == tier).count()
        };
        let least = [(Tier::Hot, hot), (Tier::Started, started)].into_iter();
        let missing = least.filter(|(tier, least)| got(*tier) < *least).map(|(tier, least)| {
            let (number, tier, count) = (burst + 1, tier.as_str(), got(tier));
            format!("burst {number} got {count} {tier} machines of {least}")
        });
        missing.collect()
    }

    fn wrong_with(&self, row: &JobOutcome) -> Vec<String> {
        let name = row.order.name;
        let mut wrong = Vec::new();
        let end = match &row.job.state {
            JobState::Ended { end, .. } => Some(end),
            _ => None,
        };
        let is_expected = match row.order.expected {
            ExpectedEnd::Runs | ExpectedEnd::Takes | ExpectedEnd::Robbed => {
                row.worked
                    && matches!(end, Some(End::Completed(word)) if word.as_str() == "success")
            }
            ExpectedEnd::Cancelled => end == Some(&End::Cancelled) && !row.worked,
            ExpectedEnd::Refused => {
                matches!(end, Some(End::Failed(Reason::UnknownPool { .. }))) && self.is_told(row)
            }
        };
        if !is_expected {
            wrong.push(format!("{name} did not end as expected: {}", row.explanation.now));
        }
        let how = BURSTS[row.burst].how.map(|how| match how {
            MachineSource::Reused | MachineSource::Picked => Tier::Reused,
            MachineSource::Created => Tier::Created,
            MachineSource::Continued => Tier::Continued,
        });
        if row.order.expected == ExpectedEnd::Runs && how.is_some_and(|how| how != Tier::of(row)) {
            wrong.push(format!("{name} had a machine that was {}", Tier::of(row).as_str()));
        }
        if row.order.expected == ExpectedEnd::Robbed && !self.is_robbed(row) {
            wrong.push(format!("no other job took the runner of {name}"));
        }
        wrong
    }

    /// Whether another job ran on the runner that was made for this one: the service noted it, or, if
    /// both jobs were over before a process looked, GitHub did.
    fn is_robbed(&self, row: &JobOutcome) -> bool {
        let has = |code: &str| row.explanation.timeline.iter().any(|entry| entry.code == code);
        let id = row.view.id.to_string();
        let is_made_for_it = |runner: &String| runner.rsplit('-').nth(1) == Some(id.as_str());
        let mut others = self.outcome.rows.iter().filter(|other| other.view.id != row.view.id);
        has("runner-taken")
            || has("exchanged")
            || others.any(|other| other.view.runner.as_ref().is_some_and(is_made_for_it))
    }

    /// Whether the service told the job's author, at the commit.
    fn is_told(&self, row: &JobOutcome) -> bool {
        let id = row.view.id.to_string();
        self.outcome.notices.iter().any(|notice| {
            notice.text.contains("cii") || notice.external_id.as_deref() == Some(id.as_str())
        })
    }

    /// The waits of the jobs of each tier, shortest first.
    fn tiers(&self) -> BTreeMap<Tier, Vec<u64>> {
        let mut tiers: BTreeMap<Tier, Vec<u64>> = BTreeMap::new();
        for row in &self.outcome.rows {
            tiers.entry(Tier::of(row)).or_default().push(row.explanation.waited_ms.unwrap_or(0));
        }
        for waits in tiers.values_mut() {
            waits.sort_unstable();
        }
        tiers
    }

    /// The job that waited longest, among those with a runner.
    fn slowest(&self) -> Option<&JobOutcome> {
        let ran = self.outcome.rows.iter().filter(|row| Tier::of(row) != Tier::None);
        ran.max_by_key(|row| row.explanation.waited_ms)
    }

    /// The text for people.
    pub(super) fn text(&self) -> String {
        let rows: Vec<_> =
            self.tiers().iter().map(|(tier, waits)| self.row(*tier, waits)).collect();
        let mut lines = table::lines(&COLUMNS, &rows, table::NARROWEST);
        lines.push(String::new());
        lines.push(format!(
            "A new machine pretends to boot for {} s, and so does a stopped machine that is started.",
            self.boot.as_secs_f64()
        ));
        let refused =
            self.outcome.rows.iter().find(|row| row.order.expected == ExpectedEnd::Refused);
        if let Some(row) = refused {
            lines.push(format!(
                "{}, as its author was told: {}",
                row.order.name, row.explanation.verdict
            ));
        }
        let ServiceOutcome { records, violations, webhooks, rows, filled, refilled, pools, .. } =
            &self.outcome;
        lines.push(format!(
            "The pools were full after {}, and again {} after the last job: {}.",
            span(*filled),
            span(*refilled),
            pools
                .iter()
                .map(|pool| format!("{} {}", pool.name, pool.machines()))
                .collect::<Vec<_>>()
                .join("; ")
        ));
        lines.push(format!(
            "{}, {}; ledger verify: {}, {}; {:.1} s in all.",
            count(rows.len(), "job"),
            count(webhooks.len(), "webhook"),
            count(*records, "record"),
            count(violations.len(), "violation"),
            self.took.as_secs_f64()
        ));
        if let Some(row) = self.slowest() {
            lines.push(format!(
                "The slowest, as `bullpen explain` tells it: {}.",
                row.explanation.line()
            ));
        }
        lines.join("\n")
    }

    /// The line of a tier, whose waits are in order.
    fn row(&self, tier: Tier, waits: &[u64]) -> [String; COLUMNS.len()] {
        let of = |index: usize| span(Duration::from_millis(waits[index]));
        let times = [0, waits.len() / 2, waits.len() - 1].map(of);
        let [fastest, median, slowest] =
            if tier == Tier::None { ["-"; 3].map(str::to_owned) } else { times };
        let (machine, jobs) = (tier.as_str().to_owned(), waits.len().to_string());
        [machine, jobs, fastest, median, slowest, self.names(tier)]
    }

    /// The names of the jobs of a tier, if they are few.
    fn names(&self, tier: Tier) -> String {
        let of_tier = self.outcome.rows.iter().filter(|row| Tier::of(row) == tier);
        let names: Vec<&str> = of_tier.map(|row| row.order.name).collect();
        if names.len() > 3 { String::new() } else { names.join(", ") }
    }

    /// The object for programs.
    pub(super) fn json(&self) -> Value {
        let jobs: Vec<Value> = self.outcome.rows.iter().map(object).collect();
        let tiers: Vec<Value> = self
            .tiers()
            .iter()
            .map(|(tier, waits)| {
                json!({
                    "tier": tier.as_str(),
                    "jobs": waits.len(),
                    "fastest_ms": waits.first(),
                    "median_ms": waits.get(waits.len() / 2),
                    "slowest_ms": waits.last(),
                })
            })
            .collect();
        json!({
            "jobs": jobs,
            "tiers": tiers,
            "filled_ms": u64::try_from(self.outcome.filled.as_millis()).unwrap_or(u64::MAX),
            "refilled_ms": u64::try_from(self.outcome.refilled.as_millis()).unwrap_or(u64::MAX),
            "pools": self.outcome.pools.iter().map(PoolSummary::json).collect::<Vec<_>>(),
            "pretended_boot_ms": u64::try_from(self.boot.as_millis()).unwrap_or(u64::MAX),
            "webhooks": self.outcome.webhooks.len(),
            "notices": self.outcome.notices.len(),
            "records": self.outcome.records,
            "violations": self.outcome.violations,
            "slowest": self.slowest().map(|row| &row.explanation),
            "took_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "wrong": self.wrong(),
        })
    }

    /// The id of the job that waited longest.
    pub(super) fn slowest_job(&self) -> Option<u64> {
        self.slowest().map(|row| row.view.id)
    }
}

fn object(row: &JobOutcome) -> Value {
    json!({
        "id": row.view.id,
        "name": row.order.name,
        "burst": row.burst + 1,
        "names": row.order.names.as_str(),
        "tier": Tier::of(row).as_str(),
        "waited_ms": row.explanation.waited_ms,
        "conclusion": row.view.conclusion,
        "worked": row.worked,
        "verdict": row.explanation.verdict,
    })
}

#[cfg(test)]
mod tests;
