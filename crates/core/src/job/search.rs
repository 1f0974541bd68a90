//! The search for jobs that no webhook announced: which of a repository's runs to ask about.
//!
//! Not here: asking, or the pace (`bullpen-engine`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::RunAttempt;
use crate::ports::UnfinishedRun;
use crate::time::Timestamp;

/// How long GitHub may take to send the webhooks of a run's jobs. Most runs that a webhook announced
/// are over before the search would ask about them.
pub const WEBHOOKS_WITHIN: Duration = Duration::from_secs(60);

/// The runs to ask about, in this order: those that the process has not asked about, and then those
/// that it asked about the longest time ago.
pub fn worth_asking<'r>(
    unfinished: &'r [UnfinishedRun],
    asked: &BTreeMap<RunAttempt, Timestamp>,
    now: Timestamp,
) -> Vec<&'r RunAttempt> {
    let is_old =
        |run: &&UnfinishedRun| run.began.is_none_or(|began| now.since(began) >= WEBHOOKS_WITHIN);
    let mut due: Vec<&RunAttempt> = unfinished.iter().filter(is_old).map(|run| &run.run).collect();
    due.sort_by_key(|run| (asked.get(*run), *run));
    due
}

/// Whether GitHub may not show a job yet, although a webhook announced it.
pub fn may_show_later(queued: Option<Timestamp>, now: Timestamp) -> bool {
    queued.is_some_and(|at| now.since(at) < WEBHOOKS_WITHIN)
}

/// Whether the service must ask GitHub about a job that has started: its agent's last beat does not say that
/// it runs, or is stale; or an hour of the job has passed, because what a machine says about itself
/// is not believed for ever.
pub fn is_doubtful(
    beat: Option<BeatSeen>,
    started: Option<Timestamp>,
    now: Timestamp,
    look_every: Duration,
) -> bool {
    let Some(BeatSeen { is_fresh: true, is_busy: true }) = beat else { return true };
    let Some(started) = started else { return true };
    let age = now.since(started).as_millis();
    age % ASKED_ANYWAY.as_millis() < look_every.as_millis() && age >= ASKED_ANYWAY.as_millis()
}

/// How often the service asks about a job that its machine's agent says it runs.
const ASKED_ANYWAY: Duration = Duration::from_secs(60 * 60);

/// The last beat of the agent on whose machine a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeatSeen {
    /// Whether it is recent.
    pub is_fresh: bool,
    /// Whether it says that a job runs.
    pub is_busy: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::at;

    #[test]
    fn a_run_is_asked_about_once_its_webhooks_are_late_and_the_longest_unasked_first() {
        let run = |id: u64, began: Option<u64>| UnfinishedRun {
            run: RunAttempt::new(format!("{id}.1")),
            began: began.map(at),
        };
        let listed = [run(1, Some(100)), run(2, Some(141)), run(3, None), run(4, Some(10))];
        let asked = [(listed[0].run.clone(), at(190)), (listed[3].run.clone(), at(180))].into();
        let due = worth_asking(&listed, &asked, at(200));
        let ids: Vec<_> = due.into_iter().map(|run| run.run_id().to_string()).collect();
        assert_eq!(ids, ["3", "4", "1"], "the second run is too young");
    }

    #[test]
    fn a_job_whose_agent_says_that_it_runs_is_asked_about_once_an_hour() {
        let every = Duration::from_secs(300);
        let busy = Some(BeatSeen { is_fresh: true, is_busy: true });
        let asked = (1..=48).filter(|look| is_doubtful(busy, Some(at(0)), at(look * 300), every));
        assert_eq!(asked.collect::<Vec<_>>(), [12, 24, 36, 48], "four hours, a look in 5 min");
        for beat in [
            None,
            Some(BeatSeen { is_fresh: false, is_busy: true }),
            Some(BeatSeen { is_fresh: true, is_busy: false }),
        ] {
            assert!(is_doubtful(beat, Some(at(0)), at(600), every), "{beat:?}");
        }
        assert!(is_doubtful(busy, None, at(600), every));
    }
}
