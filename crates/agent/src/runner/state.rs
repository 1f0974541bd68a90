//! The state file, by which the next agent finds a listener that outlived this agent.
//!
//! The agent writes it before it starts the listener, and again with the process's identity. It
//! holds the assignment without its credential.
//!
//! Not here: whether that process still lives (`tree`).

use std::fs;
use std::io;
use std::path::Path;

use bullpen_core::mailbox::Assignment;
use bullpen_core::request::stranger::RanJob;
use serde::{Deserialize, Serialize};

use super::tree::Identity;

/// The stored facts about a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The boot in which the agent started it.
    pub boot: String,
    /// Its assignment, without the credential.
    pub assignment: Assignment,
    /// Its process; unknown if the agent died while starting it.
    pub process: Option<Identity>,
    /// The run of its last job, if the job's hook has reported it.
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
    /// A listener that the agent is about to start.
    pub fn starting(boot: &str, assignment: &Assignment) -> Self {
        let assignment = Assignment { credential: None, ..assignment.clone() };
        Self { boot: boot.to_owned(), assignment, process: None, ran: None }
    }

    /// Reads the file. An unreadable file is an error: a newer agent may have written it, and this
    /// agent must not ignore its listener.
    pub fn load(path: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Stored::V1(listener) = serde_json::from_slice(&text).map_err(io::Error::other)?;
        Ok(Some(listener))
    }

    /// Replaces the file atomically.
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
