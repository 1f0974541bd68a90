//! `bullpen doctor`: checks whether a stack can work, and prints advice where it cannot.
//!
//! It prints one line for each check and changes nothing. It skips checks that depend on a failed
//! check.
//!
//! Not here: judging an answer (`verdict`), or asking AWS (`aws`).

use std::collections::BTreeSet;
use std::path::Path;

use bullpen_agent::machine::RunnerProgram;
use bullpen_core::class::Architecture;
use bullpen_core::config::runs_on::Config;
use bullpen_core::ids::RunnerGroup;
use bullpen_core::instance::Record;
use bullpen_core::isolation::SHARED_NETWORK;
use bullpen_core::ports::{Fault, Forge as _, Ports};
use bullpen_engine::jobs::aside;
use bullpen_engine::reconcile::live_records;
use bullpen_engine::unreadable;
use bullpen_github::version_of;
use serde_json::json;

use crate::exit::Exit;
use crate::explain;
use crate::inputs::{CommonArgs, CommonInputs, Engine, Environment, files};
use crate::render;
use crate::runtime::{self, Command, GithubAccess, Runtime, RuntimePlan, runner_program};
use crate::workflow::{Failure, Loaded, load, run_command};

#[cfg(feature = "aws")]
mod aws;
mod labels;
mod verdict;

use verdict::{Check, worst};

/// The script in every runner directory.
const RUNNER_SCRIPT: &str = "run.sh";

/// Runs every check.
pub(crate) fn doctor(args: &CommonArgs) -> Exit {
    run_command(async |environment| run(args, environment).await)
}

async fn run(args: &CommonArgs, environment: &Environment) -> Result<Exit, Failure> {
    let common = CommonInputs::read(args, environment)?;
    let Loaded { common, file } = load(&common, environment)?;
    let config = files::config(&common.stack)?;
    let plan = RuntimePlan { common: &common, config: config.as_ref(), file: &file, environment };
    let mut checks = match common.stack.engine {
        Engine::Embedded => of_files(&plan).await,
        #[cfg(feature = "aws")]
        Engine::Aws => aws::checks(&plan).await?,
    };
    checks.push(labels::policy(config.as_ref().map(|config| (&config.labels, &config.code))));
    show(common.stack.json, &checks);
    Ok(worst(&checks))
}

fn show(json: bool, checks: &[Check]) {
    if json {
        let checks: Vec<_> = checks
            .iter()
            .map(|Check { name, verdict }| {
                let (word, what, then) = verdict.parts();
                json!({"check": name, "verdict": word, "what": what, "then": then})
            })
            .collect();
        render::json(&json!({ "checks": checks }).to_string());
        return;
    }
    for Check { name, verdict } in checks {
        let (word, what, then) = verdict.parts();
        let then = then.map_or_else(String::new, |then| format!("; {then}"));
        render::data(&format!("{word:<8} {name}: {what}{then}"));
    }
}

/// The checks of a stack whose state is on this machine.
async fn of_files(plan: &RuntimePlan<'_>) -> Vec<Check> {
    let state = &plan.common.stack.state;
    if !state.exists() {
        return vec![no_state(state)];
    }
    let mut checks = vec![runner(plan)];
    checks.extend(isolation(plan));
    match runtime::run(plan, PortChecks { archive: None, groups: named_groups(plan.config) }).await
    {
        Ok(mut more) => {
            let what = format!("{} is readable", state.display());
            checks.push(Check::fine("state", what));
            checks.append(&mut more);
        }
        Err(error) => {
            let failure = Failure::from(error);
            let then =
                failure.hint.unwrap_or_else(|| "pass another directory as --state".to_owned());
            checks.push(Check::failed("state", failure.what, then));
        }
    }
    checks
}

fn no_state(state: &Path) -> Check {
    let what = format!("no state in {}", state.display());
    Check::warning("state", what, "`bullpen refresh` creates it")
}

/// How jobs are isolated from the service on this host; empty if the state cannot be used, which
/// another check reports.
fn isolation(plan: &RuntimePlan<'_>) -> Vec<Check> {
    let Ok(chosen) = runtime::isolated(plan) else { return Vec::new() };
    let name = "isolation";
    let held = format!("jobs have {}", chosen.decision.held_by());
    let mut checks: Vec<Check> = Vec::new();
    for lacking in &chosen.decision.lacking {
        let (what, then) = (lacking.what.clone().into_owned(), lacking.then);
        checks.push(if chosen.refused {
            Check::failed(name, what, then)
        } else {
            Check::warning(name, what, then)
        });
    }
    if checks.is_empty() {
        checks.push(Check::fine(name, held));
    }
    checks.push(match &chosen.limits {
        Ok(cgroup) => Check::fine("limits", format!("kept in {}", cgroup.display())),
        Err(why) => Check {
            name: "limits".to_owned(),
            verdict: verdict::Verdict::Unknown(format!(
                "jobs' processors, memory and processes are not limited: {why}"
            )),
        },
    });
    checks.push(Check::warning("network", SHARED_NETWORK.what, SHARED_NETWORK.then));
    checks
}

