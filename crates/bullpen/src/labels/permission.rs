//! `bullpen labels parse --policy FILE`: decides whether a stack serves the labels, and by which
//! rule.
//!
//! Not here: the rules (`bullpen_core::labels::policy`, `bullpen_core::labels::ownership`).

use std::collections::BTreeSet;

use bullpen_core::config::runs_on::Config;
use bullpen_core::ids::{PoolName, Repository, RunAttempt};
use bullpen_core::labels::class::ClassRef;
use bullpen_core::labels::policy::Policy;
use bullpen_core::labels::{LabelSpec, Parsed};
use bullpen_core::route::{ENV_DEFAULT, NotOurs, Route, Routing, route};
use bullpen_core::scope::ServiceScope;

/// The decision of a stack with this configuration about a job with these labels.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// Served, and the default policy would allow it too.
    ByDefault(String),
    /// Served, because the operator's policy allows it.
    ByPolicy(String),
    /// Refused, with the reasons that the job's author reads.
    Refused(Vec<String>),
    /// Left to other runners, with the reason.
    NotOurs(&'static str),
}

/// The job that the labels belong to.
pub(super) struct Asker<'a> {
    pub(super) repository: &'a Repository,
    /// The id of its run; `None` to take the id in the labels.
    pub(super) run_id: Option<&'a str>,
}

impl Permission {
    /// Judges labels by a configuration.
    pub(super) fn of(
        labels: &[String],
        parsed: &Parsed,
        config: &Config,
        asker: &Asker<'_>,
    ) -> Self {
        let run = run(&parsed.spec, asker.run_id);
        let goes = |policy: &Policy| goes(labels, &parsed.spec, config, policy, asker, &run);
        match goes(&config.labels) {
            Ok(Some(place)) => match goes(&Policy::default()) {
                Ok(Some(_)) => Self::ByDefault(place),
                Ok(None) | Err(_) => Self::ByPolicy(place),
            },
            Ok(None) => Self::NotOurs(if parsed.ours {
                "its labels are for another stack, or for a pool that does not exist"
            } else {
                "none of its labels is for us, or listed under `labels.plain`"
            }),
            Err(why) => Self::Refused(why),
        }
    }

    /// The verdict in a word that scripts may compare.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::ByDefault(_) => "allowed by default",
            Self::ByPolicy(_) => "allowed by policy",
            Self::Refused(_) => "refused",
            Self::NotOurs(_) => "not ours",
        }
    }

    /// Whether the job is not served.
    pub(super) const fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// A line for each verdict with its reason.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::ByDefault(place) | Self::ByPolicy(place) => {
                vec![format!("{}; goes to {place}", self.word())]
            }
            Self::NotOurs(why) => vec![format!("{}: {why}", self.word())],
            Self::Refused(why) => {
                let reasons = why.iter().map(|why| format!("{}: {why}", self.word()));
                reasons.collect()
            }
        }
    }
}

/// The run that the labels may name: the given id, else the number at the beginning of their own
/// id.
fn run(spec: &LabelSpec, given: Option<&str>) -> RunAttempt {
    let named = spec.id.as_deref().unwrap_or_default();
    let digits = named.bytes().take_while(u8::is_ascii_digit).count();
    RunAttempt::new(format!("{}.1", given.unwrap_or(&named[..digits])))
}

/// The pool or class that serves the job, or the reasons of a refusal; `None` if the job is not
/// ours.
fn goes(
    labels: &[String],
    spec: &LabelSpec,
    config: &Config,
    policy: &Policy,
    asker: &Asker<'_>,
    run: &RunAttempt,
) -> Result<Option<String>, Vec<String>> {
    let env = spec.env.as_deref().unwrap_or(ENV_DEFAULT);
    let own = config.pools.iter().filter(|(_, pool)| pool.env == env);
    let pools: BTreeSet<PoolName> = own.map(|(name, _)| name.clone()).collect();
    let routing = Routing {
        env,
        region: spec.region.as_deref().unwrap_or_default(),
        pools: &pools,
        broken: &config.broken,
        classes: &config.catalogue(),
        default_pool: config.default_pool.as_ref(),
        policy,
        config_loaded: true,
        scope: &ServiceScope::EVERYTHING,
    };
    match route(labels, asker.repository, run, &routing) {
        Route::Pool(pool) => Ok(Some(format!("pool {pool}"))),
        Route::Launch(launch) => Ok(Some(match &launch.class {
            ClassRef::Named(class) => format!("runner {}", class.name),
            ClassRef::Anonymous(_) => "a machine of its own".to_owned(),
        })),
        Route::UnknownPool { pool, .. } => Err(vec![format!("there is no pool `{pool}`")]),
        Route::Refused(why) => Err(why.iter().map(ToString::to_string).collect()),
        Route::Wait => Err(vec!["its pool is broken: `bullpen lint` shows why".to_owned()]),
        Route::NotOurs(
            NotOurs::Outside
            | NotOurs::NoHead
            | NotOurs::Env
            | NotOurs::Region
            | NotOurs::NoDependabotPool,
        ) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
runners: {small: {cpu: 2, ram: 4}}
pools: {ci: {runner: small, schedule: [{name: always, hot: 1, stopped: 0}]}}
x-bullpen:
  labels:
    allow: [cpu, ami, pool]
    plain:
      - {labels: [self-hosted, linux], pool: ci, repositories: [acme/app]}
      - {labels: [prod-deploy], repositories: [acme/app]}
";

    fn judged(labels: &[&str]) -> Permission {
        let config = bullpen_core::config::runs_on::read(FILE.as_bytes());
        let config = config.value().expect("it is good").clone();
        let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        let repository = Repository::new("acme/app");
        let asker = Asker { repository: &repository, run_id: Some("42") };
        Permission::of(&labels, &bullpen_core::labels::parse(&labels), &config, &asker)
    }

    #[test]
    fn each_kind_of_label_is_allowed_by_default_by_policy_or_refused() {
        for (labels, word) in [
            (&["runs-on/runner=small"][..], "allowed by default"),
            (&["runs-on=42/pool=ci"], "allowed by default"),
            (&["runs-on=42-docker/cpu=2"], "allowed by default"),
            (&["runs-on/ami=ami-0123456789abcdef0"], "allowed by policy"),
            (&["self-hosted", "linux"], "allowed by policy"),
            (&["runs-on/runner=small", "prod-deploy"], "allowed by policy"),
            (&["runs-on/runner=small", "gpu"], "refused"),
            (&["runs-on=43/pool=ci"], "refused"),
            (&["runs-on/cpu=128"], "refused"),
            (&["runs-on/spot=false"], "refused"),
            (&["runs-on/runner=small", "cpu=4"], "refused"),
            (&["runs-on/pool=cii"], "refused"),
            (&["ubuntu-latest"], "not ours"),
        ] {
            assert_eq!(judged(labels).word(), word, "{labels:?}: {:?}", judged(labels));
        }
    }
}
