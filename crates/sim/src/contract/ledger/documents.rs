//! Documents: conditional writes, and the listing of a collection.
//!
//! Not here: the content of a document.

use bullpen_core::ids::Revision;
use bullpen_core::ports::{Document, Ledger};
use futures_util::future::join_all;

use super::fixtures::winners;
use crate::contract::{Harness, all_of, answered, landed, lost, won};

fn document(collection: &str, name: &str, body: &str) -> Document {
    Document {
        collection: collection.into(),
        name: name.into(),
        revision: Revision(0),
        body: body.into(),
        forget_at: None,
    }
}

/// A write replaces the revision that the caller read, or changes nothing.
pub async fn a_document_is_written_only_over_the_revision_read<H: Harness<Port: Ledger>>(
    harness: H,
) {
    let ledger = harness.port();
    let mine = document("run/7.1", "build", "first");
    assert_eq!(answered(ledger.document("run/7.1", "build").await), None);
    lost(ledger.write_document(Some(Revision(1)), &mine).await);
    let first = won(ledger.write_document(None, &mine).await);
    assert_eq!(Document { revision: first.revision, ..mine.clone() }, first);
    lost(ledger.write_document(None, &mine).await);
    let changed = Document { body: "quote \" zero \u{1} snow ☃\n".into(), ..first.clone() };
    let answer_lost = harness.lose_next_answer();
    landed(ledger.write_document(Some(first.revision), &changed).await, answer_lost);
    let second = answered(ledger.document("run/7.1", "build").await).expect("it is there");
    assert!(second.revision > first.revision);
    assert_eq!(second.body, changed.body);
    lost(harness.another_process().write_document(Some(first.revision), &first).await);
}

/// Of many processes that write the first document of a name at once, one wins.
pub async fn of_many_first_documents_one_is_stored<H: Harness<Port: Ledger>>(harness: H) {
    let handles: Vec<_> = (0..16).map(|_| harness.another_process()).collect();
    for round in 0..10 {
        let name = format!("round-{round}");
        let documents: Vec<_> = (0..handles.len())
            .map(|writer| document("run/7.1", &name, &format!("writer {writer}")))
            .collect();
        let writes =
            handles.iter().zip(&documents).map(|(ledger, next)| ledger.write_document(None, next));
        let winners = winners(join_all(writes).await);
        assert_eq!(winners.len(), 1, "round {round}");
        let stored = answered(harness.port().document("run/7.1", &name).await);
        assert_eq!(stored.as_ref(), Some(&winners[0].1));
    }
}

/// A collection lists its own documents, all of them, by name.
pub async fn a_collection_lists_its_own_documents<H: Harness<Port: Ledger>>(harness: H) {
    let ledger = harness.port();
    for (collection, name) in [("a", "2"), ("a", "10"), ("ab", "1"), ("a", "1"), ("A", "1")] {
        won(ledger.write_document(None, &document(collection, name, name)).await);
    }
    for number in 0..300 {
        won(ledger.write_document(None, &document("many", &format!("{number:03}"), "")).await);
    }
    let names = async |collection: &str| -> Vec<String> {
        let found = all_of(harness.another_process().documents(collection).await);
        found.into_iter().map(|document| document.name).collect()
    };
    assert_eq!(names("a").await, ["1", "10", "2"]);
    assert_eq!(names("ab").await, ["1"]);
    assert_eq!(names("b").await, Vec::<String>::new());
    let many: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
    assert_eq!(names("many").await, many);
}
