//! A stack at AWS.
//!
//! Not here: what is thought of an answer (`verdict`).

use std::collections::BTreeSet;

use bullpen_aws::doctor::{identity, permissions, quota};
use bullpen_aws::setup;
use bullpen_core::class::{Architecture, RunnerClass, Usage};
use bullpen_core::ids::{RunnerGroup, Zone};
use bullpen_core::parameters::Parameters;
use bullpen_core::ports::{Clock as _, Fault, Fleet as _, Ports, Queues as _};

use super::verdict::{self, Check, Verdict};
use super::{Examining, isolation, named_groups, no_state, runner};
use crate::runtime::aws::AwsSite;
use crate::runtime::{self, Command, GithubAccess, Runtime, RuntimeError, RuntimePlan};
use crate::workflow::Failure;

/// What `refresh` puts right.
const REFRESH: &str = "run `bullpen refresh`";

/// Everything that can be looked at.
pub(super) async fn checks(plans: &RuntimePlan<'_>) -> Result<Vec<Check>, RuntimeError> {
    let is_here = plans.common.stack.is_on_this_machine();
    if !is_here {
        runtime::ec2::configured(plans.file, &plans.common.stack)?;
    }
    let site = match AwsSite::find(plans).await {
        Ok(site) => site,
        Err(error) => {
            let then = "`aws sts get-caller-identity` says who AWS thinks you are";
            return Ok(vec![Check::failed("credentials", Failure::from(error).what, then)]);
        }
    };
    let mut checks = who(&site).await;
    if is_here {
        checks.push(runner(plans));
        // Looking makes no directory.
        let state = &plans.common.stack.state;
        checks.extend(if state.exists() { isolation(plans) } else { vec![no_state(state)] });
    }
    if let Err(error) = setup::verify(&site.config, &site.name).await {
        checks.push(Check::failed("tables", error.to_string(), REFRESH));
    } else {
        checks.push(Check::fine("tables", "both are there, of this layout"));
        let archive = plans.file.instance.runners.iter().next();
        let archive = archive.map(|(which, one)| (one.url.clone(), *which));
        let groups = named_groups(plans.config);
        checks.append(&mut runtime::visit(plans, Looking { is_here, archive, groups }).await?);
    }
    if !is_here {
        let classes = runtime::classes(plans.config, &Parameters::default());
        checks.push(ceiling(plans));
        checks.extend(agents(plans, &classes));
        checks.append(&mut allowed(plans, &site).await);
        checks.append(&mut quotas(&classes, &site).await);
    }
    Ok(checks)
}

/// Without it `serve` and `provision` launch nothing.
fn ceiling(plans: &RuntimePlan<'_>) -> Check {
    let (name, (what, then)) = ("ceiling", runtime::NO_CEILING);
    match plans.file.ceilings.stack {
        Some(most) => Check::fine(name, format!("at most {most} machines")),
        None => Check::failed(name, what, then),
    }
}

/// Where machines of each architecture get the agent from.
fn agents(plans: &RuntimePlan<'_>, classes: &[RunnerClass]) -> Vec<Check> {
    let architectures: BTreeSet<Architecture> =
        classes.iter().map(|class| class.architecture).collect();
    let check = |architecture: Architecture| {
        let (name, which) = (format!("agent for {}", architecture.as_str()), architecture.as_str());
        match plans.file.instance.agents.get(&architecture) {
            Some(agent) => Check::fine(name, format!("from {}", agent.url)),
            None => Check::warning(
                name,
                "from nowhere: images must have it as /opt/bullpen/bullpen-agent",
                format!("or write `agent-{which}` and `agent-{which}-sha256` under [instance]"),
            ),
        }
    };
    architectures.into_iter().map(check).collect()
}

async fn who(site: &AwsSite) -> Vec<Check> {
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

/// A look at what `refresh` keeps in order.
struct Looking {
    is_here: bool,
    archive: Option<(String, Architecture)>,
    groups: BTreeSet<RunnerGroup>,
}

impl Command for Looking {
    type Outcome = Vec<Check>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, house: Runtime<P>) -> Self::Outcome {
        let mut checks = vec![queues(&house).await];
        if !self.is_here {
            checks.push(ground(&house).await);
            for class in &house.classes {
                checks.push(template(&house, class).await);
            }
        }
        checks
            .append(&mut Examining { archive: self.archive, groups: self.groups }.run(house).await);
        checks
    }
}

async fn queues<P: Ports>(house: &Runtime<P>) -> Check {
    let name = "queues";
    let mut missing = Vec::new();
    for class in &house.classes {
        match house.stack.ports.queues().depth(&house.stack.queue_of(&class.name)).await {
            Ok(_) => {}
            Err(Fault::NotFound) => missing.push(class.name.as_str()),
            Err(fault) => return Check::failed(name, fault.to_string(), "try again later"),
        }
    }
    if missing.is_empty() {
        return Check::fine(name, format!("those of {} classes are there", house.classes.len()));
    }
    Check::failed(name, format!("none for class {}", missing.join(", ")), REFRESH)
}

/// The profile and its role, subnets and groups of one network.
async fn ground<P: Ports>(house: &Runtime<P>) -> Check {
    let name = "role and network";
    match house.stack.ports.fleet().learn("", None).await {
        Ok(Some(ground)) => {
            let zones: BTreeSet<&Zone> = ground.subnets.values().collect();
            let (role, count) = (&ground.role_id, ground.subnets.len());
            Check::fine(name, format!("role {role}; {count} subnets in {} zones", zones.len()))
        }
        Ok(None) => Check::fine(name, "none is needed"),
        Err(fault) => {
            Check::failed(name, fault.to_string(), "correct it under [aws] of bullpen.toml")
        }
    }
}

/// Whether a class's image is there and of its architecture, and its template as it should be.
async fn template<P: Ports>(house: &Runtime<P>, class: &RunnerClass) -> Check {
    let name = format!("class {}", class.name);
    match house.stack.ports.fleet().prepare(std::slice::from_ref(class), false).await {
        Ok(would) if would.iter().any(|what| !what.starts_with("removed")) => {
            Check::warning(name, "its launch template is not as it should be", REFRESH)
        }
        Ok(_) => Check::fine(name, "image and launch template are as they should be"),
        Err(fault) => Check::failed(name, fault.to_string(), "correct its image"),
    }
}

async fn allowed(plans: &RuntimePlan<'_>, site: &AwsSite) -> Vec<Check> {
    let subnet = plans.file.aws.subnets.first().map_or("", String::as_str);
    match permissions(&site.config, &site.name, subnet).await {
        Ok(answers) => answers
            .into_iter()
            .map(|(action, answer)| Check {
                name: action.to_owned(),
                verdict: verdict::permission(action, answer),
            })
            .collect(),
        Err(fault) => {
            let then = "`bullpen policies control-plane` prints what is needed";
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
