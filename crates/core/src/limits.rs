//! Every number the system runs on: named, with its unit, its reason, and its relations asserted.
//!
//! [`Limits::DEFAULT`] is checked at compile time; a configuration that changes one goes through
//! [`Limits::check`] and is refused with the relation it breaks.
//!
//! Not here: ceilings (how many machines), which belong to a stack and have no sensible default.

use std::time::Duration;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn mins(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

const fn hours(hours: u64) -> Duration {
    mins(hours * 60)
}

const fn days(days: u64) -> Duration {
    hours(days * 24)
}

/// Messages per queue call: what SQS allows.
pub const MESSAGES_PER_CALL_MAX: usize = 10;
/// Instance ids per start, stop, terminate or tag call: large enough to matter, small enough that a
/// partial failure is cheap to deal with one by one.
pub const IDS_PER_CALL_MAX: usize = 50;
/// Launches that EC2 gives back in an hour: two a second, shared by a whole account and region.
pub const LAUNCHES_PER_HOUR_SUSTAINED: u64 = 7_200;
/// A webhook body's size; GitHub's own limit is larger, its real `workflow_job` bodies far smaller.
pub const WEBHOOK_BODY_BYTES_MAX: usize = 5 * 1024 * 1024;
/// A pool message's size. Ours are below 1 KiB; anything larger is not ours.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// A mailbox record's size, with a JIT configuration in it. `DynamoDB` allows 400 KB.
pub const MAILBOX_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a signal's detail: the end of an output says why it failed. Our agents write no more,
/// so a longer detail is not from an agent of ours.
pub const SIGNAL_DETAIL_BYTES_MAX: usize = 4 * 1024;
/// Bytes of one part of a report, a beat or a signal: a detail of which every byte is escaped takes
/// six times its length, and the rest of a signal less than a detail.
pub const REPORT_PART_BYTES_MAX: usize = 8 * SIGNAL_DETAIL_BYTES_MAX;
/// Bytes of a whole report. Three kinds of signal carry an output; a job with root on its machine
/// could store 400 KB in `DynamoDB`.
pub const REPORT_BYTES_MAX: usize = 4 * REPORT_PART_BYTES_MAX;
/// Signals in one report: there are nine kinds, and later versions may add a few.
pub const REPORT_SIGNALS_MAX: usize = 16;
/// Bytes of each text that an agent reports of a started job: it writes 200 characters. One
/// document holds sixteen such jobs, and `DynamoDB` allows 400 KB.
pub const REPORT_WORD_BYTES_MAX: usize = 800;
/// Bytes of a boot id: Linux has 36.
pub const REPORT_BOOT_BYTES_MAX: usize = 128;
/// Characters shown of the reason why a report is unreadable: a line.
pub const UNREADABLE_CHARS_MAX: usize = 200;
/// Characters shown of a machine's failure: what failed, and the last line of its output.
pub const TOLD_CHARS_MAX: usize = 300;

/// A pool that keeps more machines than this replaces a few at a time unless configured otherwise.
/// In a smaller pool a quarter is one machine anyway.
pub const ROLLING_ABOVE: u32 = 4;
/// Rolling replaces this part of a pool at a time, rounded up: a quarter is four steps, and so at
/// most four times the warm-up.
pub const ROLLING_PARTS: u32 = 4;
/// How much longer or shorter a hot machine lives than its pool's lifetime, in thousandths, so that
/// machines launched together are not replaced together.
pub const LIFETIME_SPREAD_PERMILLE: u64 = 200;
/// After this many failed boots in a row the specification is at fault, not the machine.
pub const BOOT_FAILURES_MAX: usize = 3;
/// How long the planner pauses launches of a specification that does not boot; doubles with each
/// further failed launch.
pub const QUARANTINE: Duration = mins(5);
/// The longest such pause: the cause may lie outside and have been repaired.
pub const QUARANTINE_MAX: Duration = hours(1);

/// The numbers of one stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// How long a released machine waits for its next owner.
    pub idle_released: Duration,
    /// How long a stopped machine may stay stopped before it is replaced.
    pub idle_stopped: Duration,
    /// The age at which the planner replaces a hot machine, so that it never drifts far from its
    /// image.
    pub hot_lifetime: Duration,
    /// How much longer an expiring hot machine may live while its replacement boots.
    pub hot_hard_end: Duration,
    /// An idle machine this close to its deadline is not claimable: a claim would race the reaper.
    pub not_claimable_before_deadline: Duration,
    /// How long a claim lives without renewal.
    pub claim_lease: Duration,
    /// How often a live request renews its claims.
    pub claim_renew: Duration,
    /// How long an agent may take to acknowledge an assignment.
    pub assignment_acknowledged: Duration,
    /// How long registration may take after the acknowledgement.
    pub registration: Duration,
    /// The same for a machine that was stopped: its runner program is cold.
    pub registration_stopped: Duration,
    /// How long a started machine may take to its first beat.
    pub first_beat_stopped: Duration,
    /// How often an agent beats.
    pub heartbeat: Duration,
    /// When a beat is stale: three missed. Two is too few while reads may lag.
    pub heartbeat_stale: Duration,
    /// How long a created machine may take until it is ready.
    pub warm_up: Duration,
    /// How long an owner in workflow mode may keep a machine without a job extending it.
    pub max_runtime_workflow: Duration,
    /// The same in the service.
    pub max_runtime_service: Duration,
    /// The longest runtime that an extension can reach.
    pub hard_cap: Duration,
    /// How long an agent may take to acknowledge `stop`.
    pub release_acknowledgement: Duration,
    /// How often the control plane asks GitHub again to delete a busy runner.
    pub release_retry: Duration,
    /// How long the control plane repeats a call to GitHub without which a request cannot begin.
    pub forge_patience: Duration,
    /// How long created machines may take to report and register.
    pub fleet_validation: Duration,
    /// How long a mismatched message stays hidden from every reader.
    pub requeue_delay: Duration,
    /// A stop call that has not been made by this long after its intent must not be made.
    pub stop_fence: Duration,
    /// How late after the intent the sender may still send.
    pub stop_send_within: Duration,
    /// The stop call's own timeout.
    pub stop_call_timeout: Duration,
    /// If one attempt sees an id more often than this, the pool is exhausted for the request.
    pub sightings_max: u32,
    /// How long a pool lease lives without renewal.
    pub pool_lease: Duration,
    /// How often a pool lease is renewed.
    pub pool_lease_renew: Duration,
    /// A machine younger than this, or under a live intent, never counts as an orphan.
    pub reconcile_grace: Duration,
    /// How long a tombstone is kept.
    pub tombstone_ttl: Duration,
    /// How long a finished job row is kept.
    pub job_row_ttl: Duration,
    /// How long a mailbox item is kept after its last write.
    pub mailbox_ttl: Duration,
    /// How long a pool queue message is kept.
    pub pool_queue_retention: Duration,
    /// When a queued job must have a runner or a visible failure.
    pub job_deadline: Duration,
    /// Launch attempts per job.
    pub launch_attempts_max: u32,
    /// First backoff between them; doubles, jittered.
    pub launch_backoff: Duration,
    /// When the sweep looks again at a job row that no worker holds.
    pub row_look_again: Duration,
    /// How long a worker may hold a row in `assigning`.
    pub row_lease: Duration,
    /// How often the worker renews that lease.
    pub row_lease_renew: Duration,
    /// Owners one machine may serve.
    pub uses_max: u32,
    /// How old a machine may grow.
    pub age_max: Duration,
    /// How far two clocks may differ before more than time is lost.
    pub clock_skew: Duration,
    /// How long `provision` tries.
    pub request_deadline: Duration,
    /// The boot script arms it before everything else; the agent may only shorten it.
    pub watchdog: Duration,
    /// How long a capacity shortage is remembered.
    pub shortage_memory: Duration,
    /// How long a coalescer waits for another call to join its batch.
    pub coalesce_idle: Duration,
    /// How long a coalescer waits in total.
    pub coalesce_max: Duration,
    /// How often a pool converges.
    pub converge: Duration,
    /// How soon one record may be advertised again; doubles.
    pub readvertise: Duration,
    /// How often the service looks for job rows that are due.
    pub sweep: Duration,
    /// How often the service asks GitHub for changes that no webhook reported. Each time costs
    /// calls for every active repository.
    pub find: Duration,
    /// How often the service reaps, reconciles and advertises again.
    pub upkeep: Duration,
    /// How often the service checks whether the configuration has changed.
    pub configuration: Duration,
    /// How long a process that is asked to end goes on with its unfinished work. Container runtimes
    /// kill a process half a minute after they asked it to end.
    pub drain: Duration,
}

