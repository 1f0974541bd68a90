//! `bullpen ledger verify`: checks the invariants on the stack's present state.
//!
//! Not here: the invariants (`bullpen_core::invariants`).

use std::collections::BTreeSet;

use bullpen_core::ids::InstanceId;
use bullpen_core::instance::Record;
use bullpen_core::invariants::{Invariant, StackSnapshot, Violation, on_world};
use bullpen_core::ports::{Fault, Ledger as _, Ports};
use bullpen_engine::Stack;
use bullpen_engine::reconcile::{live_records, open_intents};
use serde_json::json;

use super::status::inspect;
use super::{Failure, run_command};
use crate::exit::Exit;
use crate::inputs::{Environment, StackArgs};
use crate::render;
use crate::runtime::{Command, GithubAccess, Runtime};
use crate::table::count;

/// Runs `bullpen ledger verify`.
pub(crate) fn ledger_verify(args: &StackArgs) -> Exit {
    run_command(async |environment| run(args, environment).await)
}

async fn run(args: &StackArgs, environment: &Environment) -> Result<Exit, Failure> {
    inspect(args, environment, |json| VerifyCommand { json }).await
}

/// `bullpen ledger verify`, once its arguments are read.
struct VerifyCommand {
    json: bool,
}

impl Command for VerifyCommand {
    type Outcome = Result<Exit, Failure>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let found = findings(&runtime.stack).await;
        let (records, violations) =
            found.map_err(|fault| Failure::of("could not read the ledger", &fault))?;
        show(self.json, records, &violations);
        Ok(if violations.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

fn show(json: bool, records: usize, violations: &[Violation]) {
    if json {
        let list: Vec<_> = violations
            .iter()
            .map(|violation| {
                json!({
                    "invariant": violation.invariant.number(),
                    "instance": violation.instance,
                    "what": violation.what,
                })
            })
            .collect();
        render::json(&json!({"records": records, "violations": list}).to_string());
    } else {
        for violation in violations {
            render::data(&violation.to_string());
        }
        let (records, found) = (count(records, "live record"), violations.len());
        render::talk(&format!("{records} checked, {}", count(found, "violation")));
    }
}

/// The number of live records, and all violations.
pub(crate) async fn findings<P: Ports>(stack: &Stack<P>) -> Result<(usize, Vec<Violation>), Fault> {
    // Records first: a launch in between then only adds a machine.
    let records = live_records(stack).await?;
    let intents = open_intents(stack).await?;
    let machines = stack.readable(stack.fleet().list().await?);
    let world = StackSnapshot {
        now: stack.now(),
        records: &records,
        intents: &intents,
        machines: &machines,
        ceilings: &stack.ceilings,
        limits: &stack.limits,
    };
    let mut found = on_world(&world);
    for record in &records {
        if let Some(violation) = unlisted(stack, record).await? {
            found.push(violation);
        }
    }
    Ok((records.len(), found))
}

/// The violation of a record that a directory misses: its owner or its class could not find it.
async fn unlisted<P: Ports>(stack: &Stack<P>, record: &Record) -> Result<Option<Violation>, Fault> {
    let ledger = stack.ports.ledger();
    let missing = |directory: &str| Violation {
        invariant: Invariant::Conservation,
        instance: Some(record.id.clone()),
        what: format!("the directory of its {directory} does not list it"),
    };
    if let Some(owner) = record.state.listed_under() {
        let owned = ledger.owned_by(owner).await?;
        if !owned.items.iter().any(|listed| listed.id == record.id)
            && is_as_read(stack, record).await?
        {
            return Ok(Some(missing("owner")));
        }
    }
    if record.advert().is_some() {
        let idle = ledger.idle_in(&record.facts.class).await?;
        let listed: BTreeSet<&InstanceId> = idle.items.iter().map(|advert| &advert.id).collect();
        if !listed.contains(&record.id) && is_as_read(stack, record).await? {
            return Ok(Some(missing("class")));
        }
    }
    Ok(None)
}

/// Whether the record is unchanged. A worker may have changed it since it was listed.
async fn is_as_read<P: Ports>(stack: &Stack<P>, record: &Record) -> Result<bool, Fault> {
    Ok(stack.ports.ledger().read(&record.id).await?.as_ref() == Some(record))
}
