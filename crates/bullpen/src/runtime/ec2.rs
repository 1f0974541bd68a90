//! Builds the fleet of machines in EC2, over the AWS engine's stores.
//!
//! It checks the required settings of `bullpen.toml` before it calls AWS.
//!
//! Not here: the fleet itself (`bullpen-aws`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bullpen_agent::machine::{RunnerProgram, UserData};
use bullpen_aws::{DynamoLedger, DynamoMailbox, Ec2Fleet, Ec2Settings, SHOWN_WITHIN, SqsQueues};
use bullpen_core::class::Architecture;
use bullpen_core::config::Stack as StackFile;
use bullpen_core::config::stack::{Aws, Instance};
use bullpen_core::download::Download;
use bullpen_core::spec_hash::digest_hex;
use bullpen_embedded::system::SystemClock;
use serde_json::json;

use super::aws::AwsSite;
use super::{
    IfMissing, MachineBase, MachineSettings, Runtime, RuntimeError, RuntimePlan, RuntimePorts,
    assemble, user_data,
};
use crate::inputs::{StackInputs, UsageError};

/// The ports of the AWS engine with machines in EC2.
pub(crate) type Ec2Ports = RuntimePorts<
    DynamoLedger<SystemClock>,
    SqsQueues,
    DynamoMailbox<SystemClock>,
    Ec2Fleet<SystemClock>,
>;

/// Digits of the digest of what machines start with.
const DIGEST_CHARS: usize = 16;

/// Builds the runtime, and creates missing tables if `missing` says so.
pub(crate) async fn build(
    plan: &RuntimePlan<'_>,
    missing: IfMissing,
) -> Result<Runtime<Ec2Ports>, RuntimeError> {
    let profile = configured(plan.file, &plan.common.stack)?;
    let site = AwsSite::find(plan).await?;
    let created = site.create_tables(missing).await?;
    let stores = site.stores(site.region());
    let fleet = |machine: MachineSettings<'_>| Ok(fleet(plan, &site, profile, &machine));
    let read = (base(plan.file), missing.into());
    let mut runtime = assemble(plan, stores, Arc::clone(&site.clock), read, fleet).await?;
    runtime.stack.clock = site.witness.clone();
    Ok(Runtime { region: site.region(), created, ..runtime })
}

/// Checks the keys of `[aws]` that machines need; returns the instance profile.
pub(crate) fn configured<'a>(
    file: &'a StackFile,
    inputs: &StackInputs,
) -> Result<&'a str, UsageError> {
    let Aws { subnets, security_groups, instance_profile, .. } = &file.aws;
    let missing: Vec<&str> = [
        ("`subnets`", subnets.is_empty()),
        ("`security-groups`", security_groups.is_empty()),
        ("`instance-profile`", instance_profile.is_none()),
    ]
    .into_iter()
    .filter_map(|(key, is_missing)| is_missing.then_some(key))
    .collect();
    let path = inputs.stack.as_ref().map(|path| path.display().to_string());
    let path = path.unwrap_or_else(|| "bullpen.toml (--stack not given)".to_owned());
    match instance_profile {
        Some(profile) if missing.is_empty() => Ok(profile),
        _ => Err(UsageError::new(format!(
            "{path}: machines in EC2 need {} under [aws]; add the missing keys, or set \
             BULLPEN_AWS_SUBNETS, BULLPEN_AWS_SECURITY_GROUPS, BULLPEN_AWS_INSTANCE_PROFILE",
            missing.join(", ")
        ))),
    }
}

/// What such machines are built from: a machine with other settings has another spec hash.
fn base(file: &StackFile) -> MachineBase {
    let Instance { agents, runner_dir, runners, user, sudo, metadata_hops, .. } = &file.instance;
    let Instance { docker, metadata_open, .. } = &file.instance;
    let sums = |all: &BTreeMap<Architecture, Download>| -> Vec<(&'static str, String)> {
        all.iter().map(|(which, one)| (which.as_str(), one.sha256.clone())).collect()
    };
    let Aws { security_groups, instance_profile, .. } = &file.aws;
    let parts = json!([
        sums(agents),
        runner_dir,
        sums(runners),
        user,
        (sudo, docker, metadata_open),
        metadata_hops,
        security_groups,
        instance_profile,
    ]);
    let digest = digest_hex(parts.to_string().as_bytes());
    let digest: String = digest.chars().take(DIGEST_CHARS).collect();
    MachineBase { image: format!("ec2:{digest}"), program: None }
}

pub(super) fn fleet(
    plan: &RuntimePlan<'_>,
    site: &AwsSite,
    profile: &str,
    machine: &MachineSettings<'_>,
) -> Ec2Fleet<SystemClock> {
    let github = &plan.common.github;
    let instance = &plan.file.instance;
    let given = github.runner_dir.clone();
    let directory = given.unwrap_or_else(|| PathBuf::from(&instance.runner_dir));
    // The fleet fills in the download for the class's architecture.
    let runner = RunnerProgram::Image { directory, download: None };
    let (user, sudo) = (Some(instance.user.clone()), instance.sudo);
    let metadata_open = instance.metadata_open;
    let user_data = user_data(github, machine, runner, BTreeMap::new()).map(|data| UserData {
        user,
        sudo,
        metadata_open,
        ..data
    });
    let settings = settings(plan.file, site, profile, machine);
    Ec2Fleet::new(&site.config, settings, user_data, Arc::clone(&site.clock))
}

fn settings(
    file: &StackFile,
    site: &AwsSite,
    profile: &str,
    machine: &MachineSettings<'_>,
) -> Ec2Settings {
    let Instance { agents, runners, user, sudo, docker, .. } = &file.instance;
    let Instance { metadata_hops, price_protection, .. } = &file.instance;
    Ec2Settings {
        stack: site.name.clone(),
        subnets: file.aws.subnets.clone(),
        security_groups: file.aws.security_groups.clone(),
        instance_profile: profile.to_owned(),
        images: file.images.clone(),
        agents: agents.clone(),
        runners: runners.clone(),
        watchdog: machine.limits.watchdog,
        // The operator of a stack with a shorter grace knows how fast the cloud lists machines.
        shown_within: SHOWN_WITHIN.min(machine.limits.reconcile_grace),
        user: user.clone(),
        sudo: *sudo,
        docker: *docker,
        metadata_hops: *metadata_hops,
        price_protection: *price_protection,
    }
}
