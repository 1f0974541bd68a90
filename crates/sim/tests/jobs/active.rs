//! Repositories that were heard of: GitHub is asked about them after every restart.
//!
//! Not here: which of many are asked about (`core::job::active`).

use std::time::Duration;

use bullpen_core::ids::Revision;
use bullpen_core::job::active::{ACTIVE_FOR, COLLECTION};
use bullpen_core::ports::{Ledger, Ports};
use bullpen_engine::jobs::{FindMemory, FoundJobs, find, ingest};
use bullpen_sim::clock::{on_virtual_time, pass};

use super::town::{Town, about};

/// What a process finds that has never heard anything.
async fn found(town: &Town) -> FoundJobs {
    let asked = async |service: &super::town::SimService<'_>| {
        find(service, &[], &mut FindMemory::default()).await.expect("calm")
    };
    town.process("find", None, asked).await.expect("it has no fuse")
}

#[test]
fn a_process_that_has_heard_nothing_asks_about_whom_others_heard_of() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        town.submit("7", about("7"));
        assert_eq!(found(&town).await.unannounced, 0, "nobody ever heard of its repository");
        town.queue("8").await;
        assert_eq!(found(&town).await.unannounced, 1);
        assert!(!town.row("7").await.is_over());
        pass(ACTIVE_FOR).await;
        town.submit("9", about("9"));
        assert_eq!(found(&town).await.unannounced, 0, "it was silent for too long");
    });
}

#[test]
fn a_repository_is_written_down_once_for_many_webhooks() {
    on_virtual_time(async {
        let town = Town::new(5).await;
        let noted = async || {
            let ledger = town.world.outside.ledger();
            let document = ledger.document(COLLECTION, "acme/app").await.expect("calm");
            document.map(|document| document.revision)
        };
        let webhooks = async |service: &super::town::SimService<'_>| {
            for number in 0..20 {
                let job = format!("{}", 70 + number);
                let fact = town.submit(&job, about(&job));
                ingest(service, &fact).await.expect("calm");
            }
        };
        town.process("one", None, webhooks).await;
        town.queue("7").await;
        assert_eq!(noted().await, Some(Revision(1)), "another process wrote nothing either");
        pass(Duration::from_secs(11 * 60)).await;
        town.queue("8").await;
        assert_eq!(noted().await, Some(Revision(2)));
    });
}
