//! What `refresh` keeps about the place where a stack's machines are launched.
//!
//! A *site* is what a fleet must know and have in its cloud before it can launch. The *site
//! document* is what it knows: one fact for the engine, the birth of the stack, and the fleet's own
//! facts, which only the fleet reads. So a fleet stores other facts without a change here.
//!
//! Not here: asking for the facts (the `Site` port), or storing the document (`bullpen-engine`).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::parameters::Kept;
use crate::ports::Fault;

/// The key of the birth, beside the fleet's own keys.
const BORN: &str = "born";

/// What `refresh` keeps of a site, so that no launch has to ask for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct SiteDocument {
    /// Tells this stack from an earlier stack of the same name, so that the cloud does not take its
    /// launches for repeats.
    pub born: String,
    facts: Map<String, Value>,
}

impl SiteDocument {
    /// The document of a stack that was born then. The facts are a fleet's own; a fact named `born`
    /// has no effect.
    ///
    /// # Panics
    ///
    /// If the facts do not serialise as an object.
    pub fn new<T: Serialize>(born: &str, facts: &T) -> Self {
        let Ok(Value::Object(mut facts)) = serde_json::to_value(facts) else {
            panic!("a fleet's facts are a struct of plain values");
        };
        facts.remove(BORN);
        Self { born: born.to_owned(), facts }
    }

    /// The fleet's facts. A document that this fleet did not write is unreadable.
    pub fn facts<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_value(Value::Object(self.facts.clone()))
            .map_err(|error| Fault::Unreadable(format!("the stack's {}: {error}", Self::NAME)))
    }

    /// The document to store: `born` stays as the first refresh wrote it.
    #[must_use]
    pub fn over(self, before: Option<&Self>) -> Self {
        match before {
            Some(before) => Self { born: before.born.clone(), ..self },
            None => self,
        }
    }
}

impl Kept for SiteDocument {
    const NAME: &'static str = "ground";
}

impl TryFrom<Map<String, Value>> for SiteDocument {
    type Error = &'static str;

    fn try_from(mut facts: Map<String, Value>) -> Result<Self, Self::Error> {
        match facts.remove(BORN) {
            Some(Value::String(born)) => Ok(Self { born, facts }),
            _ => Err("no text `born`"),
        }
    }
}

impl From<SiteDocument> for Map<String, Value> {
    fn from(SiteDocument { born, mut facts }: SiteDocument) -> Self {
        facts.insert(BORN.to_owned(), Value::String(born));
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::{decode, encode};

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Facts {
        dock: String,
        berths: u32,
    }

    fn document(born: &str, dock: &str) -> SiteDocument {
        SiteDocument::new(born, &Facts { dock: dock.to_owned(), berths: 3 })
    }

    #[test]
    fn the_facts_stand_beside_the_birth_and_come_back() {
        let stored = encode(document("t0", "north"));
        assert_eq!(stored, r#"{"v":"1","berths":3,"born":"t0","dock":"north"}"#);
        let read: SiteDocument = decode(&stored).unwrap();
        assert_eq!(read, document("t0", "north"));
        assert_eq!(read.facts(), Ok(Facts { dock: "north".to_owned(), berths: 3 }));
    }

    #[test]
    fn the_first_refresh_decides_when_the_stack_was_made() {
        assert_eq!(document("t0", "a").over(None), document("t0", "a"));
        assert_eq!(document("t1", "b").over(Some(&document("t0", "a"))), document("t0", "b"));
    }

    #[test]
    fn another_fleets_facts_are_unreadable_and_a_document_without_a_birth_too() {
        #[derive(Debug, Deserialize)]
        struct Other {
            #[expect(dead_code, reason = "it is never there")]
            quay: String,
        }
        let read = document("t0", "a").facts::<Other>();
        assert!(matches!(read, Err(Fault::Unreadable(why)) if why.contains("quay")));
        assert!(decode::<SiteDocument>(r#"{"v":"1","dock":"a"}"#).is_err());
    }
}
