//! Labels of runners: a job's runner has no label for which GitHub would give it the job of another
//! run, or the job of another stack.
//!
//! Written independently of `core::labels`, which decides the same: a job's runner may have labels
//! that begin with `runs-on`, with its own run's id or with none.
//!
//! Not here: which trust group's code ran on which machine ([`super::trust`]).

use bullpen_core::ids::RunAttempt;
use bullpen_core::invariants::{Invariant, Violation};

use crate::model::forge::RanCode;

/// A runner that was minted for a job of this run has started a job: judges its labels.
pub(super) fn started(ran: &RanCode, run: &RunAttempt) -> Result<(), Violation> {
    match ran.runner_has.split(',').find(|label| !may_have(label, run.run_id())) {
        None => Ok(()),
        Some(label) => Err(Violation {
            invariant: Invariant::OneOwner,
            instance: Some(ran.machine.clone()),
            what: format!("{} was minted for run {run} and has label {label}", ran.runner),
        }),
    }
}

/// Whether only jobs of this run can begin on a runner: each of its labels names the run.
pub(super) fn is_bound(runner_has: &str, run: &RunAttempt) -> bool {
    let names = |label: &str| label.starts_with("runs-on=") && may_have(label, run.run_id());
    runner_has.split(',').all(names)
}

fn may_have(label: &str, run: &str) -> bool {
    let Some(rest) = label.strip_prefix("runs-on") else { return false };
    let Some(id) = rest.strip_prefix('=') else { return rest.is_empty() || rest.starts_with('/') };
    let id = id.split('/').next().unwrap_or_default();
    id == run || id.strip_prefix(run).is_some_and(|suffix| suffix.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(runner_has: &str) -> bool {
        let ran = RanCode {
            machine: "m1".into(),
            number: 1,
            label: "prod-deploy".to_owned(),
            runner: "bp-7-0".into(),
            runner_has: runner_has.to_owned(),
            of: None,
        };
        started(&ran, &RunAttempt::new("70.1")).is_ok()
    }

    #[test]
    fn a_runner_is_bound_to_a_run_that_each_label_names() {
        let run = RunAttempt::new("70.1");
        assert!(is_bound("runs-on=70/pool=ci", &run) && is_bound("runs-on=70,runs-on=70-7", &run));
        for not in ["runs-on/pool=ci", "runs-on=70,runs-on", "runs-on=71", "warm-70.1.build"] {
            assert!(!is_bound(not, &run), "{not}");
        }
    }

    #[test]
    fn a_runner_has_its_own_runs_labels_alone() {
        for good in ["runs-on", "runs-on/pool=ci", "runs-on=70/pool=ci", "runs-on=70-7,runs-on"] {
            assert!(judged(good), "{good}");
        }
        for bad in ["prod-deploy", "runs-on/pool=ci,prod-deploy", "runs-on=71", "runs-on=701"] {
            assert!(!judged(bad), "{bad}");
        }
    }
}
