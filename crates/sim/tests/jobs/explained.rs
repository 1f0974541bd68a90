//! What the engine did about jobs, as `explain` tells it.
//!
//! Not here: telling (`core::explain`).

use std::cell::Cell;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::explain::{ExplainInput, Explanation, explain};
use bullpen_core::ids::JobId;
use bullpen_core::job::{JobFact, JobStateName, ReportedStatus};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::stage;

use super::town::{Town, about_in};

const LONG: Duration = Duration::from_secs(30 * 60);

async fn explained(town: &Town, job: &str) -> Explanation {
    let row = town.world.outside.ledger().row(&JobId::new(job)).await.expect("calm");
    let row = row.expect("it has a row");
    let told = explain(&ExplainInput {
        job: &town.row(job).await,
        next_look: row.next_look,
        forget_at: row.forget_at,
        record: None,
        report: None,
        unreadable: None,
        now: town.world.outside.clock().true_now(),
        limits: &town.world.limits,
    });
    let sum: u64 = told.parts.iter().map(|part| part.ms).sum();
    assert_eq!(Some(sum), told.waited_ms, "{}", told.text());
    told
}

fn codes(told: &Explanation) -> Vec<&'static str> {
    told.timeline.iter().map(|entry| entry.code).collect()
}

#[test]
fn a_cold_start_waits_for_its_machine() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        town.queue("7").await;
        let done = async || town.is_settled("7").await;
        assert!(town.live("serve", LONG, |_| true, done).await);
        let told = explained(&town, "7").await;
        let all = [
            "queued",
            "heard",
            "routed",
            "begun",
            "launched",
            "warm",
            "asked",
            "minted",
            "assigned",
            "listens",
            "began",
            "completed",
            "released",
        ];
        assert_eq!(codes(&told), all, "{}", told.text());
        assert_eq!(told.blocker, Some("warm-up"), "{}", told.text());
        let helped = told.helped.as_deref().unwrap_or_default();
        assert!(helped.starts_with("reuse for class large"), "{helped}");
        town.end().await;
    });
}

#[test]
fn a_warm_one_says_which_machine_it_took() {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        stage::idle(&town.world, Usage::OnDemand, 1).await;
        town.queue("7").await;
        let done = async || town.is_settled("7").await;
        assert!(town.live("serve", LONG, |_| true, done).await);
        let told = explained(&town, "7").await;
        let all = [
            "queued",
            "heard",
            "routed",
            "begun",
            "asked",
            "minted",
            "claimed",
            "assigned",
            "listens",
            "began",
            "completed",
            "released",
        ];
        assert_eq!(codes(&told), all, "{}", told.text());
        town.end().await;
    });
}

/// A cold start beside an idle machine says why that one was not taken.
#[test]
fn an_idle_machine_of_others_is_counted() {
    on_virtual_time(async {
        let town = Town::new(5).await.reusing();
        for (job, repository) in [("7", "acme/app"), ("8", "acme/other")] {
            let about = about_in(job, repository, &format!("runs-on={job}/runner=large"));
            let fact = town.submit(job, about);
            town.say(&fact).await;
            let done = async || town.is_settled(job).await;
            assert!(town.live(job, LONG, |_| true, done).await, "{:?}", town.row(job).await);
        }
        let told = explained(&town, "8").await;
        let line = told.timeline.iter().find(|entry| entry.code == "nothing-idle");
        let words = line.map(|entry| entry.what.as_str());
        let counted = "no machine was idle that it may have: 1 of another trust group";
        assert_eq!(words, Some(counted), "{}", told.text());
        town.end().await;
    });
}

/// A webhook that comes twice, while a machine is got for its job, wakes somebody for nothing. It
/// must not hold back the word that the job is over, and with it the machine.
#[test]
fn a_word_that_is_said_twice_holds_nothing_back() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let about = about_in("7", "acme/app", "runs-on=7/runner=large");
        let now = town.world.outside.clock().true_now();
        let fact = town.github.queue("7", about, Duration::from_secs(5), now);
        town.say(&fact).await;
        let said = Cell::new(false);
        let hear = |fact: &JobFact| !matches!(fact.said, ReportedStatus::Started { .. });
        let done = async || {
            let row = town.row("7").await;
            if row.state.name() == JobStateName::Assigning && !said.replace(true) {
                town.announce(&fact).await;
            }
            town.is_settled("7").await
        };
        assert!(town.live("serve", LONG, hear, done).await, "{:?}", town.row("7").await);
        assert!(said.get());
        let told = explained(&town, "7").await;
        let released = told.timeline.iter().find(|entry| entry.code == "released");
        let took = released.map(|entry| Duration::from_millis(entry.took_ms));
        assert!(took.is_some_and(|took| took < Duration::from_secs(8)), "{}", told.text());
        town.end().await;
    });
}

/// Minutes under a ceiling are one line and one part, however often it was tried.
#[test]
fn under_a_ceiling_the_ceiling_is_named() {
    on_virtual_time(async {
        let town = Town::new(1).await;
        stage::idle(&town.world, Usage::OnDemand, 1).await;
        town.queue("7").await;
        let tried = async || town.row("7").await.setbacks.iter().any(|setback| setback.times > 2);
        assert!(town.live("serve", LONG, |_| true, tried).await, "{:?}", town.row("7").await);
        let told = explained(&town, "7").await;
        assert!(told.waits && told.blocker == Some("ceiling"), "{}", told.text());
        assert!(told.next.at.is_some(), "{}", told.text());
        let done = async || town.is_settled("7").await;
        assert!(town.live("finish", LONG, |_| true, done).await);
        let told = explained(&town, "7").await;
        assert_eq!(told.blocker, Some("ceiling"), "{}", told.text());
        let ceilings = codes(&told).into_iter().filter(|code| *code == "ceiling").count();
        assert_eq!(ceilings, 1, "{}", told.text());
        town.end().await;
    });
}

#[test]
fn a_pool_that_does_not_exist_is_named() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let fact = town.submit("7", about_in("7", "acme/app", "runs-on=7/pool=nowhere"));
        town.say(&fact).await;
        let done = async || !town.github.told().is_empty() && town.row("7").await.is_over();
        assert!(town.live("serve", LONG, |_| true, done).await);
        let told = explained(&town, "7").await;
        assert!(codes(&told).contains(&"unknown-pool"), "{}", told.text());
        assert!(told.verdict.contains("there is no pool `nowhere`"), "{}", told.text());
        town.end().await;
    });
}
