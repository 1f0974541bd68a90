//! Invariant 10: what a world costs stays below what its work and its settings explain: machine-time
//! for job-time, launches for a standby pool, calls to GitHub.
//!
//! Each ceiling is a sum: what happened, times what the settings allow for it. Time in storms, and some
//! time after them, is not billed.
//!
//! Not here: how many machines there may be at once ([`super::pace`], `core::invariants`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bullpen_core::forge_rates::{CallCounts, CallPurpose, HOUR};
use bullpen_core::ids::{JobId, PoolName, SpecHash};
use bullpen_core::instance::{EndReason, Owner, Record, State, Tier};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::job::ReportedStatus;
use bullpen_core::limits::{LIFETIME_SPREAD_PERMILLE, Limits};
use bullpen_core::pool::{DesiredPool, PoolMode};
use bullpen_core::time::Timestamp;
use bullpen_engine::pools::SurveyedPool;

use super::requests::Requests;
use super::view::View;
use crate::model::job_forge::SeenJob;

/// How long a machine that is due may wait for a process: upkeep comes every half minute, on clocks that
/// differ, and the checker looks every half minute.
const NOTICED_WITHIN: Duration = Duration::from_secs(120);
/// How long an owner may take to use a machine after its claim, and to give it back after its last job:
/// a stopped machine boots meanwhile, and a webhook may be late.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(180);
/// How much later a machine is given back if no webhook says that its job is over.
const LOST_WEBHOOK: Duration = Duration::from_secs(15 * 60);
/// How often upkeep asks GitHub about the runs of requests, and lists runners.
const UPKEEP: Duration = Duration::from_secs(30);
/// How many launches for a pool the checker may see without their cause.
const UNSEEN: u32 = 4;
/// How many calls one purpose costs at most: the call, and its repetition after a lost answer.
const CALLS_EACH: u64 = 2;

/// What a world's plan says of its cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct CostSettings {
    /// The processes that do upkeep, and the replicas of the service.
    pub processes: u32,
    /// The repositories that the service searches.
    pub repositories: u32,
    /// Whether webhooks are lost or late.
    pub loses_webhooks: bool,
}

/// What a world has cost so far, and why.
#[derive(Debug, Default)]
pub(super) struct Costs {
    settings: Option<CostSettings>,
    looked: Option<Timestamp>,
    machines: MachineBill,
    pools: BTreeMap<PoolName, PoolBill>,
    forge: ForgeBill,
}

/// The time of machines that are not stopped, by what they did, and what explains it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MachineBill {
    /// Until a machine is ready.
    coming: Duration,
    launches: u32,
    /// With an owner.
    serving: Duration,
    /// Of that: for jobs that are not over and requests that are not, as many as they want.
    wanted: Duration,
    tenures: u32,
    lost_webhooks: u32,
    /// Idle, or on the way to being stopped.
    standing_by: Duration,
    /// How often a machine became idle in a resource pool, or after its pool's job.
    stays: u32,
    /// The hot targets of pools, over time.
    kept: Duration,
    /// Machines launched for pools.
    launched_for_pools: u32,
    /// Being given back, or ending.
    leaving: Duration,
    departures: u32,
}

impl MachineBill {
    /// What machines did, for how long, and how much of it is explained.
    fn lines(&self, limits: &Limits) -> [(&'static str, Duration, Duration); 4] {
        let owned =
            self.wanted + HANDED_OVER_WITHIN * self.tenures + LOST_WEBHOOK * self.lost_webhooks;
        let stay = limits.idle_released + NOTICED_WITHIN;
        let renewal = limits.hot_hard_end + limits.stop_fence + NOTICED_WITHIN;
        let stood_by = self.kept + stay * self.stays + renewal * self.launched_for_pools;
        let departure = limits.release_acknowledgement + NOTICED_WITHIN;
        [
            ("were not ready", self.coming, (limits.warm_up + NOTICED_WITHIN) * self.launches),
            ("had an owner", self.serving, owned),
            ("stood by", self.standing_by, stood_by),
            ("were leaving", self.leaving, departure * self.departures),
        ]
    }

    /// What is not explained, if anything.
    fn unexplained(&self, limits: &Limits) -> Option<String> {
        let lines = self.lines(limits);
        // One machine of which it is not clear yet whether it is lost.
        let too_long = |line: &(&str, Duration, Duration)| line.1 > line.2 + limits.shared_silence;
        let (what, took, most) = lines.into_iter().find(too_long)?;
        Some(format!("machines {what} for {took:?} in all; {most:?} are explained"))
    }
}

/// The launches for one standby pool, and what explains them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolBill {
    launches: u32,
    /// The places that were added, the first ones included.
    added: u32,
    /// The places whose machines another version replaced.
    renewed: u32,
    /// Machines that an owner took.
    taken: u32,
    /// Machines that failed or were lost.
    failed: u32,
    /// How many lifetimes the hot places lasted, in thousandths.
    lifetimes_millis: u64,
    /// What it wants now.
    wants: Option<Wanted>,
}

