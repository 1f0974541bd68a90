//! The message that wakes a worker. It says where to look, never what is there.
//!
//! Not here: queues (the `Queues` port).

use serde::{Deserialize, Serialize};

use crate::ids::JobId;

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
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        let Message::V1(wake) = serde_json::from_str(text)?;
        Ok(wake)
    }
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
        assert!(Wake::decode(&text.replace("\"1\"", "\"2\"")).is_err());
    }
}
