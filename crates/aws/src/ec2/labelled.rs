//! Launch templates that labels made: how many there may be, and which go first.
//!
//! A class that no configuration names has the template of its labels: each size of a disk is one more.
//! Such templates carry a tag; at most [`LABELLED_MAX`] are kept. A process knows its own launches, and
//! of others when a template was made: what another process still wanted costs it three calls. Launches
//! at one moment may each make one too many, until the next refresh.
//!
//! Not here: templates of configured classes ([`super::prepare`]), which are not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_ec2::types::LaunchTemplate;
use bullpen_core::class::RunnerClass;
use bullpen_core::ports::{Clock, Fault};
use bullpen_core::time::Timestamp;

use super::template::Template;
use super::{Ec2Fleet, lock, tags};

/// As many templates as labels may make. A region has room for 5,000 of all of an account's stacks.
pub(super) const LABELLED_MAX: usize = 100;
/// As many uses as are remembered: those of templates that other processes removed are among them.
const USES_MAX: usize = 2 * LABELLED_MAX;
/// What was used this recently is in use: its launch may still be asking for it.
const IN_USE: Duration = Duration::from_secs(10 * 60);
/// What the names of such classes begin with, and of no others.
const ANONYMOUS: char = '~';

/// Whether no configuration names this class.
pub(super) fn is_anonymous(class: &RunnerClass) -> bool {
    class.name.as_str().starts_with(ANONYMOUS)
}

impl<C: Clock> Ec2Fleet<C> {
    /// Notes that this template was launched from.
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

    /// Makes the template of a launch, after room for it if labels made it.
    pub(super) async fn make_for_launch(
        &self,
        template: &Template,
        class: &RunnerClass,
    ) -> Result<(), Fault> {
        let labelled = is_anonymous(class);
        if labelled {
            self.make_room(&template.name()).await?;
        }
        self.make_template(template, labelled).await
    }

    async fn make_room(&self, name: &str) -> Result<(), Fault> {
        let there = self.templates().await?;
        if there.contains_key(name) {
            return Ok(());
        }
        let wanted = lock(&self.asked.templates).as_ref().map(|(_, names)| names.clone());
        let last_used = self.last_used(&there, &wanted.unwrap_or_default());
        let gone = evicted(&last_used, self.clock.now(), LABELLED_MAX - 1);
        if !gone.is_enough {
            return Err(Fault::Unavailable(format!(
                "labels made {LABELLED_MAX} launch templates within the last {} minutes, as many as \
                 there may be; jobs with other disks or images wait until one of them is left alone",
                IN_USE.as_secs() / 60
            )));
        }
        for name in gone.names {
            match self.remove_template(&name).await {
                // A step of a workflow may remove none; the service does at its next refresh.
                Err(Fault::Denied(why)) => {
                    tracing::debug!(name, why, "a launch template is left to the service");
                    return Ok(());
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// The templates that labels made and no configuration wants, each with its last use as far as it is
    /// known here.
    pub(super) fn last_used(
        &self,
        there: &BTreeMap<String, LaunchTemplate>,
        wanted: &BTreeSet<String>,
    ) -> BTreeMap<String, Timestamp> {
        let (now, used) = (self.clock.now(), lock(&self.used));
        let is_labelled = |one: &LaunchTemplate| {
            tags::value(one.tags(), tags::MADE_FOR) == Some(tags::FOR_LABELS)
        };
        let labelled =
            there.iter().filter(|(name, one)| is_labelled(one) && !wanted.contains(*name));
        let last_use = |(name, one): (&String, &LaunchTemplate)| {
            let made = one.create_time().and_then(|at| at.to_millis().ok());
            let made = made.map_or(now, Timestamp::from_millis);
            (name.clone(), used.get(name).copied().unwrap_or(made).max(made))
        };
        labelled.map(last_use).collect()
    }
}

/// Which go, so that `most` are left, or as few more as may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    /// The least recently used first, and none that is in use.
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
        let go = |most| {
            let gone = evicted(&all, now, most);
            (gone.names.join(" "), gone.is_enough)
        };
        assert_eq!(go(4), (String::new(), true));
        assert_eq!(go(3), ("b".to_owned(), true));
        assert_eq!(go(1), ("b d a".to_owned(), true));
        assert_eq!(go(0), ("b d a".to_owned(), false), "one was used five minutes ago");
    }
}
