//! Every number the system runs on: named, with its unit, its reason, and its relations asserted.
//!
//! [`Limits::DEFAULT`] is checked at compile time; a configuration that changes one goes through
//! [`Limits::check`] and is refused with the relation it breaks.
//!
//! A number is one entry of `limits!`. Its configuration key, its default, its place in
//! `config.default.toml` and in the schema follow from that entry.
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
/// How long a process leaves a machine alone that the cloud denies to end; doubles with each denial.
pub const DENIED_PAUSE: Duration = secs(30);
/// The longest such pause: the machine costs money, and its operator may have lifted the protection.
pub const DENIED_PAUSE_MAX: Duration = mins(10);

/// Makes [`Limits`], its defaults and the table of its numbers from one entry for each. The first word
/// is the key in `bullpen.toml`; what is said of a number here is said in `config.default.toml` and in
/// the schema for editors too.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $key:literal $field:ident: $form:ident = $default:expr;)+) => {
        /// The numbers of one stack.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $field: limits!(@type $form),)+
        }

        impl Limits {
            /// The default numbers.
            pub const DEFAULT: Self = Self { $($field: $default,)+ };
            /// Every number, in the order of its declaration.
            pub const ALL: &'static [Limit] = &[$(Limit {
                key: $key,
                doc: concat!($($doc),+),
                field: limits!(@field $form)(|limits| &mut limits.$field),
            }),+];
        }
    };
    (@type duration) => { Duration };
    (@type count) => { u32 };
    (@field duration) => { LimitField::Duration };
    (@field count) => { LimitField::Count };
}

