//! Why an attempt to serve a job came to nothing, and why a job is given up.
//!
//! Both are stored and shown: a [`Reason`] is what its author reads at the commit, with what to do.
//!
//! Not here: deciding which it is (`transition::after_setback`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::PoolName;
use crate::sabotage;
use crate::time::Timestamp;

/// Why one attempt came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Setback {
    /// Somebody else was faster; nothing is wrong.
    RaceLost,
    /// Its pool had nothing for it; from now on it may be launched for.
    PoolEmpty,
    /// GitHub gave its runner to another job of ours.
    RunnerTaken,
    /// Its worker died and its lease passed.
    WorkerLost,
    /// Nothing idle, and the cloud has no such machine now.
    NoCapacity,
    /// A ceiling of the stack is reached.
    Ceiling,
    /// A machine could not be launched.
    LaunchFailed {
        /// What was said.
        said: String,
    },
    /// A stopped machine was of no use to it: it was not started, or never came up.
    NotStarted,
    /// The machine ended before its runner had a job.
    MachineLost,
    /// The runner never registered.
    NeverRegistered,
    /// The runner stopped listening, and no job had come to it.
    ListenerEnded,
    /// GitHub, or a store, did not answer. It passes by itself, and says nothing about the job.
    Outage {
        /// What was said.
        said: String,
    },
    /// GitHub's limits leave no room for a runner's credential now.
    RateLimited,
    /// GitHub did not give what was asked for.
    Forge {
        /// What was said.
        said: String,
    },
}

impl Setback {
    /// The setback as one word, for metrics and conditions.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::RaceLost => "race-lost",
            Self::PoolEmpty => "pool-empty",
            Self::RunnerTaken => "runner-taken",
            Self::WorkerLost => "worker-lost",
            Self::NoCapacity => "no-capacity",
            Self::Ceiling => "ceiling",
            Self::LaunchFailed { .. } => "launch-failed",
            Self::NotStarted => "not-started",
            Self::MachineLost => "machine-lost",
            Self::NeverRegistered => "never-registered",
            Self::ListenerEnded => "listener-ended",
            Self::Outage { .. } => "outage",
            Self::RateLimited => "rate-limited",
            Self::Forge { .. } => "forge",
        }
    }

    /// Whether it counts as one of the attempts a job has. Races, ceilings and outages pass by
    /// themselves, and only the deadline ends them. What stands by saves time, and must not cost an
    /// attempt: a job that it is of no use to can still be launched for.
    pub fn counts(&self) -> bool {
        match self {
            _ if sabotage!("setbacks-never-count") => false,
            Self::Outage { .. } if sabotage!("outages-count-as-attempts") => true,
            Self::Ceiling if sabotage!("ceilings-count-as-attempts") => true,
            Self::RaceLost
            | Self::PoolEmpty
            | Self::RunnerTaken
            | Self::WorkerLost
            | Self::NotStarted
            | Self::Ceiling
            | Self::RateLimited
            | Self::Outage { .. } => false,
            Self::NoCapacity
            | Self::LaunchFailed { .. }
            | Self::MachineLost
            | Self::NeverRegistered
            | Self::ListenerEnded
            | Self::Forge { .. } => true,
        }
    }
}

impl fmt::Display for Setback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RaceLost => f.write_str("another job was faster"),
            Self::PoolEmpty => {
                f.write_str("its pool had nothing for it: it may have a new machine")
            }
            Self::RunnerTaken => f.write_str("GitHub gave its runner to another job"),
            Self::WorkerLost => f.write_str("whoever worked on it went away"),
            Self::NoCapacity => f.write_str("no machine of its class could be had"),
            Self::Ceiling => f.write_str("as many machines run as are allowed"),
            Self::LaunchFailed { said } => write!(f, "a machine could not be launched: {said}"),
            Self::NotStarted => f.write_str("a stopped machine could not be started for it"),
            Self::MachineLost => f.write_str("its machine ended before the job began"),
            Self::NeverRegistered => f.write_str("its runner never registered at GitHub"),
            Self::ListenerEnded => f.write_str("its runner stopped listening before the job began"),
            Self::Outage { said } => write!(f, "somebody did not answer: {said}"),
            Self::RateLimited => f.write_str("GitHub's limits left no room for its runner"),
            Self::Forge { said } => write!(f, "GitHub refused a runner for it: {said}"),
        }
    }
}

/// A setback, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SetbackAt {
    /// When, the last time.
    pub at: Timestamp,
    /// What.
    pub setback: Setback,
    /// How often in a row.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u32,
    /// When for the first time, if it was more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl SetbackAt {
    /// One that happened once.
    pub const fn once(at: Timestamp, setback: Setback) -> Self {
        Self { at, setback, times: 1, since: None }
    }

    /// It happened again.
    pub(super) fn again(&mut self, at: Timestamp) {
        self.since = Some(self.began());
        self.at = at;
        self.times = self.times.saturating_add(1);
    }

    /// When it happened for the first time.
    pub fn began(&self) -> Timestamp {
        self.since.unwrap_or(self.at)
    }
}

const fn once() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_once(times: &u32) -> bool {
    *times == 1
}

/// Why a job is given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Reason {
    /// It names a pool that there is not.
    UnknownPool {
        /// The pool.
        pool: PoolName,
        /// Those it resembles.
        suggestions: Vec<String>,
    },
    /// Its labels cannot be read, or ask for more than they may.
    Refused {
        /// Each reason, for its author.
        why: Vec<String>,
    },
    /// It was tried as often as it may be.
    OutOfAttempts {
        /// How often.
        attempts: u32,
        /// What happened the last time.
        last: Setback,
    },
    /// Its time is up.
    DeadlinePassed {
        /// What happened the last time, if anything did.
        last: Option<Setback>,
    },
    /// GitHub does not know it any more.
    Vanished,
    /// An operator said so.
    Operator,
}

impl Reason {
    /// The reason as one word, for metrics and conditions.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownPool { .. } => "unknown-pool",
            Self::Refused { .. } => "refused",
            Self::OutOfAttempts { .. } => "out-of-attempts",
            Self::DeadlinePassed { .. } => "deadline-passed",
            Self::Vanished => "vanished",
            Self::Operator => "operator",
        }
    }

    /// What its author can do.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::UnknownPool { .. } => {
                "name a pool that is configured, or none, in `runs-on`, and run the job again"
            }
            Self::Refused { .. } => "correct the labels in `runs-on`, and run the job again",
            Self::OutOfAttempts { .. } | Self::DeadlinePassed { .. } => {
                "run the job again later, or ask who operates the runners"
            }
            Self::Vanished => "nothing: there is no such job any more",
            Self::Operator => "ask who operates the runners",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPool { pool, suggestions } if suggestions.is_empty() => {
                write!(f, "there is no pool `{pool}`")
            }
            Self::UnknownPool { pool, suggestions } => {
                write!(f, "there is no pool `{pool}`; did you mean {}?", suggestions.join(" or "))
            }
            Self::Refused { why } => f.write_str(&why.join("; ")),
            Self::OutOfAttempts { attempts, last } => {
                write!(f, "no runner after {attempts} attempts: {last}")
            }
            Self::DeadlinePassed { last: Some(last) } => {
                write!(f, "no runner before the job's deadline: {last}")
            }
            Self::DeadlinePassed { last: None } => {
                f.write_str("no runner before the job's deadline")
            }
            Self::Vanished => f.write_str("GitHub does not know the job any more"),
            Self::Operator => f.write_str("an operator gave the job up"),
        }
    }
}
