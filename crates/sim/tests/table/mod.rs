//! The planted bugs: what each is called, the mistake it is, and as what it must be found.
//!
//! Not here: those of the service ([`jobs`]) and of pools ([`pools`]), the mistakes themselves (`sabotage!` where each is
//! planted).

use bullpen_core::invariants::Invariant::{
    self, Ceilings, Conservation, EveryJobEnds, NoGhosts, NoMissedWarm, OneOwner, Protected,
};

pub(crate) mod jobs;
pub(crate) mod pools;
pub(crate) mod strangers;

/// One planted bug.
pub(crate) struct Bug {
    /// Its name in `sabotage!`.
    pub(crate) name: &'static str,
    /// The mistake.
    pub(crate) mistake: &'static str,
    /// The invariants that it breaks; whichever breaks first is what it is found as.
    pub(crate) found_as: &'static [Invariant],
}

pub(crate) const fn bug(
    name: &'static str,
    found_as: &'static [Invariant],
    mistake: &'static str,
) -> Bug {
    Bug { name, mistake, found_as }
}

/// All of them.
pub(crate) const BUGS: &[Bug] = &[
    // Ownership and its fences.
    bug(
        "unconditional-assignment",
        &[OneOwner, Protected],
        "an assignment overwrites a newer order",
    ),
    bug("release-does-not-fence", &[OneOwner], "a release leaves the generation as it was"),
    bug(
        "unknown-claim-is-won",
        &[EveryJobEnds, OneOwner],
        "a claim without an answer counts as won if anyone has the machine",
    ),
    bug(
        "withdrawal-forgets-assigned",
        &[OneOwner, Protected],
        "a withdrawal erases that something was assigned",
    ),
    bug(
        "idle-before-acknowledgement",
        &[OneOwner, Protected],
        "a machine is idle once its withdrawal is stored, not once it is acknowledged",
    ),
    bug(
        "superseded-goes-on",
        &[EveryJobEnds, OneOwner, Protected],
        "a process does not stand down when another carries its request on",
    ),
    bug(
        "token-without-incarnation",
        &[Protected, OneOwner, EveryJobEnds, Conservation],
        "a request that is made anew launches under the tokens of the last time",
    ),
    // Who may end what.
    bug("busy-is-gone", &[Protected], "GitHub's 422 is taken for 404"),
    bug(
        "register-by-not-judged",
        &[OneOwner, Protected],
        "a 404 is believed while the agent may still register",
    ),
    bug("outage-ends-machines", &[Protected], "a machine ends because GitHub is down"),
    bug("systemic-is-the-machines", &[Protected], "a systemic failure counts as the machine's own"),
    bug(
        "agent-stops-under-a-job",
        &[Protected],
        "an agent told to stop does not look whether a job runs",
    ),
    bug("cancel-ends-warm-machines", &[Protected], "a cancellation ends what it should give back"),
    bug(
        "created-always-ends",
        &[Protected],
        "a created machine ends although it is warm and may run a job",
    ),
    bug(
        "warm-up-judged-before-the-drain",
        &[OneOwner, Protected],
        "whether a machine is warm is judged before its assignment is withdrawn",
    ),
    bug(
        "reaper-skips-the-handshake",
        &[Protected],
        "the reaper ends claimed and created machines outright",
    ),
    bug("reaper-trusts-its-clock", &[Protected], "the reaper leaves no room for skew"),
    bug(
        "impatient-for-the-acknowledgement",
        &[Protected],
        "a machine ends if its agent has not acknowledged at once",
    ),
    bug(
        "reconcile-without-grace",
        &[Protected],
        "a machine that is not visible yet counts as gone",
    ),
    bug(
        "orphans-despite-their-intent",
        &[Protected],
        "a machine without a record is ended under a live intent",
    ),
    // Machines and records.
    bug("reaper-forgets-created", &[Conservation], "no reaper looks at created machines"),
    bug("reaper-forgets-idle", &[Conservation], "no reaper looks at idle machines"),
    bug("reaper-forgets-claimed", &[Conservation], "no reaper looks at claimed machines"),
    bug("reaper-forgets-running", &[Conservation], "no reaper looks at running machines"),
    bug("reaper-forgets-releasing", &[Conservation], "no reaper goes on with a release"),
    bug(
        "terminate-is-not-confirmed",
        &[Conservation],
        "a machine is buried when the cloud was asked, not when it confirmed",
    ),
    bug(
        "launch-before-the-intent",
        &[Conservation],
        "machines are launched before the intent is stored",
    ),
    bug(
        "ceiling-is-only-advice",
        &[Conservation, Ceilings],
        "machines are launched although nothing was reserved",
    ),
    bug(
        "rest-returned-before-recording",
        &[Conservation],
        "a reservation is returned before what came is recorded",
    ),
    bug("intent-given-back-early", &[Conservation], "an intent is given back before its deadline"),
    bug("new-token-for-each-try", &[Conservation], "a launch that is made again has another token"),
    bug("ghosts-are-left", &[NoGhosts], "runners without a machine are never removed"),
    bug(
        "ghosts-need-not-be-offline",
        &[NoGhosts, EveryJobEnds],
        "a runner that listens is removed as a ghost",
    ),
    // Requests.
    bug("skip-directory-confirmation", &[NoMissedWarm], "an empty poll is believed"),
    bug("fault-is-a-lost-race", &[NoMissedWarm], "a candidate is dropped for a transient fault"),
    bug("top-up-ignores-what-came", &[EveryJobEnds], "a top-up asks for all runners again"),
    bug(
        "resume-forgets-what-runs",
        &[EveryJobEnds],
        "a resumed request does not count its runners",
    ),
    bug(
        "acknowledged-is-registered",
        &[EveryJobEnds, NoGhosts],
        "a runner counts when its assignment is acknowledged",
    ),
    bug(
        "signals-of-any-generation",
        &[EveryJobEnds, OneOwner, Protected],
        "a signal of an earlier owner counts",
    ),
    bug("checks-have-no-end", &[EveryJobEnds], "a machine that says nothing is waited for"),
    bug("waits-past-the-deadline", &[EveryJobEnds], "a request waits for room past its deadline"),
    bug("failure-undoes-nothing", &[EveryJobEnds], "a failed request keeps what it has"),
    bug("release-takes-running-only", &[EveryJobEnds], "a release leaves what is not running yet"),
    bug("judge-ignores-usage", &[EveryJobEnds], "a spot machine serves an on-demand request"),
    bug("judge-ignores-types", &[EveryJobEnds], "a machine serves that is of no allowed type"),
    bug("judge-ignores-trust", &[EveryJobEnds], "a machine serves on which others' code ran"),
    bug("judge-ignores-the-image", &[EveryJobEnds], "a machine serves that was built otherwise"),
    bug("claims-what-has-expired", &[EveryJobEnds], "an idle machine is claimed after its time"),
    bug("uses-never-counted", &[EveryJobEnds], "a machine serves for ever"),
];
