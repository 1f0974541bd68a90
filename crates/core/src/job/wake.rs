//! The message that wakes a worker. It names a row to look at, and holds nothing of the row.
//!
//! Not here: queues (the `Queues` port).

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, QueueName};

/// Follows the stack's name: the queue of jobs that a pool serves.
pub const POOL_QUEUE: &str = "jobs";
/// Follows the stack's name: the queue of jobs for which a worker may launch a machine.
pub const LAUNCH_QUEUE: &str = "launches.fifo";
/// Follows the stack's name: the queue of messages that no worker can act on.
pub const DEAD_LETTERS: &str = "dead-letters";
/// All of them. A class's queue has the class's name there, so no class may have one of these
/// names.
pub const QUEUES: [&str; 3] = [POOL_QUEUE, LAUNCH_QUEUE, DEAD_LETTERS];

/// Asks a worker to look at a job's row, and at the other jobs of its lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// The job whose row changed.
    pub job: JobId,
    /// The lane it waits in, if it waits.
    pub lane: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "v")]
enum Message {
    #[serde(rename = "1")]
    V1(Wake),
}

impl Wake {
    /// The message's text.
    pub fn encode(&self) -> String {
        serde_json::to_string(&Message::V1(self.clone()))
            .expect("a wake-up has string keys only, so it serialises")
    }

    /// From the message's text.
    pub fn decode(text: &str) -> Result<Self, UnreadableWake> {
        #[derive(Deserialize)]
        struct Versioned {
            v: String,
        }
        match serde_json::from_str(text) {
            Ok(Message::V1(wake)) => Ok(wake),
            Err(error) => match serde_json::from_str::<Versioned>(text) {
                Ok(Versioned { v }) if v != "1" => Err(UnreadableWake::AnotherVersion(v)),
                _ => Err(UnreadableWake::Garbage(error.to_string())),
            },
        }
    }
}

/// A message that no worker can act on, stored for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetter<'a> {
    /// The queue that it was in.
    pub queue: &'a QueueName,
    /// Why no worker can act on it.
    pub reason: &'a str,
    /// How often it was received.
    pub receives: u32,
    /// Its text.
    pub body: &'a str,
}

impl DeadLetter<'_> {
    /// The text that is stored.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a dead letter has string keys only, so it serialises")
    }
}

/// Why a message wakes no worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableWake {
    /// Another version of the program wrote it, and can read it.
    #[error("its version is {0}")]
    AnotherVersion(String),
    /// No version can read it.
    #[error("it cannot be read: {0}")]
    Garbage(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_back_and_unknown_fields_are_ignored() {
        let wake = Wake { job: JobId::new("7"), lane: Some("pool/ci".to_owned()) };
        assert_eq!(wake.encode(), r#"{"v":"1","job":"7","lane":"pool/ci"}"#);
        let text = r#"{"v":"1","job":"7","lane":"pool/ci","later":true}"#;
        assert_eq!(Wake::decode(text).unwrap(), wake);
    }

    #[test]
    fn what_another_version_wrote_is_told_from_garbage() {
        let newer = r#"{"v":"2","who":"7"}"#;
        assert_eq!(Wake::decode(newer), Err(UnreadableWake::AnotherVersion("2".to_owned())));
        for garbage in ["", "{", "[]", r#"{"v":"1"}"#, r#"{"v":2}"#] {
            assert!(matches!(Wake::decode(garbage), Err(UnreadableWake::Garbage(_))), "{garbage}");
        }
    }
}