/// What a pool wants at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    places: u32,
    hot: u32,
    spec_hash: SpecHash,
    lifetime: Duration,
}

impl PoolBill {
    fn wants(&mut self, desired: &DesiredPool) {
        let is_kept = desired.mode == PoolMode::Kept;
        let (hot, stopped) =
            if is_kept { (desired.target.hot, desired.target.stopped) } else { (0, 0) };
        let places = hot + stopped;
        let now = Wanted {
            places,
            hot,
            spec_hash: desired.spec_hash.clone(),
            lifetime: desired.hot_lifetime,
        };
        let before = self.wants.replace(now);
        // A place may change between hot and stopped, which launches a machine too.
        let (hot_before, stopped_before) =
            before.as_ref().map_or((0, 0), |wanted| (wanted.hot, wanted.places - wanted.hot));
        self.added += hot.saturating_sub(hot_before) + stopped.saturating_sub(stopped_before);
        if before.is_some_and(|wanted| wanted.spec_hash != desired.spec_hash) {
            self.renewed += places;
        }
    }

    fn passed(&mut self, time: Duration) {
        let Some(wanted) = &self.wants else { return };
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let shortest = millis(wanted.lifetime) * (1_000 - LIFETIME_SPREAD_PERMILLE) / 1_000;
        let lasted = millis(time) * u64::from(wanted.hot) * 1_000;
        self.lifetimes_millis += lasted / shortest.max(1);
    }

    /// How many launches there may be. A process may act once more on what it saw before, and a
    /// machine may be given up before the checker sees why: half as many again as are explained, and a
    /// few.
    fn most(&self) -> u32 {
        let explained = self.explained();
        explained + explained / 2 + UNSEEN
    }

    /// How many launches are explained.
    fn explained(&self) -> u32 {
        let aged = u32::try_from(self.lifetimes_millis.div_ceil(1_000)).unwrap_or(u32::MAX);
        let Self { added, renewed, taken, failed, .. } = self;
        added + renewed + taken + failed + aged
    }
}

/// What explains calls to GitHub.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForgeBill {
    lasted: Duration,
    /// Assignments.
    assigned: u32,
    /// Machines that were given back or ended.
    departures: u32,
    /// The time of all releases together.
    releasing: Duration,
    /// The time of all machines that requests have.
    requested: Duration,
    /// Jobs, and the runs that they are of.
    jobs: u32,
    runs: u32,
    /// The time of all jobs that are not over.
    unfinished: Duration,
}

impl ForgeBill {
    /// The most calls for each purpose.
    fn most(&self, settings: CostSettings, limits: &Limits) -> [(CallPurpose, u64); 9] {
        let rounds = |time: Duration, every: Duration| {
            u64::try_from(time.as_millis().div_ceil(every.as_millis().max(1))).unwrap_or(u64::MAX)
        };
        let processes = u64::from(settings.processes);
        // A ceiling is one of an hour at least.
        let lasted = self.lasted.max(HOUR);
        let upkeep = rounds(lasted, UPKEEP) * processes;
        let searches = rounds(lasted, limits.find);
        let (jobs, runs) = (u64::from(self.jobs), u64::from(self.runs));
        let pages = 2 * u64::from(settings.repositories) + runs;
        // Both processes may ask about a job whenever its row is due.
        let doubts = rounds(self.unfinished, limits.row_look_again) * processes
            + rounds(self.requested, UPKEEP) * processes;
        // The owner's process releases a machine, and each upkeep takes every release up.
        let retries = rounds(self.releasing, limits.release_retry) * (processes + 1);
        let departures = u64::from(self.departures);
        [
            (CallPurpose::Mint, CALLS_EACH * (u64::from(self.assigned) + upkeep / 10)),
            // A search for the runner and its deletion: before the drain and after it, by the owner's process
            // and by each upkeep, and again while GitHub does not answer.
            (CallPurpose::Remove, 2 * CALLS_EACH * (8 * departures + retries + upkeep / 10)),
            (CallPurpose::Origin, CALLS_EACH * (jobs + runs)),
            (CallPurpose::Job, CALLS_EACH * (doubts + upkeep / 10 + jobs + runs)),
            // A page that has not changed costs nothing.
            (CallPurpose::Look, CALLS_EACH * (searches + pages + 4 * jobs)),
            (CallPurpose::Redeliver, CALLS_EACH * (searches + 4 * jobs)),
            // Each is repeated while GitHub does not answer.
            (CallPurpose::Tell, CALLS_EACH * (2 * jobs + upkeep / 10)),
            (CallPurpose::Cancel, CALLS_EACH * (2 * jobs + upkeep / 10)),
            (CallPurpose::List, CALLS_EACH * upkeep),
        ]
    }
}

