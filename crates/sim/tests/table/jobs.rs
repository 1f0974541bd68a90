//! The planted bugs of the service, which serves jobs. Seeds find some. Others violate no
//! invariant; a scenario finds them, because it says what must happen and how soon.
//!
//! Not here: the mistakes themselves (`sabotage!` in the code).

use bullpen_core::invariants::Invariant::{Cost, EveryJobEnds, OneOwner};

use super::pools::TestBug;
use super::{Bug, bug};
use crate::jobs::ceilings::jobs_at_the_ceiling_read_their_lane_once_a_look;

/// The bugs that seeds find.
pub(crate) const BUGS: &[Bug] = &[
    bug(
        "failures-are-not-told",
        &[EveryJobEnds],
        "the service gives a job up without telling its author",
    ),
    bug(
        "only-webhooks-are-believed",
        &[EveryJobEnds],
        "the service does not search for jobs that no webhook announced",
    ),
    bug(
        "ends-are-only-heard-of",
        &[EveryJobEnds],
        "the service does not ask GitHub about a job whose end no webhook announced",
    ),
    bug("searches-never-rest", &[Cost], "the service searches GitHub every five seconds"),
    bug("lifetimes-are-short", &[Cost], "a pool replaces its machines four times as often"),
    bug("ends-release-nothing", &[EveryJobEnds], "a job that is over keeps its machine"),
    bug("forks-are-trusted", &[OneOwner], "the service keeps a machine that ran a fork's code"),
    bug("unlisted-labels-are-owned", &[OneOwner], "a runner has labels of jobs that are not ours"),
    bug(
        "all-repositories-trust-each-other",
        &[OneOwner, EveryJobEnds],
        "repositories share machines",
    ),
];

/// The bugs that tests of jobs find.
pub(crate) const TEST_BUGS: &[TestBug] = &[TestBug {
    name: "each-try-reads-the-lane",
    mistake: "a worker reads the whole lane again for each job that finds no capacity",
    test: jobs_at_the_ceiling_read_their_lane_once_a_look,
}];

/// A bug that a scenario finds.
pub(crate) struct ScenarioBug {
    /// Its name in `sabotage!`.
    pub(crate) name: &'static str,
    /// The mistake.
    pub(crate) mistake: &'static str,
    /// The scenario's file.
    pub(crate) scenario: &'static str,
}

