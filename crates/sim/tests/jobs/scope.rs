//! Jobs outside the service's scope: announced, answered, found, or stored before the scope was this
//! narrow.
//!
//! Not here: what is inside it (`core::scope`).

use std::time::Duration;

use bullpen_core::ids::JobId;
use bullpen_core::job::active::COLLECTION;
use bullpen_core::job::{End, JobState};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_core::scope::{Installations, ServedRepositories, ServiceScope};
use bullpen_engine::jobs::{FindMemory, Ingested, deliver, find, ingest};
use bullpen_sim::clock::{on_virtual_time, pass};

use super::town::{Town, about, about_in};

fn scope() -> ServiceScope {
    let installations = Installations::Known([7].into());
    ServiceScope { served: ServedRepositories::Repository("octo/main".into()), installations }
}

async fn narrow() -> Town {
    Town { scope: scope(), ..Town::new(5).await }
}

async fn has_row(town: &Town, job: &str) -> bool {
    town.world.outside.ledger().row(&JobId::new(job)).await.expect("calm").is_some()
}

/// What is announced and answered, in one process that then looks for what nobody announced.
#[test]
fn a_foreign_job_leaves_no_trace() {
    on_virtual_time(async {
        let town = narrow().await;
        let foreign = town.submit("7", about("7"));
        let own = |job| town.submit(job, about_in(job, "Octo/Main", "runs-on/runner=large"));
        let (announced, stranger) = (own("8"), own("9"));
        let asked = async |service: &super::town::SimService<'_>| {
            assert_eq!(deliver(service, &foreign, Some(7)).await, Ok(Ingested::Foreign));
            assert_eq!(ingest(service, &foreign).await, Ok(Ingested::Foreign), "an answer");
            assert_eq!(deliver(service, &stranger, Some(8)).await, Ok(Ingested::Foreign));
            assert_eq!(deliver(service, &announced, Some(7)).await, Ok(Ingested::Stored));
            let always = ["acme/app".into()];
            find(service, &always, &mut FindMemory::default()).await.expect("calm").unannounced
        };
        let found = town.process("all", None, asked).await.expect("it has no fuse");
        assert_eq!(
            found, 1,
            "9 is found in the service's own repository; acme/app is not asked about"
        );
        assert!(!has_row(&town, "7").await);
        let ledger = town.world.outside.ledger();
        assert_eq!(ledger.document(COLLECTION, "acme/app").await, Ok(None), "not even its name");
    });
}

#[test]
fn a_webhook_waits_until_it_is_known_where_the_app_is_installed() {
    on_virtual_time(async {
        let asks = ServiceScope { installations: Installations::NotAsked, ..scope() };
        let town = Town { scope: asks, ..Town::new(5).await };
        let fact = town.submit("7", about_in("7", "octo/main", "runs-on/runner=large"));
        let hears = async |service: &super::town::SimService<'_>| {
            let told = deliver(service, &fact, Some(7)).await;
            assert!(told.is_err_and(|fault| fault.is_transient()), "GitHub sends it again");
            assert!(deliver(service, &fact, None).await.is_ok(), "a hook of the repository's own");
        };
        town.process("webhook", None, hears).await.expect("it has no fuse");
    });
}

/// One row waits, one has a machine that its job runs on, and one was given up and not told yet.
#[test]
fn rows_from_a_wider_scope_end_quietly() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        town.queue("7").await;
        let runs = async || town.row("7").await.known.started.is_some();
        assert!(town.live("wide", Duration::from_secs(600), |_| true, runs).await);
        town.queue("8").await;
        town.say(&town.submit("9", about_in("9", "acme/app", "runs-on/pool=nope"))).await;
        let town = Town { scope: scope(), ..town };
        let settled = async || {
            town.is_settled("7").await && town.is_settled("8").await && town.is_settled("9").await
        };
        assert!(town.live("narrow", Duration::from_secs(3600), |_| true, settled).await);
        let row = town.row("8").await;
        let JobState::Ended { end: End::Failed(reason), .. } = row.state else { panic!("{row:?}") };
        assert_eq!(reason.to_string(), "this service serves only octo/main");
        assert!(town.github.told().is_empty(), "nobody is told: {:?}", town.github.told());
        assert_eq!(town.launched(), 1, "nothing is launched for those that waited");
        for job in ["8", "9"] {
            town.github.cancel_queued(job, town.world.outside.clock().true_now());
        }
        pass(Duration::from_secs(60)).await;
        town.end().await;
    });
}