impl Costs {
    /// The costs of a world with these settings; they are not judged without settings.
    pub(super) fn settle_for(&mut self, settings: CostSettings) {
        self.settings = Some(settings);
    }

    /// A record's write.
    pub(super) fn stored(&mut self, before: Option<&Record>, after: &Record) {
        let is_same = before.is_some_and(|before| before.state.name() == after.state.name());
        if is_same {
            return;
        }
        let bill = &mut self.machines;
        match &after.state {
            State::Idle { tier: Tier::Released, .. } => bill.stays += 1,
            State::Claimed { .. } | State::Running { .. } => bill.tenures += 1,
            State::Releasing { .. } | State::Terminating { .. } => {
                bill.departures += 1;
                self.forge.departures += 1;
            }
            State::Created { .. }
            | State::Idle { .. }
            | State::Stopping { .. }
            | State::Terminated { .. } => {}
        }
        let Some(pool) = after.facts.pool.as_ref().filter(|_| after.uses == 0) else { return };
        let bill = self.pools.entry(pool.clone()).or_default();
        match &after.state {
            State::Claimed { owner: Owner::Job(_) | Owner::Request(_), .. } => bill.taken += 1,
            State::Terminating { why, .. } if has_failed(*why) => bill.failed += 1,
            _ => {}
        }
    }

    /// A machine was launched for an owner.
    pub(super) fn launched(&mut self, owner: Option<&Owner>) {
        self.machines.launches += 1;
        if let Some(Owner::Pool(pool)) = owner {
            self.machines.launched_for_pools += 1;
            self.pools.entry(pool.clone()).or_default().launches += 1;
        }
    }

    /// A machine was assigned.
    pub(super) fn assigned(&mut self) {
        self.forge.assigned += 1;
    }

    /// What the pools want now; judges their launches.
    pub(super) fn pools_want(&mut self, found: &[SurveyedPool]) -> Result<(), Violation> {
        for SurveyedPool { pool, desired, .. } in found {
            let bill = self.pools.entry(pool.clone()).or_default();
            bill.wants(desired);
            let (launches, most) = (bill.launches, bill.most());
            if self.settings.is_some() && launches > most {
                return wrong(format!("{launches} launches for pool {pool}, at most {most}"));
            }
        }
        Ok(())
    }

    /// Bills the time since the last look. `is_trouble`: what machines do is not billed meanwhile.
    pub(super) fn look(
        &mut self,
        (view, requests): (&View, &Requests),
        seen: &[SeenJob],
        is_trouble: bool,
        now: Timestamp,
    ) {
        let passed = self.looked.map_or(Duration::ZERO, |looked| now.since(looked));
        self.looked = Some(now);
        if self.settings.is_none() {
            return;
        }
        let open: BTreeSet<&JobId> =
            seen.iter().filter(|job| !is_over(job)).map(|job| &job.job).collect();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.forge.lasted += passed;
        self.forge.jobs = count(seen.len());
        let runs: BTreeSet<_> = seen.iter().map(|job| &job.about.run).collect();
        self.forge.runs = count(runs.len());
        self.forge.unfinished += passed * count(open.len());
        let mut held: BTreeMap<&Owner, u32> = BTreeMap::new();
        let bill = &mut self.machines;
        for id in view.machines.keys() {
            let state = view.live.get(id).map(|record| &record.state);
            if let Some(Owner::Request(_)) = state.and_then(|state| state.listed_under()) {
                self.forge.requested += passed;
            }
            if matches!(state, Some(State::Releasing { .. })) {
                self.forge.releasing += passed;
            }
            if is_trouble {
                continue;
            }
            match state {
                Some(State::Idle { tier: Tier::Stopped, .. }) => {}
                Some(State::Idle { .. } | State::Stopping { .. }) => bill.standing_by += passed,
                Some(State::Claimed { owner, .. } | State::Running { owner, .. }) => {
                    bill.serving += passed;
                    *held.entry(owner).or_default() += 1;
                }
                Some(State::Releasing { .. } | State::Terminating { .. }) => {
                    bill.leaving += passed;
                }
                Some(State::Created { .. } | State::Terminated { .. }) | None => {
                    bill.coming += passed;
                }
            }
        }
        for (owner, held) in held {
            let wanted = match owner {
                Owner::Job(job) => u32::from(open.contains(job)),
                Owner::Request(_) => requests.wants(owner),
                Owner::Pool(_) => 0,
            };
            bill.wanted += passed * wanted.min(held);
        }
        for pool in self.pools.values_mut() {
            let hot = pool.wants.as_ref().map_or(0, |wanted| wanted.hot);
            bill.kept += if is_trouble { Duration::ZERO } else { passed * hot };
            pool.passed(passed);
        }
    }

