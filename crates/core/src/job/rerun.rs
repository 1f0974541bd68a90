//! Re-run jobs whose request is over: each gets one runner like those of the request.
//!
//! Re-running the failed jobs of a run does not re-run the job that provisioned for them, so they
//! ask for the label of a request whose runners are gone.
//!
//! Not here: looking the request up (`bullpen-engine`).

use super::{Job, JobFact, request_id};
use crate::ids::SpecHash;
use crate::request::Request;
use crate::request::entry::{RequestEntry, RequestStage, split};
use crate::time::Timestamp;

/// How a request relates to a job that carries its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRelation {
    /// Not at all: the job may not use the label.
    None,
    /// Its runners serve the job.
    Live,
    /// It is over, and the job is of the same run.
    Over,
}

/// How this request relates to the job. Every workflow can write every label, so only a job of the
/// request's own run and repository relates to it, and only with the whole label and no other.
pub fn relation(entry: &RequestEntry, fact: &JobFact) -> RequestRelation {
    let about = &fact.about;
    let run = split(&entry.request.id).and_then(|(run, _)| run.at_github());
    let is_of_its_run = match (run, about.run.at_github()) {
        (Some((run, attempt)), Some((of, later))) => run == of && later >= attempt,
        _ => false,
    };
    if !entry.owns_all(&about.labels)
        || !is_of_its_run
        || entry.repository.as_ref() != Some(&about.repository)
    {
        return RequestRelation::None;
    }
    match entry.stage {
        RequestStage::Live => RequestRelation::Live,
        RequestStage::Abandoned | RequestStage::Finished => RequestRelation::Over,
    }
}

/// A request for one runner for the job, like those of the request that is over.
pub fn one_runner_request(
    entry: &RequestEntry,
    job: &Job,
    built_from: &SpecHash,
    deadline: Timestamp,
) -> Request {
    Request {
        id: request_id(&job.id),
        incarnation: 0,
        count: 1,
        deadline,
        spec_hash: Some(built_from.clone()),
        ..entry.request.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ClaimId, Repository, RequestId, RunAttempt};
    use crate::job::{JobDetails, Provenance, ReportedStatus};
    use crate::samples;

    const LABEL: &str = "warm-77.1.build.000000000000000000000000000000ff";

    fn entry(stage: RequestStage) -> RequestEntry {
        RequestEntry {
            request: Request { id: RequestId::new("77.1.build"), ..samples::request() },
            stage,
            worker: ClaimId::new("w-1"),
            repository: Some(Repository::new("acme/app")),
            secret_label: Some(LABEL.to_owned()),
            from_fork: None,
            strangers: Vec::new(),
        }
    }

    fn of(run: &str, repository: &str) -> JobFact {
        let about = JobDetails {
            repository: Repository::new(repository),
            run: RunAttempt::new(run),
            name: "test".to_owned(),
            labels: vec![LABEL.to_owned()],
            commit: "0a1b".to_owned(),
            created_at: None,
            provenance: Provenance::default(),
        };
        JobFact { job: "7".into(), about, said: ReportedStatus::Queued { at: None } }
    }

    #[test]
    fn only_a_job_of_the_same_run_and_repository_is_bound_to_a_request() {
        for (run, repository, expected) in [
            ("77.1", "acme/app", RequestRelation::Over),
            ("77.2", "acme/app", RequestRelation::Over),
            ("78.2", "acme/app", RequestRelation::None),
            ("local.2", "acme/app", RequestRelation::None),
            ("77.2", "acme/other", RequestRelation::None),
        ] {
            assert_eq!(
                relation(&entry(RequestStage::Finished), &of(run, repository)),
                expected,
                "{run}"
            );
        }
        assert_eq!(
            relation(&entry(RequestStage::Live), &of("77.2", "acme/app")),
            RequestRelation::Live
        );
        assert_eq!(
            relation(&entry(RequestStage::Abandoned), &of("77.2", "acme/app")),
            RequestRelation::Over
        );
        let mut guessed = of("77.2", "acme/app");
        guessed.about.labels = vec!["warm-77.1.build".to_owned()];
        assert_eq!(
            relation(&entry(RequestStage::Finished), &guessed),
            RequestRelation::None,
            "the label lacks its random part"
        );
        let mut greedy = of("77.2", "acme/app");
        greedy.about.labels.push("prod-deploy".to_owned());
        assert_eq!(
            relation(&entry(RequestStage::Finished), &greedy),
            RequestRelation::None,
            "one label too many"
        );
        let old = RequestEntry { secret_label: None, ..entry(RequestStage::Finished) };
        assert_eq!(
            relation(&old, &guessed),
            RequestRelation::Over,
            "a request without a random part in its label"
        );
        let without_repository = RequestEntry { repository: None, ..entry(RequestStage::Finished) };
        assert_eq!(relation(&without_repository, &of("77.2", "acme/app")), RequestRelation::None);
    }
}