/// The runner program of machines on this host.
fn runner(plan: &RuntimePlan<'_>) -> Check {
    let name = "runner program";
    match runner_program(&plan.common.github, Path::new("bullpen")) {
        Some(RunnerProgram::Directory(directory)) if directory.join(RUNNER_SCRIPT).exists() => {
            Check::fine(name, format!("in {}", directory.display()))
        }
        Some(RunnerProgram::Directory(directory)) => {
            let what = format!("{} has no {RUNNER_SCRIPT}", directory.display());
            Check::failed(name, what, "unpack GitHub's runner there, or correct --runner-dir")
        }
        Some(_) => Check::fine(name, "the stand-in's own"),
        None => {
            let then = "pass the directory of an unpacked runner as --runner-dir";
            Check::warning(name, "not given: nothing can be launched", then)
        }
    }
}

/// The checks that need the stack's ports.
struct PortChecks {
    /// The download of the runner program, and its architecture.
    archive: Option<(String, Architecture)>,
    /// The runner groups that the configuration names.
    groups: BTreeSet<RunnerGroup>,
}

/// Every runner group that a configuration names.
fn named_groups(config: Option<&Config>) -> BTreeSet<RunnerGroup> {
    let Some(config) = config else { return BTreeSet::new() };
    let pools = config.pools.values().filter_map(|pool| pool.own.group.clone());
    let runners = config.runners.values().filter_map(|runner| runner.group.clone());
    let groups = &config.labels.groups;
    let labels = groups.all.iter().chain(groups.repositories.values()).cloned();
    pools.chain(runners).chain(labels).collect()
}

/// Whether GitHub has the runner groups that the configuration names.
async fn groups<P: Ports<Forge = GithubAccess>>(
    runtime: &Runtime<P>,
    groups: &BTreeSet<RunnerGroup>,
) -> Option<Check> {
    let github = runtime.stack.ports.forge().manager().filter(|_| !groups.is_empty())?;
    for group in groups {
        if let Err(fault) = github.group_id(group).await {
            let then = "create the group in the organisation's settings, or correct `group`";
            return Some(Check::failed("runner groups", fault.to_string(), then));
        }
    }
    Some(Check::fine("runner groups", format!("all {} exist", groups.len())))
}

impl Command for PortChecks {
    type Outcome = Vec<Check>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let archive = self.archive.as_ref().map(|(url, which)| (&**url, *which));
        let mut checks = vec![github(&runtime).await];
        // The answers of that check are dated.
        checks.push(verdict::clock_by_github(&runtime.stack.ports.forge().clock_witness()));
        checks.extend(permissions(&runtime).await);
        checks.extend(groups(&runtime, &self.groups).await);
        checks.extend(installed(&runtime).await);
        checks.extend(hooks(&runtime).await);
        checks.push(version(&runtime, archive).await);
        checks.extend(stored(&runtime).await);
        checks.extend(set_aside(&runtime).await);
        checks.extend(still_there(&runtime).await);
        checks
    }
}

/// The stored items that this version cannot read, one check for each.
async fn stored<P: Ports<Forge = GithubAccess>>(runtime: &Runtime<P>) -> Vec<Check> {
    match unreadable::find(&runtime.stack).await {
        Ok(items) => verdict::stored(&items),
        Err(fault) => vec![Check {
            name: verdict::STORED.to_owned(),
            verdict: verdict::Verdict::Unknown(fault.to_string()),
        }],
    }
}

/// The machines that should have ended long ago, one check for each.
async fn still_there<P: Ports<Forge = GithubAccess>>(runtime: &Runtime<P>) -> Vec<Check> {
    let stack = &runtime.stack;
    match live_records(stack).await {
        Ok(records) => {
            let state = |record: &Record| {
                verdict::still_there((record.id.as_str(), &record.state), stack.now())
            };
            records.iter().filter_map(state).collect()
        }
        Err(fault) => {
            let verdict = verdict::Verdict::Unknown(fault.to_string());
            vec![Check { name: "machines to end".to_owned(), verdict }]
        }
    }
}

