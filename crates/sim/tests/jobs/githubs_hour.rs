//! GitHub's hour: what the service asks GitHub, and that its search leaves the hour to runners.
//!
//! Not here: a day of a hundred thousand jobs (`tests/githubs_hour.rs`).

use std::time::Duration;

use bullpen_core::forge_rates::{CallCounts, CallPurpose};
use bullpen_core::ids::{JobId, Repository};
use bullpen_core::job::search::WEBHOOKS_WITHIN;
use bullpen_core::job::{JobState, Setback};
use bullpen_core::ports::Ports;
use bullpen_engine::jobs::{self, Duties, FindMemory, FoundJobs, find};
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::life::desired;

use super::service_world::{LASTS, ServiceWorld, SimService, about, about_in};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn sent(calls: &CallCounts, purpose: CallPurpose) -> u64 {
    calls.get(&purpose).map_or(0, |count| count.sent)
}

/// One round of the search in a process of its own.
async fn search(sim: &ServiceWorld, always: &[Repository], memory: &mut FindMemory) -> FoundJobs {
    let round = async |service: &SimService<'_>| find(service, always, memory).await;
    sim.process("find", None, round).await.expect("it has no fuse")
}

/// Runs whole processes of the service, without upkeep, for a while.
async fn serve_side_by_side(sim: &ServiceWorld, names: &[&str], lasts: Duration) {
    let duties = Duties {
        jobs: true,
        upkeep: false,
        pools: false,
        repositories: vec![Repository::new("acme/app")],
    };
    let replicas = names.iter().map(|name| {
        sim.process(name, None, async |service| {
            tokio::select! {
                biased;
                () = pass(lasts) => {}
                () = jobs::run(service, &duties, desired, std::future::pending()) => {}
            }
        })
    });
    futures_util::future::join_all(replicas).await;
}

#[test]
pub(crate) fn two_replicas_search_no_more_than_one() {
    let calls = |names: &'static [&'static str]| {
        on_virtual_time(async move {
            let sim = ServiceWorld::new(5).await;
            serve_side_by_side(&sim, names, HOUR).await;
            sent(&sim.github.calls_of_all(), CallPurpose::Look)
        })
    };
    let (one, two) = (calls(&["one"]), calls(&["one", "two"]));
    assert!(one >= 100, "two listings a minute: {one}");
    assert!(two <= one + one / 10, "one replica makes {one} calls, and two make {two}");
}

#[test]
pub(crate) fn a_repository_that_fails_stops_no_other() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let repositories = ["acme/bad", "acme/good"].map(Repository::new);
        for (job, repository) in [("7", "acme/bad"), ("8", "acme/good")] {
            let label = format!("runs-on={job}/runner=large");
            sim.submit(job, about_in(job, repository, &label));
        }
        sim.github.fail_repository(Some(repositories[0].clone()));
        pass(WEBHOOKS_WITHIN).await;
        let mut memory = FindMemory::default();
        let found = search(&sim, &repositories, &mut memory).await;
        assert_eq!(found, FoundJobs { redelivered: 0, unannounced: 1, failed: 1 });
        sim.github.fail_repository(None);
        let found = search(&sim, &repositories, &mut memory).await;
        assert_eq!(found, FoundJobs { redelivered: 0, unannounced: 1, failed: 0 });
    });
}

#[test]
fn a_redelivery_that_fails_is_repeated_and_stops_no_search() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let fact = sim.submit("7", about("7"));
        sim.submit("8", about("8"));
        sim.github.lose(fact, sim.world.outside.clock().true_now());
        sim.github.refuse_redelivery(true);
        pass(WEBHOOKS_WITHIN).await;
        let mut memory = FindMemory::default();
        let repositories = [Repository::new("acme/app")];
        let found = search(&sim, &repositories, &mut memory).await;
        assert_eq!(found, FoundJobs { redelivered: 0, unannounced: 2, failed: 1 });
        // The list of deliveries is read from where it was left, and the request is remembered.
        pass(Duration::from_secs(20 * 60)).await;
        sim.github.refuse_redelivery(false);
        let found = search(&sim, &repositories, &mut memory).await;
        assert_eq!(found, FoundJobs { redelivered: 1, unannounced: 0, failed: 0 });
        let found = search(&sim, &repositories, &mut memory).await;
        assert_eq!(found, FoundJobs::default(), "it was sent again a moment ago");
    });
}