limits! {
    /// How long a released machine waits for its next owner.
    "idle-released" idle_released: duration = mins(7);
    /// How long a stopped machine may stay stopped before it is replaced.
    "idle-stopped" idle_stopped: duration = days(7);
    /// The age at which the planner replaces a hot machine, so that it never drifts far from its
    /// image.
    "hot-lifetime" hot_lifetime: duration = mins(10);
    /// How much longer an expiring hot machine may live while its replacement boots.
    "hot-hard-end" hot_hard_end: duration = mins(5);
    /// An idle machine this close to its deadline is not claimable: a claim would race the reaper.
    "not-claimable-before-deadline" not_claimable_before_deadline: duration = secs(30);
    /// How long a claim lives without renewal.
    "claim-lease" claim_lease: duration = mins(5);
    /// How often a live request renews its claims.
    "claim-renew" claim_renew: duration = secs(60);
    /// How long an agent may take to acknowledge an assignment.
    "assignment-acknowledged" assignment_acknowledged: duration = secs(5);
    /// How long registration may take after the acknowledgement.
    "registration" registration: duration = secs(10);
    /// The same as registration, for a machine that was stopped: its runner program is cold.
    "registration-stopped" registration_stopped: duration = secs(30);
    /// How long a started machine may take to its first beat.
    "first-beat-stopped" first_beat_stopped: duration = secs(90);
    /// How often an agent beats.
    "heartbeat" heartbeat: duration = secs(5);
    /// When a beat is stale: three missed. Two is too few while reads may lag.
    "heartbeat-stale" heartbeat_stale: duration = secs(15);
    /// How long the agent of a machine that no answer of the cloud shows must not beat before its record
    /// is condemned. An agent whose calls are slow can miss the time after which a beat is stale.
    "absence-watch" absence_watch: duration = mins(1);
    /// How long a created machine may take until it is ready.
    "warm-up" warm_up: duration = mins(10);
    /// How long an owner in workflow mode may keep a machine without a job extending it.
    "max-runtime-workflow" max_runtime_workflow: duration = mins(30);
    /// How long an owner in the service may keep a machine without a job extending it.
    "max-runtime-service" max_runtime_service: duration = hours(6);
    /// The longest runtime that an extension can reach.
    "hard-cap" hard_cap: duration = hours(24);
    /// How long an agent may take to acknowledge `stop`.
    "release-acknowledgement" release_acknowledgement: duration = secs(120);
    /// How long the agents of several machines may be silent at once before it costs the machines.
    "shared-silence" shared_silence: duration = mins(15);
    /// How often the control plane asks GitHub again to delete a busy runner.
    "release-retry" release_retry: duration = secs(10);
    /// How long the control plane repeats a call to GitHub without which a request cannot begin.
    "forge-patience" forge_patience: duration = secs(20);
    /// How long created machines may take to report and register.
    "fleet-validation" fleet_validation: duration = secs(180);
    /// How long a mismatched message stays hidden from every reader.
    "requeue-delay" requeue_delay: duration = secs(3);
    /// A stop call that has not been made by this long after its intent must not be made.
    "stop-fence" stop_fence: duration = secs(60);
    /// How late after the intent the sender may still send.
    "stop-send-within" stop_send_within: duration = secs(20);
    /// The stop call's own timeout.
    "stop-call-timeout" stop_call_timeout: duration = secs(20);
    /// If one attempt sees an id more often than this, the pool is exhausted for the request.
    "sightings-max" sightings_max: count = 5;
    /// How long a pool lease lives without renewal.
    "pool-lease" pool_lease: duration = secs(60);
    /// How often a pool lease is renewed.
    "pool-lease-renew" pool_lease_renew: duration = secs(20);
    /// A machine younger than this, or under a live intent, never counts as an orphan.
    "reconcile-grace" reconcile_grace: duration = mins(10);
    /// How long a tombstone is kept.
    "tombstone-ttl" tombstone_ttl: duration = days(7);
    /// How long a finished job row is kept.
    "job-row-ttl" job_row_ttl: duration = days(14);
    /// How long a mailbox item is kept after its last write.
    "mailbox-ttl" mailbox_ttl: duration = days(7);
    /// How long a pool queue message is kept.
    "pool-queue-retention" pool_queue_retention: duration = days(1);
    /// When a queued job must have a runner or a visible failure.
    "job-deadline" job_deadline: duration = mins(60);
    /// Launch attempts per job.
    "launch-attempts-max" launch_attempts_max: count = 5;
    /// First backoff between launch attempts; doubles, jittered.
    "launch-backoff" launch_backoff: duration = secs(5);
    /// When the sweep looks again at a job row that no worker holds.
    "row-look-again" row_look_again: duration = secs(15);
    /// How many failures at one job's row set it aside: panics, and faults that no retry mends while other
    /// rows are stored. The process then tries the row at intervals only.
    "set-aside-after" set_aside_after: count = 5;
    /// How long a process leaves a row alone that it has set aside. Beyond the job's deadline the row is
    /// never tried again.
    "set-aside-for" set_aside_for: duration = mins(15);
    /// How long a worker may hold a row in `assigning`.
    "row-lease" row_lease: duration = secs(60);
    /// How often the worker renews that lease.
    "row-lease-renew" row_lease_renew: duration = secs(20);
    /// Owners one machine may serve.
    "uses-max" uses_max: count = 10;
    /// How old a machine may grow.
    "age-max" age_max: duration = hours(24);
    /// How far two clocks may differ before more than time is lost.
    "clock-skew" clock_skew: duration = secs(30);
    /// How far a process's clock may be off, by the dates of AWS's or GitHub's answers. Beyond that the
    /// process judges no ages: it reaps, reconciles, keeps pools and ends overdue jobs no more.
    "clock-off-max" clock_off_max: duration = secs(10);
    /// How long `provision` tries.
    "request-deadline" request_deadline: duration = mins(10);
    /// How long after its boot a machine powers itself off. The boot script arms this before everything
    /// else; the agent may only shorten it.
    "watchdog" watchdog: duration = hours(49);
    /// How long a capacity shortage is remembered.
    "shortage-memory" shortage_memory: duration = mins(3);
    /// How long a coalescer waits for another call to join its batch.
    "coalesce-idle" coalesce_idle: duration = Duration::from_millis(35);
    /// How long a coalescer waits in total.
    "coalesce-max" coalesce_max: duration = secs(1);
    /// How often a pool converges.
    "converge" converge: duration = secs(30);
    /// How soon one record may be advertised again; doubles.
    "readvertise" readvertise: duration = mins(2);
    /// How often the service looks for job rows that are due.
    "sweep" sweep: duration = secs(5);
    /// How often the service asks GitHub for changes that no webhook reported. Each time costs
    /// calls for every active repository.
    "find" find: duration = secs(60);
    /// How often the service reaps, reconciles and advertises again.
    "upkeep" upkeep: duration = secs(30);
    /// How often a process lists GitHub's runners, to remove those that belong to no machine. Each time
    /// costs calls of GitHub's hour.
    "list-runners" list_runners: duration = mins(2);
    /// How often the service checks whether the configuration has changed.
    "configuration" configuration: duration = secs(30);
    /// How long a process that is asked to end goes on with its unfinished work. Container runtimes
    /// kill a process half a minute after they asked it to end.
    "drain" drain: duration = secs(25);
}

/// One number of [`Limits`].
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Its key in `bullpen.toml`.
    pub key: &'static str,
    /// What it is, in a sentence or two; begins with a space.
    pub doc: &'static str,
    /// Where it is.
    pub field: LimitField,
}

/// Where a number is, by its form in the file.
#[derive(Clone, Copy, Debug)]
pub enum LimitField {
    /// A length of time above zero.
    Duration(fn(&mut Limits) -> &mut Duration),
    /// A count above zero.
    Count(fn(&mut Limits) -> &mut u32),
}

impl Limits {
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
            (
                longer(self.shared_silence, self.release_acknowledgement),
                "shared-silence must be longer than release-acknowledgement",
            ),
            (longer(self.row_lease, self.drain), "row-lease must be longer than drain"),
            (
                self.sightings_max > 0 && self.uses_max > 0 && self.set_aside_after > 0,
                "counts must be positive",
            ),
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
