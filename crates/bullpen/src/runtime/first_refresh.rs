//! The dry run of a stack's first refresh at AWS, when there is no ledger yet.
//!
//! Not here: every other dry run (`bullpen_engine::refresh::dry_run`).

use bullpen_aws::setup;
use bullpen_core::class::RunnerClass;
use bullpen_core::parameters::Parameters;
use bullpen_core::ports::{Fault, Site as _};
use bullpen_engine::refresh::StepReport;

use super::aws::AwsSite;
use super::{MachineSettings, RuntimeError, RuntimePlan, classes, ec2};
use crate::inputs::Fleet;

/// The steps that a first refresh would take; `None` if every table exists, so that the engine's
/// dry run works.
pub(crate) async fn dry_run(
    plan: &RuntimePlan<'_>,
    named: Option<&[RunnerClass]>,
) -> Result<Option<Vec<StepReport>>, RuntimeError> {
    if plan.common.stack.fleet == Fleet::Ec2 {
        ec2::configured(plan.file, &plan.common.stack)?;
    }
    let site = AwsSite::find(plan).await?;
    let missing = setup::missing(&site.config, &site.name).await;
    let missing = missing.map_err(|error| RuntimeError::Aws(error.into()))?;
    if missing.is_empty() {
        return Ok(None);
    }
    let parameters = Parameters { classes: named.map(<[_]>::to_vec), ..Parameters::default() };
    let classes = classes(plan.config, &parameters);
    let tables = missing.iter().map(|name| format!("make table {name}")).collect();
    let queues = classes.iter().map(|class| format!("make the queue of class {}", class.name));
    let mut reports = vec![StepReport { step: "tables", outcome: Ok(tables) }];
    if plan.common.stack.fleet == Fleet::Ec2 {
        reports.extend(in_ec2(plan, &site, &parameters, &classes).await?);
    }
    reports.push(StepReport { step: "queues", outcome: Ok(queues.collect()) });
    Ok(Some(reports))
}

async fn in_ec2(
    plan: &RuntimePlan<'_>,
    site: &AwsSite,
    parameters: &Parameters,
    classes: &[RunnerClass],
) -> Result<[StepReport; 2], RuntimeError> {
    let place = site.stores(site.region()).place;
    let machine = MachineSettings { place, limits: &plan.file.limits, parameters };
    let profile = ec2::configured(plan.file, &plan.common.stack)?;
    let fleet = ec2::fleet(plan, site, profile, &machine);
    let message = |fault: Fault| fault.to_string();
    let learned = fleet.learn("", None).await.map_err(message).map(|learned| {
        learned.into_iter().map(|learned| format!("learn {}", learned.what)).collect()
    });
    let templates = fleet.prepare(classes, false).await.map_err(message);
    Ok([
        StepReport { step: "ground", outcome: learned },
        StepReport { step: "templates", outcome: templates },
    ])
}
