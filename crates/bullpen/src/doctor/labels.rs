//! The doctor's check of the label policy: what every repository may use.
//!
//! Not here: the policy itself (`bullpen_core::labels::policy`).

use bullpen_core::ids::Repository;
use bullpen_core::job::{CodeRules, SharedLabels};
use bullpen_core::labels::LabelKey;
use bullpen_core::labels::policy::{Family, Policy};

use super::verdict::{Check, Verdict};

const NAME: &str = "label policy";

/// Warns if the policy opens something risky or expensive to every repository; the operator chose
/// the repositories that it names. `None` if the service reads its configuration from a repository.
pub(super) fn policy(config: Option<(&Policy, &CodeRules)>) -> Check {
    let Some((policy, code)) = config else {
        let what = "no configuration given; the service reads runs-on.yml from a repository: pass a \
                    copy of it as --config";
        return Check { name: NAME.to_owned(), verdict: Verdict::Unknown(what.to_owned()) };
    };
    let mut opens = Vec::new();
    // No repository has this name, so only the rules for all repositories apply.
    let unnamed = Repository::new("");
    let (rules, safe) = (policy.rules(&unnamed), Policy::default().rules(&unnamed));
    for key in
        [LabelKey::Ami, LabelKey::Ssh, LabelKey::Debug, LabelKey::Sticky, LabelKey::NestedVirt]
    {
        if rules.allow.as_ref().is_none_or(|allow| allow.contains(&key)) {
            opens.push(format!("the key {key}"));
        }
    }
    let families = rules.families.as_deref();
    if families.is_none_or(|families| families.contains(&Family::new("*"))) {
        opens.push("every machine family".to_owned());
    }
    let maxima = [
        ("cpu", rules.cpu_milli_max, safe.cpu_milli_max),
        ("ram", rules.ram_milli_max, safe.ram_milli_max),
        ("volume", rules.volume_gb_max, safe.volume_gb_max),
        ("throughput", rules.volume_mibps_max, safe.volume_mibps_max),
        ("iops", rules.volume_iops_max, safe.volume_iops_max),
    ];
    for (name, _, _) in maxima.into_iter().filter(|(_, set, usual)| set > usual) {
        opens.push(format!("more than the usual {name}"));
    }
    if code.shared_labels == SharedLabels::Always {
        opens.push("machines that others used, under shared labels".to_owned());
    }
    for plain in policy.plain.iter().filter(|plain| plain.repositories.is_none()) {
        opens.push(format!("the labels {}", plain.labels.join(", ")));
    }
    if opens.is_empty() {
        return Check::fine(NAME, "opens nothing risky to every repository");
    }
    let what = format!("opens to every repository: {}", opens.join("; "));
    Check::warning(NAME, what, "name the repositories that need it, under `labels`")
}

#[cfg(test)]
mod tests {
    use bullpen_core::labels::policy::{PlainLabels, Rules};

    use super::*;

    #[test]
    fn what_is_open_to_every_repository_is_named() {
        let (none, private) = (Policy::default(), CodeRules::default());
        let (word, ..) = policy(Some((&none, &private))).verdict.parts();
        assert_eq!(word, "ok");
        let unknown = policy(None);
        let (word, what, _) = unknown.verdict.parts();
        assert_ne!(word, "ok", "the service reads another file: {what}");
        let plain = PlainLabels { labels: vec!["linux".to_owned()], ..PlainLabels::default() };
        let allow = Some([LabelKey::Ami, LabelKey::Debug, LabelKey::NestedVirt].into());
        let cpu_milli_max = Some(96_000);
        let open = Policy {
            all: Rules { allow, cpu_milli_max, ram_milli_max: Some(1_000), ..Rules::default() },
            plain: vec![plain],
            ..Policy::default()
        };
        let always = CodeRules { shared_labels: SharedLabels::Always, ..CodeRules::default() };
        let check = policy(Some((&open, &always)));
        let (word, what, _) = check.verdict.parts();
        assert_eq!(word, "warning");
        assert_eq!(
            what,
            "opens to every repository: the key ami; the key debug; the key nested-virt; more than \
             the usual cpu; machines that others used, under shared labels; the labels linux"
        );
    }
}