    /// Judges what the world has cost so far.
    pub(super) fn judge(&self, calls: &CallCounts, limits: &Limits) -> Result<(), Violation> {
        let Some(settings) = self.settings else { return Ok(()) };
        let mut bill = self.machines.clone();
        bill.lost_webhooks = if settings.loses_webhooks { self.forge.jobs } else { 0 };
        bill.unexplained(limits).map_or(Ok(()), wrong)?;
        for (purpose, most) in self.forge.most(settings, limits) {
            let made = calls.get(&purpose).map_or(0, |count| count.sent - count.free);
            if made > most {
                let what = format!("{made} calls to GitHub ({purpose:?}); {most} are explained");
                return wrong(what);
            }
        }
        Ok(())
    }
}

fn wrong(what: String) -> Result<(), Violation> {
    Err(Violation { invariant: Invariant::Cost, instance: None, what })
}

fn is_over(job: &SeenJob) -> bool {
    matches!(job.said, ReportedStatus::Completed { .. })
}

/// Whether the machine failed, or was lost: its place needs another.
const fn has_failed(why: EndReason) -> bool {
    match why {
        EndReason::FailedChecks
        | EndReason::FailedWarmUp
        | EndReason::NotAcknowledged
        | EndReason::MachineGone
        | EndReason::Untrusted => true,
        EndReason::DeadlinePassed
        | EndReason::RequestFailed
        | EndReason::Dumped
        | EndReason::WornOut
        | EndReason::Outdated
        | EndReason::Surplus
        | EndReason::Operator => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits::DEFAULT;

    #[test]
    fn a_released_machine_may_wait_for_its_time_and_not_for_many_times_it() {
        let bill =
            |stays, standing_by| MachineBill { standing_by, stays, ..MachineBill::default() };
        assert_eq!(bill(3, 3 * LIMITS.idle_released).unexplained(&LIMITS), None);
        let why = bill(3, 15 * LIMITS.idle_released).unexplained(&LIMITS).expect("too long");
        assert!(why.starts_with("machines stood by for"), "{why}");
    }

    #[test]
    fn an_owner_that_is_over_explains_no_machine() {
        let bill =
            |wanted| MachineBill { tenures: 1, serving: HOUR, wanted, ..MachineBill::default() };
        assert_eq!(bill(HOUR).unexplained(&LIMITS), None);
        assert!(bill(HOUR / 2).unexplained(&LIMITS).is_some());
        let late = MachineBill { lost_webhooks: 2, ..bill(HOUR / 2) };
        assert_eq!(late.unexplained(&LIMITS), None, "no webhook said that the jobs were over");
    }

    #[test]
    fn a_pool_launches_for_places_lifetimes_versions_and_what_it_lost() {
        let desired = |hot, spec: &str| {
            let mut desired = DesiredPool::nothing(PoolName::new("ci"), PoolMode::Kept, &LIMITS);
            desired.target.hot = hot;
            desired.spec_hash = SpecHash::new(spec);
            desired.hot_lifetime = HOUR;
            desired
        };
        let mut pool = PoolBill::default();
        pool.wants(&desired(2, "1:aa"));
        pool.wants(&desired(2, "1:aa"));
        assert_eq!(pool.explained(), 2);
        pool.passed(HOUR * 8 / 10);
        assert_eq!(pool.explained(), 4, "the shortest lifetime has passed");
        pool.wants(&desired(3, "1:bb"));
        assert_eq!(pool.explained(), 8, "one more place, and another version for three");
        let pool = PoolBill { taken: 5, failed: 1, ..pool };
        assert_eq!(pool.explained(), 14);
    }

    #[test]
    fn calls_to_github_are_explained_by_time_and_by_work() {
        let settings = CostSettings { processes: 2, repositories: 3, loses_webhooks: false };
        let most = |bill: &ForgeBill, purpose| {
            let all = bill.most(settings, &LIMITS);
            all.into_iter().find(|(other, _)| *other == purpose).map(|(_, most)| most)
        };
        let quiet = ForgeBill { lasted: HOUR, ..ForgeBill::default() };
        assert_eq!(
            most(&quiet, CallPurpose::List),
            Some(480),
            "every half minute, by each process"
        );
        assert_eq!(most(&quiet, CallPurpose::Redeliver), Some(120), "every minute, by one process");
        assert_eq!(most(&quiet, CallPurpose::Origin), Some(0));
        let busy = ForgeBill { jobs: 10, runs: 2, ..quiet };
        assert_eq!(most(&busy, CallPurpose::Origin), Some(24));
    }
}
