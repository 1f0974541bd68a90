//! Builds the fleet of machines that are processes of this host.
//!
//! Not here: the fleet itself (`bullpen-embedded`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bullpen_core::config::Stack as StackFile;
use bullpen_core::config::stack::{GithubCredential, ProcessFleet as Section, SecretRef};
use bullpen_core::isolation::IsolationMode;
use bullpen_core::ports::Ids as _;
use bullpen_core::spec_hash::digest_hex;
use bullpen_embedded::fleet::{
    Capacity, Catalogue, ChosenIsolation, Entropy, FleetSettings, IsolationSettings, ProcessFleet,
    choose,
};
use bullpen_embedded::system::{SystemClock, SystemIds};
use serde_json::json;

use super::{
    MachineBase, MachineSettings, RuntimeError, RuntimePlan, own_pair, own_program, runner_program,
    user_data,
};
use crate::inputs::{AppKey, Credential, GithubInputs};

/// The variables that supervisors, agents and jobs inherit from this command.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "USER"];

/// The version of the isolation of jobs: raised when a release isolates them differently.
const ISOLATION_VERSION: u32 = 2;
/// Digits of the digest of the isolation settings.
const DIGEST_CHARS: usize = 16;

/// What such machines are built from. The isolation settings are part of it, because a machine
/// keeps those of its launch. Probing the host is left to the commands that launch.
pub(super) fn base(github: &GithubInputs, file: &StackFile) -> MachineBase {
    let program = github.runner_dir.as_ref().map(|path| path.display().to_string());
    let Section { isolation, users, visible, limits, processes_max, cgroup, .. } =
        &file.process_fleet;
    let mode = IsolationMode::ALL.iter().find(|(_, mode)| mode == isolation).map(|(word, _)| *word);
    let limits = limits.then_some((processes_max, cgroup));
    let parts = json!([ISOLATION_VERSION, mode, (users.first(), users.last()), visible, limits]);
    let digest = digest_hex(parts.to_string().as_bytes());
    let digest: String = digest.chars().take(DIGEST_CHARS).collect();
    MachineBase { image: format!("process:{digest}"), program }
}

/// The files with secrets that the inputs name.
fn secrets(plan: &RuntimePlan<'_>) -> Vec<PathBuf> {
    let file = |secret: &SecretRef| match secret {
        SecretRef::File(path) => Some(PathBuf::from(path)),
        SecretRef::Env(_) | SecretRef::Arn(_) => None,
    };
    let github = &plan.file.github;
    let credential = match &github.credential {
        Some(GithubCredential::App { private_key, .. }) => Some(private_key),
        Some(GithubCredential::Token(token)) => Some(token),
        None => None,
    };
    let secrets = credential.into_iter().chain(&plan.file.listeners.admin_token);
    let secrets = secrets.chain(&github.webhook_secrets).chain(github.more_apps.values());
    let given = match &plan.common.github.credential {
        Some(Credential::TokenFile(path) | Credential::App { key: AppKey::File(path), .. }) => {
            Some(path.clone())
        }
        Some(Credential::Token(_) | Credential::App { key: AppKey::Text(_), .. }) | None => None,
    };
    secrets.filter_map(file).chain(given).collect()
}

/// The isolation of jobs from this host, as configured.
fn isolation(plan: &RuntimePlan<'_>, state: &Path) -> IsolationSettings {
    let process = &plan.file.process_fleet;
    let inputs = &plan.common.stack;
    let files = [&inputs.stack, &inputs.config, &plan.common.github.runner_dir];
    let own = own_program().ok();
    IsolationSettings {
        mode: process.isolation,
        users: process.users,
        state: state.to_owned(),
        home: plan.environment.get("HOME").map(PathBuf::from),
        secrets: secrets(plan),
        fixed: files.into_iter().flatten().cloned().chain(own).collect(),
        visible: process.visible.clone(),
        processes_max: process.limits.then_some(process.processes_max),
        cgroup: process.cgroup.clone(),
    }
}

/// The isolation that this host supports, of what is configured.
pub(crate) fn isolated(plan: &RuntimePlan<'_>) -> Result<ChosenIsolation, RuntimeError> {
    let state = super::make_state(&plan.common.stack.state)?;
    Ok(choose(&isolation(plan, &state), &state.join("machines")))
}

/// The fleet of this state directory. `agents_have`: extra variables for agents, hidden from jobs.
pub(super) fn fleet(
    plan: &RuntimePlan<'_>,
    state: &Path,
    machine: &MachineSettings<'_>,
    agents_have: BTreeMap<String, String>,
    clock: Arc<SystemClock>,
) -> Result<ProcessFleet<SystemClock>, RuntimeError> {
    let own = own_program()?;
    let command = |name: &str| vec![own.clone().into_os_string(), name.into()];
    let environment: BTreeMap<String, String> = INHERITED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), plan.environment.get(*name)?.clone())))
        .collect();
    let github = &plan.common.github;
    // A job's HOME is its own directory, which the agent empties between owners.
    let of_jobs = environment.iter().filter(|(name, _)| *name != "HOME").map(own_pair).collect();
    let user_data = runner_program(github, &own)
        .and_then(|runner| user_data(github, machine, runner, of_jobs))
        .map(|data| data.to_text());
    let process = &plan.file.process_fleet;
    let ids = SystemIds::new();
    let settings = FleetSettings {
        directory: state.join("machines"),
        supervisor: command("supervise"),
        agent: command("agent"),
        environment: environment.into_iter().chain(agents_have).collect(),
        user_data: user_data.unwrap_or_default(),
        watchdog: machine.limits.watchdog,
        boot_delay: process.boot_delay,
        capacity: Capacity { machines_max: Some(process.capacity), out_of: process.out_of.clone() },
        catalogue: Catalogue::built_in(),
        entropy: Entropy::new(move || ids.jitter(u64::MAX)),
        isolation: Some(isolation(plan, state)),
    };
    Ok(ProcessFleet::open(settings, clock)?)
}
