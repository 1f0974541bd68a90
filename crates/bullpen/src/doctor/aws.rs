//! The doctor's checks of a stack at AWS.
//!
//! Not here: judging an answer (`verdict`).

use std::collections::BTreeSet;

use bullpen_aws::doctor::{identity, permissions, quota};
use bullpen_aws::{LaunchSite, setup};
use bullpen_core::class::{Architecture, RunnerClass, Usage};
use bullpen_core::ids::{RunnerGroup, Zone};
use bullpen_core::parameters::Parameters;
use bullpen_core::ports::{Clock as _, Fault, LearnedSite, Ports, Queues as _, Site as _};

use super::verdict::{self, Check, Verdict};
use super::{PortChecks, isolation, named_groups, no_state, runner};
use crate::runtime::aws::AwsSite;
use crate::runtime::{self, Command, GithubAccess, Runtime, RuntimeError, RuntimePlan};
use crate::workflow::Failure;

/// The advice for a problem that `refresh` repairs.
const REFRESH: &str = "run `bullpen refresh`";

/// All checks of a stack at AWS.
pub(super) async fn checks(plan: &RuntimePlan<'_>) -> Result<Vec<Check>, RuntimeError> {
    let is_here = plan.common.stack.is_on_this_machine();
    if !is_here {
        runtime::ec2::configured(plan.file, &plan.common.stack)?;
    }
    let site = match AwsSite::find(plan).await {
        Ok(site) => site,
        Err(error) => {
            let then = "`aws sts get-caller-identity` shows which identity AWS sees";
            return Ok(vec![Check::failed("credentials", Failure::from(error).what, then)]);
        }
    };
    let mut checks = identity_checks(&site).await;
    if is_here {
        checks.push(runner(plan));
        // The doctor must not make the directory.
        let state = &plan.common.stack.state;
        checks.extend(if state.exists() { isolation(plan) } else { vec![no_state(state)] });
    }
    if let Err(error) = setup::verify(&site.config, &site.name).await {
        checks.push(Check::failed("tables", error.to_string(), REFRESH));
    } else {
        checks.push(Check::fine("tables", "both exist with this version's layout"));
        let archive = plan.file.instance.runners.iter().next();
        let archive = archive.map(|(which, one)| (one.url.clone(), *which));
        let groups = named_groups(plan.config);
        checks.append(&mut runtime::run(plan, AwsChecks { is_here, archive, groups }).await?);
    }
    if !is_here {
        let classes = runtime::classes(plan.config, &Parameters::default());
        checks.push(ceiling(plan));
        checks.extend(agents(plan, &classes));
        checks.append(&mut allowed(plan, &site).await);
        checks.append(&mut quotas(&classes, &site).await);
    }
    Ok(checks)
}

/// Without a ceiling `serve` and `provision` launch nothing.
fn ceiling(plan: &RuntimePlan<'_>) -> Check {
    let (name, (what, then)) = ("ceiling", runtime::NO_CEILING);
    match plan.file.ceilings.stack {
        Some(most) => Check::fine(name, format!("at most {most} machines")),
        None => Check::failed(name, what, then),
    }
}

/// The source of the agent, for each architecture.
fn agents(plan: &RuntimePlan<'_>, classes: &[RunnerClass]) -> Vec<Check> {
    let architectures: BTreeSet<Architecture> =
        classes.iter().map(|class| class.architecture).collect();
    let check = |architecture: Architecture| {
        let (name, which) = (format!("agent for {}", architecture.as_str()), architecture.as_str());
        match plan.file.instance.agents.get(&architecture) {
            Some(agent) => Check::fine(name, format!("from {}", agent.url)),
            None => Check::warning(
                name,
                "no download configured: images must contain /opt/bullpen/bullpen-agent",
                format!("or write `agent-{which}` and `agent-{which}-sha256` under [instance]"),
            ),
        }
    };
    architectures.into_iter().map(check).collect()
}

async fn identity_checks(site: &AwsSite) -> Vec<Check> {
    let region = site.config.region().map(ToString::to_string).unwrap_or_default();
    let region = Check::fine("region", region);
    match identity(&site.config).await {
        Err(fault) => {
            let then = "log in again, for example with `aws sso login`";
            vec![Check::failed("credentials", fault.to_string(), then), region]
        }
        Ok(who) => {
            let now = site.clock.now();
            let off = who.at.map(|at| now.since(at).max(at.since(now)));
            let clock = Check { name: "clock".to_owned(), verdict: verdict::clock(off) };
            let what = format!("{} of account {}", who.arn, who.account);
            vec![Check::fine("credentials", what), region, clock]
        }
    }
}

