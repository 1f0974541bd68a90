//! The planted bugs of the service, which serves jobs: those that a seed finds, and those that break no
//! invariant, which a scenario finds because it says what must happen, and how soon.
//!
//! Not here: the mistakes themselves (`sabotage!` where each is planted).

use bullpen_core::invariants::Invariant::{EveryJobEnds, OneOwner};

use super::{Bug, bug};

/// Those that seeds find.
pub(crate) const BUGS: &[Bug] = &[
    bug("failures-are-not-told", &[EveryJobEnds], "a job is given up and its author not told"),
    bug(
        "only-webhooks-are-believed",
        &[EveryJobEnds],
        "jobs that no webhook announced are not looked for",
    ),
    bug(
        "ends-are-only-heard-of",
        &[EveryJobEnds],
        "GitHub is not asked about a job whose end nobody announced",
    ),
    bug("ends-release-nothing", &[EveryJobEnds], "a job that is over keeps its machine"),
    bug("forks-are-trusted", &[OneOwner], "a machine is kept on which a fork's code ran"),
    bug("unlisted-labels-are-owned", &[OneOwner], "a runner has labels of jobs that are not ours"),
    bug(
        "all-repositories-trust-each-other",
        &[OneOwner, EveryJobEnds],
        "machines are handed on between repositories",
    ),
];

/// One that a scenario finds.
pub(crate) struct Told {
    /// Its name in `sabotage!`.
    pub(crate) name: &'static str,
    /// The mistake.
    pub(crate) mistake: &'static str,
    /// The scenario's file.
    pub(crate) scenario: &'static str,
}

/// Those that scenarios find.
pub(crate) const TOLD: &[Told] = &[
    Told {
        name: "jobs-have-no-deadline",
        mistake: "a job that finds no room waits for ever",
        scenario: "pain1_no_job_waits_for_ever",
    },
    Told {
        name: "setbacks-never-count",
        mistake: "what fails is tried until the deadline",
        scenario: "pain1_no_job_waits_for_ever",
    },
    Told {
        name: "overflow-wakes-nobody",
        mistake: "a job that its pool passes on is found by the sweep",
        scenario: "a_pool_that_has_nothing_passes_its_job_on_at_once",
    },
    Told {
        name: "nothing-is-exchanged",
        mistake: "each of two jobs keeps the machine that the other runs on",
        scenario: "pain7_stolen_runners_are_exchanged",
    },
    Told {
        name: "outages-count-as-attempts",
        mistake: "a job is given up because GitHub was down for a while",
        scenario: "pain21_a_row_knows_why_its_job_waited",
    },
    Told {
        name: "ceilings-count-as-attempts",
        mistake: "a job is given up because there was no room for a while",
        scenario: "pain22_jobs_at_the_ceiling_wait_in_line",
    },
    Told {
        name: "foreign-repositories-are-served",
        mistake: "a signed webhook of another owner's repository launches a machine",
        scenario: "strangers_are_not_served",
    },
    Told {
        name: "foreign-installations-are-served",
        mistake: "a signed webhook of another installation launches a machine",
        scenario: "strangers_are_not_served",
    },
    Told {
        name: "forks-get-used-machines",
        mistake: "code that is not trusted is given a machine that trusted code ran on",
        scenario: "pain24_a_forks_code_gets_no_used_machine",
    },
    Told {
        name: "used-machines-under-unbound-labels",
        mistake: "a used machine is offered under labels that a fork's job may carry",
        scenario: "pain24_a_fork_takes_no_runner_on_a_used_machine",
    },
    Told {
        name: "unknown-origin-is-trusted",
        mistake: "code is trusted because GitHub does not say whose it is",
        scenario: "pain24_code_of_unknown_origin_gets_no_used_machine",
    },
    Told {
        name: "turns-are-not-taken",
        mistake: "the first in the alphabet is always served next",
        scenario: "pain22_jobs_at_the_ceiling_wait_in_line",
    },
    Told {
        name: "label-policy-allows-everything",
        mistake: "a label may ask for any image and any machine",
        scenario: "strangers_the_label_policy_is_kept",
    },
    Told {
        name: "labels-of-other-runs-are-owned",
        mistake: "a runner may have the label of another run",
        scenario: "strangers_labels_of_others_refuse_the_job",
    },
];
