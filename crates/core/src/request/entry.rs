//! What is remembered of a request, under its run attempt: so that running it again resumes it, and
//! releasing a run attempt finds all of its requests.
//!
//! An [`Entry`] is stored before anything is done for its request. Whoever works on the request
//! writes its own nonce into it; a worker that finds another nonce there has been superseded, and
//! stands down without touching anything.
//!
//! Not here: the machines it holds; those are in the owner directory and are never listed twice.

use serde::{Deserialize, Serialize};

use super::Request;
use crate::ids::{ClaimId, Repository, RequestId, RunAttempt};

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is worked on, or its runners serve.
    Live,
    /// It was cancelled; whatever it held is on its way back.
    Abandoned,
    /// It was released, or failed and gave everything back.
    Finished,
}

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What was asked for.
    pub request: Request,
    /// Where it stands.
    pub stage: Stage,
    /// Who works on it, or did last.
    pub worker: ClaimId,
    /// Whose workflow asked, where it was one.
    pub repository: Option<Repository>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1(Entry),
}

/// What to do about a request that somebody runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again {
    /// It is the first time, or the last time is over: this is its incarnation.
    Anew {
        /// Counted from 1.
        incarnation: u32,
        /// Whether an abandoned one may still hold something.
        after_abandonment: bool,
    },
    /// It is live: go on with what it has.
    Resume {
        /// The live one.
        incarnation: u32,
    },
    /// It is live and asked for something else.
    Differs {
        /// In what.
        field: &'static str,
    },
}

impl Entry {
    /// As it is stored.
    pub fn encode(&self) -> String {
        serde_json::to_string(&Stored::V1(self.clone()))
            .expect("an entry has string keys only, so it serialises")
    }

    /// As it was stored.
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        let Stored::V1(entry) = serde_json::from_str(text)?;
        Ok(entry)
    }
}

/// Decides by what is stored.
pub fn again(stored: Option<&Entry>, wanted: &Request) -> Again {
    let Some(stored) = stored else {
        return Again::Anew { incarnation: 1, after_abandonment: false };
    };
    let incarnation = stored.request.incarnation;
    match stored.stage {
        Stage::Live => match differs(&stored.request, wanted) {
            Some(field) => Again::Differs { field },
            None => Again::Resume { incarnation },
        },
        Stage::Abandoned | Stage::Finished => Again::Anew {
            incarnation: incarnation.saturating_add(1),
            after_abandonment: stored.stage == Stage::Abandoned,
        },
    }
}

/// In what two requests of one id differ; how long each may take is not part of what they are.
fn differs(one: &Request, other: &Request) -> Option<&'static str> {
    [
        ("class", one.class != other.class),
        ("count", one.count != other.count),
        ("usage", one.usage != other.usage),
        ("allowed types", one.allowed_types != other.allowed_types),
        ("trust", one.trust != other.trust),
        ("on-partial", one.on_partial != other.on_partial),
        ("on-demand fallback", one.on_demand_fallback != other.on_demand_fallback),
    ]
    .into_iter()
    .find_map(|(field, differs)| differs.then_some(field))
}

/// The run attempt of a request id, `<run>.<attempt>.<name>`, and the name in it.
pub fn split(id: &RequestId) -> Option<(RunAttempt, &str)> {
    let text = id.as_str();
    let (run, rest) = text.split_once('.')?;
    let (attempt, name) = rest.split_once('.')?;
    let attempt_is_number = attempt.parse::<u32>().is_ok();
    (!run.is_empty() && attempt_is_number && !name.is_empty())
        .then(|| (RunAttempt::new(format!("{run}.{attempt}")), name))
}

impl RunAttempt {
    /// GitHub's run id and attempt, if it is a run of GitHub's.
    pub fn at_github(&self) -> Option<(u64, u32)> {
        let (run, attempt) = self.as_str().split_once('.')?;
        Some((run.parse().ok()?, attempt.parse().ok()?))
    }

    /// What its requests are stored under.
    pub fn collection(&self) -> String {
        format!("run/{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn entry(stage: Stage) -> Entry {
        Entry {
            request: samples::request(),
            stage,
            worker: ClaimId::new("w-1"),
            repository: Some(Repository::new("acme/app")),
        }
    }

    #[test]
    fn a_live_request_is_resumed_and_a_finished_one_begins_anew() {
        let wanted = samples::request();
        let first = Again::Anew { incarnation: 1, after_abandonment: false };
        assert_eq!(again(None, &wanted), first);
        let incarnation = wanted.incarnation;
        assert_eq!(again(Some(&entry(Stage::Live)), &wanted), Again::Resume { incarnation });
        for (stage, after_abandonment) in [(Stage::Finished, false), (Stage::Abandoned, true)] {
            let anew = Again::Anew { incarnation: incarnation + 1, after_abandonment };
            assert_eq!(again(Some(&entry(stage)), &wanted), anew);
        }
    }

    #[test]
    fn a_live_request_with_other_parameters_is_refused() {
        let live = entry(Stage::Live);
        let mut later = live.request.clone();
        later.deadline = later.deadline.after(std::time::Duration::from_secs(60));
        assert!(matches!(again(Some(&live), &later), Again::Resume { .. }));
        let more = Request { count: live.request.count + 1, ..live.request.clone() };
        assert_eq!(again(Some(&live), &more), Again::Differs { field: "count" });
    }

    #[test]
    fn an_entry_is_read_back_as_it_was_written() {
        let live = entry(Stage::Live);
        assert_eq!(Entry::decode(&live.encode()).unwrap(), live);
        assert!(Entry::decode("{\"v\":\"2\"}").is_err());
    }

    #[test]
    fn ids_are_taken_apart_at_the_first_two_dots() {
        let id = RequestId::new("77.2.build.linux");
        let (run, name) = split(&id).unwrap();
        assert_eq!((run.as_str(), name), ("77.2", "build.linux"));
        assert_eq!(run.at_github(), Some((77, 2)));
        assert_eq!(split(&RequestId::new("local.1.x")).unwrap().0.at_github(), None);
        for bad in ["", "77", "77.1", "77.1.", ".1.x", "77.x.y"] {
            assert_eq!(split(&RequestId::new(bad)), None, "{bad}");
        }
    }
}
