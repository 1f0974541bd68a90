//! The planted bugs about GitHub's hour: each must make a test in `tests/jobs/githubs_hour.rs` fail.
//!
//! Not here: the mistakes themselves (`sabotage!` in the code).

use super::pools::TestBug;
use crate::jobs::githubs_hour::{
    a_job_that_github_does_not_show_yet_is_not_gone,
    a_job_whose_agent_says_that_it_runs_is_not_asked_about, a_repository_that_fails_stops_no_other,
    a_search_leaves_the_hour_to_runners, two_replicas_search_no_more_than_one,
};

/// The bugs that tests of GitHub's hour find.
pub(crate) const BUGS: &[TestBug] = &[
    TestBug {
        name: "looking-leaves-nothing-for-minting",
        mistake: "the search takes all that GitHub's hour has",
        test: a_search_leaves_the_hour_to_runners,
    },
    TestBug {
        name: "every-replica-looks",
        mistake: "each replica searches GitHub, and not one for all",
        test: two_replicas_search_no_more_than_one,
    },
    TestBug {
        name: "one-bad-repository-stops-the-search",
        mistake: "the search ends at the first repository for which GitHub has no answer",
        test: a_repository_that_fails_stops_no_other,
    },
    TestBug {
        name: "running-jobs-are-asked-about",
        mistake: "GitHub is asked about a job whose agent says that it runs",
        test: a_job_whose_agent_says_that_it_runs_is_not_asked_about,
    },
    TestBug {
        name: "what-github-does-not-show-is-gone",
        mistake: "the service gives a job up that GitHub does not show yet",
        test: a_job_that_github_does_not_show_yet_is_not_gone,
    },
];
