//! The planted bugs of standby pools: each breaks one of the tests that pools have anyway.
//!
//! Not here: the mistakes themselves (`sabotage!` where each is planted), the tests (`tests/pools`).

use crate::pools::{calls, converging, crashes, hostile, keepers, replacing, rounds, troubles};

/// One that a test finds.
pub(crate) struct Broken {
    /// Its name in `sabotage!`.
    pub(crate) name: &'static str,
    /// The mistake.
    pub(crate) mistake: &'static str,
    /// The test that fails.
    pub(crate) test: fn(),
}

/// Those that tests of pools find.
pub(crate) const BROKEN: &[Broken] = &[
    Broken {
        name: "one-bad-report-fails-the-batch",
        mistake: "a report that cannot be read is a fault of the store",
        test: hostile::hostile_machines_cost_nobody_else_anything,
    },
    Broken {
        name: "future-generations-acknowledge",
        mistake: "a removal of a generation that was never assigned counts",
        test: hostile::a_forged_removal_returns_no_machine,
    },
    Broken {
        name: "removals-deny-assignments",
        mistake: "a machine that says that its own assignment was removed comes back as never used",
        test: hostile::a_machine_cannot_deny_whose_it_was,
    },
    Broken {
        name: "used-machines-are-excused",
        mistake: "a machine that jobs ran on is given back as often as it names a cause elsewhere",
        test: hostile::a_used_machine_excuses_itself_once,
    },
    Broken {
        name: "beats-extend-the-hard-cap",
        mistake: "a machine that says that it is busy is kept for as long as it says so",
        test: hostile::forged_beats_keep_a_machine_no_longer_than_its_cap,
    },
    Broken {
        name: "jobs-fail-warm-ups",
        mistake: "a machine that was warm is believed that it never was",
        test: hostile::machines_that_were_warm_do_not_quarantine_their_pool,
    },
    Broken {
        name: "machines-are-asked-before-their-cap",
        mistake: "a release past its cap waits for what the machine says",
        test: hostile::a_release_ends_at_its_cap_whatever_the_machine_says,
    },
    Broken {
        name: "plan-without-safety-filter",
        mistake: "a plan does not ask whether somebody uses a machine",
        test: rounds::a_few_rounds,
    },
    Broken {
        name: "pool-ends-like-an-operator",
        mistake: "the same, and nothing refuses to carry it out",
        test: rounds::a_few_rounds,
    },
    Broken {
        name: "stop-without-the-fence",
        mistake: "a stop is sent that no record names",
        test: rounds::a_few_rounds,
    },
    Broken {
        name: "stopping-is-gone",
        mistake: "a machine that is being stopped is replaced",
        test: converging::an_empty_pool_becomes_what_its_schedule_promises,
    },
    Broken {
        name: "hashes-across-versions",
        mistake: "a machine is old because its hash was made by another version",
        test: replacing::a_machine_of_another_versions_hash_is_not_old,
    },
    Broken {
        name: "launch-before-the-journal",
        mistake: "a launch is made that is in no journal",
        test: crashes::a_keeper_that_dies_at_any_await_of_filling_leaves_nothing,
    },
    Broken {
        name: "leases-are-taken",
        mistake: "a lease is taken that somebody holds",
        test: keepers::one_of_two_keepers_keeps_a_pool,
    },
    Broken {
        name: "pools-ignore-ceilings",
        mistake: "a pool launches whatever a ceiling says",
        test: converging::shared_ceilings_hold_while_launches_are_in_flight,
    },
    Broken {
        name: "boots-are-forgotten",
        mistake: "what does not boot is launched again and again",
        test: troubles::machines_that_do_not_boot_are_quarantined_until_one_does,
    },
    Broken {
        name: "journals-are-always-written",
        mistake: "a look that found nothing new is written down",
        test: calls::a_pool_that_has_converged_costs_no_write_but_its_lease,
    },
];
