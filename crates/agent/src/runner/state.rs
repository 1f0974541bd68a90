//! The state file: how the next agent finds a listener that outlived this one.
//!
//! Written before the listener is started, and again with its identity. It holds the assignment
//! without its credential.
//!
//! Not here: whether that process still lives (`tree`).

use std::fs;
use std::io;
use std::path::Path;

use bullpen_core::mailbox::Assignment;
use bullpen_core::request::stranger::RanJob;
use serde::{Deserialize, Serialize};

use super::tree::Identity;

/// What is known of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// In which boot it was started.
    pub boot: String,
    /// What it serves; never with a credential.
    pub assignment: Assignment,
    /// Which process it is; unknown if the agent died while starting it.
    pub process: Option<Identity>,
    /// Which run its last job is of, where the job's hook has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<RanJob>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1(Listener),
}

impl Listener {
    /// One that is about to be started.
    pub fn starting(boot: &str, assignment: &Assignment) -> Self {
        let assignment = Assignment { credential: None, ..assignment.clone() };
        Self { boot: boot.to_owned(), assignment, process: None, ran: None }
    }

    /// The stored one. A file that cannot be read is an error: a newer agent may have written it,
    /// and its listener must not be forgotten.
    pub fn load(path: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Stored::V1(listener) = serde_json::from_slice(&text).map_err(io::Error::other)?;
        Ok(Some(listener))
    }

    /// Replaces the stored one, as a whole or not at all.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(&Stored::V1(self.clone())).map_err(io::Error::other)?;
        let next = path.with_extension("next");
        fs::write(&next, text)?;
        fs::rename(next, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 1 as it was first written.
    const V1: &str = r#"{"v":"1","boot":"b","assignment":{"generation":4,"owner":{"request":"1.1.a"},"runner":"r","label":"warm-1.1.a","credential":null,"register_by":null,"hard_cap":"2026-01-05T00:00:00Z"},"process":{"pid":7,"started":9}}"#;

    #[test]
    fn version_one_keeps_parsing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("listener.json");
        fs::write(&path, V1).unwrap();
        let listener = Listener::load(&path).unwrap().unwrap();
        assert_eq!(listener.process, Some(Identity { pid: 7, started: 9 }));
        listener.save(&path).unwrap();
        assert_eq!(Listener::load(&path).unwrap(), Some(listener));
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("listener.json");
        assert_eq!(Listener::load(&path).unwrap(), None);
        fs::write(&path, r#"{"v":"2"}"#).unwrap();
        Listener::load(&path).unwrap_err();
    }
}
