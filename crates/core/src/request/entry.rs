//! The stored entry of a request, under its run attempt: running the request again resumes it, and
//! releasing a run attempt finds all of its requests.
//!
//! A worker stores the [`RequestEntry`] before it does anything for the request, with its own
//! nonce. A worker that finds another nonce in the entry has been superseded: it stops and changes
//! nothing.
//!
//! Not here: the machines that the request holds; only the owner directory lists them.

use serde::{Deserialize, Serialize};

use super::Request;
use super::stranger::{OwnRun, STRANGERS_MAX, Stranger};
use crate::ids::{ClaimId, Repository, RequestId, RunAttempt};
use crate::sabotage;

/// The stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestStage {
    /// A worker works on it, or its runners serve.
    Live,
    /// It was cancelled; its machines are being given back.
    Abandoned,
    /// It was released, or it failed and gave all its machines back.
    Finished,
}

/// The stored entry of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEntry {
    /// The request.
    pub request: Request,
    /// The stage of the request.
    pub stage: RequestStage,
    /// The nonce of the worker that works on it, or did last.
    pub worker: ClaimId,
    /// The repository of the workflow that made the request, if a workflow did.
    pub repository: Option<Repository>,
    /// The label of this incarnation's runners. Entries of older versions have none; see
    /// [`RequestEntry::label`].
    #[serde(default, rename = "label", skip_serializing_if = "Option::is_none")]
    pub secret_label: Option<String>,
    /// Whether its run executes untrusted code, such as a fork's or Dependabot's; `None` until
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_fork: Option<bool>,
    /// The jobs of other runs that GitHub started on its machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strangers: Vec<Stranger>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1(RequestEntry),
}

/// What to do when a request begins, or begins again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeginDecision {
    /// It is new, or its last incarnation is over: begin a new incarnation.
    Anew {
        /// The new incarnation, counted from 1.
        incarnation: u32,
        /// Whether the last incarnation was abandoned and may still hold machines.
        after_abandonment: bool,
    },
    /// It is live: continue with the machines it has.
    Resume {
        /// The live incarnation.
        incarnation: u32,
    },
    /// It is live and has other parameters.
    Differs {
        /// The first parameter that differs.
        field: &'static str,
    },
}

/// The label of a new incarnation's runners: the request id, so that the label names its request,
/// and random bits, so that other workflows cannot guess it.
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

    /// Whether a runner with these labels is one of the request's: each label is the request's
    /// whole label. GitHub would give a runner with a second label to any job that asks for that
    /// label.
    pub fn owns_all<S: AsRef<str>>(&self, labels: &[S]) -> bool {
        let own = self.label();
        let is_own = |label: &S| {
            own.eq_ignore_ascii_case(label.as_ref())
                || sabotage!("request-labels-bring-others-along")
        };
        labels.iter().any(|label| own.eq_ignore_ascii_case(label.as_ref()))
            && labels.iter().all(is_own)
    }

    /// The only run whose jobs may run on its machines.
    pub fn own_run(&self) -> Option<OwnRun> {
        OwnRun::of_request(&self.request.id, self.repository.as_ref())
    }

    /// Whether the code of its run lets its machines serve other owners afterwards. A run at GitHub
    /// is trusted only once its origin is known; a request that a person made is trusted.
    pub fn is_trusted(&self) -> bool {
        let is_of_github =
            split(&self.request.id).is_some_and(|(run, _)| run.at_github().is_some());
        let is_a_persons = self.repository.is_none() || !is_of_github;
        match self.from_fork {
            Some(is_untrusted) => !is_untrusted,
            None => is_a_persons || sabotage!("unknown-runs-are-trusted"),
        }
    }

    /// The entry with this stranger added; `None` if the stranger is known, or the list is full.
    #[must_use]
    pub fn with_stranger(&self, stranger: &Stranger) -> Option<Self> {
        let is_new = !self.strangers.contains(stranger) && self.strangers.len() < STRANGERS_MAX;
        is_new.then(|| {
            let strangers = self.strangers.iter().chain([stranger]).cloned().collect();
            Self { strangers, ..self.clone() }
        })
    }

    /// Encodes the entry for the ledger.
    pub fn encode(&self) -> String {
        serde_json::to_string(&Stored::V1(self.clone()))
            .expect("an entry has string keys only, so it serialises")
    }

    /// Decodes an entry from the ledger.
    pub fn decode(text: &str) -> Result<Self, serde_json::Error> {
        let Stored::V1(entry) = serde_json::from_str(text)?;
        Ok(entry)
    }
}

/// Decides by the stored entry, if there is one.
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

/// The first parameter in which two requests of one id differ. Their deadlines may differ.
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
    /// GitHub's run id and attempt, if it is a run at GitHub.
    pub fn at_github(&self) -> Option<(u64, u32)> {
        let (run, attempt) = self.as_str().split_once('.')?;
        Some((run.parse().ok()?, attempt.parse().ok()?))
    }

    /// The ledger's collection that holds its requests.
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

    /// An entry of an older version, whose labels had no random bits.
    const OLD: &str = r#"{"v":"1","request":{"id":"77.1.build","incarnation":1,"class":{"name":"large","vcpu":{"min":2,"max":2},"memory_mib_min":4096,"architecture":"x64"},"count":1,"usage":"on-demand","allowed_types":["c*"],"trust":"acme/app","deadline":"2026-01-05T00:10:00Z","on_partial":"top-up","on_demand_fallback":false,"spec_hash":null},"stage":"live","worker":"w-1","repository":"acme/app"}"#;

    #[test]
    fn an_entry_of_an_older_version_has_the_label_that_its_runners_have() {
        let old = RequestEntry::decode(OLD).unwrap();
        assert_eq!(old.label(), "warm-77.1.build");
        assert!(!old.request.ephemeral && old.strangers.is_empty());
        assert_eq!(old.encode(), OLD, "encoding changes nothing");
    }

    #[test]
    fn a_label_has_128_bits_and_says_whose_it_is() {
        let id = RequestId::new("77.1.build");
        let label = fresh_label(&id, u128::MAX);
        assert_eq!(label, format!("warm-77.1.build.{}", "f".repeat(32)));
        assert_eq!(crate::labels::request_of(&[label.as_str()]), Some(id.clone()));
        let short = fresh_label(&id, 1);
        assert_eq!(short.len(), label.len(), "the bits are padded with zeros");
        assert_eq!(crate::labels::request_of(&["WARM-77.1.build"]), Some(id));
    }

    #[test]
    fn only_the_whole_label_is_the_requests() {
        let live = entry(RequestStage::Live);
        let label = live.label();
        assert!(live.owns_all(&[label.to_uppercase()]), "GitHub ignores case");
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
