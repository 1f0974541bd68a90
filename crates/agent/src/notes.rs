//! The agent's notes, which outlive it: its last heartbeat number and the finished warm-up steps.
//!
//! Not here: the running listener (`runner::state`).

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::host::Notebook;

/// The heartbeat numbers that one write reserves. A restarted agent begins after the last reserved
/// number, so its heartbeats follow the earlier agent's without a disk write per heartbeat.
pub const BEATS_RESERVED: u64 = 1_000;

/// The notes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// The boot that `beats` and `warm` refer to.
    pub boot: String,
    /// The highest heartbeat number that an agent of this boot may have sent.
    pub beats: u64,
    /// The finished once-per-machine steps.
    pub installed: Vec<String>,
    /// Whether this boot's warm-up is complete.
    pub warm: bool,
    /// By how many milliseconds the machine's clock is ahead, at most, as learnt in this boot.
    #[serde(default)]
    pub clock_ahead: Option<i64>,
}

impl Notes {
    /// The notes for this boot, without the facts about an earlier boot.
    #[must_use]
    pub fn for_boot(self, boot: &str) -> Self {
        if self.boot == boot {
            return self;
        }
        Self { boot: boot.to_owned(), installed: self.installed, ..Self::default() }
    }
}

/// The stored form with a version: the file outlives the agent's binary.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1(Notes),
}

/// Notes in a file.
#[derive(Clone, Debug)]
pub struct FileNotebook {
    path: PathBuf,
}

impl FileNotebook {
    /// Notes in this file; the file's directory must exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

impl Notebook for FileNotebook {
    fn load(&self) -> Option<Notes> {
        let Stored::V1(notes) = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        Some(notes)
    }

    fn save(&self, notes: &Notes) -> io::Result<()> {
        let text = serde_json::to_vec(&Stored::V1(notes.clone())).map_err(io::Error::other)?;
        let next = self.path.with_extension("next");
        fs::write(&next, text)?;
        fs::rename(next, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_boot_forgets_all_but_what_is_installed() {
        let installed = vec![String::from("preinstall")];
        let notes = Notes {
            boot: "a".into(),
            beats: 9,
            installed: installed.clone(),
            warm: true,
            clock_ahead: Some(1),
        };
        assert_eq!(notes.clone().for_boot("a"), notes);
        let next = Notes { boot: "b".into(), installed, ..Notes::default() };
        assert_eq!(notes.for_boot("b"), next);
    }

    #[test]
    fn version_one_keeps_parsing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.json");
        let text = r#"{"v":"1","boot":"a","beats":7,"installed":["x"],"warm":true}"#;
        fs::write(&path, text).unwrap();
        let book = FileNotebook::new(path);
        let notes = book.load().unwrap();
        assert_eq!((notes.beats, notes.warm), (7, true));
        book.save(&notes).unwrap();
        assert_eq!(book.load(), Some(notes));
    }
}
