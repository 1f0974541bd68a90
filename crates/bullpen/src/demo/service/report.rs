//! Telling what came of the service's jobs, and whether it is what should have.
//!
//! Not here: doing it (`play`).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::explain::span;
use bullpen_core::instance::Tier as Stood;
use bullpen_core::job::{End, JobState, JobStep, MachineSource, Reason};
use serde_json::{Value, json};

use super::play::{JobOutcome, ServiceOutcome};
use super::script::{BURSTS, ExpectedEnd};
use crate::pools::PoolSummary;

/// How a job came to its runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    /// It stood by in the job's pool, running.
    Hot,
    /// It stood by in the job's pool, stopped.
    Started,
    Reused,
    Created,
    Continued,
    /// It ran on a runner that was made for another.
    Taken,
    /// It never had one.
    None,
}

impl Tier {
    fn of(row: &JobOutcome) -> Self {
        let steps = || row.job.steps.iter().rev().map(|step| &step.step);
        let how = steps().find_map(|step| match step {
            JobStep::Assigned { how, .. } => Some(*how),
            _ => None,
        });
        let stood = steps().find_map(|step| match step {
            JobStep::Claimed { tier, .. } => Some(*tier),
            _ => None,
        });
        match how {
            _ if row.view.started_at.is_none() => Self::None,
            Some(MachineSource::Picked) if stood == Some(Stood::Hot) => Self::Hot,
            Some(MachineSource::Picked) if stood == Some(Stood::Stopped) => Self::Started,
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

/// Everything there is to tell.
#[derive(Debug)]
pub(super) struct ServiceReport {
    played: ServiceOutcome,
    /// What a boot pretends to take.
    boot: Duration,
    /// How long all of it took.
    took: Duration,
}

impl ServiceReport {
    /// From what was seen.
    pub(super) const fn new(played: ServiceOutcome, boot: Duration, took: Duration) -> Self {
        Self { played, boot, took }
    }

    /// What is not as it should be.
    pub(super) fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> =
            self.played.rows.iter().flat_map(|row| self.off(row)).collect();
        let refused =
            self.played.webhooks.iter().filter(|code| !(200..300).contains(*code)).count();
        if refused > 0 {
            wrong.push(format!("{refused} webhooks were not taken"));
        }
        wrong.extend(self.played.violations.iter().cloned());
        wrong.extend((0..BURSTS.len()).flat_map(|burst| self.missed(burst)));
        wrong
    }

    /// Which machines stood by for a burst and were not given to its jobs.
    fn missed(&self, burst: usize) -> Vec<String> {
        let (hot, started) = BURSTS[burst].standby;
        let had = |tier: Tier| {
            let rows = self.played.rows.iter().filter(|row| row.burst == burst);
            rows.filter(|row| Tier::of(row) == tier).count()
        };
        let least = [(Tier::Hot, hot), (Tier::Started, started)].into_iter();
        let missed = least.filter(|(tier, least)| had(*tier) < *least).map(|(tier, least)| {
            let (number, tier, had) = (burst + 1, tier.as_str(), had(tier));
            format!("burst {number} was given {had} {tier} machines of {least}")
        });
        missed.collect()
    }

    fn off(&self, row: &JobOutcome) -> Vec<String> {
        let name = row.order.name;
        let mut off = Vec::new();
        let end = match &row.job.state {
            JobState::Ended { end, .. } => Some(end),
            _ => None,
        };
        let ended = match row.order.fate {
            ExpectedEnd::Runs | ExpectedEnd::Takes | ExpectedEnd::Robbed => {
                row.worked
                    && matches!(end, Some(End::Completed(word)) if word.as_str() == "success")
            }
            ExpectedEnd::Cancelled => end == Some(&End::Cancelled) && !row.worked,
            ExpectedEnd::Refused => {
                matches!(end, Some(End::Failed(Reason::UnknownPool { .. }))) && self.is_told(row)
            }
        };
        if !ended {
            off.push(format!("{name} ended otherwise: {}", row.told.now));
        }
        let how = BURSTS[row.burst].how.map(|how| match how {
            MachineSource::Reused | MachineSource::Picked => Tier::Reused,
            MachineSource::Created => Tier::Created,
            MachineSource::Continued => Tier::Continued,
        });
        if row.order.fate == ExpectedEnd::Runs && how.is_some_and(|how| how != Tier::of(row)) {
            off.push(format!("{name} had a machine that was {}", Tier::of(row).as_str()));
        }
        let lost = |code: &str| row.told.timeline.iter().any(|entry| entry.code == code);
        if row.order.fate == ExpectedEnd::Robbed && !lost("runner-taken") && !lost("exchanged") {
            off.push(format!("nobody took the runner of {name}"));
        }
        off
    }

    /// Whether the job's author was told, where its commit is.
    fn is_told(&self, row: &JobOutcome) -> bool {
        let id = row.view.id.to_string();
        self.played.notices.iter().any(|notice| {
            notice.text.contains("cii") || notice.external_id.as_deref() == Some(id.as_str())
        })
    }

    /// The waits of each tier until its jobs began, shortest first.
    fn tiers(&self) -> BTreeMap<Tier, Vec<u64>> {
        let mut tiers: BTreeMap<Tier, Vec<u64>> = BTreeMap::new();
        for row in &self.played.rows {
            tiers.entry(Tier::of(row)).or_default().push(row.told.waited_ms.unwrap_or(0));
        }
        for waits in tiers.values_mut() {
            waits.sort_unstable();
        }
        tiers
    }

    /// The job that waited longest for a runner that it got.
    fn slowest(&self) -> Option<&JobOutcome> {
        let ran = self.played.rows.iter().filter(|row| Tier::of(row) != Tier::None);
        ran.max_by_key(|row| row.told.waited_ms)
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut lines = vec![format!(
            "{:<10} {:>5} {:>10} {:>10} {:>10}   from queued to begun",
            "MACHINE", "JOBS", "FASTEST", "MEDIAN", "SLOWEST"
        )];
        for (tier, waits) in self.tiers() {
            let of = |index: usize| span(Duration::from_millis(waits[index]));
            let times = [0, waits.len() / 2, waits.len() - 1].map(of);
            let [fastest, median, slowest] =
                if tier == Tier::None { ["-"; 3].map(str::to_owned) } else { times };
            lines.push(format!(
                "{:<10} {:>5} {fastest:>10} {median:>10} {slowest:>10}   {}",
                tier.as_str(),
                waits.len(),
                self.names(tier)
            ));
        }
        lines.push(String::new());
        lines.push(format!(
            "A new machine pretends to boot for {} s, and so does a stopped one that is started.",
            self.boot.as_secs_f64()
        ));
        let refused = self.played.rows.iter().find(|row| row.order.fate == ExpectedEnd::Refused);
        if let Some(row) = refused {
            lines.push(format!("{}, as its author was told: {}", row.order.name, row.told.verdict));
        }
        let ServiceOutcome { records, violations, webhooks, rows, filled, refilled, pools, .. } =
            &self.played;
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
            "{} jobs, {} webhooks; ledger verify: {records} records, {} violations; {:.1} s in all.",
            rows.len(),
            webhooks.len(),
            violations.len(),
            self.took.as_secs_f64()
        ));
        if let Some(row) = self.slowest() {
            lines.push(format!("The slowest, as `bullpen explain` tells it: {}.", row.told.line()));
        }
        lines.join("\n")
    }

