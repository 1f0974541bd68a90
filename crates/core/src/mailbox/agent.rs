//! How an agent reacts to its inbox: the pure half of its life.
//!
//! [`ActedOn`] records the orders that the agent has carried out; [`react`] compares it with the
//! inbox. The agent's process carries out the [`Reaction`] and then records it. A restarted agent
//! looks for its predecessor's listener before it reacts to anything.
//!
//! Not here: warm-up, running a listener, cleaning, or reading the mailbox (`bullpen-agent`).

use super::{Assignment, Inbox, Order, OrderRank, Withdrawal, WithdrawalMode};
use crate::ids::Generation;
use crate::time::Timestamp;

/// The orders that an agent has acted on since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ActedOn {
    /// The order it acted on last.
    pub rank: Option<OrderRank>,
    /// The assignment its listener belongs to, while there is a listener.
    pub listener: Option<Assignment>,
}

/// What the agent does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// The inbox has no new order.
    Wait,
    /// Acknowledge, then start a listener; remove an earlier owner's listener first.
    Start(Assignment),
    /// Acknowledge; the running listener serves this generation too.
    Adopt(Assignment),
    /// The assignment is too late to register: start nothing.
    TooLate(Assignment),
    /// Start nothing new; the registered listener goes on until GitHub or a stop ends it.
    Drain(Withdrawal),
    /// The listener must end, but a job runs on it: let the job end first, then look again.
    AwaitJob(Withdrawal),
    /// End the listener if there is one, clean, acknowledge this generation as removed.
    Remove(Withdrawal),
}

/// Compares the orders acted on with the inbox. `busy` says whether a job runs on the listener now.
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
        // GitHub may be giving a job to the listener right now, so a drain leaves it alone. Without
        // a listener there is nothing to wait for: the agent can acknowledge the removal at once.
        Order::Withdrawn(order)
            if order.mode == WithdrawalMode::Drain && acted.listener.is_some() =>
        {
            Reaction::Drain(order.clone())
        }
        // GitHub may not have confirmed that no job can start, or may have given the job before.
        // Only the agent sees the job; the hard cap ends the machine.
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

/// Whether the running listener already serves this assignment: a restarted agent finds it at the
/// same generation (the inbox may have lost its credential by then), or a second worker of the same
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
