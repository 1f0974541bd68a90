//! What is remembered of a request, under its run attempt: so that running it again resumes it, and
//! releasing a run attempt finds all of its requests.
//!
//! An [`RequestEntry`] is stored before anything is done for its request. Whoever works on the request
//! writes its own nonce into it; a worker that finds another nonce there has been superseded, and
//! stands down without touching anything.
//!
//! Not here: the machines it holds; those are in the owner directory and are never listed twice.

use serde::{Deserialize, Serialize};

use super::Request;
use super::stranger::{OwnRun, STRANGERS_MAX, Stranger};
use crate::ids::{ClaimId, Repository, RequestId, RunAttempt};
use crate::sabotage;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestStage {
    /// It is worked on, or its runners serve.
    Live,
    /// It was cancelled; whatever it held is on its way back.
    Abandoned,
    /// It was released, or failed and gave everything back.
    Finished,
}

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEntry {
    /// What was asked for.
    pub request: Request,
    /// Where it stands.
    pub stage: RequestStage,
    /// Who works on it, or did last.
    pub worker: ClaimId,
    /// Whose workflow asked, where it was one.
    pub repository: Option<Repository>,
    /// The label of this incarnation's runners. Entries of older versions have none: see
    /// [`RequestEntry::label`].
    #[serde(default, rename = "label", skip_serializing_if = "Option::is_none")]
    pub secret_label: Option<String>,
    /// Whether its run has code that is not trusted, a fork's or Dependabot's for one, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_fork: Option<bool>,
    /// Jobs of other runs that GitHub started on its machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strangers: Vec<Stranger>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1(RequestEntry),
}

/// What to do about a request that somebody runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeginDecision {
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

/// The label of a new incarnation's runners: the request id, so that its label says whose it is, and
/// bits that make it impossible to guess.
pub fn fresh_label(id: &RequestId, bits: u128) -> String {
    if sabotage!("request-labels-are-guessable") {
        return label_without_bits(id);
    }
    format!("{}.{bits:032x}", label_without_bits(id))
}

fn label_without_bits(id: &RequestId) -> String {
    format!("warm-{id}")
}

impl RequestEntry {
    /// The label of its runners.
    pub fn label(&self) -> String {
        let old = || label_without_bits(&self.request.id);
        self.secret_label.clone().unwrap_or_else(old)
    }

    /// Whether a runner with these labels is one of its own: each is the whole label of its runners.
    /// GitHub gives a runner with one label more to every job that asks for that one.
    pub fn owns_all<S: AsRef<str>>(&self, labels: &[S]) -> bool {
        let own = self.label();
        let is_own = |label: &S| {
            own.eq_ignore_ascii_case(label.as_ref())
                || sabotage!("request-labels-bring-others-along")
        };
        labels.iter().any(|label| own.eq_ignore_ascii_case(label.as_ref()))
            && labels.iter().all(is_own)
    }

    /// The run whose jobs alone may run on its machines.
    pub fn own_run(&self) -> Option<OwnRun> {
        OwnRun::of_request(&self.request.id, self.repository.as_ref())
    }

    /// Whether its machines may serve others afterwards, as far as it depends on the code of its run. Of a
    /// run at GitHub that has to be known; a request that a person made is that person's word.
    pub fn is_trusted(&self) -> bool {
        let is_of_github =
            split(&self.request.id).is_some_and(|(run, _)| run.at_github().is_some());
        let is_a_persons = self.repository.is_none() || !is_of_github;
        match self.from_fork {
            Some(is_untrusted) => !is_untrusted,
            None => is_a_persons || sabotage!("unknown-runs-are-trusted"),
        }
    }