impl Limits {
    /// The default numbers.
    pub const DEFAULT: Self = Self {
        idle_released: mins(7),
        idle_stopped: days(7),
        hot_lifetime: mins(10),
        hot_hard_end: mins(5),
        not_claimable_before_deadline: secs(30),
        claim_lease: mins(5),
        claim_renew: secs(60),
        assignment_acknowledged: secs(5),
        registration: secs(10),
        registration_stopped: secs(30),
        first_beat_stopped: secs(90),
        heartbeat: secs(5),
        heartbeat_stale: secs(15),
        warm_up: mins(10),
        max_runtime_workflow: mins(30),
        max_runtime_service: hours(6),
        hard_cap: hours(24),
        release_acknowledgement: secs(120),
        release_retry: secs(10),
        forge_patience: secs(20),
        fleet_validation: secs(180),
        requeue_delay: secs(3),
        stop_fence: secs(60),
        stop_send_within: secs(20),
        stop_call_timeout: secs(20),
        sightings_max: 5,
        pool_lease: secs(60),
        pool_lease_renew: secs(20),
        reconcile_grace: mins(10),
        tombstone_ttl: days(7),
        job_row_ttl: days(14),
        mailbox_ttl: days(7),
        pool_queue_retention: days(1),
        job_deadline: mins(60),
        launch_attempts_max: 5,
        launch_backoff: secs(5),
        row_look_again: secs(15),
        row_lease: secs(60),
        row_lease_renew: secs(20),
        uses_max: 10,
        age_max: hours(24),
        clock_skew: secs(30),
        request_deadline: mins(10),
        watchdog: hours(49),
        shortage_memory: mins(3),
        coalesce_idle: Duration::from_millis(35),
        coalesce_max: secs(1),
        converge: secs(30),
        readvertise: mins(2),
        sweep: secs(5),
        find: secs(60),
        upkeep: secs(30),
        configuration: secs(30),
        drain: secs(25),
    };

