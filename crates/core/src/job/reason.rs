//! Why an attempt to serve a job failed, and why the service gives a job up.
//!
//! Rows store both. An operator reads the whole text; a job's author reads at the commit a text for
//! the public, with advice.
//!
//! Not here: deciding which it is (`transition::after_setback`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::MachineSource;
use crate::ids::PoolName;
use crate::sabotage;
use crate::time::Timestamp;

/// Why one attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Setback {
    /// Another process was faster; nothing is wrong.
    RaceLost,
    /// Its pool had no machine for it; from now on a worker may launch one.
    PoolEmpty,
    /// GitHub gave its runner to another job of ours.
    RunnerTaken,
    /// Its worker died, and the worker's lease passed.
    WorkerLost,
    /// No idle machine fits, and the cloud has no such machine now.
    NoCapacity,
    /// A ceiling of the stack is reached.
    Ceiling,
    /// The launch of a machine failed.
    LaunchFailed {
        /// The error's text.
        said: String,
    },
    /// A stopped machine did not start, or never came up.
    NotStarted,
    /// The machine ended before its runner had a job.
    MachineLost,
    /// The runner never registered.
    NeverRegistered,
    /// The runner stopped listening before a job came to it.
    ListenerEnded,
    /// Its runner listened for minutes, and GitHub gave it no job.
    NeverGiven,
    /// GitHub or a store did not answer. This passes by itself and is not due to the job.
    Outage {
        /// The error's text.
        said: String,
    },
    /// GitHub's rate limit allows no credential for a runner now.
    RateLimited,
    /// GitHub refused a credential for a runner.
    Forge {
        /// The error's text.
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
            Self::NeverGiven => "never-given",
            Self::Outage { .. } => "outage",
            Self::RateLimited => "rate-limited",
            Self::Forge { .. } => "forge",
        }
    }

    /// Whether it counts as one of a job's attempts. Races, ceilings, shortages and outages pass by
    /// themselves, and only the deadline ends them. A standby machine saves time, so its failure
    /// must not cost an attempt: a worker can still launch a machine for the job. `source` is how the
    /// job got the machine that failed.
    pub fn counts(&self, source: Option<MachineSource>) -> bool {
        let stood_by = matches!(source, Some(MachineSource::Picked | MachineSource::Reused));
        match self {
            _ if sabotage!("setbacks-never-count") => false,
            Self::Outage { .. } if sabotage!("outages-count-as-attempts") => true,
            Self::Ceiling if sabotage!("ceilings-count-as-attempts") => true,
            Self::NoCapacity if sabotage!("shortages-count-as-attempts") => true,
            Self::RaceLost
            | Self::PoolEmpty
            | Self::RunnerTaken
            | Self::WorkerLost
            | Self::NotStarted
            | Self::NoCapacity
            | Self::Ceiling
            | Self::RateLimited
            | Self::Outage { .. } => false,
            Self::MachineLost | Self::NeverRegistered | Self::ListenerEnded => !stood_by,
            Self::NeverGiven | Self::LaunchFailed { .. } | Self::Forge { .. } => true,
        }
    }

    /// Whether a machine that the job had was of no use to it.
    pub const fn is_of_the_machine(&self) -> bool {
        matches!(
            self,
            Self::NotStarted | Self::MachineLost | Self::NeverRegistered | Self::ListenerEnded
        )
    }
}

impl Setback {
    /// The text for the public: it quotes no machine, no script and no store.
    pub const fn in_public(&self) -> &'static str {
        match self {
            Self::RaceLost => "another job was faster",
            Self::PoolEmpty => "its pool had no machine for it: it may have a new one",
            Self::RunnerTaken => "GitHub gave its runner to another job",
            Self::WorkerLost => "the worker that had it went away",
            Self::NoCapacity => "the cloud had no machine of its class",
            Self::Ceiling => "as many machines run as are allowed",
            Self::LaunchFailed { .. } => "a machine could not be launched",
            Self::NotStarted => "a stopped machine could not be started for it",
            Self::MachineLost => "its machine ended before the job began",
            Self::NeverRegistered => "its runner never registered at GitHub",
            Self::ListenerEnded => "its runner stopped listening before the job began",
            Self::NeverGiven => "its runner listened, and GitHub did not give it the job",
            Self::Outage { .. } => "GitHub or the service's store did not answer",
            Self::RateLimited => "GitHub's rate limit allowed no runner for it",
            Self::Forge { .. } => "GitHub refused a runner for it",
        }
    }

    /// The error's text, which may contain details that only an operator may read.
    const fn error_text(&self) -> Option<&String> {
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
        self.error_text().map_or(Ok(()), |said| write!(f, ": {said}"))
    }
}

/// A setback with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SetbackAt {
    /// The last time it happened.
    pub at: Timestamp,
    /// The setback.
    pub setback: Setback,
    /// How many times in a row it happened.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u32,
    /// The first time it happened, if it was more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl SetbackAt {
    /// A setback that happened once.
    pub const fn once(at: Timestamp, setback: Setback) -> Self {
        Self { at, setback, times: 1, since: None }
    }

    /// Records that it happened again.
    pub(super) fn again(&mut self, at: Timestamp) {
        self.since = Some(self.began());
        self.at = at;
        self.times = self.times.saturating_add(1);
    }

    /// The first time it happened.
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

/// Why the service gives a job up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Reason {
    /// It names a pool that does not exist.
    UnknownPool {
        /// The pool.
        pool: PoolName,
        /// Pools with similar names.
        suggestions: Vec<String>,
    },
    /// Its labels cannot be read, or ask for more than they may.
    Refused {
        /// Each reason, for its author.
        why: Vec<String>,
    },
    /// All its attempts failed.
    OutOfAttempts {
        /// How many there were.
        attempts: u32,
        /// What happened the last time.
        last: Setback,
    },
    /// Its deadline has passed.
    DeadlinePassed {
        /// What happened the last time, if anything did.
        last: Option<Setback>,
    },
    /// GitHub does not know it any more.
    Vanished,
    /// An operator gave it up.
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
            Self::OutOfAttempts { last: Setback::NeverGiven, .. } => {
                "check that the runners' group at GitHub serves this repository (for a public one the \
                 group must allow public repositories) and has this workflow, then run the job again"
            }
            Self::OutOfAttempts { .. } | Self::DeadlinePassed { .. } => {
                "run the job again later, or ask who operates the runners"
            }
            Self::Vanished => "nothing: there is no such job any more",
            Self::Operator => "ask who operates the runners",
        }
    }
}

impl Reason {
    /// The text for the public, because the check of a public repository is public. It quotes the
    /// author's labels and the configuration, but no machine and no store.
    pub fn in_public(&self) -> String {
        self.text_with(|setback| setback.in_public().to_owned())
    }

    fn text_with(&self, last: impl Fn(&Setback) -> String) -> String {
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
        f.write_str(&self.text_with(ToString::to_string))
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
