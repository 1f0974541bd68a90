//! Launch templates of classes that come from labels: how many are kept, and which are removed
//! first.
//!
//! Each disk size in labels gives such a template, with a tag; the [`LABELLED_MAX`] most recently
//! used ones are kept. Of another process's template a process knows only the creation time, so it
//! may remove one in use, which that process creates again. Concurrent launches may exceed the
//! limit until the next refresh. Not here: templates of configured classes ([`super::prepare`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_ec2::types::LaunchTemplate;
use bullpen_core::class::RunnerClass;
use bullpen_core::ports::{Clock, Fault};
use bullpen_core::time::Timestamp;

use super::template::Template;
use super::{Ec2Fleet, lock, tags};

/// The most templates from labels. A region allows 5,000 for all stacks of an account.
pub(super) const LABELLED_MAX: usize = 100;
/// How many uses are remembered, including those of templates that other processes removed.
const USES_MAX: usize = 2 * LABELLED_MAX;
/// A template used this recently counts as in use: its launch may still be running.
const IN_USE: Duration = Duration::from_secs(10 * 60);
/// The first character of the names of classes that come from labels, and of no others.
const ANONYMOUS: char = '~';

/// Whether a class comes from labels, not from a configuration.
pub(super) fn is_anonymous(class: &RunnerClass) -> bool {
    class.name.as_str().starts_with(ANONYMOUS)
}

impl<C: Clock> Ec2Fleet<C> {
    /// Remembers that this process launched from this template.
    pub(super) fn note_use(&self, name: &str, class: &RunnerClass) {
        if !is_anonymous(class) {
            return;
        }
        let (now, mut used) = (self.clock.now(), lock(&self.used));
        used.insert(name.to_owned(), now);
        if used.len() > USES_MAX {
            let oldest = used.iter().min_by_key(|(_, at)| **at).map(|(name, _)| name.clone());
            oldest.and_then(|name| used.remove(&name));
        }
    }

    /// Creates the template of a launch. If its class comes from labels, it first removes the least
    /// recently used template if there are too many.
    pub(super) async fn make_for_launch(
        &self,
        template: &Template,
        class: &RunnerClass,
    ) -> Result<(), Fault> {
        let labelled = is_anonymous(class);
        if labelled {
            self.evict_for(&template.name()).await?;
        }
        self.make_template(template, labelled).await
    }

    async fn evict_for(&self, name: &str) -> Result<(), Fault> {
        let existing = self.templates().await?;
        if existing.contains_key(name) {
            return Ok(());
        }
        let wanted = lock(&self.asked.templates).as_ref().map(|(_, names)| names.clone());
        let last_used = self.last_used(&existing, &wanted.unwrap_or_default());
        let eviction = evicted(&last_used, self.clock.now(), LABELLED_MAX - 1);
        if !eviction.is_enough {
            return Err(Fault::Unavailable(format!(
                "labels used {LABELLED_MAX} launch templates within the last {} minutes, as many as \
                 are kept; jobs with other disks or images wait until one of them is unused",
                IN_USE.as_secs() / 60
            )));
        }
        for name in eviction.names {
            match self.remove_template(&name).await {
                // A workflow step may not remove templates; the service does so at its next
                // refresh.
                Err(Fault::Denied(why)) => {
                    tracing::debug!(name, why, "launch template left for the service to remove");
                    return Ok(());
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// The templates from labels that no configuration wants, each with its last use as far as this
    /// process knows.
    pub(super) fn last_used(
        &self,
        existing: &BTreeMap<String, LaunchTemplate>,
        wanted: &BTreeSet<String>,
    ) -> BTreeMap<String, Timestamp> {
        let (now, used) = (self.clock.now(), lock(&self.used));
        let is_labelled = |template: &LaunchTemplate| {
            tags::value(template.tags(), tags::MADE_FOR) == Some(tags::FOR_LABELS)
        };
        let labelled = existing
            .iter()
            .filter(|(name, template)| is_labelled(template) && !wanted.contains(*name));
        let last_use = |(name, template): (&String, &LaunchTemplate)| {
            let created = template.create_time().and_then(|at| at.to_millis().ok());
            let created = created.map_or(now, Timestamp::from_millis);
            (name.clone(), used.get(name).copied().unwrap_or(created).max(created))
        };
        labelled.map(last_use).collect()
    }
}

/// The templates to remove so that at most `most` are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    /// The least recently used first; none in use.
    pub(super) names: Vec<String>,
    /// Whether no more than `most` are left.
    pub(super) is_enough: bool,
}

pub(super) fn evicted(
    last_used: &BTreeMap<String, Timestamp>,
    now: Timestamp,
    most: usize,
) -> Evicted {
    let excess = last_used.len().saturating_sub(most);
    let mut idle: Vec<(Timestamp, &String)> = last_used
        .iter()
        .filter(|(_, at)| now.since(**at) >= IN_USE)
        .map(|(name, at)| (*at, name))
        .collect();
    idle.sort();
    let is_enough = idle.len() >= excess;
    let names = idle.into_iter().take(excess).map(|(_, name)| name.clone()).collect();
    Evicted { names, is_enough }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(minutes: &[(&str, u64)]) -> BTreeMap<String, Timestamp> {
        let at = |minutes: u64| Timestamp::EPOCH.after(Duration::from_secs(minutes * 60));
        minutes.iter().map(|(name, minutes)| ((*name).to_owned(), at(*minutes))).collect()
    }

    #[test]
    fn the_least_recently_used_go_first_and_none_that_is_in_use() {
        let now = Timestamp::EPOCH.after(Duration::from_secs(60 * 60));
        let all = used(&[("a", 30), ("b", 10), ("c", 55), ("d", 20)]);
        let evict = |most| {
            let eviction = evicted(&all, now, most);
            (eviction.names.join(" "), eviction.is_enough)
        };
        assert_eq!(evict(4), (String::new(), true));
        assert_eq!(evict(3), ("b".to_owned(), true));
        assert_eq!(evict(1), ("b d a".to_owned(), true));
        assert_eq!(evict(0), ("b d a".to_owned(), false), "c was used five minutes ago");
    }
}
