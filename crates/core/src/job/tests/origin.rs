//! Which machines a job may have, by the origin of its code.
//!
//! Not here: finding them (`pool::pick`, `pickup`).

use super::*;
use crate::ids::Repository;

fn from(label: &str, origin: Option<Origin>, visibility: Option<Visibility>) -> JobDetails {
    let provenance = Provenance { origin, visibility };
    JobDetails { labels: vec![label.to_owned()], provenance, ..about() }
}

const BOUND: &str = "runs-on=77/runner=large";
const SHARED: &str = "runs-on/runner=large";

fn decided(about: &JobDetails) -> UsedMachines {
    used_machines(about, &CodeRules::default())
}

#[test]
fn own_code_may_have_a_used_machine_under_a_label_that_names_its_run() {
    for visibility in [None, Some(Visibility::Private), Some(Visibility::Public)] {
        for origin in [Origin::Own, Origin::PullRequest] {
            assert_eq!(decided(&from(BOUND, Some(origin), visibility)), UsedMachines::Offered);
        }
        assert_eq!(decided(&from(BOUND, None, visibility)), UsedMachines::Ask);
    }
}

#[test]
fn untrusted_code_may_not_under_any_labels() {
    let untrusted = UsedMachines::Withheld(OnlyUnused::UntrustedCode);
    for origin in [Origin::Fork, Origin::Dependabot] {
        for label in [BOUND, SHARED] {
            let about = from(label, Some(origin), Some(Visibility::Private));
            assert_eq!(decided(&about), untrusted, "{origin:?} {label}");
        }
    }
    let strict = CodeRules { distrusts_pull_requests: true, ..CodeRules::default() };
    let of = |origin| used_machines(&from(BOUND, Some(origin), None), &strict);
    assert_eq!((of(Origin::PullRequest), of(Origin::Own)), (untrusted, UsedMachines::Offered));
}

#[test]
fn under_a_shared_label_only_where_no_fork_can_queue() {
    let not_bound = UsedMachines::Withheld(OnlyUnused::LabelsNotBound);
    let own = |visibility| from(SHARED, Some(Origin::Own), visibility);
    assert_eq!(decided(&own(Some(Visibility::Private))), UsedMachines::Offered);
    assert_eq!(decided(&own(Some(Visibility::Public))), not_bound);
    assert_eq!(decided(&own(None)), UsedMachines::Ask);
    let unasked = from(SHARED, None, Some(Visibility::Public));
    assert_eq!(decided(&unasked), not_bound, "no answer of GitHub's would change it");
}

#[test]
fn an_operator_may_know_better_for_all_repositories_or_for_one() {
    let not_bound = UsedMachines::Withheld(OnlyUnused::LabelsNotBound);
    let public = from(SHARED, Some(Origin::Own), Some(Visibility::Public));
    let private = from(SHARED, Some(Origin::Own), Some(Visibility::Private));
    let all = |shared_labels| CodeRules { shared_labels, ..CodeRules::default() };
    assert_eq!(used_machines(&public, &all(SharedLabels::Always)), UsedMachines::Offered);
    assert_eq!(used_machines(&private, &all(SharedLabels::Never)), not_bound);
    let one = |word| CodeRules {
        repositories: [(Repository::new("acme/app"), word)].into(),
        ..CodeRules::default()
    };
    let upper_case = JobDetails { repository: Repository::new("ACME/App"), ..public.clone() };
    assert_eq!(used_machines(&upper_case, &one(SharedLabels::Always)), UsedMachines::Offered);
    assert_eq!(used_machines(&private, &one(SharedLabels::Never)), not_bound);
    // A fork of the owner's public repository can take the runner of a private one.
    let owners = CodeRules { runners_are_the_owners: true, ..CodeRules::default() };
    assert_eq!(used_machines(&private, &owners), not_bound);
    let knows = CodeRules { shared_labels: SharedLabels::Always, ..owners };
    assert_eq!(used_machines(&private, &knows), UsedMachines::Offered);
    // A branch of a private repository can queue a pull request's job too.
    let strict = CodeRules { distrusts_pull_requests: true, ..CodeRules::default() };
    assert_eq!(used_machines(&private, &strict), not_bound);
}

#[test]
fn an_unanswered_question_counts_against_the_job() {
    let unknown = UsedMachines::Withheld(OnlyUnused::OriginUnknown);
    assert_eq!(UsedMachines::Ask.after_asking(), unknown);
    assert_eq!(UsedMachines::Offered.after_asking(), UsedMachines::Offered);
    assert_eq!(unknown.withheld(), Some(OnlyUnused::OriginUnknown));
    assert_eq!((UsedMachines::Ask.withheld(), UsedMachines::Offered.withheld()), (None, None));
}

/// Answers merge in any order and any number of times, and the least trusted one stays.
#[test]
fn provenance_only_grows() {
    let origins = [None, Some(Origin::Own), Some(Origin::Dependabot), Some(Origin::Fork)];
    let seen = [None, Some(Visibility::Private), Some(Visibility::Public)];
    let all: Vec<Provenance> = origins
        .into_iter()
        .flat_map(|origin| seen.map(|visibility| Provenance { origin, visibility }))
        .collect();
    for one in &all {
        assert_eq!(one.join(*one), *one);
        assert_eq!(one.join(Provenance::default()), *one);
        for other in &all {
            let both = one.join(*other);
            assert_eq!(both, other.join(*one));
            assert_eq!(both.join(*one), both);
        }
    }
    let own = Provenance { origin: Some(Origin::Own), visibility: None };
    let fork = Provenance { origin: Some(Origin::Fork), visibility: None };
    assert_eq!(own.join(fork), fork);
}

/// A document of an older version has no provenance, and this version reads what it writes.
#[test]
fn provenance_is_stored_with_what_stays_the_same() {
    let known = from(BOUND, Some(Origin::Fork), Some(Visibility::Public));
    let text = serde_json::to_string(&known).unwrap();
    assert!(text.contains(r#""provenance":{"origin":"fork","visibility":"public"}"#), "{text}");
    assert_eq!(serde_json::from_str::<JobDetails>(&text).unwrap(), known);
    let unknown = about();
    let text = serde_json::to_string(&unknown).unwrap();
    assert!(!text.contains("provenance"), "{text}");
    assert_eq!(serde_json::from_str::<JobDetails>(&text).unwrap(), unknown);
}
