//! Tests of ownership by example, one label at a time.
//!
//! Not here: the route of the job (`route`).

use super::*;
use crate::labels::policy::PlainLabels;

fn policy() -> Policy {
    let plain = PlainLabels {
        labels: vec!["self-hosted".to_owned(), "gpu-*".to_owned()],
        env: "production".to_owned(),
        ..PlainLabels::default()
    };
    Policy { plain: vec![plain], ..Policy::default() }
}

/// Whether a runner of this stack for a job of run 42 may have the label.
fn is_owned_by(env: &str, label: &str) -> bool {
    let (repository, run) = (Repository::new("acme/app"), RunAttempt::new("42.3"));
    let claimant = Claimant { repository: &repository, run: &run, env, has_dependabot_pool: false };
    not_owned(&[label], &claimant, &policy()).is_empty()
}

fn is_owned(label: &str) -> bool {
    is_owned_by("production", label)
}

#[test]
fn a_label_without_an_id_is_owned_by_the_stack_that_it_means_by_itself() {
    for label in ["runs-on/env=dev/cpu=4", "RUNS-ON/ENV=dev", "runs-on-cpu=4-env=dev"] {
        assert!(is_owned_by("dev", label), "{label}");
        assert!(!is_owned(label), "{label}");
    }
    for label in ["runs-on/cpu=4", "runs-on", "runs-on-cpu=4", "bullpen/env=", "runs-on/env=Dev"] {
        assert!(!is_owned_by("dev", label), "{label}");
    }
    assert!(is_owned("runs-on/env=production"));
    assert!(is_owned_by("dev", "runs-on=42/cpu=4"), "all jobs of a run have one author");
}

#[test]
fn a_marker_with_the_id_of_another_run_is_not_owned() {
    for label in ["runs-on/run-id=42", "runs-on-cpu=4-run-id=42", "runs-on/run-id=nightly"] {
        assert!(is_owned(label), "{label}");
    }
    for label in ["runs-on/cpu=4/run-id=43", "runs-on-cpu=4-run-id=421", "bullpen,run-id=4"] {
        assert!(!is_owned(label), "{label}");
    }
}

#[test]
fn a_head_is_owned_with_the_runs_own_id_or_with_none() {
    for label in [
        "runs-on",
        "runs-on/cpu=4",
        "RUNS-ON=42/cpu=4",
        "runs-on=42",
        "runs-on=42-docker/cpu=4",
        "bullpen=42.matrix/cpu=4",
        "runs-on=/cpu=4",
        "runs-on-cpu=4",
        " runs-on=42 ",
    ] {
        assert!(is_owned(label), "{label}");
    }
    for label in [
        "runs-on=43/cpu=4",
        "runs-on=4/cpu=4",
        "runs-on=421/cpu=4",
        "runs-on=nightly/cpu=4",
        "bullpen=43",
        "runs-on=-42",
    ] {
        assert!(!is_owned(label), "{label}");
    }
}

#[test]
fn other_labels_are_owned_where_they_are_listed() {
    for label in ["self-hosted", "Self-Hosted", "gpu-a100"] {
        assert!(is_owned(label), "{label}");
    }
    for label in [
        "prod-deploy",
        "linux",
        "gpu",
        "cpu=4",
        "dependabot",
        "warm-42.1.build",
        "runs-on-prem",
        "",
    ] {
        assert!(!is_owned(label), "{label}");
    }
}

#[test]
fn a_run_without_an_id_owns_no_id() {
    assert!(!is_of_run("", &RunAttempt::new("")));
    assert!(!is_of_run("7", &RunAttempt::new(".1")));
}

/// Untrusted authors see the text, so it must be short, in one line, and name the remedy.
#[test]
fn a_refusal_is_short_and_says_what_to_write() {
    let (repository, run) = (Repository::new("acme/app"), RunAttempt::new("42.1"));
    let claimant = Claimant {
        repository: &repository,
        run: &run,
        env: "production",
        has_dependabot_pool: false,
    };
    let long = "x\u{1b}[31m\n".repeat(1_000);
    for refusal in not_owned(&[long.as_str(), "cpu=4", "runs-on=7"], &claimant, &policy()) {
        let text = refusal.to_string();
        assert!(text.len() < 500, "{text}");
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.contains("; write ") || text.contains("; leave it out"), "{text}");
    }
}
