//! What `refresh` keeps in the ledger for the commands that run later, on other machines: the
//! stack's parameters, the tokens that runners register and remove themselves with, and what it
//! noticed in earlier sweeps.
//!
//! All of them are documents of the collection [`COLLECTION`], but for the tokens, which have one of
//! their own so that a policy can leave it out; versioned, and absent until the first refresh.
//!
//! Not here: storing them (`bullpen-engine`), or the inputs they come from (`bullpen`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::class::RunnerClass;
use crate::ids::{ClassName, RunnerName, Zone};
use crate::limits::Limits;
use crate::mailbox::Secret;
use crate::time::Timestamp;

/// Where they are stored.
pub const COLLECTION: &str = "stack";
/// Where tokens are stored. Before, they were in [`COLLECTION`] under the same name.
pub const TOKENS: &str = "tokens";

/// What a stack's commands agree on. What is absent is not decided here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// How long a released machine waits for its next owner, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_time_s: Option<u64>,
    /// How long an owner may keep a machine without a job, in minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_min: Option<u64>,
    /// Run on every machine before its first runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_runner_script: Option<String>,
    /// The named classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<RunnerClass>>,
    /// The version of GitHub's runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_version: Option<String>,
}

impl Parameters {
    /// These where they say something, `before` where they do not.
    #[must_use]
    pub fn over(self, before: Self) -> Self {
        Self {
            idle_time_s: self.idle_time_s.or(before.idle_time_s),
            max_runtime_min: self.max_runtime_min.or(before.max_runtime_min),
            pre_runner_script: self.pre_runner_script.or(before.pre_runner_script),
            classes: self.classes.or(before.classes),
            runner_version: self.runner_version.or(before.runner_version),
        }
    }

    /// The numbers with these in place.
    pub fn applied_to(&self, limits: &mut Limits) {
        if let Some(seconds) = self.idle_time_s {
            limits.idle_released = Duration::from_secs(seconds);
        }
        if let Some(minutes) = self.max_runtime_min {
            limits.max_runtime_workflow = Duration::from_secs(minutes.saturating_mul(60));
        }
    }
}

/// Tokens for commands that have no credential of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptTokens {
    /// Registers runners.
    pub registration: Secret,
    /// Removes them.
    pub removal: Secret,
    /// When they were minted.
    pub minted_at: Timestamp,
    /// When the first of them ends.
    pub expires_at: Timestamp,
}

impl KeptTokens {
    /// What is left where tokens were kept before: good for nothing, and an older command that reads it
    /// says so.
    pub fn spent() -> Self {
        Self {
            registration: Secret::new(""),
            removal: Secret::new(""),
            minted_at: Timestamp::EPOCH,
            expires_at: Timestamp::EPOCH,
        }
    }
}

/// What `refresh` learned of the cloud that nobody should have to ask for at a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSite {
    /// Tells this stack from an earlier one of the same name: its launches are counted anew.
    pub born: String,
    /// The id of the role that machines have: with the machine's own id, who its agent is.
    pub role_id: String,
    /// The subnets, and the zone of each.
    pub subnets: BTreeMap<String, Zone>,
}

impl LaunchSite {
    /// Whether the cloud is the same, whenever the stack was made.
    pub fn is_where(&self, other: &Self) -> bool {
        (&self.role_id, &self.subnets) == (&other.role_id, &other.subnets)
    }

    /// What is to be kept of this: when the stack was made is said once, by whoever was first.
    #[must_use]
    pub fn over(self, before: Option<&Self>) -> Self {
        match before {
            Some(before) => Self { born: before.born.clone(), ..self },
            None => self,
        }
    }
}

impl Kept for LaunchSite {
    const NAME: &'static str = "ground";
}

/// The classes that have a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedClasses {
    /// Their names.
    pub classes: BTreeSet<ClassName>,
}

/// Runners at GitHub that nobody here knows, and when each was first seen offline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfflineRunners {
    /// By name.
    pub since: BTreeMap<RunnerName, Timestamp>,
}