#[test]
pub(crate) fn a_search_leaves_the_hour_to_runners() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.world.outside.forge().limit_calls(Some(100));
        let repositories: Vec<Repository> =
            (0..60).map(|number| Repository::new(format!("acme/{number:02}"))).collect();
        let mut memory = FindMemory::default();
        let mut last = 0;
        for minute in 0..30 {
            // Every listing has changed, so that none is free.
            for (number, repository) in repositories.iter().enumerate() {
                let job = format!("{}", 1_000 * (minute + 1) + number);
                let label = format!("runs-on={job}/runner=large");
                let about = about_in(&job, repository.as_str(), &label);
                sim.github.queue(&job, about, LASTS, sim.world.outside.clock().true_now());
            }
            search(&sim, &repositories, &mut memory).await;
            let looked = sent(&sim.github.calls_of_all(), CallPurpose::Look);
            assert!(looked <= 5 + 2 * (minute as u64 + 1), "minute {minute}: {looked} calls");
            last = looked;
            pass(Duration::from_secs(30)).await;
        }
        assert!(last >= 25, "the search had only {last} calls of the hour");
    });
}

#[test]
pub(crate) fn a_job_whose_agent_says_that_it_runs_is_not_asked_about() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let fact = sim.github.queue(
            "7",
            about("7"),
            Duration::from_secs(50 * 60),
            sim.world.outside.clock().true_now(),
        );
        sim.deliver(&fact).await;
        let started = |fact: &bullpen_core::job::JobFact| {
            // The webhook about its end is lost.
            !matches!(fact.said, bullpen_core::job::ReportedStatus::Completed { .. })
        };
        let asked = async || sent(&sim.github.calls_of_all(), CallPurpose::Job);
        let never = async || false;
        sim.serve_until("serve", Duration::from_secs(45 * 60), started, never).await;
        assert!(matches!(sim.row("7").await.state, JobState::Assigned { .. }));
        assert_eq!(asked().await, 0, "its machine's agent says that it runs");
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("again", Duration::from_secs(15 * 60), started, done).await);
        assert!((1..=2).contains(&asked().await), "the agent said that it is over");
        sim.end().await;
    });
}

#[test]
pub(crate) fn a_job_that_github_does_not_show_yet_is_not_gone() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.github.hide_new_jobs(true);
        sim.queue("7").await;
        let asked = async |service: &SimService<'_>| {
            let before = service.forge;
            let (repository, job) = (Repository::new("acme/app"), JobId::new("7"));
            let row = sim.row("7").await;
            let answer = bullpen_engine::jobs::finish::is_wanted(service, &row).await;
            assert!(answer.is_err(), "GitHub did not show it: {answer:?}");
            let shown = bullpen_core::ports::JobForge::job(before, &repository, &job).await;
            assert!(shown.is_ok(), "the second question is answered");
        };
        sim.process("asks", None, asked).await;
        assert!(!sim.row("7").await.is_over(), "{:?}", sim.row("7").await);
        let done = async || sim.is_settled("7").await && sim.is_over("7");
        assert!(sim.serve_until("serve", Duration::from_secs(600), |_| true, done).await);
        assert_eq!(sim.github.notices(), []);
        sim.end().await;
    });
}

#[test]
fn a_job_waits_for_the_next_hour_and_its_row_says_why() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let limit = |calls| sim.world.outside.forge().limit_calls(Some(calls));
        limit(5_000);
        sim.queue("7").await;
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let served = async |job: &'static str, name, within| {
            let done = async || sim.is_over(job) && sim.is_settled(job).await;
            sim.serve_until(name, within, |_| true, done).await
        };
        assert!(served("7", "first", minutes(10)).await, "the hour begins");
        pass(minutes(10)).await;
        let minted = || sent(&sim.github.calls_of_all(), CallPurpose::Mint);
        let before = minted();
        sim.queue("8").await;
        limit(0);
        assert!(!served("8", "second", minutes(30)).await);
        let waits = sim.row("8").await;
        assert!(matches!(waits.state, JobState::Waiting { .. }), "{waits:?}");
        let last = waits.setbacks.last().expect("it says why it waits");
        assert_eq!(
            (&last.setback, last.times),
            (&Setback::RateLimited, 1),
            "it is not tried in vain"
        );
        assert_eq!(minted(), before, "no call was made in vain");
        limit(5_000);
        let is_served = served("8", "third", minutes(30)).await;
        assert!(is_served, "{:?}", sim.row("8").await);
        sim.end().await;
    });
}