/// Checks of what `refresh` maintains.
struct AwsChecks {
    is_here: bool,
    archive: Option<(String, Architecture)>,
    groups: BTreeSet<RunnerGroup>,
}

impl Command for AwsChecks {
    type Outcome = Vec<Check>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let mut checks = vec![queues(&runtime).await];
        if !self.is_here {
            checks.push(launch_site(&runtime).await);
            for class in &runtime.classes {
                checks.push(template(&runtime, class).await);
            }
        }
        checks.append(
            &mut PortChecks { archive: self.archive, groups: self.groups }.run(runtime).await,
        );
        checks
    }
}

async fn queues<P: Ports>(runtime: &Runtime<P>) -> Check {
    let name = "queues";
    let mut missing = Vec::new();
    for class in &runtime.classes {
        match runtime.stack.ports.queues().depth(&runtime.stack.queue_of(&class.name)).await {
            Ok(_) => {}
            Err(Fault::NotFound) => missing.push(class.name.as_str()),
            Err(fault) => return Check::failed(name, fault.to_string(), "try again later"),
        }
    }
    if missing.is_empty() {
        return Check::fine(name, format!("{} classes have one", runtime.classes.len()));
    }
    Check::failed(name, format!("missing for class {}", missing.join(", ")), REFRESH)
}

/// Whether the launch site is valid: the profile and its role, and subnets and groups of one
/// network.
async fn launch_site<P: Ports>(runtime: &Runtime<P>) -> Check {
    let name = "role and network";
    let learned = runtime.stack.ports.site().learn("", None).await;
    let read = |learned: LearnedSite| LaunchSite::read(&learned.document);
    match learned.and_then(|learned| learned.map(read).transpose()) {
        Ok(Some(LaunchSite { facts, .. })) => {
            let zones: BTreeSet<&Zone> = facts.subnets.values().collect();
            let (role, count) = (&facts.role_id, facts.subnets.len());
            Check::fine(name, format!("role {role}; {count} subnets in {} zones", zones.len()))
        }
        Ok(None) => Check::fine(name, "not needed"),
        Err(fault) => Check::failed(name, fault.to_string(), "correct [aws] of bullpen.toml"),
    }
}

/// Whether a class's image exists with the right architecture, and its launch template is up to
/// date.
async fn template<P: Ports>(runtime: &Runtime<P>, class: &RunnerClass) -> Check {
    let name = format!("class {}", class.name);
    match runtime.stack.ports.site().prepare(std::slice::from_ref(class), false).await {
        Ok(would) if would.iter().any(|what| !what.starts_with("removed")) => {
            Check::warning(name, "its launch template is out of date", REFRESH)
        }
        Ok(_) => Check::fine(name, "image and launch template are up to date"),
        Err(fault) => Check::failed(name, fault.to_string(), "correct its image"),
    }
}

async fn allowed(plan: &RuntimePlan<'_>, site: &AwsSite) -> Vec<Check> {
    let subnet = plan.file.aws.subnets.first().map_or("", String::as_str);
    match permissions(&site.config, &site.name, subnet).await {
        Ok(answers) => answers
            .into_iter()
            .map(|(action, answer)| Check {
                name: action.to_owned(),
                verdict: verdict::permission(action, answer),
            })
            .collect(),
        Err(fault) => {
            let then = "`bullpen policies control-plane` prints the required policy";
            vec![Check::failed("permissions", fault.to_string(), then)]
        }
    }
}

async fn quotas(classes: &[RunnerClass], site: &AwsSite) -> Vec<Check> {
    let largest = classes.iter().map(|class| class.vcpu.min).max().unwrap_or_default();
    let mut checks = Vec::new();
    for usage in [Usage::OnDemand, Usage::Spot] {
        let verdict = match quota(&site.config, usage).await {
            Ok(vcpus) => verdict::quota(vcpus, largest),
            Err(fault) => Verdict::Unknown(fault.to_string()),
        };
        checks.push(Check { name: format!("{} quota", usage.as_str()), verdict });
    }
    checks
}
