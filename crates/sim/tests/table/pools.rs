//! The planted bugs of standby pools: each must make one of the tests in `tests/pools` fail.
//!
//! Not here: the mistakes themselves (`sabotage!` in the code), the tests (`tests/pools`).

use crate::pools::{
    calls, converging, crashes, hostile, keepers, many, replacing, rounds, troubles,
};

/// A bug that a test finds.
pub(crate) struct TestBug {
    /// Its name in `sabotage!`.
    pub(crate) name: &'static str,
    /// The mistake.
    pub(crate) mistake: &'static str,
    /// The test that fails.
    pub(crate) test: fn(),
}

/// The bugs that tests of pools find.
pub(crate) const BUGS: &[TestBug] = &[
    TestBug {
        name: "one-unread-pool-stops-the-survey",
        mistake: "no pool is surveyed if one of them cannot be read",
        test: many::a_pool_that_cannot_be_read_stops_no_other,
    },
    TestBug {
        name: "one-pool-hurries-all",
        mistake: "every pool is read again every few seconds while one of them boots",
        test: many::a_pool_that_is_not_settled_has_no_other_read,
    },
    TestBug {
        name: "one-bad-report-fails-the-batch",
        mistake: "the engine takes an unreadable report for a fault of the store",
        test: hostile::hostile_machines_cost_nobody_else_anything,
    },
    TestBug {
        name: "future-generations-acknowledge",
        mistake: "a release accepts a removal of a generation that was never assigned",
        test: hostile::a_forged_removal_returns_no_machine,
    },
    TestBug {
        name: "removals-deny-assignments",
        mistake: "a machine that reports its own assignment as removed returns as never used",
        test: hostile::a_machine_cannot_deny_its_owner,
    },
    TestBug {
        name: "used-machines-are-excused",
        mistake: "a used machine returns as often as it blames GitHub",
        test: hostile::a_used_machine_excuses_itself_once,
    },
    TestBug {
        name: "beats-extend-the-hard-cap",
        mistake: "the reaper keeps a machine for as long as it reports a running job",
        test: hostile::forged_beats_keep_a_machine_no_longer_than_its_cap,
    },
    TestBug {
        name: "jobs-fail-warm-ups",
        mistake: "the planner believes a warm machine's report of a failed warm-up",
        test: hostile::machines_that_were_warm_do_not_quarantine_their_pool,
    },
    TestBug {
        name: "machines-are-asked-before-their-cap",
        mistake: "a release past its cap waits for the machine's report",
        test: hostile::a_release_ends_at_its_cap_despite_forged_reports,
    },
    TestBug {
        name: "plan-without-safety-filter",
        mistake: "the planner does not check whether a machine is in use",
        test: rounds::a_few_rounds,
    },
    TestBug {
        name: "pool-ends-like-an-operator",
        mistake: "the same, and the transition function does not refuse it",
        test: rounds::a_few_rounds,
    },
    TestBug {
        name: "stop-without-the-fence",
        mistake: "the engine sends a stop that no record names",
        test: rounds::a_few_rounds,
    },
    TestBug {
        name: "stopping-is-gone",
        mistake: "the planner replaces a machine that is stopping",
        test: converging::an_empty_pool_is_filled_to_its_schedule,
    },
    TestBug {
        name: "hashes-across-versions",
        mistake: "the planner compares spec hashes of different versions",
        test: replacing::a_machine_of_another_versions_hash_is_not_old,
    },
    TestBug {
        name: "launch-before-the-journal",
        mistake: "the keeper launches before it writes the journal",
        test: crashes::a_keeper_that_dies_at_any_await_of_filling_leaves_nothing,
    },
    TestBug {
        name: "leases-are-taken",
        mistake: "a keeper takes a lease that another keeper holds",
        test: keepers::one_of_two_keepers_keeps_a_pool,
    },
    TestBug {
        name: "a-lease-is-kept-without-its-work",
        mistake: "a keeper holds the lease of a pool whose journal it cannot read",
        test: keepers::a_keeper_lets_go_of_a_pool_whose_journal_it_cannot_read,
    },
    TestBug {
        name: "pools-ignore-ceilings",
        mistake: "a pool launches beyond its ceilings",
        test: converging::shared_ceilings_hold_while_launches_are_in_flight,
    },
    TestBug {
        name: "boots-are-forgotten",
        mistake: "the planner forgets that machines did not boot, and never quarantines",
        test: troubles::machines_that_do_not_boot_are_quarantined_until_one_does,
    },
    TestBug {
        name: "journals-are-always-written",
        mistake: "the keeper writes the journal after a look that changed nothing",
        test: calls::a_pool_that_has_converged_costs_no_write_but_its_lease,
    },
];
