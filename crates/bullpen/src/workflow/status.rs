//! `bullpen status`: shows machines, their owners, and queues.
//!
//! Not here: checking them (`verify`).

use std::collections::BTreeMap;

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::{Owner, Record, State, Tier};
use bullpen_core::mailbox::{ReportRead, UnreadableReport};
use bullpen_core::ports::{Fault, Machine, MachineState, Mailbox as _, Ports, Queues as _};
use bullpen_core::request::stranger::RanJob;
use bullpen_engine::reconcile::live_records;
use bullpen_engine::strangers::strangers;
use serde_json::{Value, json};

use super::{Failure, run_command};
use crate::exit::Exit;
use crate::inputs::{
    CommonArgs, CommonInputs, Environment, GithubArgs, StackArgs, StackInputs, files,
};
use crate::render;
use crate::runtime::{self, Command, GithubAccess, Runtime, RuntimePlan};
use crate::table::{Column, count, long, number, whole};

const COLUMNS: [Column; 7] = [
    whole("INSTANCE"),
    whole("STATE"),
    long("OWNER"),
    long("CLASS"),
    long("TYPE"),
    whole("MACHINE"),
    number("USES"),
];

/// Runs `bullpen status`.
pub(crate) fn status(args: &StackArgs) -> Exit {
    run_command(async |environment| run(args, environment).await)
}

/// Refuses a state directory that does not exist: a command that only reads must not make one.
pub(crate) fn must_exist(stack: &StackInputs) -> Result<(), Failure> {
    if !stack.is_on_this_machine() || stack.state.exists() {
        return Ok(());
    }
    let what = format!("there is no state in {}", stack.state.display());
    let hint = "`bullpen refresh` creates it; --state names another directory";
    Err(Failure { exit: Exit::Failed, what, hint: Some(hint.to_owned()) })
}

/// Runs a command that only reads the stack, and makes no state.
pub(crate) async fn inspect<C: Command<Outcome = Result<Exit, Failure>>>(
    args: &StackArgs,
    environment: &Environment,
    command: impl FnOnce(bool) -> C,
) -> Result<Exit, Failure> {
    let args = CommonArgs { stack: args.clone(), github: GithubArgs::default() };
    let common = CommonInputs::read(&args, environment)?;
    must_exist(&common.stack)?;
    // Reading the stack needs no credential for GitHub, so the command reads none.
    let (config, file) = (files::config(&common.stack)?, files::stack(&common.stack, environment)?);
    let plan = RuntimePlan { common: &common, config: config.as_ref(), file: &file, environment };
    runtime::run(&plan, command(common.stack.json)).await?
}

async fn run(args: &StackArgs, environment: &Environment) -> Result<Exit, Failure> {
    inspect(args, environment, |json| StatusCommand { json }).await
}

/// `bullpen status`, once its arguments are read.
struct StatusCommand {
    json: bool,
}

impl Command for StatusCommand {
    type Outcome = Result<Exit, Failure>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let status = read(&runtime).await;
        let status = status.map_err(|fault| Failure::of("could not read the stack", &fault))?;
        if self.json {
            render::json(&status.json(&runtime.stack.name).to_string());
        } else {
            status.table(&runtime.stack.name);
        }
        Ok(Exit::Done)
    }
}

struct StackStatus {
    records: Vec<Record>,
    machines: BTreeMap<InstanceId, Machine>,
    /// Machines with an unreadable report, and why it is unreadable.
    unreadable: BTreeMap<InstanceId, UnreadableReport>,
    queues: Vec<(String, u64)>,
    strangers: BTreeMap<InstanceId, RanJob>,
}

