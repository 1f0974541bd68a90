//! The facts of an EC2 launch site: the machines' role, and the zone of each subnet.
//!
//! Not here: asking AWS for them (`prepare`), or storing them (`refresh`).

use std::collections::BTreeMap;

use bullpen_core::ids::Zone;
use bullpen_core::ports::{Fault, LearnedSite};
use bullpen_core::site::SiteDocument;
use serde::{Deserialize, Serialize};

/// Where a stack launches its machines in EC2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSite {
    /// When the stack was made: a part of every launch's token.
    pub born: String,
    /// What `refresh` asked AWS for.
    pub facts: Facts,
}

/// What `refresh` asks AWS for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The id of the machines' role: together with a machine's own id it identifies its agent.
    pub role_id: String,
    /// The subnets, and the zone of each.
    pub subnets: BTreeMap<String, Zone>,
}

impl LaunchSite {
    /// Reads a document that a refresh kept.
    pub fn read(document: &SiteDocument) -> Result<Self, Fault> {
        Ok(Self { born: document.born.clone(), facts: document.facts()? })
    }

    pub(super) fn document(&self) -> SiteDocument {
        SiteDocument::new(&self.born, &self.facts)
    }

    pub(super) fn learned(&self) -> LearnedSite {
        let what = format!("the role and {} subnets", self.facts.subnets.len());
        LearnedSite { document: self.document(), what }
    }
}

#[cfg(test)]
mod tests {
    use bullpen_core::parameters::{decode, encode};

    use super::*;

    /// What every refresh since the first has stored.
    const STORED: &str =
        r#"{"v":"1","born":"2026-01-05","role_id":"AROA","subnets":{"subnet-1":"us-east-1a"}}"#;

    #[test]
    fn the_stored_form_stays_as_it_is() {
        let site = LaunchSite::read(&decode(STORED).unwrap()).unwrap();
        assert_eq!((site.born.as_str(), site.facts.role_id.as_str()), ("2026-01-05", "AROA"));
        assert_eq!(site.facts.subnets["subnet-1"], Zone::new("us-east-1a"));
        assert_eq!(encode(site.document()), STORED);
    }
}