impl OfflineRunners {
    /// What to remember after a sweep that saw `offline`, and which of them were offline for as long
    /// as `grace`, with nobody having seen them otherwise in between.
    pub fn after(
        &self,
        offline: &BTreeSet<RunnerName>,
        grace: Duration,
        now: Timestamp,
    ) -> (Self, Vec<RunnerName>) {
        let since: BTreeMap<_, _> = offline
            .iter()
            .map(|name| (name.clone(), self.since.get(name).copied().unwrap_or(now)))
            .collect();
        let ghosts =
            since.iter().filter(|(_, since)| now.since(**since) >= grace).map(|(name, _)| name);
        let ghosts = ghosts.cloned().collect();
        (Self { since }, ghosts)
    }
}

/// A document that is kept.
pub trait Kept: Serialize + DeserializeOwned {
    /// In which collection.
    const COLLECTION: &'static str = COLLECTION;
    /// Its name there.
    const NAME: &'static str;
}

impl Kept for Parameters {
    const NAME: &'static str = "parameters";
}

impl Kept for KeptTokens {
    const COLLECTION: &'static str = TOKENS;
    const NAME: &'static str = "tokens";
}

impl Kept for QueuedClasses {
    const NAME: &'static str = "queues";
}

impl Kept for OfflineRunners {
    const NAME: &'static str = "suspects";
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored<T> {
    #[serde(rename = "1")]
    V1(T),
}

/// As it is stored.
pub fn encode<T: Serialize>(kept: T) -> String {
    serde_json::to_string(&Stored::V1(kept)).expect("what is kept has string keys only")
}

/// As it was stored.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let Stored::V1(kept) = serde_json::from_str(text)?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::at;

    #[test]
    fn whoever_was_first_says_when_the_stack_was_made() {
        let ground = |born: &str, role: &str| LaunchSite {
            born: born.to_owned(),
            role_id: role.to_owned(),
            subnets: BTreeMap::new(),
        };
        assert_eq!(ground("t0", "a").over(None), ground("t0", "a"));
        assert_eq!(ground("t1", "b").over(Some(&ground("t0", "a"))), ground("t0", "b"));
    }

    #[test]
    fn what_is_not_said_stays_as_it_was() {
        let before =
            Parameters { idle_time_s: Some(60), max_runtime_min: Some(9), ..Parameters::default() };
        let said = Parameters { idle_time_s: Some(120), ..Parameters::default() };
        let now = said.over(before);
        assert_eq!((now.idle_time_s, now.max_runtime_min), (Some(120), Some(9)));
        let mut limits = Limits::DEFAULT;
        now.applied_to(&mut limits);
        assert_eq!(limits.idle_released, Duration::from_secs(120));
        assert_eq!(limits.max_runtime_workflow, Duration::from_secs(540));
    }

    #[test]
    fn everything_kept_is_read_back() {
        let parameters =
            Parameters { pre_runner_script: Some("EOF\n'\"".into()), ..Parameters::default() };
        assert_eq!(decode::<Parameters>(&encode(parameters.clone())).unwrap(), parameters);
        assert_eq!(encode(Parameters::default()), r#"{"v":"1"}"#);
        assert!(decode::<Parameters>(r#"{"v":"2"}"#).is_err());
    }

    #[test]
    fn a_ghost_is_offline_in_two_sweeps_far_enough_apart() {
        let grace = Duration::from_secs(600);
        let (one, two) = (RunnerName::new("one"), RunnerName::new("two"));
        let both = BTreeSet::from([one.clone(), two.clone()]);
        let (first, ghosts) = OfflineRunners::default().after(&both, grace, at(0));
        assert_eq!(ghosts, []);
        let (second, ghosts) = first.after(&BTreeSet::from([one.clone()]), grace, at(300));
        assert_eq!(ghosts, []);
        let (_, ghosts) = second.after(&both, grace, at(600));
        assert_eq!(ghosts, [one], "the other was seen online in between");
    }
}
