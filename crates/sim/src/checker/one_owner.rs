//! Invariant 3: a machine never has two owners, and a fenced owner changes nothing: not in the
//! ledger, not in the mailbox, not at GitHub.
//!
//! Not here: rules for a single write (`core::invariants::on_write`).

use std::collections::BTreeMap;

use bullpen_core::ids::{Generation, InstanceId, MailboxKey};
use bullpen_core::instance::{EndReason, Owner, Record, State};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::mailbox::Inbox;

use super::view::View;

fn wrong(id: &InstanceId, what: String) -> Result<(), Violation> {
    Err(Violation { invariant: Invariant::OneOwner, instance: Some(id.clone()), what })
}

/// For each machine, the processes that took it, at which generation, and whether each was fenced
/// since.
#[derive(Debug, Default)]
pub(super) struct Tenures {
    of: BTreeMap<InstanceId, BTreeMap<String, Tenure>>,
}

#[derive(Debug)]
struct Tenure {
    generation: Generation,
    is_fenced: bool,
}

impl Tenures {
    /// Judges whether a fenced process wrote, and records which processes are fenced from now on. A
    /// process that `decides_for` the owner may take any machine of the owner.
    pub(super) fn written(
        &mut self,
        decides_for: impl Fn(&Owner) -> bool,
        before: Option<&Record>,
        after: &Record,
        by: &str,
    ) -> Result<(), Violation> {
        if !after.state.is_live() {
            self.of.remove(&after.id);
            return Ok(());
        }
        let tenures = self.of.entry(after.id.clone()).or_default();
        let takes = match (before.map(|before| &before.state), &after.state) {
            (None, State::Created { owner, .. })
            | (Some(State::Idle { .. }), State::Claimed { owner, .. }) => !is_anyones(owner),
            _ => false,
        };
        if takes {
            let tenure = Tenure { generation: after.generation, is_fenced: false };
            tenures.insert(by.to_owned(), tenure);
        } else if let Some(tenure) = tenures.get(by)
            && tenure.is_fenced
            && !is_renewal(before, after)
            && before.and_then(|before| before.state.owner()).is_some_and(|it| !decides_for(it))
        {
            let what = format!("{by} was fenced after generation {}, and wrote", tenure.generation);
            return wrong(&after.id, what);
        }
        for (process, tenure) in tenures {
            tenure.is_fenced |= process != by && tenure.generation < after.generation;
        }
        Ok(())
    }
}

/// Whether any replica of the service may act for this owner: a replica may finish another's work
/// for a job or a pool.
const fn is_anyones(owner: &Owner) -> bool {
    matches!(owner, Owner::Job(_) | Owner::Pool(_))
}

/// A lease belongs to the owner: any of the owner's processes may renew it.
fn is_renewal(before: Option<&Record>, after: &Record) -> bool {
    let is_claimed = |record: &Record| matches!(record.state, State::Claimed { .. });
    before.is_some_and(|before| {
        is_claimed(before) && is_claimed(after) && before.generation == after.generation
    })
}

/// A fenced owner's order never replaces a newer one in the mailbox.
pub(super) fn ordered(
    key: &MailboxKey,
    before: Option<&Inbox>,
    after: &Inbox,
) -> Result<(), Violation> {
    let rank = after.order.rank();
    match before.map(|inbox| inbox.order.rank()) {
        Some(before) if before >= rank => wrong(
            &InstanceId::new(key.as_str()),
            format!(
                "an order of generation {} replaced one of generation {}",
                rank.generation, before.generation
            ),
        ),
        _ => Ok(()),
    }
}

/// The label of an owner's listeners. `None` for a job: its labels are in its row and not in its
/// id, and GitHub may give the runner to another job with the same labels.
pub(super) fn label_of(owner: &Owner) -> Option<String> {
    match owner {
        Owner::Request(id) => Some(format!("warm-{id}")),
        Owner::Job(_) => None,
        Owner::Pool(name) => Some(name.to_string()),
    }
}

/// A listener on a machine listens for the machine's owner; an idle or terminating machine has
/// none.
pub(super) fn listens(view: &View, machine: &InstanceId, label: &str) -> Result<(), Violation> {
    let Some(record) = view.live.get(machine) else { return Ok(()) };
    let expected = record.state.listed_under().and_then(label_of);
    let is_unowned = match record.state {
        // A dump and an operator terminate a machine even while a listener is connected.
        State::Terminating { why: EndReason::Dumped | EndReason::Operator, .. } => false,
        State::Idle { .. } | State::Terminating { .. } => true,
        _ => false,
    };
    if is_unowned || expected.is_some_and(|expected| expected != label) {
        let what = format!("a listener for {label} is connected that is not the owner's");
        return wrong(machine, what);
    }
    Ok(())
}
