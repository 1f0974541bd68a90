//! Whether a job's labels bind its runner to the job's own workflow run.
//!
//! GitHub may give a job to any runner that has all labels of the job. A runner has the labels of
//! the job it was started for, so any job that carries a subset of them fits. Labels are bound to a
//! run if each of them names the run's id: `runs-on=<run id>/…` or `runs-on=<run id>-<suffix>/…`.
//!
//! Not here: refusing a job whose label names another run (`route`).

use crate::ids::RunAttempt;

const HEADS: [&str; 2] = ["runs-on=", "bullpen="];
const SEPARATORS: [char; 2] = ['/', ','];

/// Whether there are labels and each of them names the job's own run.
pub fn is_bound_to_run(labels: &[String], run: &RunAttempt) -> bool {
    let run = run.as_str();
    let id = run.rsplit_once('.').map_or(run, |(id, _)| id);
    !labels.is_empty() && labels.iter().all(|label| names(label.trim(), id))
}

fn names(label: &str, run: &str) -> bool {
    let after = |head: &&str| {
        let (start, rest) = label.split_at_checked(head.len())?;
        start.eq_ignore_ascii_case(head).then_some(rest)
    };
    let Some(tail) = HEADS.iter().find_map(after) else { return false };
    let id = tail.split(SEPARATORS).next().unwrap_or_default();
    let suffix = id.strip_prefix(run).filter(|_| !run.is_empty());
    suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_bound(labels: &[&str]) -> bool {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        is_bound_to_run(&labels, &RunAttempt::new("77.2"))
    }

    #[test]
    fn a_label_with_the_runs_own_id_binds() {
        for label in
            ["runs-on=77/runner=large", "runs-on=77", "RUNS-ON=77-build,cpu=2", "bullpen=77-a/b=c"]
        {
            assert!(is_bound(&[label]), "{label}");
        }
    }

    #[test]
    fn a_label_that_another_run_may_carry_too_does_not() {
        for label in [
            "runs-on/runner=large",
            "runs-on=78/runner=large",
            "runs-on=770/runner=large",
            "runs-on=7/runner=large",
            "runs-on=-77/runner=large",
            "runs-on=/runner=77",
            "runs-on-runner=77",
            "self-hosted",
            "warm-77.1.build",
            "dependabot",
            "",
        ] {
            assert!(!is_bound(&[label]), "{label}");
        }
    }

    /// Another run's job that carries only the unbound label fits the same runner.
    #[test]
    fn one_label_that_is_not_bound_is_enough() {
        assert!(is_bound(&["runs-on=77/runner=large", "runs-on=77-x"]));
        assert!(!is_bound(&["runs-on=77/runner=large", "self-hosted"]));
        assert!(!is_bound(&["runs-on=77", "runner=large"]));
        assert!(!is_bound(&[]));
    }

    #[test]
    fn a_run_without_an_id_binds_nothing() {
        let labels = ["runs-on=-1/runner=large".to_owned()];
        assert!(!is_bound_to_run(&labels, &RunAttempt::new(".1")));
        assert!(!is_bound_to_run(&labels, &RunAttempt::new("")));
    }
}
