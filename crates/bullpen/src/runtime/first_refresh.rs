//! What the first refresh of a stack at AWS would make: there is no ledger yet in which it could be
//! rehearsed.
//!
//! Not here: every other rehearsal (`bullpen_engine::refresh::dry_run`).

use bullpen_aws::setup;
use bullpen_core::class::RunnerClass;
use bullpen_core::parameters::Parameters;
use bullpen_core::ports::{Fault, Fleet as _};
use bullpen_engine::refresh::StepReport;

use super::aws::AwsSite;
use super::{RuntimeError, RuntimePlan, Told, classes, ec2};
use crate::inputs::Fleet;

/// What would be done, if a table is not there; nothing if all are, and all can be rehearsed.
pub(crate) async fn rehearsed(
    plans: &RuntimePlan<'_>,
    named: Option<&[RunnerClass]>,
) -> Result<Option<Vec<StepReport>>, RuntimeError> {
    if plans.common.stack.fleet == Fleet::Ec2 {
        ec2::configured(plans.file, &plans.common.stack)?;
    }
    let site = AwsSite::find(plans).await?;
    let missing = setup::missing(&site.config, &site.name).await;
    let missing = missing.map_err(|error| RuntimeError::Aws(error.into()))?;
    if missing.is_empty() {
        return Ok(None);
    }
    let parameters = Parameters { classes: named.map(<[_]>::to_vec), ..Parameters::default() };
    let classes = classes(plans.config, &parameters);
    let tables = missing.iter().map(|name| format!("make table {name}")).collect();
    let queues = classes.iter().map(|class| format!("make the queue of class {}", class.name));
    let mut reports = vec![StepReport { step: "tables", outcome: Ok(tables) }];
    if plans.common.stack.fleet == Fleet::Ec2 {
        reports.extend(in_ec2(plans, &site, &parameters, &classes).await?);
    }
    reports.push(StepReport { step: "queues", outcome: Ok(queues.collect()) });
    Ok(Some(reports))
}

async fn in_ec2(
    plans: &RuntimePlan<'_>,
    site: &AwsSite,
    parameters: &Parameters,
    classes: &[RunnerClass],
) -> Result<[StepReport; 2], RuntimeError> {
    let place = site.stores(site.region()).place;
    let told = Told { place, limits: &plans.file.limits, parameters, ground: None };
    let profile = ec2::configured(plans.file, &plans.common.stack)?;
    let fleet = ec2::fleet(plans, site, profile, &told);
    let words = |fault: Fault| fault.to_string();
    let ground = fleet.learn("", None).await.map_err(words).map(|ground| {
        let count = ground.map_or(0, |ground| ground.subnets.len());
        vec![format!("learn the role and {count} subnets")]
    });
    let templates = fleet.prepare(classes, false).await.map_err(words);
    Ok([
        StepReport { step: "ground", outcome: ground },
        StepReport { step: "templates", outcome: templates },
    ])
}
