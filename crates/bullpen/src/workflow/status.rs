//! `bullpen status`: what there is, and who has it.
//!
//! Not here: whether it is as it should be (`verify`).

use std::collections::BTreeMap;

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::ports::{Fault, Fleet as _, Machine, MachineState, Ports, Queues as _};
use bullpen_engine::reconcile::live_records;
use serde_json::{Value, json};

use super::{Failure, move_in, told};
use crate::exit::Exit;
use crate::house::House;
use crate::inputs::{CommonArgs, CommonInputs, Environment, GithubArgs, StackArgs};
use crate::render;

/// Shows machines, who owns them, and queues.
pub(crate) fn status(args: &StackArgs) -> Exit {
    told(async |environment| run(args, environment).await)
}

/// A house to look at; whether the result is told as JSON.
pub(super) async fn look_in(
    args: &StackArgs,
    environment: &Environment,
) -> Result<(House, bool), Failure> {
    let args = CommonArgs { stack: args.clone(), github: GithubArgs::default() };
    let common = CommonInputs::read(&args, environment)?;
    if !common.stack.state.exists() {
        let what = format!("there is no state in {}", common.stack.state.display());
        let hint = "`bullpen refresh` makes one; --state names another directory";
        return Err(Failure { exit: Exit::Failed, what, hint: Some(hint.to_owned()) });
    }
    Ok((move_in(&common, environment).await?, common.stack.json))
}

async fn run(args: &StackArgs, environment: &Environment) -> Result<Exit, Failure> {
    let (house, json) = look_in(args, environment).await?;
    let seen = look(&house).await;
    let seen = seen.map_err(|fault| Failure::of("could not look at the stack", &fault))?;
    if json {
        render::data(&seen.json(&house).to_string());
    } else {
        seen.table(&house);
    }
    Ok(Exit::Done)
}

struct Seen {
    records: Vec<Record>,
    machines: BTreeMap<InstanceId, Machine>,
    queues: Vec<(String, u64)>,
}

async fn look(house: &House) -> Result<Seen, Fault> {
    let stack = &house.stack;
    let mut records = live_records(stack).await?;
    records.sort_by(|one, other| one.id.cmp(&other.id));
    let machines = stack.ports.fleet().list().await?;
    let machines = machines
        .into_iter()
        .filter(|machine| machine.state != MachineState::Gone)
        .map(|machine| (machine.id.clone(), machine))
        .collect();
    let mut queues = Vec::new();
    for class in &house.classes {
        match stack.ports.queues().depth(&stack.queue_of(&class.name)).await {
            Ok(depth) => queues.push((class.name.to_string(), depth.total())),
            // Nobody has refreshed the stack since the class came.
            Err(Fault::NotFound) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(Seen { records, machines, queues })
}

fn owner(record: &Record) -> String {
    match record.state.owner() {
        Some(Owner::Request(id)) => id.to_string(),
        Some(Owner::Job(id)) => format!("job {id}"),
        Some(Owner::Pool(name)) => format!("pool {name}"),
        None => "-".to_owned(),
    }
}

const fn machine_state(machine: Option<&Machine>) -> &'static str {
    match machine {
        Some(machine) => match machine.state {
            MachineState::Pending => "pending",
            MachineState::Running => "running",
            MachineState::Stopping => "stopping",
            MachineState::Stopped => "stopped",
            MachineState::Gone => "gone",
        },
        None => "gone",
    }
}

impl Seen {
    /// Machines without a record: being launched, or left behind.
    fn unrecorded(&self) -> impl Iterator<Item = &Machine> {
        let is_recorded = |id: &InstanceId| self.records.iter().any(|record| record.id == *id);
        self.machines.values().filter(move |machine| !is_recorded(&machine.id))
    }

    fn json(&self, house: &House) -> Value {
        let instances: Vec<Value> = self
            .records
            .iter()
            .map(|record| {
                let tier = match record.state {
                    State::Idle { tier, .. } => Some(tier),
                    _ => None,
                };
                json!({
                    "id": record.id,
                    "state": record.state.name().as_str(),
                    "tier": tier,
                    "owner": record.state.owner().map(|_| owner(record)),
                    "class": record.facts.class,
                    "type": record.facts.instance_type,
                    "zone": record.facts.zone,
                    "usage": record.facts.usage,
                    "trust": record.trust,
                    "generation": record.generation,
                    "uses": record.uses,
                    "deadline": record.state.deadline(),
                    "machine": machine_state(self.machines.get(&record.id)),
                })
            })
            .collect();
        let unrecorded: Vec<&InstanceId> = self.unrecorded().map(|machine| &machine.id).collect();
        let queues: BTreeMap<&str, u64> =
            self.queues.iter().map(|(class, depth)| (class.as_str(), *depth)).collect();
        json!({
            "stack": house.stack.name,
            "instances": instances,
            "unrecorded": unrecorded,
            "queues": queues,
        })
    }

    fn table(&self, house: &House) {
        render::data(&format!(
            "{:<20} {:<12} {:<28} {:<10} {:<14} {:<8} {:>4}",
            "INSTANCE", "STATE", "OWNER", "CLASS", "TYPE", "MACHINE", "USES"
        ));
        for record in &self.records {
            render::data(&format!(
                "{:<20} {:<12} {:<28} {:<10} {:<14} {:<8} {:>4}",
                record.id.as_str(),
                record.state.name().as_str(),
                owner(record),
                record.facts.class.as_str(),
                record.facts.instance_type.as_str(),
                machine_state(self.machines.get(&record.id)),
                record.uses,
            ));
        }
        for machine in self.unrecorded() {
            let (id, intent) = (&machine.id, &machine.intent);
            render::data(&format!("{id:<20} without a record, launched as {intent}"));
        }
        let idle: u64 = self.queues.iter().map(|(_, depth)| depth).sum();
        let count = self.records.len();
        let name = &house.stack.name;
        render::talk(&format!("stack {name}: {count} instances, {idle} advertised"));
    }
}
