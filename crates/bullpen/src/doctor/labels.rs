//! The label policy, as the doctor sees it: what it opens to every repository.
//!
//! Not here: the policy itself (`bullpen_core::labels::policy`).

use bullpen_core::ids::Repository;
use bullpen_core::labels::Key;
use bullpen_core::labels::policy::{Family, Policy};

use super::verdict::Check;

const NAME: &str = "label policy";

/// Whether the policy opens what costs trust to every repository; one that is named in it is the
/// operator's choice.
pub(super) fn policy(policy: &Policy) -> Check {
    let mut opens = Vec::new();
    // No repository has this name, so that only what holds for all is left.
    let rules = policy.rules(&Repository::new(""));
    for key in [Key::Ami, Key::Ssh, Key::Sticky] {
        if rules.allow.as_ref().is_none_or(|allow| allow.contains(&key)) {
            opens.push(format!("the key {key}"));
        }
    }
    if rules.families.is_none_or(|families| families.contains(&Family::new("*"))) {
        opens.push("every machine family".to_owned());
    }
    for plain in policy.plain.iter().filter(|plain| plain.repositories.is_none()) {
        opens.push(format!("the labels {}", plain.labels.join(", ")));
    }
    if opens.is_empty() {
        return Check::fine(NAME, "opens nothing to every repository that costs trust");
    }
    let what = format!("opens to every repository: {}", opens.join("; "));
    Check::warning(NAME, what, "name the repositories that need it, under `labels`")
}

#[cfg(test)]
mod tests {
    use bullpen_core::labels::policy::{Plain, Rules};

    use super::*;

    #[test]
    fn what_is_open_to_every_repository_is_named() {
        let (word, ..) = policy(&Policy::default()).verdict.parts();
        assert_eq!(word, "ok");
        let plain = Plain { labels: vec!["linux".to_owned()], ..Plain::default() };
        let open = Policy {
            all: Rules { allow: Some([Key::Ami].into()), ..Rules::default() },
            plain: vec![plain],
            ..Policy::default()
        };
        let check = policy(&open);
        let (word, what, _) = check.verdict.parts();
        assert_eq!(word, "warning");
        assert_eq!(what, "opens to every repository: the key ami; the labels linux");
    }
}
