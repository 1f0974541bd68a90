//! The rules that keep the protocol safe, and what a state must never show.
//!
//! A rule that is switched off must bring its counterexample back; otherwise the exploration would
//! prove nothing. Some rules are a few lines of production code, which `sabotage!` switches off in a
//! build of its own; the others are the order of an actor's steps, or the condition of a write.
//!
//! Not here: what the rules do (`bullpen-core`, and the actors that mirror the engine).

use std::fmt;

/// One rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The inbox remembers the last generation assigned; a withdrawal does not erase it.
    ExposureRemembered,
    /// Exposure is judged only after the withdrawal is stored.
    JudgedAfterWithdrawal,
    /// A withdrawal is stored before any way back to idle, also for a machine that is stopped.
    WithdrawnBeforeIdle,
    /// A machine that is recorded as stopped and runs is stopped.
    FoundRunningIsStopped,
    /// Every stop call has its own `op` and `until`, and its sender looks at its clock.
    StopsAreFenced,
    /// The reaper writes over nothing but what it read.
    ReapedAsRead,
    /// An owner takes back only the generation it read.
    OwnerAndGeneration,
    /// A claim's lost answer is settled by its nonce.
    SettledByNonce,
    /// What an agent reads before it acts is consistent.
    ReadConsistently,
    /// A runner that GitHub does not know is believed only after `register-by`.
    RegisterBy,
    /// First drain, then stop after GitHub's word; a runner that works is waited for.
    DrainThenStop,
    /// A withdrawal is acknowledged in every phase.
    AcknowledgedAlways,
    /// A deadline counts only when it has passed on every clock.
    SkewTolerated,
}

impl Rule {
    /// All of them; the first twelve in the order of the twelve counterexamples.
    pub const ALL: [Self; 13] = [
        Self::ExposureRemembered,
        Self::JudgedAfterWithdrawal,
        Self::WithdrawnBeforeIdle,
        Self::FoundRunningIsStopped,
        Self::StopsAreFenced,
        Self::ReapedAsRead,
        Self::OwnerAndGeneration,
        Self::SettledByNonce,
        Self::ReadConsistently,
        Self::RegisterBy,
        Self::DrainThenStop,
        Self::AcknowledgedAlways,
        Self::SkewTolerated,
    ];

    /// As it is written on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExposureRemembered => "exposure-remembered",
            Self::JudgedAfterWithdrawal => "judged-after-withdrawal",
            Self::WithdrawnBeforeIdle => "withdrawn-before-idle",
            Self::FoundRunningIsStopped => "found-running-is-stopped",
            Self::StopsAreFenced => "stops-are-fenced",
            Self::ReapedAsRead => "reaped-as-read",
            Self::OwnerAndGeneration => "owner-and-generation",
            Self::SettledByNonce => "settled-by-nonce",
            Self::ReadConsistently => "read-consistently",
            Self::RegisterBy => "register-by",
            Self::DrainThenStop => "drain-then-stop",
            Self::AcknowledgedAlways => "acknowledged-always",
            Self::SkewTolerated => "skew-tolerated",
        }
    }

    /// The planted bug that switches it off, where the rule is a part of production code.
    pub const fn planted(self) -> Option<&'static str> {
        match self {
            Self::ExposureRemembered => Some("withdrawal-forgets-assigned"),
            Self::JudgedAfterWithdrawal => Some("exposure-judged-early"),
            Self::WithdrawnBeforeIdle => Some("idle-without-withdrawal"),
            Self::OwnerAndGeneration => Some("owner-is-enough"),
            Self::RegisterBy => Some("not-found-is-believed"),
            Self::AcknowledgedAlways => Some("only-listeners-are-removed"),
            Self::FoundRunningIsStopped
            | Self::StopsAreFenced
            | Self::ReapedAsRead
            | Self::SettledByNonce
            | Self::ReadConsistently
            | Self::DrainThenStop
            | Self::SkewTolerated => None,
        }
    }

    /// Whether this build can switch it off.
    pub const fn can_be_off(self) -> bool {
        cfg!(sabotage) || self.planted().is_none()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What every state, and every step, is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// No listener lives for a process that is not the owner.
    OneOwner,
    /// No listener lives on an idle machine.
    NobodyOnIdle,
    /// No job is interrupted by us, but for a deadline.
    JobsAreSafe,
    /// A fenced process changes nothing.
    FencedIsHarmless,
    /// Nothing is taken from an owner whose time has not come.
    LiveOwnerKeeps,
    /// A stop call finds no owner.
    StopFindsNobody,
    /// At most one worker believes that it holds a machine.
    OneHolder,
    /// A machine that is recorded as stopped and runs is going to be stopped.
    Repaired,
    /// A healthy machine is not ended for a missing acknowledgement.
    HealthyIsKept,
    /// A release comes to its end.
    ReleaseEnds,
}

impl Property {
    /// What is wrong when it does not hold.
    pub const fn broken(self) -> &'static str {
        match self {
            Self::OneOwner => "a listener lives for a process that is not the owner",
            Self::NobodyOnIdle => "a listener lives on an idle machine",
            Self::JobsAreSafe => "a job was interrupted",
            Self::FencedIsHarmless => "a fenced process has changed the record",
            Self::LiveOwnerKeeps => "a machine was taken from an owner whose time had not come",
            Self::StopFindsNobody => "a stop call found a machine that was not being stopped",
            Self::OneHolder => "two workers believe that they hold the machine",
            Self::Repaired => "a machine recorded as stopped runs, and no process will stop it",
            Self::HealthyIsKept => {
                "a healthy machine was ended because its agent, with nothing left to do, did not \
                 acknowledge"
            }
            Self::ReleaseEnds => "a release never ends: no process has a step left to take",
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.broken())
    }
}
