//! Items that this version cannot read: each is found, counted and left as it is.
//!
//! Not here: what goes on around them (the scenarios `pain30` to `pain33`).

use bullpen_core::ids::JobId;
use bullpen_core::pool::journal::COLLECTION;
use bullpen_core::ports::{ItemKind, Ports};
use bullpen_engine::unreadable::find;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::model::fleet::Oddity;
use bullpen_sim::model::mailbox::Forgery;
use bullpen_sim::pool_world::PoolWorld;

use super::{LONG, MINUTE, fill, two_and_one};

#[test]
fn each_unreadable_item_is_found_and_counted_and_stays() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        sim.queue("7", "pool=ci", LONG);
        let stored = async || !sim.world.outside.ledger().rows().is_empty();
        assert!(sim.until(LONG, stored, sim.serving("serve")).await);
        let records = sim.records("ci").await;
        let (ledger, mailbox) = (sim.world.outside.ledger(), sim.world.outside.mailbox());
        let stack = sim.world.onlooker();
        assert_eq!(find(&stack).await, Ok(Vec::new()));

        let (record, reporter) = (&records[0], &records[1]);
        ledger.write_as(ItemKind::Record, record.id.as_str(), true);
        assert!(ledger.reword(COLLECTION, "ci", true) && ledger.reword_row(&JobId::new("7"), true));
        let garbage = vec![("UD_OK".to_owned(), "{".to_owned())];
        let forged = Forgery { signals: garbage, ..Forgery::default() };
        mailbox.forge_report(&reporter.facts.mailbox, Some(forged));
        let seen = (ledger.rows(), ledger.document_now(COLLECTION, "ci"));

        let found = find(&stack).await.expect("calm");
        let named: Vec<(ItemKind, String, Option<&str>)> = found
            .iter()
            .map(|item| (item.kind, item.key.clone(), item.version.as_deref()))
            .collect();
        assert_eq!(
            named,
            [
                (ItemKind::Record, record.id.to_string(), Some("9")),
                (ItemKind::Report, reporter.facts.mailbox.to_string(), None),
                (ItemKind::Journal, "ci".to_owned(), Some("9")),
                (ItemKind::Row, "7".to_owned(), Some("9")),
            ]
        );
        assert!(found.iter().all(|item| item.is_newer() == item.version.is_some()), "{found:?}");

        let keeper = sim.keeper("other");
        sim.until(5 * MINUTE, async || false, sim.keeping(&keeper)).await;
        let reads = keeper.stack.unreadable_items.reads();
        assert!(reads.get(&ItemKind::Journal).is_some_and(|reads| *reads > 1), "{reads:?}");
        assert_eq!((ledger.rows(), ledger.document_now(COLLECTION, "ci")), seen);
    });
}

#[test]
fn a_machine_whose_tags_are_gone_is_named() {
    on_virtual_time(async {
        let sim = PoolWorld::new(10, &two_and_one()).await;
        fill(&sim, 2, 1).await;
        let id = sim.records("ci").await.swap_remove(0).id;
        sim.world.outside.fleet().make_odd(&id, Oddity::Untagged, true);
        let found = find(&sim.world.onlooker()).await.expect("calm");
        let named: Vec<_> = found.iter().map(|item| (item.kind, item.key.as_str())).collect();
        assert_eq!(named, [(ItemKind::Machine, id.as_str())]);
        assert!(found[0].why.contains("tag"), "{}", found[0].why);
    });
}
