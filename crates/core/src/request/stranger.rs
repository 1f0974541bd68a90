//! The run that a request's machines are for, and whether a job that GitHub started there belongs
//! to it.
//!
//! GitHub gives a job to any runner that has all of its labels, regardless of the job's author. A
//! *stranger* is a job of another run or repository on a runner that is for one run alone. A
//! machine can forge its report of a job, so the report may end that machine and have no other
//! effect.
//!
//! Not here: how an agent learns of a job (`bullpen-agent`), or ending machines (`bullpen-engine`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::entry::split;
use crate::ids::{InstanceId, Repository, RequestId};

/// How many strangers the entry of a request keeps: enough for a person to see the pattern.
pub const STRANGERS_MAX: usize = 16;

/// The only run whose jobs may run on a machine. An unknown field is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnRun {
    /// The run's repository.
    pub repository: Option<Repository>,
    /// GitHub's id of the run.
    pub run: Option<u64>,
}

/// A job that GitHub started on a machine, as the runner program described it to its hook.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RanJob {
    /// Its repository.
    pub repository: Repository,
    /// GitHub's id of its run.
    pub run: u64,
    /// Which attempt of the run.
    pub attempt: u32,
    /// Its key in the workflow.
    pub job: String,
    /// The event that started the run.
    pub event: String,
}

impl fmt::Display for RanJob {
    /// Escapes the text, because a machine can write anything into its report.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (job, repository) = (self.job.escape_debug(), self.repository.as_str().escape_debug());
        let event = self.event.escape_debug();
        write!(f, "job {job} of run {} in {repository}, started by {event}", self.run)
    }
}

/// A stranger, and the machine on which GitHub started it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stranger {
    /// The machine.
    pub instance: InstanceId,
    /// The job.
    pub ran: RanJob,
}

impl OwnRun {
    /// The run that a request id names, in the repository whose workflow made the request. `None`
    /// if neither is known: a request that a person made serves every job that names its label.
    pub fn of_request(id: &RequestId, repository: Option<&Repository>) -> Option<Self> {
        let at_github = split(id).and_then(|(run, _)| run.at_github());
        let own = Self { repository: repository.cloned(), run: at_github.map(|(run, _)| run) };
        (own != Self::default()).then_some(own)
    }

    /// Whether this job belongs to another run. A later attempt is the same run.
    pub fn is_stranger(&self, job: &RanJob) -> bool {
        if crate::sabotage!("foreign-runs-are-not-noticed") {
            return false;
        }
        let is_other = |own: &Repository| !is_same(own, &job.repository);
        self.run.is_some_and(|run| run != job.run) || self.repository.as_ref().is_some_and(is_other)
    }
}

/// GitHub ignores the case of names.
fn is_same(one: &Repository, other: &Repository) -> bool {
    one.as_str().eq_ignore_ascii_case(other.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(repository: &str, run: u64) -> RanJob {
        let (repository, job) = (Repository::new(repository), "test".to_owned());
        RanJob { repository, run, attempt: 1, job, event: "pull_request".to_owned() }
    }

    fn own(id: &str, repository: Option<&str>) -> Option<OwnRun> {
        let repository = repository.map(Repository::new);
        OwnRun::of_request(&RequestId::new(id), repository.as_ref())
    }

    #[test]
    fn a_job_of_another_run_or_repository_is_a_stranger() {
        let ours = own("77.1.build", Some("acme/app")).unwrap();
        let later = RanJob { attempt: 3, ..ran("Acme/App", 77) };
        for (job, expected) in [
            (ran("acme/app", 77), false),
            (later, false),
            (ran("acme/app", 78), true),
            (ran("acme/other", 77), true),
        ] {
            assert_eq!(ours.is_stranger(&job), expected, "{job}");
        }
    }

    #[test]
    fn what_is_not_known_makes_no_stranger() {
        assert_eq!(own("local.1.build", None), None);
        let repository_alone = own("local.1.build", Some("acme/app")).unwrap();
        assert!(!repository_alone.is_stranger(&ran("acme/app", 5)));
        assert!(repository_alone.is_stranger(&ran("acme/other", 5)));
        let run_alone = own("77.1.build", None).unwrap();
        assert!(!run_alone.is_stranger(&ran("acme/other", 77)));
        assert!(run_alone.is_stranger(&ran("acme/app", 78)));
    }

    #[test]
    fn a_machines_words_are_escaped() {
        let hostile = RanJob { job: "\u{1b}[2Jx".to_owned(), ..ran("a\n/b", 1) };
        let shown = hostile.to_string();
        assert!(!shown.contains('\u{1b}') && !shown.contains('\n'), "{shown:?}");
    }
}
