//! Jobs outside the service's scope: from webhooks, from GitHub's answers and searches, and in rows
//! from a wider scope.
//!
//! Not here: the rules of the scope (`core::scope`).

use std::time::Duration;

use bullpen_core::ids::JobId;
use bullpen_core::job::active::COLLECTION;
use bullpen_core::job::search::WEBHOOKS_WITHIN;
use bullpen_core::job::{End, JobState};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::scope::{Installations, ServedRepositories, ServiceScope};
use bullpen_engine::jobs::{FindMemory, Ingested, deliver, find, ingest};
use bullpen_sim::clock::{on_virtual_time, pass};

use super::service_world::{ServiceWorld, about, about_in};

fn scope() -> ServiceScope {
    let installations = Installations::Known([7].into());
    ServiceScope { served: ServedRepositories::Repository("octo/main".into()), installations }
}

async fn narrow() -> ServiceWorld {
    ServiceWorld { scope: scope(), ..ServiceWorld::new(5).await }
}

async fn has_row(sim: &ServiceWorld, job: &str) -> bool {
    sim.world.outside.ledger().row(&JobId::new(job)).await.expect("calm").is_some()
}

/// One process gets webhooks and answers about jobs, and then searches for unannounced jobs.
#[test]
fn a_foreign_job_leaves_no_trace() {
    on_virtual_time(async {
        let sim = narrow().await;
        let foreign = sim.submit("7", about("7"));
        let own = |job| sim.submit(job, about_in(job, "Octo/Main", "runs-on/runner=large"));
        let (announced, stranger) = (own("8"), own("9"));
        let asked = async |service: &super::service_world::SimService<'_>| {
            assert_eq!(deliver(service, &foreign, Some(7)).await, Ok(Ingested::Foreign));
            assert_eq!(ingest(service, &foreign).await, Ok(Ingested::Foreign), "an answer");
            assert_eq!(deliver(service, &stranger, Some(8)).await, Ok(Ingested::Foreign));
            assert_eq!(deliver(service, &announced, Some(7)).await, Ok(Ingested::Stored));
            let always = ["acme/app".into()];
            pass(WEBHOOKS_WITHIN).await;
            find(service, &always, &mut FindMemory::default()).await.unannounced
        };
        let found = sim.process("all", None, asked).await.expect("it has no fuse");
        assert_eq!(
            found, 1,
            "the search must find 9 in the service's own repository, and not ask about acme/app"
        );
        assert!(!has_row(&sim, "7").await);
        let ledger = sim.world.outside.ledger();
        let stored = ledger.document(COLLECTION, "acme/app").await;
        assert_eq!(stored, Ok(None), "the service stored the repository's name");
    });
}

#[test]
fn a_webhook_waits_until_it_is_known_where_the_app_is_installed() {
    on_virtual_time(async {
        let asks = ServiceScope { installations: Installations::NotAsked, ..scope() };
        let sim = ServiceWorld { scope: asks, ..ServiceWorld::new(5).await };
        let fact = sim.submit("7", about_in("7", "octo/main", "runs-on/runner=large"));
        let webhooks = async |service: &super::service_world::SimService<'_>| {
            let answer = deliver(service, &fact, Some(7)).await;
            assert!(answer.is_err_and(|fault| fault.is_transient()), "GitHub must send it again");
            // A repository's own hook names no installation.
            assert!(deliver(service, &fact, None).await.is_ok());
        };
        sim.process("webhook", None, webhooks).await.expect("it has no fuse");
    });
}

/// One row waits, one has a machine that runs its job, and one was given up without a notice yet.
#[test]
fn rows_from_a_wider_scope_end_quietly() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.queue("7").await;
        let runs = async || sim.row("7").await.known.started.is_some();
        assert!(sim.serve_until("wide", Duration::from_secs(600), |_| true, runs).await);
        sim.queue("8").await;
        sim.deliver(&sim.submit("9", about_in("9", "acme/app", "runs-on/pool=nope"))).await;
        let sim = ServiceWorld { scope: scope(), ..sim };
        let settled = async || {
            sim.is_settled("7").await && sim.is_settled("8").await && sim.is_settled("9").await
        };
        assert!(sim.serve_until("narrow", Duration::from_secs(3600), |_| true, settled).await);
        let row = sim.row("8").await;
        let JobState::Ended { end: End::Failed(reason), .. } = row.state else { panic!("{row:?}") };
        assert_eq!(reason.to_string(), "this service serves only octo/main");
        assert!(sim.github.notices().is_empty(), "an author was told: {:?}", sim.github.notices());
        assert_eq!(sim.launched(), 1, "the service launched for a waiting job");
        for job in ["8", "9"] {
            sim.github.cancel_queued(job, sim.world.outside.clock().true_now());
        }
        pass(Duration::from_secs(60)).await;
        sim.end().await;
    });
}
