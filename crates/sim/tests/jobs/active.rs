//! Active repositories: the service asks GitHub about their jobs after every restart.
//!
//! Not here: the choice among many repositories (`core::job::active`).

use std::time::Duration;

use bullpen_core::ids::Revision;
use bullpen_core::job::active::{ACTIVE_FOR, COLLECTION};
use bullpen_core::job::search::WEBHOOKS_WITHIN;
use bullpen_core::ports::{Ledger, Ports};
use bullpen_engine::jobs::{FindMemory, FoundJobs, find, ingest};
use bullpen_sim::clock::{on_virtual_time, pass};

use super::service_world::{ServiceWorld, about};

/// The jobs that a process finds which never got a webhook.
async fn found(sim: &ServiceWorld) -> FoundJobs {
    let asked = async |service: &super::service_world::SimService<'_>| {
        find(service, &[], &mut FindMemory::default()).await
    };
    pass(WEBHOOKS_WITHIN).await;
    sim.process("find", None, asked).await.expect("it has no fuse")
}

#[test]
fn a_new_process_asks_about_repositories_that_other_processes_heard_of() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.submit("7", about("7"));
        assert_eq!(found(&sim).await.unannounced, 0, "no webhook named its repository yet");
        sim.queue("8").await;
        assert_eq!(found(&sim).await.unannounced, 1);
        assert!(!sim.row("7").await.is_over());
        pass(ACTIVE_FOR).await;
        sim.submit("9", about("9"));
        assert_eq!(found(&sim).await.unannounced, 0, "the repository was silent for too long");
    });
}

#[test]
fn a_repository_is_written_down_once_for_many_webhooks() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let noted = async || {
            let ledger = sim.world.outside.ledger();
            let document = ledger.document(COLLECTION, "acme/app").await.expect("calm");
            document.map(|document| document.revision)
        };
        let webhooks = async |service: &super::service_world::SimService<'_>| {
            for number in 0..20 {
                let job = format!("{}", 70 + number);
                let fact = sim.submit(&job, about(&job));
                ingest(service, &fact).await.expect("calm");
            }
        };
        sim.process("one", None, webhooks).await;
        sim.queue("7").await;
        assert_eq!(noted().await, Some(Revision(1)), "another process wrote again");
        pass(Duration::from_secs(11 * 60)).await;
        sim.queue("8").await;
        assert_eq!(noted().await, Some(Revision(2)));
    });
}
