//! Every interleaving of a small world, breadth first, with the real rules.
//!
//! The world: one instance, two claimers of different owners that may give up at any time, a
//! releaser that may stall between reading and writing, a finisher that completes releases,
//! assignments that land late or never, and an agent whose reads may be old and whose process may
//! restart once. Ledger writes go through [`Record::on`], mailbox writes through [`Inbox::accept`],
//! conclusions through [`prove_unexposed`], and the agent through [`react`].
//!
//! [`Broken`] leaves one rule out. The world must then fail, or the exploration would prove
//! nothing.
//!
//! Not here: clocks, stop and start calls, GitHub (the simulator has them).

use std::collections::{BTreeSet, VecDeque};

use crate::ids::{ClaimId, Generation};
use crate::instance::{Authority, InstanceEvent, Owner, Record, State, StateName, Tier};
use crate::mailbox::agent::{ActedOn, Reaction, react};
use crate::mailbox::{
    Assignment, Inbox, Order, Report, Signal, SignalKind, Unexposed, prove_unexposed,
};
use crate::samples::{LIMITS, assignment, at, drain, idle, record, stop, trust};

/// The last generation at which the machine is claimed again: two claims and their releases.
const CLAIMS_UNTIL: Generation = Generation(3);
/// A bound on the states, far above their number.
const WORLDS_MAX: usize = 200_000;

/// The rule that an exploration leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A withdrawal erases `assigned`.
    AssignedIsForgotten,
    /// The finisher judges exposure before the withdrawal is stored.
    JudgedTooEarly,
    /// A release matches by owner and ignores the generation.
    OwnerIsEnough,
    /// The mailbox stores an assignment over any order.
    AssignmentsAreUnconditional,
    /// An agent without a listener acknowledges nothing.
    OnlyListenersAreRemoved,
}

/// How far a claimer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Claimer {
    #[default]
    Looking,
    /// It won the claim of this generation.
    Won(Generation),
    /// It sent the assignment and got no answer.
    Sent(Generation),
}

#[derive(Clone, Debug)]
struct World {
    record: Record,
    /// Every inbox there ever was: an eventual read may show any of them.
    inboxes: Vec<Inbox>,
    /// Assignments on their way.
    in_flight: Vec<Assignment>,
    claimers: [Claimer; 2],
    /// The owner and generation that the releaser has read.
    releaser: Option<(Owner, Generation)>,
    /// The finisher's proof.
    proof: Option<Unexposed>,
    agent: ActedOn,
    /// The listener's process, which outlives its agent's.
    listener: Option<Assignment>,
    /// A removal that is done and not yet reported.
    unreported: Option<Generation>,
    report: Report,
    /// The agent's next read must be consistent.
    just_started: bool,
    restarts_left: u8,
}

/// Everything in which two worlds can differ.
type Key = (
    (StateName, Generation, Option<Owner>),
    Vec<(Generation, u8)>,
    Vec<Generation>,
    [Claimer; 2],
    (Option<(Owner, Generation)>, Option<Generation>),
    (Option<(Generation, u8)>, Option<Generation>, Option<Generation>),
    (Option<Generation>, Generation, bool, u8),
);

fn owner(claimer: usize) -> Owner {
    Owner::Job(["first", "second"][claimer].into())
}

impl World {
    fn new() -> Self {
        Self {
            record: Record { generation: Generation(1), ..record(idle(Tier::Hot)) },
            inboxes: Vec::new(),
            in_flight: Vec::new(),
            claimers: [Claimer::default(); 2],
            releaser: None,
            proof: None,
            agent: ActedOn::default(),
            listener: None,
            unreported: None,
            report: Report::default(),
            just_started: true,
            restarts_left: 1,
        }
    }

    fn key(&self) -> Key {
        let rank = |order: &Order| (order.rank().generation, order.rank().step);
        let record = &self.record;
        (
            (record.state.name(), record.generation, record.state.owner().cloned()),
            self.inboxes.iter().map(|inbox| rank(&inbox.order)).collect(),
            self.in_flight.iter().map(|assignment| assignment.generation).collect(),
            self.claimers,
            (self.releaser.clone(), self.proof.map(|proof| proof.generation())),
            (
                self.agent.rank.map(|rank| (rank.generation, rank.step)),
                self.agent.serves(),
                self.listener.as_ref().map(|assignment| assignment.generation),
            ),
            (self.unreported, self.report.removed(), self.just_started, self.restarts_left),
        )
    }

    fn inbox(&self) -> Option<&Inbox> {
        self.inboxes.last()
    }

    fn releasing(&self) -> Option<Generation> {
        matches!(self.record.state, State::Releasing { .. }).then_some(self.record.generation)
    }

    fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next
    }

    /// Every world that can come next.
    fn successors(&self, broken: Broken) -> Result<Vec<Self>, String> {
        let mut next = Vec::new();
        for claimer in 0..2 {
            next.extend(self.claimer_moves(claimer));
        }
        next.extend(self.releaser_moves(broken)?);
        next.extend(self.finisher_moves(broken));
        next.extend(self.mail_moves(broken));
        next.extend(self.agent_moves(broken));
        Ok(next)
    }

    fn claimer_moves(&self, claimer: usize) -> Vec<Self> {
        let becomes = |state| move |world: &mut Self| world.claimers[claimer] = state;
        match self.claimers[claimer] {
            Claimer::Looking if self.record.generation <= CLAIMS_UNTIL => {
                let Ok(record) = self.record.on(&self.claim(claimer)) else { return Vec::new() };
                let won = Claimer::Won(record.generation);
                vec![Self { record, ..self.changed(becomes(won)) }]
            }
            Claimer::Looking => Vec::new(),
            Claimer::Won(generation) => {
                let mut sent = self.changed(becomes(Claimer::Sent(generation)));
                let owner = owner(claimer);
                sent.in_flight.push(Assignment { owner, ..assignment(generation.0) });
                vec![sent, self.given_up(claimer, generation)]
            }
            Claimer::Sent(generation) => vec![self.given_up(claimer, generation)],
        }
    }

    fn claim(&self, claimer: usize) -> InstanceEvent {
        InstanceEvent::Claimed {
            owner: owner(claimer),
            claim: ClaimId::new(format!("claim-{claimer}-{}", self.record.generation)),
            trust: trust(),
            seen: self.record.generation,
            at: at(1),
            margin: LIMITS.not_claimable_before_deadline,
            lease: at(301),
        }
    }

    /// The claimer releases what it holds, if it still holds it, and looks again.
    fn given_up(&self, claimer: usize, generation: Generation) -> Self {
        let mut next = self.changed(|world| world.claimers[claimer] = Claimer::Looking);
        if let Ok(record) = self.record.on(&withdraw(owner(claimer), generation)) {
            next.record = record;
        }
        next
    }

    fn releaser_moves(&self, broken: Broken) -> Result<Vec<Self>, String> {
        let Some((owner, read)) = self.releaser.clone() else {
            let seen =
                self.record.state.owner().map(|owner| (owner.clone(), self.record.generation));
            return Ok(seen
                .map(|seen| self.changed(|world| world.releaser = Some(seen)))
                .into_iter()
                .collect());
        };
        let named = if broken == Broken::OwnerIsEnough { self.record.generation } else { read };
        let mut next = self.changed(|world| world.releaser = None);
        if let Ok(record) = self.record.on(&withdraw(owner, named)) {
            if self.record.generation != read {
                return Err(format!("a release that read {read} took {}", self.record.generation));
            }
            next.record = record;
        }
        Ok(vec![next])
    }

    /// The finisher withdraws, judges and returns: each as soon as it may, and at any time later.
    fn finisher_moves(&self, broken: Broken) -> Vec<Self> {
        let mut next = Vec::new();
        if let Some(proof) = self.proof {
            let (deadline, shared) = (at(420), true);
            let event = InstanceEvent::Returned { proof, at: at(3), deadline, shared };
            let mut written = self.changed(|world| world.proof = None);
            if let Ok(record) = self.record.on(&event) {
                written.record = record;
            }
            next.push(written);
        }
        let Some(generation) = self.releasing() else { return next };
        for order in [drain(generation.0), stop(generation.0)] {
            if let Ok(mut inbox) = Inbox::accept(self.inbox(), order) {
                if broken == Broken::AssignedIsForgotten {
                    inbox.assigned = Generation(0);
                }
                next.push(self.changed(|world| world.inboxes.push(inbox)));
            }
        }
        if self.proof.is_none()
            && let Some(proof) = self.proven(generation, broken)
        {
            next.push(self.changed(|world| world.proof = Some(proof)));
        }
        next
    }

    fn proven(&self, generation: Generation, broken: Broken) -> Option<Unexposed> {
        let early;
        let mut inbox = self.inbox();
        if broken == Broken::JudgedTooEarly {
            let assigned = inbox.map_or(Generation(0), |inbox| inbox.assigned);
            early = Inbox { assigned, order: stop(generation.0) };
            inbox = Some(&early);
        }
        prove_unexposed(inbox, Some(&self.report), generation, false).ok()
    }

    /// An assignment lands, or is lost.
    fn mail_moves(&self, broken: Broken) -> Vec<Self> {
        let mut next = Vec::new();
        for index in 0..self.in_flight.len() {
            let mut lost = self.clone();
            let order = Order::Assigned(lost.in_flight.remove(index));
            let stored =
                if broken == Broken::AssignmentsAreUnconditional { None } else { self.inbox() };
            if let Ok(inbox) = Inbox::accept(stored, order) {
                next.push(lost.changed(|world| world.inboxes.push(inbox)));
            }
            next.push(lost);
        }
        next
    }

    fn agent_moves(&self, broken: Broken) -> Vec<Self> {
        let readable = if self.just_started {
            self.inboxes.len().saturating_sub(1)..self.inboxes.len()
        } else {
            0..self.inboxes.len()
        };
        let mut next: Vec<_> =
            readable.filter_map(|index| self.agent_reads(&self.inboxes[index], broken)).collect();
        if let Some(generation) = self.unreported {
            next.push(self.changed(|world| world.reports(generation)));
        }
        if self.restarts_left > 0 {
            next.push(self.changed(|world| {
                world.restarts_left -= 1;
                world.just_started = true;
                world.agent = ActedOn::default();
                world.unreported = None;
            }));
        }
        next
    }

    fn agent_reads(&self, inbox: &Inbox, broken: Broken) -> Option<Self> {
        let mut next = self.clone();
        next.just_started = false;
        match react(&self.agent, Some(inbox), false, at(2)) {
            Reaction::Wait | Reaction::AwaitJob(_) => return self.just_started.then_some(next),
            Reaction::Start(assignment) | Reaction::Adopt(assignment) => {
                next.listener = Some(assignment.clone());
                next.agent.listener = Some(assignment);
            }
            Reaction::TooLate(_) | Reaction::Drain(_) => {}
            Reaction::Remove(_)
                if broken == Broken::OnlyListenersAreRemoved && next.listener.is_none() => {}
            Reaction::Remove(withdrawal) => {
                next.listener = None;
                next.agent.listener = None;
                next.unreported = Some(withdrawal.generation);
            }
        }
        next.agent.done(inbox.order.rank());
        Some(next)
    }

    fn reports(&mut self, generation: Generation) {
        self.unreported = None;
        if generation >= self.report.removed() {
            let signal =
                Signal { generation, owner: None, at: at(9), detail: String::new(), ran: None };
            self.report.signals.insert(SignalKind::Removed, signal);
        }
    }

    /// No runner listens on an idle machine, and only the owner's on an owned machine.
    fn is_safe(&self) -> Result<(), String> {
        let Some(listener) = &self.listener else { return Ok(()) };
        match (&self.record.state, self.record.state.owner()) {
            (State::Idle { .. }, _) => Err(format!("idle, and {listener:?} listens")),
            (_, Some(owner)) if *owner != listener.owner => {
                Err(format!("{owner} owns it, and {listener:?} listens"))
            }
            _ => Ok(()),
        }
    }

    /// A release whose every step works from here on ends in an idle machine.
    fn settles(&self, broken: Broken) -> Result<(), String> {
        let Some(generation) = self.releasing() else { return Ok(()) };
        let mut world = self.clone();
        if let Ok(inbox) = Inbox::accept(world.inbox(), stop(generation.0)) {
            world.inboxes.push(inbox);
        }
        let inbox = world.inbox().cloned();
        if let Some(read) = inbox.and_then(|inbox| world.agent_reads(&inbox, broken)) {
            world = read;
        }
        if let Some(generation) = world.unreported {
            world.reports(generation);
        }
        let proof = world.proven(generation, broken);
        proof.map(|_| ()).ok_or_else(|| format!("release {generation} is never acknowledged"))
    }
}

