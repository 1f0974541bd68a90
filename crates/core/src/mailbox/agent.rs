//! What an agent does about its inbox: the pure half of its life.
//!
//! [`ActedOn`] is what the agent remembers having done; [`react`] compares it with the inbox. The
//! agent's process does what the [`Reaction`] says and then remembers it. A restarted agent finds
//! its predecessor's listener, if one lives, before it reacts to anything.
//!
//! Not here: warm-up, running a listener, cleaning, or reading the mailbox (`bullpen-agent`).

use super::{Assignment, Inbox, Order, OrderRank, Withdrawal, WithdrawalMode};
use crate::ids::Generation;
use crate::time::Timestamp;

/// What an agent has acted on since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ActedOn {
    /// The order it acted on last.
    pub rank: Option<OrderRank>,
    /// The assignment its listener belongs to, while there is a listener.
    pub listener: Option<Assignment>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing new.
    Wait,
    /// Acknowledge, then start a listener. One that belongs to an earlier owner is removed first.
    Start(Assignment),
    /// Acknowledge; the running listener serves this generation too.
    Adopt(Assignment),
    /// An assignment too late to be registered: start nothing.
    TooLate(Assignment),
    /// Start nothing new; the registered listener goes on until GitHub or a stop ends it.
    Drain(Withdrawal),
    /// The listener is to end, and a job runs on it: let the job end first, then look again.
    AwaitJob(Withdrawal),
    /// End the listener if there is one, clean, acknowledge this generation as removed.
    Remove(Withdrawal),
}

/// Compares what was done with what is wanted. `busy` says whether a job runs on the listener now.
pub fn react(acted: &ActedOn, inbox: Option<&Inbox>, busy: bool, now: Timestamp) -> Reaction {
    let Some(inbox) = inbox else { return Reaction::Wait };
    if acted.rank.is_some_and(|rank| rank >= inbox.order.rank()) {
        return Reaction::Wait;
    }
    match &inbox.order {
        Order::Assigned(assignment) if adopts(acted, assignment) => {
            Reaction::Adopt(assignment.clone())
        }
        Order::Assigned(assignment) if assignment.register_by.is_some_and(|by| now >= by) => {
            Reaction::TooLate(assignment.clone())
        }
        Order::Assigned(assignment) => Reaction::Start(assignment.clone()),
        // A listener that GitHub may be giving a job to right now is left alone; without one there
        // is nothing to wait for, so the removal can be acknowledged at once.
        Order::Withdrawn(order)
            if order.mode == WithdrawalMode::Drain && acted.listener.is_some() =>
        {
            Reaction::Drain(order.clone())
        }
        // GitHub's word that no job can start may be missing (it did not answer) or overtaken (it
        // gave the job first). The agent is the one who sees the job; a hard cap ends the machine.
        Order::Withdrawn(order)
            if acted.listener.is_some() && busy && !crate::sabotage!("agent-stops-under-a-job") =>
        {
            Reaction::AwaitJob(order.clone())
        }
        Order::Withdrawn(_)
            if acted.listener.is_none() && crate::sabotage!("only-listeners-are-removed") =>
        {
            Reaction::Wait
        }
        Order::Withdrawn(order) => Reaction::Remove(order.clone()),
    }
}

/// The listener that runs already is the one that is wanted: a restarted agent finds it at the same
/// generation (its credential may be gone from the inbox by then), or a second worker of the same
/// owner took the claim over with the same credential.
fn adopts(acted: &ActedOn, assignment: &Assignment) -> bool {
    acted.listener.as_ref().is_some_and(|current| {
        current.generation == assignment.generation
            || (current.owner == assignment.owner
                && current.credential == assignment.credential
                && current.runner == assignment.runner)
    })
}

impl ActedOn {
    /// Remembers an order as acted on.
    pub fn done(&mut self, order: OrderRank) {
        self.rank = self.rank.max(Some(order));
    }

    /// The generation its listener serves.
    pub fn serves(&self) -> Option<Generation> {
        self.listener.as_ref().map(|assignment| assignment.generation)
    }
}