    /// The entry with one more stranger; none if that one is known, or there are too many.
    #[must_use]
    pub fn with_stranger(&self, stranger: &Stranger) -> Option<Self> {
        let is_new = !self.strangers.contains(stranger) && self.strangers.len() < STRANGERS_MAX;
        is_new.then(|| {
            let strangers = self.strangers.iter().chain([stranger]).cloned().collect();
            Self { strangers, ..self.clone() }
        })
    }

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
pub fn begin_decision(stored: Option<&RequestEntry>, wanted: &Request) -> BeginDecision {
    let Some(stored) = stored else {
        return BeginDecision::Anew { incarnation: 1, after_abandonment: false };
    };
    let incarnation = stored.request.incarnation;
    match stored.stage {
        RequestStage::Live => match differs(&stored.request, wanted) {
            Some(field) => BeginDecision::Differs { field },
            None => BeginDecision::Resume { incarnation },
        },
        RequestStage::Abandoned | RequestStage::Finished => BeginDecision::Anew {
            incarnation: incarnation.saturating_add(1),
            after_abandonment: stored.stage == RequestStage::Abandoned,
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
        ("ephemeral", one.ephemeral != other.ephemeral),
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
    use crate::request::stranger::RanJob;
    use crate::samples;

    fn entry(stage: RequestStage) -> RequestEntry {
        RequestEntry {
            request: samples::request(),
            stage,
            worker: ClaimId::new("w-1"),
            repository: Some(Repository::new("acme/app")),
            secret_label: Some(fresh_label(&samples::request().id, 0xfeed)),
            from_fork: None,
            strangers: Vec::new(),
        }
    }

    /// An entry as it was stored before labels had bits.
    const OLD: &str = r#"{"v":"1","request":{"id":"77.1.build","incarnation":1,"class":{"name":"large","vcpu":{"min":2,"max":2},"memory_mib_min":4096,"architecture":"x64"},"count":1,"usage":"on-demand","allowed_types":["c*"],"trust":"acme/app","deadline":"2026-01-05T00:10:00Z","on_partial":"top-up","on_demand_fallback":false,"spec_hash":null},"stage":"live","worker":"w-1","repository":"acme/app"}"#;

    #[test]
    fn an_entry_of_an_older_version_has_the_label_that_its_runners_have() {
        let old = RequestEntry::decode(OLD).unwrap();
        assert_eq!(old.label(), "warm-77.1.build");
        assert!(!old.request.ephemeral && old.strangers.is_empty());
        assert_eq!(old.encode(), OLD, "and is stored as it was");
    }

    #[test]
    fn a_label_has_128_bits_and_says_whose_it_is() {
        let id = RequestId::new("77.1.build");
        let label = fresh_label(&id, u128::MAX);
        assert_eq!(label, format!("warm-77.1.build.{}", "f".repeat(32)));
        assert_eq!(crate::labels::request_of(&[label.as_str()]), Some(id.clone()));
        let short = fresh_label(&id, 1);
        assert_eq!(short.len(), label.len(), "no bit is left out");
        assert_eq!(crate::labels::request_of(&["WARM-77.1.build"]), Some(id));
    }

    #[test]
    fn only_the_whole_label_is_the_requests() {
        let live = entry(RequestStage::Live);
        let label = live.label();
        assert!(live.owns_all(&[label.to_uppercase()]), "GitHub does not mind case");
        assert!(live.owns_all(&[&label, &label]));
        assert!(!live.owns_all(&[label.as_str(), "prod-deploy"]), "a label of other jobs");
        assert!(!live.owns_all::<&str>(&[]));
        let cut = label.rsplit_once('.').unwrap().0;
        for other in [cut, &format!("{cut}.{:032x}", 0xbeef), &label[..label.len() - 1]] {
            assert!(!live.owns_all(&[other]), "{other}");
        }
    }

    #[test]
    fn a_run_of_github_is_trusted_once_it_is_known_to_be() {
        let of = |id: &str, repository: Option<&str>, from_fork| RequestEntry {
            request: Request { id: RequestId::new(id), ..samples::request() },
            repository: repository.map(Repository::new),
            from_fork,
            ..entry(RequestStage::Live)
        };
        for (id, repository, from_fork, trusted) in [
            ("77.1.build", Some("acme/app"), None, false),
            ("77.1.build", Some("acme/app"), Some(false), true),
            ("77.1.build", Some("acme/app"), Some(true), false),
            ("77.1.build", None, None, true),
            ("77.1.build", None, Some(true), false),
            ("local.1.build", Some("acme/app"), None, true),
        ] {
            assert_eq!(of(id, repository, from_fork).is_trusted(), trusted, "{id} {from_fork:?}");
        }
    }

    #[test]
    fn strangers_are_remembered_once_each_and_not_without_end() {
        let ran = |run| RanJob {
            repository: Repository::new("acme/app"),
            run,
            attempt: 1,
            job: "evil".to_owned(),
            event: "pull_request".to_owned(),
        };
        let stranger = |run| Stranger { instance: "i-1".into(), ran: ran(run) };
        let mut entry = entry(RequestStage::Live).with_stranger(&stranger(0)).unwrap();
        assert_eq!(entry.with_stranger(&stranger(0)), None);
        for run in 1..100 {
            entry = entry.with_stranger(&stranger(run)).unwrap_or(entry);
        }
        assert_eq!(entry.strangers.len(), STRANGERS_MAX);
    }

    #[test]
    fn a_live_request_is_resumed_and_a_finished_one_begins_anew() {
        let wanted = samples::request();
        let first = BeginDecision::Anew { incarnation: 1, after_abandonment: false };
        assert_eq!(begin_decision(None, &wanted), first);
        let incarnation = wanted.incarnation;
        assert_eq!(
            begin_decision(Some(&entry(RequestStage::Live)), &wanted),
            BeginDecision::Resume { incarnation }
        );
        for (stage, after_abandonment) in
            [(RequestStage::Finished, false), (RequestStage::Abandoned, true)]
        {
            let anew = BeginDecision::Anew { incarnation: incarnation + 1, after_abandonment };
            assert_eq!(begin_decision(Some(&entry(stage)), &wanted), anew);
        }
    }

    #[test]
    fn a_live_request_with_other_parameters_is_refused() {
        let live = entry(RequestStage::Live);
        let mut later = live.request.clone();
        later.deadline = later.deadline.after(std::time::Duration::from_secs(60));
        assert!(matches!(begin_decision(Some(&live), &later), BeginDecision::Resume { .. }));
        let more = Request { count: live.request.count + 1, ..live.request.clone() };
        assert_eq!(begin_decision(Some(&live), &more), BeginDecision::Differs { field: "count" });
    }

    #[test]
    fn an_entry_is_read_back_as_it_was_written() {
        let live = entry(RequestStage::Live);
        assert_eq!(RequestEntry::decode(&live.encode()).unwrap(), live);
        assert!(RequestEntry::decode("{\"v\":\"2\"}").is_err());
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
