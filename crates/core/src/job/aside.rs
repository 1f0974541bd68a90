//! The note that a process has set a job's row aside, because a defect made it panic again and again.
//! The note is for people; no process decides by it.
//!
//! Not here: setting rows aside (`bullpen-engine`).

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The collection of the notes, each under its job's id.
pub const COLLECTION: &str = "set-aside";

/// Why a process serves a row no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// The last panic's message.
    pub what: String,
    /// How many panics there were.
    pub times: u32,
    /// When the process gave up.
    pub at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1(SetAside),
}

impl SetAside {
    /// The stored form.
    pub fn encode(&self) -> String {
        serde_json::to_string(&Stored::V1(self.clone()))
            .expect("it has string keys only, so it serialises")
    }

    /// Reads the stored form.
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        let Stored::V1(note) = serde_json::from_str(text)?;
        Ok(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_one_keeps_parsing() {
        let text = r#"{"v":"1","what":"a defect: odd","times":5,"at":"1970-01-01T00:00:01Z"}"#;
        let note = SetAside::decode(text).unwrap();
        let at = Timestamp::from_millis(1_000);
        assert_eq!(note, SetAside { what: "a defect: odd".to_owned(), times: 5, at });
        assert_eq!(SetAside::decode(&note.encode()).unwrap(), note);
    }
}
