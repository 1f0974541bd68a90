//! Machines that are processes of this host.
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
    MachineBase, RuntimeError, RuntimePlan, Told, own_pair, own_program, runner_program, user_data,
};
use crate::inputs::{AppKey, Credential, GithubInputs};

/// The variables that supervisors, agents and jobs start with, as this command has them.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "USER"];

/// Counts the ways in which jobs of such machines were held, the present one being the last.
const HELD: u32 = 2;
/// Digits of the digest that tells what holds jobs.
const DIGEST_CHARS: usize = 16;

/// What such machines are built from. One whose jobs are held otherwise is another one: how is fixed at
/// its launch. What the host allows of it is not asked here, by every command.
pub(super) fn base(github: &GithubInputs, file: &StackFile) -> MachineBase {
    let program = github.runner_dir.as_ref().map(|path| path.display().to_string());
    let Section { isolation, users, visible, limits, processes_max, cgroup, .. } =
        &file.process_fleet;
    let wish = IsolationMode::ALL.iter().find(|(_, wish)| wish == isolation).map(|(word, _)| *word);
    let limits = limits.then_some((processes_max, cgroup));
    let told = json!([HELD, wish, (users.first(), users.last()), visible, limits]);
    let digest = digest_hex(told.to_string().as_bytes());
    let digest: String = digest.chars().take(DIGEST_CHARS).collect();
    MachineBase { image: format!("process:{digest}"), program }
}

/// Files with secrets that this command was told of.
fn secrets(plans: &RuntimePlan<'_>) -> Vec<PathBuf> {
    let file = |secret: &SecretRef| match secret {
        SecretRef::File(path) => Some(PathBuf::from(path)),
        SecretRef::Env(_) | SecretRef::Arn(_) => None,
    };
    let github = &plans.file.github;
    let credential = match &github.credential {
        Some(GithubCredential::App { private_key, .. }) => Some(private_key),
        Some(GithubCredential::Token(token)) => Some(token),
        None => None,
    };
    let secrets = credential.into_iter().chain(&plans.file.listeners.admin_token);
    let secrets = secrets.chain(&github.webhook_secrets).chain(github.more_apps.values());
    let given = match &plans.common.github.credential {
        Some(Credential::TokenFile(path) | Credential::App { key: AppKey::File(path), .. }) => {
            Some(path.clone())
        }
        Some(Credential::Token(_) | Credential::App { key: AppKey::Text(_), .. }) | None => None,
    };
    secrets.filter_map(file).chain(given).collect()
}

/// How jobs are to be kept from this host.
fn isolation(plans: &RuntimePlan<'_>, state: &Path) -> IsolationSettings {
    let process = &plans.file.process_fleet;
    let inputs = &plans.common.stack;
    let files = [&inputs.stack, &inputs.config, &plans.common.github.runner_dir];
    let own = own_program().ok();
    IsolationSettings {
        wish: process.isolation,
        users: process.users,
        state: state.to_owned(),
        home: plans.environment.get("HOME").map(PathBuf::from),
        secrets: secrets(plans),
        fixed: files.into_iter().flatten().cloned().chain(own).collect(),
        visible: process.visible.clone(),
        processes_max: process.limits.then_some(process.processes_max),
        cgroup: process.cgroup.clone(),
    }
}

/// What this host allows of that.
pub(crate) fn isolated(plans: &RuntimePlan<'_>) -> Result<ChosenIsolation, RuntimeError> {
    let state = super::make_state(&plans.common.stack.state)?;
    Ok(choose(&isolation(plans, &state), &state.join("machines")))
}

/// The fleet of this state directory. `agents_have`: variables that agents have besides, and jobs have
/// not.
pub(super) fn fleet(
    plans: &RuntimePlan<'_>,
    state: &Path,
    told: &Told<'_>,
    agents_have: BTreeMap<String, String>,
    clock: Arc<SystemClock>,
) -> Result<ProcessFleet<SystemClock>, RuntimeError> {
    let own = own_program()?;
    let command = |name: &str| vec![own.clone().into_os_string(), name.into()];
    let environment: BTreeMap<String, String> = INHERITED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), plans.environment.get(*name)?.clone())))
        .collect();
    let github = &plans.common.github;
    // What jobs find in HOME is theirs, and is emptied between owners.
    let of_jobs = environment.iter().filter(|(name, _)| *name != "HOME").map(own_pair).collect();
    let user_data = runner_program(github, &own)
        .and_then(|runner| user_data(github, told, runner, of_jobs))
        .map(|data| data.to_text());
    let process = &plans.file.process_fleet;
    let ids = SystemIds::new();
    let settings = FleetSettings {
        directory: state.join("machines"),
        supervisor: command("supervise"),
        agent: command("agent"),
        environment: environment.into_iter().chain(agents_have).collect(),
        user_data: user_data.unwrap_or_default(),
        watchdog: told.limits.watchdog,
        boot_delay: process.boot_delay,
        capacity: Capacity { machines_max: Some(process.capacity), out_of: process.out_of.clone() },
        catalogue: Catalogue::built_in(),
        entropy: Entropy::new(move || ids.jitter(u64::MAX)),
        isolation: Some(isolation(plans, state)),
    };
    Ok(ProcessFleet::open(settings, clock)?)
}
