//! Recently active repositories: the sweep asks GitHub about their jobs even if no webhook comes.
//!
//! Each repository has its own document, so that replicas do not conflict.
//!
//! Not here: storing them (`bullpen-engine`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{Repository, Revision};
use crate::ports::Document;
use crate::time::Timestamp;

/// The collection of the documents.
pub const COLLECTION: &str = "active";
/// How often the replicas together write one repository's document: more seldom than webhooks come.
pub const NOTED_EVERY: Duration = Duration::from_secs(10 * 60);
/// How long the sweep asks about a repository after the last fact about its jobs.
pub const ACTIVE_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// The most repositories that the sweep asks about: each costs calls at every sweep.
pub const REPOSITORIES_MAX: usize = 100;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1 { at: Timestamp },
}

fn active_at(document: &Document) -> Option<Timestamp> {
    // A document of another version counts as absent.
    let Stored::V1 { at } = serde_json::from_str(&document.body).ok()?;
    Some(at)
}

/// The document that says that a repository is active; none if the stored one is recent enough.
pub fn note(
    stored: Option<&Document>,
    repository: &Repository,
    now: Timestamp,
) -> Option<Document> {
    let last = stored.and_then(active_at);
    if last.is_some_and(|at| now.since(at) < NOTED_EVERY) {
        return None;
    }
    Some(Document {
        collection: COLLECTION.to_owned(),
        name: repository.to_string(),
        revision: Revision(0),
        body: serde_json::to_string(&Stored::V1 { at: now })
            .expect("it has string keys only, so it serialises"),
        forget_at: Some(now.after(ACTIVE_FOR)),
    })
}

/// The repositories to ask about: the most recently active ones, up to [`REPOSITORIES_MAX`].
pub fn latest(stored: &[Document], now: Timestamp) -> Vec<Repository> {
    let active = |document: &Document| {
        let at = active_at(document).filter(|at| now.since(*at) < ACTIVE_FOR)?;
        Some((at, Repository::new(document.name.as_str())))
    };
    let mut active: Vec<_> = stored.iter().filter_map(active).collect();
    active.sort_by(|one, other| other.cmp(one));
    active.truncate(REPOSITORIES_MAX);
    active.into_iter().map(|(_, repository)| repository).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::at;

    #[test]
    fn a_repository_is_written_down_once_in_a_while() {
        let repository = Repository::new("acme/app");
        let first = note(None, &repository, at(0)).expect("no document is stored");
        assert_eq!(note(Some(&first), &repository, at(599)), None);
        assert!(note(Some(&first), &repository, at(600)).is_some());
        let newer = Document { body: r#"{"v":"2"}"#.to_owned(), ..first };
        assert!(note(Some(&newer), &repository, at(1)).is_some());
    }

    #[test]
    fn those_heard_of_last_are_asked_about_and_not_too_many() {
        let noted = |number: u64| {
            let repository = Repository::new(format!("acme/{number}"));
            note(None, &repository, at(number)).expect("no document is stored")
        };
        let all: Vec<Document> = (0..150).map(noted).collect();
        let asked = latest(&all, at(150));
        assert_eq!((asked.len(), asked[0].as_str()), (REPOSITORIES_MAX, "acme/149"));
        let later = at(49).after(ACTIVE_FOR);
        assert_eq!(latest(&all[..50], later), [], "none of them is active any more");
        assert_eq!(latest(&all[..51], later).len(), 1);
    }
}
