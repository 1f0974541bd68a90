//! The message that wakes a worker. It says where to look, never what is there.
//!
//! Not here: queues (the `Queues` port).

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, QueueName};

/// After the stack's name: the queue of jobs that a pool serves.
pub const POOL_QUEUE: &str = "jobs";
/// After the stack's name: the queue of jobs that may be launched for.
pub const LAUNCH_QUEUE: &str = "launches.fifo";
/// After the stack's name: the queue of messages that nobody can do anything about.
pub const DEAD_LETTERS: &str = "dead-letters";
/// All of them. The queue of a class is called after the class, so no class is called like these.
pub const QUEUES: [&str; 3] = [POOL_QUEUE, LAUNCH_QUEUE, DEAD_LETTERS];

/// Somebody should look at a job's row, and at whoever waits beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// The job whose row changed.
    pub job: JobId,
    /// The lane it waits in, where it waits.
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

/// A message that nobody can do anything about, for people to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetter<'a> {
    /// Where it was.
    pub queue: &'a QueueName,
    /// Why nobody can.
    pub reason: &'a str,
    /// How often it was received.
    pub receives: u32,
    /// What it said.
    pub body: &'a str,
}

impl DeadLetter<'_> {
    /// The text that is kept.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a dead letter has string keys only, so it serialises")
    }
}

/// Why a message wakes nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableWake {
    /// Another version of the program wrote it, and will read it.
    #[error("its version is {0}")]
    AnotherVersion(String),
    /// Nobody will ever read it.
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