    /// Checks the relations between the numbers. The error is the relation that does not hold.
    pub const fn check(&self) -> Result<(), BrokenRelation> {
        let relations = [
            (
                at_least(self.heartbeat_stale, self.heartbeat, 3),
                "heartbeat-stale must be at least three heartbeats",
            ),
            (
                at_least(self.claim_lease, self.claim_renew, 3),
                "claim-lease must be at least three renewals",
            ),
            (
                at_least(self.pool_lease, self.pool_lease_renew, 3),
                "pool-lease must be at least three renewals",
            ),
            (
                at_least(self.row_lease, self.row_lease_renew, 3),
                "row-lease must be at least three renewals",
            ),
            (
                at_least(self.stop_fence, self.stop_send_within, 3)
                    && at_least(self.stop_fence, self.stop_call_timeout, 3),
                "stop-send-within and stop-call-timeout must each be at most a third of stop-fence",
            ),
            (
                longer(self.idle_released, self.not_claimable_before_deadline),
                "idle-released must be longer than not-claimable-before-deadline",
            ),
            (
                longer(self.claim_lease, self.claim_checks()),
                "claim-lease must outlast the checks of one claim",
            ),
            (
                longer(self.warm_up, self.fleet_validation),
                "warm-up must be longer than fleet-validation",
            ),
            (
                longer(self.hard_cap, self.max_runtime_service)
                    && longer(self.hard_cap, self.max_runtime_workflow),
                "hard-cap must be longer than every max-runtime",
            ),
            (
                self.watchdog.as_millis()
                    >= self.age_max.as_millis() + self.hard_cap.as_millis() + 3_600_000,
                "watchdog must be at least age-max plus hard-cap plus one hour",
            ),
            (
                longer(self.coalesce_max, self.coalesce_idle),
                "coalesce-max must be longer than coalesce-idle",
            ),
            (longer(self.row_look_again, self.sweep), "row-look-again must be longer than sweep"),
            (longer(self.row_lease, self.drain), "row-lease must be longer than drain"),
            (self.sightings_max > 0 && self.uses_max > 0, "counts must be positive"),
        ];
        let mut index = 0;
        while index < relations.len() {
            if !relations[index].0 {
                return Err(BrokenRelation { rule: relations[index].1 });
            }
            index += 1;
        }
        Ok(())
    }

    /// The longest that the checks of one claim of a running machine may take.
    const fn claim_checks(&self) -> Duration {
        self.assignment_acknowledged.saturating_add(self.registration)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A relation between two numbers that a configuration breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}")]
pub struct BrokenRelation {
    /// The relation that must hold.
    pub rule: &'static str,
}

const fn at_least(long: Duration, short: Duration, times: u128) -> bool {
    long.as_millis() >= times * short.as_millis()
}

const fn longer(long: Duration, short: Duration) -> bool {
    long.as_millis() > short.as_millis()
}

const _: () = assert!(Limits::DEFAULT.check().is_ok());
const _: () = assert!(longer(QUARANTINE_MAX, QUARANTINE) && LIFETIME_SPREAD_PERMILLE < 1_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_relation_is_named() {
        let limits = Limits { heartbeat_stale: secs(9), ..Limits::DEFAULT };
        let error = limits.check().unwrap_err();
        assert_eq!(error.to_string(), "heartbeat-stale must be at least three heartbeats");
    }
}
