//! `explain` reports what the engine did for a job, and for how long the job waited.
//!
//! Not here: the texts of `explain` (`core::explain`).

use std::cell::Cell;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::explain::{ExplainInput, Explanation, explain};
use bullpen_core::ids::JobId;
use bullpen_core::job::aside::SetAside;
use bullpen_core::job::{JobFact, JobStateName, ReportedStatus};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_sim::calm_world;
use bullpen_sim::clock::on_virtual_time;

use super::service_world::{ServiceWorld, about_in, two_jobs};

const LONG: Duration = Duration::from_secs(30 * 60);

/// The explanation of a job, and of the note that its row is set aside.
pub(super) async fn explained(
    sim: &ServiceWorld,
    job: &str,
    set_aside: Option<&SetAside>,
) -> Explanation {
    let row = sim.world.outside.ledger().row(&JobId::new(job)).await.expect("calm");
    let row = row.expect("it has a row");
    let explanation = explain(&ExplainInput {
        job: &sim.row(job).await,
        next_look: row.next_look,
        forget_at: row.forget_at,
        record: None,
        report: None,
        unreadable: None,
        set_aside,
        now: sim.world.outside.clock().true_now(),
        limits: &sim.world.limits,
    });
    let sum: u64 = explanation.parts.iter().map(|part| part.ms).sum();
    assert_eq!(Some(sum), explanation.waited_ms, "{}", explanation.text());
    explanation
}

fn codes(explanation: &Explanation) -> Vec<&'static str> {
    explanation.timeline.iter().map(|entry| entry.code).collect()
}

#[test]
fn a_cold_start_waits_for_its_machine() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.queue("7").await;
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("serve", LONG, |_| true, done).await);
        let explanation = explained(&sim, "7", None).await;
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
        assert_eq!(codes(&explanation), all, "{}", explanation.text());
        assert_eq!(explanation.blocker, Some("warm-up"), "{}", explanation.text());
        let helped = explanation.helped.as_deref().unwrap_or_default();
        assert!(helped.starts_with("reuse for class large"), "{helped}");
        sim.end().await;
    });
}

#[test]
fn a_warm_start_names_the_machine() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await.reusing();
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        sim.queue("7").await;
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("serve", LONG, |_| true, done).await);
        let explanation = explained(&sim, "7", None).await;
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
        assert_eq!(codes(&explanation), all, "{}", explanation.text());
        sim.end().await;
    });
}

/// A cold start beside an idle machine says why the job did not get the idle machine.
#[test]
fn an_idle_machine_of_others_is_counted() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await.reusing();
        for (job, repository) in [("7", "acme/app"), ("8", "acme/other")] {
            let about = about_in(job, repository, &format!("runs-on={job}/runner=large"));
            let fact = sim.submit(job, about);
            sim.deliver(&fact).await;
            let done = async || sim.is_settled(job).await;
            assert!(sim.serve_until(job, LONG, |_| true, done).await, "{:?}", sim.row(job).await);
        }
        let explanation = explained(&sim, "8", None).await;
        let line = explanation.timeline.iter().find(|entry| entry.code == "nothing-idle");
        let words = line.map(|entry| entry.what.as_str());
        let counted = "no machine was idle that it may have: 1 of another trust group";
        assert_eq!(words, Some(counted), "{}", explanation.text());
        sim.end().await;
    });
}

/// A webhook that comes twice, while a worker gets a machine for the job, wakes another worker for
/// nothing. That must delay neither the fact that the job is over nor the machine's release.
#[test]
fn a_webhook_that_comes_twice_delays_no_release() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let about = about_in("7", "acme/app", "runs-on=7/runner=large");
        let now = sim.world.outside.clock().true_now();
        let fact = sim.github.queue("7", about, Duration::from_secs(5), now);
        sim.deliver(&fact).await;
        let repeated = Cell::new(false);
        let takes = |fact: &JobFact| !matches!(fact.said, ReportedStatus::Started { .. });
        let done = async || {
            let row = sim.row("7").await;
            if row.state.name() == JobStateName::Assigning && !repeated.replace(true) {
                sim.deliver_until_taken(&fact).await;
            }
            sim.is_settled("7").await
        };
        assert!(sim.serve_until("serve", LONG, takes, done).await, "{:?}", sim.row("7").await);
        assert!(repeated.get());
        let explanation = explained(&sim, "7", None).await;
        let released = explanation.timeline.iter().find(|entry| entry.code == "released");
        let took = released.map(|entry| Duration::from_millis(entry.took_ms));
        assert!(took.is_some_and(|took| took < Duration::from_secs(8)), "{}", explanation.text());
        sim.end().await;
    });
}