fn withdraw(owner: Owner, generation: Generation) -> InstanceEvent {
    let authority = Authority::Owner { owner, generation };
    InstanceEvent::Withdrawn { authority, warm: true, at: at(2), cap: at(9_000) }
}

/// The number of worlds, or why the first wrong world is wrong.
fn explore(broken: Broken) -> Result<usize, String> {
    let mut seen = BTreeSet::from([World::new().key()]);
    let mut frontier = VecDeque::from([World::new()]);
    while let Some(world) = frontier.pop_front() {
        world.is_safe()?;
        world.settles(broken)?;
        for next in world.successors(broken)? {
            if seen.insert(next.key()) {
                frontier.push_back(next);
            }
        }
        assert!(seen.len() < WORLDS_MAX, "the world is larger than it should be");
    }
    Ok(seen.len())
}

#[test]
fn no_order_of_events_leaves_a_listener_on_an_idle_machine() {
    let worlds = explore(Broken::Nothing).unwrap();
    assert!(worlds > 10_000, "{worlds} worlds are too few to prove anything");
}

#[test]
fn leaving_out_a_rule_brings_its_counterexample_back() {
    for (broken, expected) in [
        (Broken::AssignedIsForgotten, "listens"),
        (Broken::JudgedTooEarly, "listens"),
        (Broken::AssignmentsAreUnconditional, "listens"),
        (Broken::OwnerIsEnough, "a release that read"),
        (Broken::OnlyListenersAreRemoved, "is never acknowledged"),
    ] {
        let found = explore(broken).unwrap_err();
        assert!(found.contains(expected), "{broken:?}: {found}");
    }
}
