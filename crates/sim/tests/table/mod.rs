//! The planted bugs of the engine: the name, the mistake, and the invariants that each must
//! violate.
//!
//! Not here: bugs of the service ([`jobs`]), of pools ([`pools`]) and about strangers
//! ([`strangers`]), or the mistakes themselves (`sabotage!` in the code).

use bullpen_core::invariants::Invariant::{
    self, Ceilings, Conservation, Cost, EveryJobEnds, NoGhosts, NoMissedWarm, OneOwner, Protected,
};

pub(crate) mod githubs_hour;
pub(crate) mod jobs;
pub(crate) mod pools;
pub(crate) mod strangers;

/// One planted bug.
pub(crate) struct Bug {
    /// Its name in `sabotage!`.
    pub(crate) name: &'static str,
    /// The mistake.
    pub(crate) mistake: &'static str,
    /// The invariants that it may violate; the first violation must be one of these.
    pub(crate) found_as: &'static [Invariant],
}

pub(crate) const fn bug(
    name: &'static str,
    found_as: &'static [Invariant],
    mistake: &'static str,
) -> Bug {
    Bug { name, mistake, found_as }
}

/// All bugs of the engine that seeds find.
pub(crate) const BUGS: &[Bug] = &[
    // Ends in time.
    bug(
        "the-condemned-wait",
        &[Conservation],
        "the cloud is asked to end a condemned machine minutes later",
    ),
    bug("the-reaper-comes-late", &[Conservation], "the reaper comes minutes after a deadline"),
    // Ownership and its fences.
    bug(
        "unconditional-assignment",
        &[OneOwner, Protected],
        "an assignment overwrites a newer order",
    ),
    bug("release-does-not-fence", &[OneOwner], "a release does not raise the generation"),
    bug(
        "unknown-claim-is-won",
        &[EveryJobEnds, OneOwner],
        "a worker counts a claim without an answer as won if the machine has any owner",
    ),
    bug(
        "withdrawal-forgets-assigned",
        &[OneOwner, Protected],
        "a withdrawal erases the record of an assignment from the mailbox",
    ),
    bug(
        "idle-before-acknowledgement",
        &[OneOwner, Protected],
        "a release makes a machine idle once its withdrawal is stored, before the acknowledgement",
    ),
    bug(
        "superseded-goes-on",
        &[EveryJobEnds, OneOwner, Protected],
        "a process does not stop when another process resumes its request",
    ),
    // Costs.
    bug(
        "idle-machines-wait-long",
        &[Cost],
        "a released machine waits for its next owner for half an hour",
    ),
    // Protection of machines.
    bug("busy-is-gone", &[Protected], "a release takes GitHub's 422 for a 404"),
    bug("outage-ends-machines", &[Protected], "a release ends a machine because GitHub is down"),
    bug(
        "systemic-is-the-machines",
        &[Protected],
        "the engine counts a systemic failure as the machine's own",
    ),
    bug(
        "agent-stops-under-a-job",
        &[Protected],
        "an agent obeys a stop without checking whether a job runs",
    ),
    bug(
        "cancel-ends-warm-machines",
        &[Protected],
        "a cancelled request ends warm machines that it should return",
    ),
    bug(
        "created-always-ends",
        &[Protected],
        "a release ends a created machine that is warm and may run a job",
    ),
    bug(
        "warm-up-judged-before-the-drain",
        &[OneOwner, Protected],
        "a release judges the warm-up before it withdraws the assignment",
    ),
    bug(
        "reaper-skips-the-handshake",
        &[Protected],
        "the reaper ends claimed and created machines without a withdrawal",
    ),
    bug("reaper-trusts-its-clock", &[Protected], "the reaper allows for no clock skew"),
    bug(
        "impatient-for-the-acknowledgement",
        &[Protected],
        "a release ends a machine whose agent has not acknowledged at once",
    ),
    bug(
        "reconcile-without-grace",
        &[Protected],
        "reconciliation counts a machine that is not visible yet as gone",
    ),
    bug(
        "orphans-despite-their-intent",
        &[Protected],
        "reconciliation ends a machine without a record although its launch intent is live",
    ),
    // Machines and records.
    bug("reaper-forgets-created", &[Conservation], "the reaper skips created machines"),
    bug("reaper-forgets-idle", &[Conservation], "the reaper skips idle machines"),
    bug("reaper-forgets-claimed", &[Conservation], "the reaper skips claimed machines"),
    bug("reaper-forgets-running", &[Conservation], "the reaper skips running machines"),
    bug("reaper-forgets-releasing", &[Conservation], "the reaper does not resume a release"),
    bug(
        "terminate-is-not-confirmed",
        &[Conservation],
        "a record becomes terminated when the cloud is asked, not when it confirms",
    ),
    bug(
        "launch-before-the-intent",
        &[Conservation],
        "the engine launches machines before it stores the launch intent",
    ),
    bug(
        "ceiling-is-only-advice",
        &[Conservation, Ceilings],
        "the engine launches machines without a reservation",
    ),
    bug(
        "rest-returned-before-recording",
        &[Conservation],
        "the engine returns a reservation before it records the launched machines",
    ),
    bug(
        "intent-given-back-early",
        &[Conservation],
        "the engine gives a launch intent back before its deadline",
    ),
    bug("new-token-for-each-try", &[Conservation], "a repeated launch has another client token"),
    bug("ghosts-are-left", &[NoGhosts], "the sweep never removes runners without a machine"),
    bug(
        "ghosts-need-not-be-offline",
        &[NoGhosts, EveryJobEnds],
        "the sweep removes a runner that listens as a ghost",
    ),
    // Requests.
    bug("skip-directory-confirmation", &[NoMissedWarm], "a request believes an empty poll"),
    bug(
        "fault-is-a-lost-race",
        &[NoMissedWarm],
        "a worker drops a candidate because of a transient fault",
    ),
    bug("top-up-ignores-what-came", &[EveryJobEnds], "a top-up asks for all runners again"),
    bug(
        "resume-forgets-what-runs",
        &[EveryJobEnds],
        "a resumed request does not count its runners",
    ),
    bug(
        "acknowledged-is-registered",
        &[EveryJobEnds, NoGhosts],
        "a request counts a runner when its assignment is acknowledged",
    ),
    bug(
        "signals-of-any-generation",
        &[EveryJobEnds, OneOwner, Protected],
        "a request counts a signal of an earlier owner",
    ),
    bug("checks-have-no-end", &[EveryJobEnds], "a request waits for a silent machine for ever"),
    bug(
        "waits-past-the-deadline",
        &[EveryJobEnds],
        "a request waits for capacity past its deadline",
    ),
    bug("failure-undoes-nothing", &[EveryJobEnds], "a failed request keeps its machines"),
    bug("release-takes-running-only", &[EveryJobEnds], "a release skips machines that do not run"),
    bug("judge-ignores-usage", &[EveryJobEnds], "a spot machine serves an on-demand request"),
    bug("judge-ignores-types", &[EveryJobEnds], "a machine of no allowed type serves a request"),
    bug(
        "judge-ignores-trust",
        &[EveryJobEnds],
        "a machine that another trust group used serves a request",
    ),
    bug("judge-ignores-the-image", &[EveryJobEnds], "an outdated machine serves a request"),
    bug(
        "claims-what-has-expired",
        &[EveryJobEnds],
        "a worker claims an idle machine after its deadline",
    ),
    bug("uses-never-counted", &[EveryJobEnds], "a machine serves without a limit of uses"),
];
