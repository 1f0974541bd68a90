//! Why an attempt to serve a job came to nothing, and why a job is given up.
//!
//! Both are stored. An operator reads them whole; a job's author reads at the commit what strangers may,
//! with what to do.
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

impl Setback {
    /// In words that a stranger may read: nothing of what a machine, a script or a store said.
    pub const fn in_public(&self) -> &'static str {
        match self {
            Self::RaceLost => "another job was faster",
            Self::PoolEmpty => "its pool had nothing for it: it may have a new machine",
            Self::RunnerTaken => "GitHub gave its runner to another job",
            Self::WorkerLost => "the worker that had it went away",
            Self::NoCapacity => "no machine of its class could be had",
            Self::Ceiling => "as many machines run as are allowed",
            Self::LaunchFailed { .. } => "a machine could not be launched",
            Self::NotStarted => "a stopped machine could not be started for it",
            Self::MachineLost => "its machine ended before the job began",
            Self::NeverRegistered => "its runner never registered at GitHub",
            Self::ListenerEnded => "its runner stopped listening before the job began",
            Self::Outage { .. } => "GitHub or the service's store did not answer",
            Self::RateLimited => "GitHub's limits left no room for its runner",
            Self::Forge { .. } => "GitHub refused a runner for it",
        }
    }

    /// What was said, which may name what only an operator may read.
    const fn said(&self) -> Option<&String> {
        match self {
            Self::LaunchFailed { said } | Self::Outage { said } | Self::Forge { said } => {
                Some(said)
            }
            _ => None,
        }
    }
}

/// For operators and logs: a job's author reads [`Setback::in_public`].
impl fmt::Display for Setback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.in_public())?;
        self.said().map_or(Ok(()), |said| write!(f, ": {said}"))
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

impl Reason {
    /// In words that a stranger may read: the check of a public repository is public. What the
    /// author wrote, and what is configured for it, but nothing that a machine or a store said.
    pub fn in_public(&self) -> String {
        self.told(|setback| setback.in_public().to_owned())
    }

    fn told(&self, last: impl Fn(&Setback) -> String) -> String {
        match self {
            Self::UnknownPool { pool, suggestions } if suggestions.is_empty() => {
                format!("there is no pool `{pool}`")
            }
            Self::UnknownPool { pool, suggestions } => {
                format!("there is no pool `{pool}`; did you mean {}?", suggestions.join(" or "))
            }
            Self::Refused { why } => why.join("; "),
            Self::OutOfAttempts { attempts, last: setback } => {
                format!("no runner after {attempts} attempts: {}", last(setback))
            }
            Self::DeadlinePassed { last: Some(setback) } => {
                format!("no runner before the job's deadline: {}", last(setback))
            }
            Self::DeadlinePassed { last: None } => "no runner before the job's deadline".to_owned(),
            Self::Vanished => "GitHub does not know the job any more".to_owned(),
            Self::Operator => "an operator gave the job up".to_owned(),
        }
    }
}

/// For operators and logs: a job's author reads [`Reason::in_public`].
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(ToString::to_string))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_told_nothing_that_a_machine_or_a_store_said() {
        let said = || "there is no runner group builders; /srv/secret: exit 3".to_owned();
        let setbacks = [
            Setback::LaunchFailed { said: said() },
            Setback::Outage { said: said() },
            Setback::Forge { said: said() },
        ];
        for setback in setbacks {
            assert!(setback.to_string().ends_with(&format!(": {}", said())), "{setback}");
            let reasons = [
                Reason::OutOfAttempts { attempts: 5, last: setback.clone() },
                Reason::DeadlinePassed { last: Some(setback.clone()) },
            ];
            for reason in reasons {
                assert!(reason.to_string().contains(&said()), "the operator reads it: {reason}");
                let public = reason.in_public();
                assert!(!public.contains("builders") && !public.contains("secret"), "{public}");
                assert!(public.ends_with(setback.in_public()), "{public}");
            }
        }
    }

    #[test]
    fn a_refusal_is_told_in_full() {
        let reason = Reason::Refused { why: vec!["family: p5 may not".to_owned()] };
        assert_eq!(reason.in_public(), reason.to_string());
    }
}