    /// Which jobs those are, if they are few.
    fn names(&self, tier: Tier) -> String {
        let of_tier = self.played.rows.iter().filter(|row| Tier::of(row) == tier);
        let names: Vec<&str> = of_tier.map(|row| row.order.name).collect();
        if names.len() > 3 { String::new() } else { names.join(", ") }
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let jobs: Vec<Value> = self.played.rows.iter().map(object).collect();
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
            "filled_ms": u64::try_from(self.played.filled.as_millis()).unwrap_or(u64::MAX),
            "refilled_ms": u64::try_from(self.played.refilled.as_millis()).unwrap_or(u64::MAX),
            "pools": self.played.pools.iter().map(PoolSummary::json).collect::<Vec<_>>(),
            "pretended_boot_ms": u64::try_from(self.boot.as_millis()).unwrap_or(u64::MAX),
            "webhooks": self.played.webhooks.len(),
            "notices": self.played.notices.len(),
            "records": self.played.records,
            "violations": self.played.violations,
            "slowest": self.slowest().map(|row| &row.told),
            "took_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "wrong": self.wrong(),
        })
    }

    /// The id of the job that waited longest, to ask about.
    pub(super) fn worth_asking(&self) -> Option<u64> {
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
        "waited_ms": row.told.waited_ms,
        "conclusion": row.view.conclusion,
        "worked": row.worked,
        "verdict": row.told.verdict,
    })
}

#[cfg(test)]
mod tests;
