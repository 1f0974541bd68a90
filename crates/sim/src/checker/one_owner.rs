//! Invariant 3: never two owners, and a fenced owner changes nothing: neither in the ledger, nor in
//! the mailbox, nor at GitHub.
//!
//! Not here: one write on its own (`core::invariants::on_write`).

use std::collections::BTreeMap;

use bullpen_core::ids::{Generation, InstanceId, MailboxKey};
use bullpen_core::instance::{EndReason, Owner, Record, State};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::mailbox::Inbox;

use super::view::View;

fn wrong(id: &InstanceId, what: String) -> Result<(), Violation> {
    Err(Violation { invariant: Invariant::OneOwner, instance: Some(id.clone()), what })
}

/// Which process took which machine, at which generation, and whether it was fenced since.
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
    /// Judges a write by whether its process was fenced, and remembers who is now. One that
    /// `speaks_for` the owner may take whatever the owner has.
    pub(super) fn written(
        &mut self,
        speaks_for: impl Fn(&Owner) -> bool,
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
            && before.and_then(|before| before.state.owner()).is_some_and(|it| !speaks_for(it))
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

/// What one process of the service began for a job, or for a pool, any other may finish.
const fn is_anyones(owner: &Owner) -> bool {
    matches!(owner, Owner::Job(_) | Owner::Pool(_))
}

/// A lease is its owner's: any of the owner's processes may renew it.
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

/// The label that an owner's listeners have. A job's have the labels that its workflow asks for: they
/// are in its row and not in its id, and another job with the same ones may be given the runner.
pub(super) fn label_of(owner: &Owner) -> Option<String> {
    match owner {
        Owner::Request(id) => Some(format!("warm-{id}")),
        Owner::Job(_) => None,
        Owner::Pool(name) => Some(name.to_string()),
    }
}

/// Whoever listens on a machine listens for its owner, and on one that is idle or ending nobody does.
pub(super) fn listens(view: &View, machine: &InstanceId, label: &str) -> Result<(), Violation> {
    let Some(record) = view.live.get(machine) else { return Ok(()) };
    let expected = record.state.listed_under().and_then(label_of);
    let is_nobodys = match record.state {
        // A dump and an operator spare nobody, whatever listens there.
        State::Terminating { why: EndReason::Dumped | EndReason::Operator, .. } => false,
        State::Idle { .. } | State::Terminating { .. } => true,
        _ => false,
    };
    if is_nobodys || expected.is_some_and(|expected| expected != label) {
        let what = format!("a listener for {label} is connected, and it is not the owner's");
        return wrong(machine, what);
    }
    Ok(())
}