/// The jobs that a process has set aside, one check for each that is not over.
async fn set_aside<P: Ports<Forge = GithubAccess>>(runtime: &Runtime<P>) -> Vec<Check> {
    let name = "rows set aside";
    let found = async {
        let mut waiting = Vec::new();
        for (job, note) in aside::all(&runtime.stack).await? {
            let row = explain::row(&runtime.stack, &job).await?;
            if row.is_some_and(|(_, row)| !row.is_over()) {
                waiting.push((job, note));
            }
        }
        Ok::<_, Fault>(waiting)
    };
    match found.await {
        Ok(found) => found.iter().map(|(job, note)| verdict::set_aside(job, note)).collect(),
        Err(fault) => {
            let verdict = verdict::Verdict::Unknown(fault.to_string());
            vec![Check { name: name.to_owned(), verdict }]
        }
    }
}

/// Whether the credential may manage runners.
async fn github<P: Ports<Forge = GithubAccess>>(runtime: &Runtime<P>) -> Check {
    let name = "GitHub";
    if !runtime.stack.ports.forge().manages() {
        let then = "pass --repository, and --github-token-file or --app-id with --app-key, if this \
                    command registers runners itself";
        return Check::warning(name, "no credential that manages runners", then);
    }
    match runtime.stack.ports.forge().runners().await {
        Ok(runners) => {
            Check::fine(name, format!("answers; {} runners of this stack", runners.len()))
        }
        Err(Fault::Denied(why)) => {
            let then = "the credential needs write access to the runners of the repository or organisation";
            Check::failed(name, why, then)
        }
        Err(fault) => Check::failed(name, fault.to_string(), "try again later"),
    }
}

/// Whether an App has the permissions that Bullpen needs. A token's permissions cannot be queried.
async fn permissions<P: Ports<Forge = GithubAccess>>(runtime: &Runtime<P>) -> Option<Check> {
    let name = "App permissions";
    let answer = runtime.stack.ports.forge().manager()?.lacking_permissions().await;
    match answer.transpose()? {
        Ok(lacking) if lacking.is_empty() => Some(Check::fine(name, "complete")),
        Ok(lacking) => {
            let then = "grant them to the App, and let its owner accept them";
            Some(Check::failed(name, format!("it lacks {}", lacking.join(", ")), then))
        }
        Err(fault) => Some(Check::failed(name, fault.to_string(), "check the App's id and key")),
    }
}

/// Whether an App is public, or is installed on accounts that are not served: GitHub then signs
/// webhooks of foreign repositories with our secret.
async fn installed<P: Ports<Forge = GithubAccess>>(runtime: &Runtime<P>) -> Option<Check> {
    let name = "App installations";
    let github = runtime.stack.ports.forge().manager()?;
    match github.apps().await {
        Ok(apps) if apps.is_empty() => None,
        Ok(apps) => Some(Check {
            name: name.to_owned(),
            verdict: verdict::installed(github.owner(), &apps),
        }),
        Err(fault) => Some(Check::failed(name, fault.to_string(), "check the App's id and key")),
    }
}

/// Whether GitHub sends webhooks of more repositories than the served one.
async fn hooks<P: Ports<Forge = GithubAccess>>(runtime: &Runtime<P>) -> Option<Check> {
    let name = "webhook scope";
    match runtime.stack.ports.forge().manager()?.wider_hooks().await {
        Ok(wider) if wider.is_empty() => None,
        Ok(wider) => {
            let what = format!("{}; this service serves one repository", wider.join(", "));
            let then = "let GitHub send webhooks of that repository alone: the service counts the \
                        others and ignores them";
            Some(Check::warning(name, what, then))
        }
        Err(fault) => Some(Check::warning(name, fault.to_string(), "try again later")),
    }
}

/// How old the runner program is: GitHub gives no jobs to a version that is too old.
async fn version<P: Ports<Forge = GithubAccess>>(
    runtime: &Runtime<P>,
    archive: Option<(&str, Architecture)>,
) -> Check {
    let configured = runtime.parameters.runner_version.clone();
    let ours = configured.or_else(|| archive.and_then(|(url, which)| version_of(url, which)));
    let which = archive.map_or(Architecture::X64, |(_, which)| which);
    let offered = match runtime.stack.ports.forge().manager() {
        Some(github) => github.offered_runner(which).await.ok().flatten(),
        None => None,
    };
    let verdict = verdict::runner_age(ours.as_deref(), offered.as_deref());
    Check { name: "runner age".to_owned(), verdict }
}