/// Minutes under a ceiling are one line and one part, after any number of attempts.
#[test]
fn under_a_ceiling_the_ceiling_is_named() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(1).await;
        calm_world::add_idle(&sim.world, Usage::OnDemand, 1).await;
        sim.queue("7").await;
        let tried = async || sim.row("7").await.setbacks.iter().any(|setback| setback.times > 2);
        assert!(sim.serve_until("serve", LONG, |_| true, tried).await, "{:?}", sim.row("7").await);
        let explanation = explained(&sim, "7", None).await;
        assert!(
            explanation.waits && explanation.blocker == Some("ceiling"),
            "{}",
            explanation.text()
        );
        assert!(explanation.next.at.is_some(), "{}", explanation.text());
        let done = async || sim.is_settled("7").await;
        assert!(sim.serve_until("finish", LONG, |_| true, done).await);
        let explanation = explained(&sim, "7", None).await;
        assert_eq!(explanation.blocker, Some("ceiling"), "{}", explanation.text());
        let ceilings = codes(&explanation).into_iter().filter(|code| *code == "ceiling").count();
        assert_eq!(ceilings, 1, "{}", explanation.text());
        sim.end().await;
    });
}

#[test]
fn a_pool_that_does_not_exist_is_named() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let fact = sim.submit("7", about_in("7", "acme/app", "runs-on=7/pool=nowhere"));
        sim.deliver(&fact).await;
        let done = async || !sim.github.notices().is_empty() && sim.row("7").await.is_over();
        assert!(sim.serve_until("serve", LONG, |_| true, done).await);
        let explanation = explained(&sim, "7", None).await;
        assert!(codes(&explanation).contains(&"unknown-pool"), "{}", explanation.text());
        assert!(
            explanation.verdict.contains("there is no pool `nowhere`"),
            "{}",
            explanation.text()
        );
        sim.end().await;
    });
}

/// Two jobs have one label, and GitHub gives each the other's runner.
#[test]
fn a_job_on_another_jobs_machine_names_that_machine() {
    let taken = (0..8).filter(|seed| of_one_label(*seed)).count();
    assert!(taken > 1, "only {taken} seeds took each other's runners");
}

/// Returns whether the first job took the second job's runner.
fn of_one_label(seed: u64) -> bool {
    on_virtual_time(async {
        let sim = two_jobs(seed, ["acme/app"; 2]).await;
        let done = async || sim.both_settled().await;
        assert!(sim.serve_until("serve", LONG, |_| true, done).await, "seed {seed}");
        let [one, other] = [explained(&sim, "7", None).await, explained(&sim, "8", None).await];
        sim.end().await;
        let line = |of: &Explanation, code: &str| {
            let line = of.timeline.iter().find(|entry| entry.code == code);
            line.map(|entry| entry.what.clone())
        };
        let ran = line(&one, "began").expect("it ran");
        let exchanged = line(&one, "exchanged");
        if ran != "runner sim-8-0 began it" {
            assert_eq!(exchanged, None, "seed {seed}");
            return false;
        }
        let claimed = line(&other, "claimed").expect("it took an idle machine");
        let machine = claimed.rsplit(' ').next().expect("it names the machine");
        let expected =
            format!("GitHub gave it to the runner of another job: it runs on machine {machine}");
        assert_eq!(exchanged, Some(expected), "seed {seed}: {}", one.text());
        true
    })
}