async fn read<P: Ports>(runtime: &Runtime<P>) -> Result<StackStatus, Fault> {
    let stack = &runtime.stack;
    let mut records = live_records(stack).await?;
    records.sort_by(|one, other| one.id.cmp(&other.id));
    let machines = stack.readable(stack.fleet().list().await?);
    let machines = machines
        .into_iter()
        .filter(|machine| machine.state != MachineState::Gone)
        .map(|machine| (machine.id.clone(), machine))
        .collect();
    let keys: Vec<_> = records.iter().map(|record| record.facts.mailbox.clone()).collect();
    let reports = stack.ports.mailbox().reports(&keys).await?;
    let unreadable = records.iter().zip(reports).filter_map(|(record, found)| match found {
        ReportRead::Unreadable(why) => Some((record.id.clone(), why)),
        ReportRead::Absent | ReportRead::Read(_) => None,
    });
    let unreadable = unreadable.collect();
    let mut queues = Vec::new();
    for class in &runtime.classes {
        match stack.ports.queues().depth(&stack.queue_of(&class.name)).await {
            Ok(depth) => queues.push((class.name.to_string(), depth.total())),
            // The stack has not been refreshed since the class was configured.
            Err(Fault::NotFound) => {}
            Err(fault) => return Err(fault),
        }
    }
    let strangers = strangers(stack, &records).await?;
    Ok(StackStatus { records, machines, unreadable, queues, strangers })
}

/// The text of a record's owner. A pool's machine without an owner shows its pool and tier.
fn owner(record: &Record) -> String {
    match record.state.owner() {
        Some(Owner::Request(id)) => id.to_string(),
        Some(Owner::Job(id)) => format!("job {id}"),
        Some(Owner::Pool(name)) => format!("pool {name}"),
        None => match (&record.facts.pool, &record.state) {
            (Some(pool), State::Idle { tier, .. }) => {
                format!("- (pool {pool}, {})", tier_word(*tier))
            }
            (Some(pool), _) => format!("- (pool {pool})"),
            (None, _) => "-".to_owned(),
        },
    }
}

const fn tier_word(tier: Tier) -> &'static str {
    match tier {
        Tier::Released => "released",
        Tier::Hot => "hot",
        Tier::Stopped => "stopped",
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

impl StackStatus {
    /// Machines without a record: they are being launched, or were left behind.
    fn unrecorded(&self) -> impl Iterator<Item = &Machine> {
        let is_recorded = |id: &InstanceId| self.records.iter().any(|record| record.id == *id);
        self.machines.values().filter(move |machine| !is_recorded(&machine.id))
    }

    fn json(&self, stack: &str) -> Value {
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
                    "pool": record.facts.pool,
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
                    "stranger": self.strangers.get(&record.id),
                    "unreadable_report": self.unreadable.get(&record.id).map(UnreadableReport::to_string),
                })
            })
            .collect();
        let unrecorded: Vec<&InstanceId> = self.unrecorded().map(|machine| &machine.id).collect();
        let queues: BTreeMap<&str, u64> =
            self.queues.iter().map(|(class, depth)| (class.as_str(), *depth)).collect();
        json!({
            "stack": stack,
            "instances": instances,
            "unrecorded": unrecorded,
            "queues": queues,
        })
    }

    fn table(&self, stack: &str) {
        let rows: Vec<_> = self.records.iter().map(|record| self.row(record)).collect();
        render::table(&COLUMNS, &rows);
        for (id, ran) in &self.strangers {
            render::data(&format!("{id} ends, because it got a job of another run: {ran}"));
        }
        for machine in self.unrecorded() {
            let (id, intent) = (&machine.id, &machine.intent);
            render::data(&format!("{id} has no record; its launch intent is {intent}"));
        }
        for (id, why) in &self.unreadable {
            render::data(&format!("{id} has an unreadable report, which counts as absent: {why}"));
        }
        let idle: u64 = self.queues.iter().map(|(_, depth)| depth).sum();
        let machines = count(self.records.len(), "machine");
        render::talk(&format!("stack {stack}: {machines}, {idle} advertised"));
    }

    fn row(&self, record: &Record) -> [String; COLUMNS.len()] {
        [
            record.id.to_string(),
            record.state.name().as_str().to_owned(),
            owner(record),
            record.facts.class.to_string(),
            record.facts.instance_type.to_string(),
            machine_state(self.machines.get(&record.id)).to_owned(),
            record.uses.to_string(),
        ]
    }
}
