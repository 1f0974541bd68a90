//! `bullpen policies`: prints a policy as JSON for IAM.
//!
//! It makes no call to AWS: the policy follows from `bullpen.toml`, from the addresses of scripts
//! in `runs-on.yml`, and from the arguments.
//!
//! Not here: the policies (`bullpen_aws::policy`).

use bullpen_aws::StackName;
use bullpen_aws::policy::{self, Party, PolicySettings};
use bullpen_core::config::{Config, Stack as StackFile};
use serde_json::Value;

use crate::exit::Exit;
use crate::inputs::{Environment, StackArgs, StackInputs, UsageError, files};
use crate::render;
use crate::workflow::{Failure, run_command};

/// Digits of an account's number.
const ACCOUNT_DIGITS: usize = 12;

/// The policy to print, and its account.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PoliciesArgs {
    /// The policy
    #[arg(value_enum, value_name = "POLICY")]
    policy: PolicyName,
    /// The account's number [default: any, because a policy is used in its own account]
    #[arg(long, value_name = "NUMBER")]
    account: Option<String>,
    /// The name of the instance profile's role [default: the profile's name]
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    /// Workflow steps have no credential for GitHub and use the tokens that `refresh` keeps
    #[arg(long)]
    kept_tokens: bool,
    #[command(flatten)]
    stack: StackArgs,
}

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PolicyName {
    /// For the service and an operator's commands
    ControlPlane,
    /// For the role of instances
    Instance,
    /// For a workflow's steps
    Workflow,
    /// The trust policy of the role of instances: only instances may have the role
    Trust,
}

/// Prints a policy.
pub(crate) fn policies(args: &PoliciesArgs) -> Exit {
    run_command(async |environment| {
        let document = document(args, environment)?;
        let text = serde_json::to_string_pretty(&document)
            .map_err(|error| Failure::new(Exit::Failed, &error))?;
        render::json(&text);
        Ok(Exit::Done)
    })
}

fn document(args: &PoliciesArgs, environment: &Environment) -> Result<Value, UsageError> {
    let inputs = StackInputs::read(&args.stack, environment)?;
    let (file, config) = (files::stack(&inputs, environment)?, files::config(&inputs)?);
    if args.kept_tokens && args.policy != PolicyName::Workflow {
        return Err(UsageError::new("--kept-tokens: only for `policies workflow`"));
    }
    let party = match args.policy {
        PolicyName::ControlPlane => Party::ControlPlane,
        PolicyName::Instance => Party::Instance,
        PolicyName::Workflow => Party::Workflow,
        PolicyName::Trust => return Ok(policy::instance_trust()),
    };
    Ok(policy::document(party, &settings(args, (&file, config.as_ref()), environment)?))
}

fn settings(
    args: &PoliciesArgs,
    (file, config): (&StackFile, Option<&Config>),
    environment: &Environment,
) -> Result<PolicySettings, UsageError> {
    let stack = StackName::new(&file.name).map_err(|error| UsageError::new(error.to_string()))?;
    let region = file.aws.region.as_ref().or_else(|| environment.get("AWS_REGION"));
    let region = region.filter(|region| !region.is_empty()).ok_or_else(|| {
        let line = "no region: write `region` under [aws] of bullpen.toml, or set AWS_REGION";
        UsageError::new(line)
    })?;
    let profile = file.aws.instance_profile.clone().ok_or_else(|| {
        let line = "no instance profile: write `instance-profile` under [aws] of \
                    bullpen.toml, or set BULLPEN_AWS_INSTANCE_PROFILE";
        UsageError::new(line)
    })?;
    let of_profile = || profile.rsplit('/').next().unwrap_or_default().to_owned();
    let programs = file.instance.agents.values().chain(file.instance.runners.values()).cloned();
    let scripts = config.into_iter().flat_map(Config::fetched_scripts);
    Ok(PolicySettings {
        stack,
        region: region.clone(),
        account: args.account.as_deref().map(account).transpose()?,
        role: args.role.clone().unwrap_or_else(of_profile),
        subnets: file.aws.subnets.clone(),
        security_groups: file.aws.security_groups.clone(),
        fetched: programs.chain(scripts).map(|file| file.url).collect(),
        instance_profile: profile,
        kept_tokens: args.kept_tokens,
    })
}

fn account(text: &str) -> Result<String, UsageError> {
    if text.len() == ACCOUNT_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text.to_owned());
    }
    let line = format!("--account: {text:?} is not the {ACCOUNT_DIGITS} digits of an account");
    Err(UsageError::new(line))
}

#[cfg(test)]
mod tests {
    use bullpen_core::config::{runs_on, stack};

    use super::*;

    #[test]
    fn the_instance_policy_allows_the_addresses_of_scripts() {
        let toml = "[stack]\nname = \"prod\"\n[aws]\nregion = \"eu-west-1\"\n\
                    subnets = [\"subnet-01234567\"]\nsecurity-groups = [\"sg-01234567\"]\n\
                    instance-profile = \"machines\"\n";
        let file = stack::read(toml.as_bytes(), &Environment::default());
        let yaml = format!(
            "runners:\n  a:\n    cpu: 2\n    preinstall: s3://b/setup#sha256={}\n",
            "0".repeat(64)
        );
        let config = runs_on::read(yaml.as_bytes());
        let args = PoliciesArgs {
            policy: PolicyName::Instance,
            account: None,
            role: None,
            kept_tokens: false,
            stack: StackArgs::default(),
        };
        let files = (file.value().unwrap(), config.value());
        let settings = settings(&args, files, &Environment::default()).unwrap();
        let document = policy::document(Party::Instance, &settings).to_string();
        assert!(document.contains("arn:aws:s3:::b/setup"), "{document}");
    }
}
