//! Repositories that were heard of lately: GitHub is asked about their jobs even if no webhook comes.
//!
//! Each has a document of its own, so that replicas do not get in each other's way.
//!
//! Not here: storing them (`bullpen-engine`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{Repository, Revision};
use crate::ports::Document;
use crate::time::Timestamp;

/// What the documents are listed under.
pub const COLLECTION: &str = "active";
/// How often one repository is written down, whoever hears of it: far less often than webhooks come.
pub const NOTED_EVERY: Duration = Duration::from_secs(10 * 60);
/// How long a repository is asked about after it was last heard of.
pub const ACTIVE_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// The most repositories that are asked about: each costs calls at every asking.
pub const REPOSITORIES_MAX: usize = 100;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1 { at: Timestamp },
}

fn heard_at(document: &Document) -> Option<Timestamp> {
    // What another version wrote is as good as not heard.
    let Stored::V1 { at } = serde_json::from_str(&document.body).ok()?;
    Some(at)
}

/// The document that says that a repository was heard of; none if the stored one says so still.
pub fn note(
    stored: Option<&Document>,
    repository: &Repository,
    now: Timestamp,
) -> Option<Document> {
    let heard = stored.and_then(heard_at);
    if heard.is_some_and(|at| now.since(at) < NOTED_EVERY) {
        return None;
    }
    Some(Document {
        collection: COLLECTION.to_owned(),
        name: repository.to_string(),
        revision: Revision(0),
        body: serde_json::to_string(&Stored::V1 { at: now }).expect("it has string keys only"),
        forget_at: Some(now.after(ACTIVE_FOR)),
    })
}

/// Whom to ask about: those heard of last, as many as may be asked about.
pub fn latest(stored: &[Document], now: Timestamp) -> Vec<Repository> {
    let heard = |document: &Document| {
        let at = heard_at(document).filter(|at| now.since(*at) < ACTIVE_FOR)?;
        Some((at, Repository::new(document.name.as_str())))
    };
    let mut heard: Vec<_> = stored.iter().filter_map(heard).collect();
    heard.sort_by(|one, other| other.cmp(one));
    heard.truncate(REPOSITORIES_MAX);
    heard.into_iter().map(|(_, repository)| repository).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::at;

    #[test]
    fn a_repository_is_written_down_once_in_a_while() {
        let repository = Repository::new("acme/app");
        let first = note(None, &repository, at(0)).expect("it was not heard of");
        assert_eq!(note(Some(&first), &repository, at(599)), None);
        assert!(note(Some(&first), &repository, at(600)).is_some());
        let newer = Document { body: r#"{"v":"2"}"#.to_owned(), ..first };
        assert!(note(Some(&newer), &repository, at(1)).is_some());
    }

    #[test]
    fn those_heard_of_last_are_asked_about_and_not_too_many() {
        let noted = |number: u64| {
            let repository = Repository::new(format!("acme/{number}"));
            note(None, &repository, at(number)).expect("it was not heard of")
        };
        let all: Vec<Document> = (0..150).map(noted).collect();
        let asked = latest(&all, at(150));
        assert_eq!((asked.len(), asked[0].as_str()), (REPOSITORIES_MAX, "acme/149"));
        let later = at(49).after(ACTIVE_FOR);
        assert_eq!(latest(&all[..50], later), [], "all of them are silent");
        assert_eq!(latest(&all[..51], later).len(), 1);
    }
}
