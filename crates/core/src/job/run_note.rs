//! Notes about runs: which replica asks GitHub where a run's code comes from, and the answer, so that
//! all replicas together ask once.
//!
//! Not here: storing them, or asking (`bullpen-engine`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Provenance;
use crate::ids::{Repository, Revision, RunAttempt};
use crate::ports::Document;
use crate::time::Timestamp;

/// The collection of the documents.
pub const COLLECTION: &str = "runs";
/// How long the replica that asks may take; after that another one asks.
pub const ASKED_WITHIN: Duration = Duration::from_secs(5);
/// How long an answer is kept: longer than the jobs of most runs come.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1 {
        /// When a replica asked, or had the answer.
        at: Timestamp,
        /// The answer, once there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<Provenance>,
    },
}

/// What a replica does about a run that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunTurn {
    /// Another replica has the answer.
    Known(Provenance),
    /// Another replica asks at this moment.
    Wait,
    /// It asks.
    Ask,
}

/// The name of a run's document.
pub fn name(repository: &Repository, run: &RunAttempt) -> String {
    format!("{repository}@{run}")
}

/// Decides by a run's document. A document of another version counts as absent.
pub fn turn(stored: Option<&Document>, now: Timestamp) -> RunTurn {
    match stored.and_then(|stored| serde_json::from_str(&stored.body).ok()) {
        Some(Stored::V1 { known: Some(known), .. }) => RunTurn::Known(known),
        Some(Stored::V1 { at, known: None }) if now.distance(at) < ASKED_WITHIN => RunTurn::Wait,
        Some(Stored::V1 { known: None, .. }) | None => RunTurn::Ask,
    }
}

/// The document of a run about which this replica asks now, or has the answer.
pub fn document(name: &str, known: Option<Provenance>, now: Timestamp) -> Document {
    Document {
        collection: COLLECTION.to_owned(),
        name: name.to_owned(),
        revision: Revision(0),
        body: serde_json::to_string(&Stored::V1 { at: now, known })
            .expect("it has string keys only, so it serialises"),
        forget_at: Some(now.after(KEPT_FOR)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Origin, Visibility};
    use crate::samples::at;

    #[test]
    fn one_replica_asks_and_the_others_wait_for_its_answer() {
        let name = name(&Repository::new("acme/app"), &RunAttempt::new("7.1"));
        assert_eq!(name, "acme/app@7.1");
        assert_eq!(turn(None, at(0)), RunTurn::Ask);
        let asked = document(&name, None, at(0));
        assert_eq!(turn(Some(&asked), at(4)), RunTurn::Wait);
        assert_eq!(turn(Some(&asked), at(5)), RunTurn::Ask, "that replica may have died");
        let known = Provenance { origin: Some(Origin::Own), visibility: Some(Visibility::Private) };
        let answered = document(&name, Some(known), at(1));
        assert_eq!(turn(Some(&answered), at(9_000)), RunTurn::Known(known));
        let newer = Document { body: r#"{"v":"2"}"#.to_owned(), ..asked };
        assert_eq!(turn(Some(&newer), at(1)), RunTurn::Ask);
    }

    #[test]
    fn a_stored_note_keeps_its_shape() {
        let body = r#"{"v":"1","at":"1970-01-01T00:00:01.000Z","known":{"origin":"own","visibility":"private"}}"#;
        let stored = Document { body: body.to_owned(), ..document("acme/app@7.1", None, at(1)) };
        assert!(matches!(turn(Some(&stored), at(1)), RunTurn::Known(_)));
    }
}