/// The bugs that scenarios find.
pub(crate) const SCENARIO_BUGS: &[ScenarioBug] = &[
    ScenarioBug {
        name: "jobs-have-no-deadline",
        mistake: "a job that finds no capacity waits for ever",
        scenario: "pain1_no_job_waits_for_ever",
    },
    ScenarioBug {
        name: "setbacks-never-count",
        mistake: "the service repeats a failing attempt until the deadline",
        scenario: "pain1_no_job_waits_for_ever",
    },
    ScenarioBug {
        name: "overflow-wakes-no-worker",
        mistake: "a job that overflowed its pool waits for the sweep",
        scenario: "a_pool_that_has_nothing_passes_its_job_on_at_once",
    },
    ScenarioBug {
        name: "taken-runners-are-not-noted",
        mistake: "no row notes which other job runs on its machine",
        scenario: "pain7_stolen_runners_keep_their_machines",
    },
    ScenarioBug {
        name: "outages-count-as-attempts",
        mistake: "the service gives a job up because GitHub was down for a while",
        scenario: "pain21_a_row_knows_why_its_job_waited",
    },
    ScenarioBug {
        name: "ceilings-count-as-attempts",
        mistake: "the service gives a job up because it waited under a ceiling",
        scenario: "pain22_jobs_at_the_ceiling_wait_in_line",
    },
    ScenarioBug {
        name: "what-agents-said-is-forgotten",
        mistake: "a process that starts does not ask about jobs whose listeners have ended",
        scenario: "pain54_what_an_agent_said_while_the_service_was_down_counts",
    },
    ScenarioBug {
        name: "missing-is-gone",
        mistake: "a machine that a listing misses counts as gone",
        scenario: "pain50_a_listing_that_misses_a_machine_ends_no_job",
    },
    ScenarioBug {
        name: "beats-prove-nothing",
        mistake: "a machine that no answer shows counts as gone although its agent beats",
        scenario: "pain50_a_machine_that_no_answer_shows_runs_its_job",
    },
    ScenarioBug {
        name: "one-denied-machine-keeps-the-others",
        mistake: "a machine that may not be ended keeps the records of its batch",
        scenario: "pain52_a_machine_that_may_not_be_ended_keeps_no_other",
    },
    ScenarioBug {
        name: "shortages-count-as-attempts",
        mistake: "the service gives a job up because the cloud had no machine for some minutes",
        scenario: "pain26_a_shortage_of_twenty_minutes_fails_no_job",
    },
    ScenarioBug {
        name: "silence-is-the-machines",
        mistake: "the service ends every machine whose agent does not answer, however many there are",
        scenario: "pain27_two_minutes_without_mailboxes_cost_no_warm_pool",
    },
    ScenarioBug {
        name: "releases-compare-no-silence",
        mistake: "the service ends machines that were given back because their agents had no way to it",
        scenario: "pain41_eight_minutes_without_mailboxes_cost_no_warm_machine",
    },
    ScenarioBug {
        name: "late-orders-are-the-machines",
        mistake: "a machine ends because its order was stored too late to obey",
        scenario: "pain42_orders_that_come_late_cost_no_warm_machine",
    },
    ScenarioBug {
        name: "an-update-is-an-end",
        mistake: "an agent does not start a runner program again that has updated itself",
        scenario: "pain55_a_runner_program_that_updates_itself_keeps_its_machine",
    },
    ScenarioBug {
        name: "unsent-wakes-are-lost",
        mistake: "a wake-up that no queue took wakes no worker",
        scenario: "pain40_ten_minutes_without_queues_cost_seconds",
    },
    ScenarioBug {
        name: "deleted-queues-stay-deleted",
        mistake: "a worker whose queue is gone waits for it for ever",
        scenario: "pain40_deleted_queues_are_made_again",
    },
    ScenarioBug {
        name: "one-bad-row-stops-its-lane",
        mistake: "a worker that cannot read one row of a lane serves none of it",
        scenario: "pain30_a_row_of_a_newer_version_stops_no_other",
    },
    ScenarioBug {
        name: "one-bad-record-stops-the-reaper",
        mistake: "the reaper ends its pass at a record that it cannot read",
        scenario: "pain31_a_record_of_a_newer_version_stops_no_reaper",
    },
    ScenarioBug {
        name: "unreadable-is-unrecorded",
        mistake: "reconciliation ends a machine whose record it cannot read",
        scenario: "pain31_a_record_of_a_newer_version_stops_no_upkeep",
    },
    ScenarioBug {
        name: "the-unreadable-is-gone",
        mistake: "a pool launches a machine in the stead of one whose record it cannot read",
        scenario: "pain31_a_pool_keeps_the_place_of_an_unreadable_machine",
    },
    ScenarioBug {
        name: "one-bad-journal-stops-all-pools",
        mistake: "a process that cannot read one pool's journal keeps no pool",
        scenario: "pain32_a_journal_of_a_newer_version_stops_no_other_pool",
    },
    ScenarioBug {
        name: "unreadable-machines-are-gone",
        mistake: "reconciliation ends a record whose machine's file it cannot read",
        scenario: "pain34_a_machine_of_a_newer_version_is_not_gone",
    },
    ScenarioBug {
        name: "foreign-repositories-are-served",
        mistake: "a signed webhook of another owner's repository launches a machine",
        scenario: "strangers_are_not_served",
    },
    ScenarioBug {
        name: "foreign-installations-are-served",
        mistake: "a signed webhook of another installation launches a machine",
        scenario: "strangers_are_not_served",
    },
    ScenarioBug {
        name: "forks-get-used-machines",
        mistake: "untrusted code gets a machine that trusted code ran on",
        scenario: "pain24_a_forks_code_gets_no_used_machine",
    },
    ScenarioBug {
        name: "used-machines-under-unbound-labels",
        mistake: "a used machine gets a runner with labels that a fork's job may carry",
        scenario: "pain24_a_fork_takes_no_runner_on_a_used_machine",
    },
    ScenarioBug {
        name: "unknown-origin-is-trusted",
        mistake: "the service trusts code whose origin GitHub does not say",
        scenario: "pain24_code_of_unknown_origin_gets_no_used_machine",
    },
    ScenarioBug {
        name: "turns-are-not-taken",
        mistake: "the service always serves the alphabetically first repository next",
        scenario: "pain22_jobs_at_the_ceiling_wait_in_line",
    },
    ScenarioBug {
        name: "label-policy-allows-everything",
        mistake: "a label may ask for any image and any machine",
        scenario: "strangers_the_label_policy_is_kept",
    },
    ScenarioBug {
        name: "labels-of-other-runs-are-owned",
        mistake: "a runner may have the label of another run",
        scenario: "strangers_labels_of_others_refuse_the_job",
    },
];
