//! A claim worker, and its request behind it: `engine::provision::worker` step by step.
//!
//! What follows what is `core::claim::next`; what a report shows is `core::claim::check`; what GitHub's
//! answer means is `core::claim::after_removal`. Applying an event to "the record as it is now, if it
//! is still the same tenure" is one step here, as any number of lost races in between end the same way.
//!
//! Not here: choosing a candidate (there is one machine).

use bullpen_core::claim::{
    AfterRemoval, AfterStep, Check, CheckFailure, CheckKind, ClaimStep, ReportWatch, StepOutcome,
    after_removal, check, excuse, next,
};
use bullpen_core::ids::{ClaimId, Generation, TrustGroup};
use bullpen_core::instance::{Authority, EndReason, InstanceEvent, Owner, Record, State, Tier};
use bullpen_core::mailbox::{Assignment, Credential, Order, Secret, Withdrawal, WithdrawalMode};

use super::Steps;
use super::cloud::deletions;
use crate::explore::Config;
use crate::explore::rules::Rule;
use crate::explore::world::{ExploredWorld, at, limits, never, owner, runner};

/// What a claimer is about to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::explore) enum Doing {
    /// To claim an idle machine.
    #[default]
    Claim,
    /// To find out whether its claim landed.
    Settle,
    Assign,
    Start,
    Check,
    /// It listens: to be marked as running.
    Mark,
    /// It failed its checks: to look whether it is still ours. Whether it may still register.
    Look(bool),
    Drain(bool),
    Delete(bool),
    Condemn,
    GiveBack,
}

/// One claimer and what it remembers of its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::explore) struct Claimer {
    pub(in crate::explore) doing: Doing,
    pub(in crate::explore) generation: Generation,
    tier: Tier,
    /// The tick at which the assignment was made up.
    since: u8,
}

impl Default for Claimer {
    fn default() -> Self {
        let (doing, generation) = (Doing::Claim, Generation(0));
        Self { doing, generation, tier: Tier::Released, since: 0 }
    }
}

impl Claimer {
    /// Whether it believes that it holds the machine.
    pub(in crate::explore) const fn holds(&self) -> bool {
        !matches!(self.doing, Doing::Claim | Doing::Settle)
    }

    const fn watched(&self) -> CheckKind {
        match self.tier {
            Tier::Stopped => CheckKind::Started,
            Tier::Hot | Tier::Released => CheckKind::Warm,
        }
    }

    const fn register_by(&self) -> u8 {
        self.since + 1
    }
}

fn nonce(claimer: usize, seen: Generation) -> ClaimId {
    ClaimId::new(format!("claim-{claimer}-{seen}"))
}

fn name(claimer: usize) -> &'static str {
    ["first worker", "second worker"][claimer]
}

pub(super) fn steps(world: &ExploredWorld, config: &Config, index: usize, steps: &mut Steps) {
    let claimer = world.claimers[index];
    let who = name(index);
    match claimer.doing {
        Doing::Claim => claim(world, config, index, steps),
        Doing::Settle => {
            let next = world.changed(|next| settle(next, config, index));
            steps.push(next, || format!("{who} reads whether its claim landed"));
        }
        Doing::Assign => assign(world, config, index, steps),
        Doing::Start => start(world, index, steps),
        Doing::Check => look_at_report(world, config, index, steps),
        Doing::Mark => {
            let next = world.changed(|next| mark(next, config, index));
            steps.push(next, || format!("{who} marks the runner as running"));
        }
        Doing::Look(late) => {
            let next = world.changed(|next| still_ours(next, config, index, late));
            steps.push(next, || format!("{who} looks whether the machine is still its own"));
        }
        Doing::Drain(late) => {
            let next = world.changed(|next| drain(next, index, late));
            steps.push(next, || format!("{who} posts drain {}", claimer.generation));
        }
        Doing::Delete(late) => delete(world, config, index, late, steps),
        Doing::Condemn => {
            let next = world.changed(|next| condemn(next, config, index));
            steps.push(next, || format!("{who} condemns the machine"));
        }
        Doing::GiveBack => {
            let next = world.changed(|next| give_back(next, config, index));
            steps.push(next, || format!("{who} gives the machine back"));
        }
    }
    renew(world, config, index, steps);
}

fn claim(world: &ExploredWorld, config: &Config, index: usize, steps: &mut Steps) {
    if world.claims_left == 0 {
        return;
    }
    let who = name(index);
    let record = &world.record.0;
    let lease = at(world.clock + 1);
    let event = InstanceEvent::Claimed {
        owner: owner(config, index),
        claim: nonce(index, record.generation),
        trust: TrustGroup::new("acme/app"),
        seen: record.generation,
        at: world.now(),
        margin: limits(config).not_claimable_before_deadline,
        lease,
    };
    if let Ok(claimed) = record.on(&event) {
        let landed = world.changed(|next| {
            next.overwrite(claimed);
            next.claims_left -= 1;
        });
        let won = landed.changed(|next| won(next, index));
        steps.push(won, || format!("{who} claims the machine"));
        if world.faults_left > 0 {
            let lost = landed.changed(|next| unanswered(next, index));
            steps.push(lost, || format!("{who}'s claim lands, and its answer is lost"));
        }
    } else if world.faults_left > 0 && config.one_owner && is_owned(record, config, index) {
        let lost = world.changed(|next| unanswered(next, index));
        steps.push(lost, || format!("{who}'s claim does not land, and its answer is lost"));
    }
    take_over(world, config, index, steps);
}

fn unanswered(world: &mut ExploredWorld, index: usize) {
    world.faults_left -= 1;
    world.claimers[index] = Claimer { doing: Doing::Settle, ..Claimer::default() };
}

fn is_owned(record: &Record, config: &Config, index: usize) -> bool {
    matches!(record.state, State::Claimed { .. })
        && record.state.owner() == Some(&owner(config, index))
}

/// A second worker of the same owner takes a claim over.
fn take_over(world: &ExploredWorld, config: &Config, index: usize, steps: &mut Steps) {
    let record = &world.record.0;
    if !config.one_owner || !is_owned(record, config, index) {
        return;
    }
    let event = InstanceEvent::TakenOver {
        owner: owner(config, index),
        generation: record.generation,
        claim: nonce(index, record.generation),
        lease: at(world.clock + 1),
    };
    if let Ok(taken) = record.on(&event) {
        let next = world.changed(|next| {
            next.overwrite(taken);
            next.claims_left -= 1;
            won(next, index);
        });
        steps.push(next, || format!("{} takes the claim over", name(index)));
    }
}

/// Remembers the claim that is stored as its own.
fn won(world: &mut ExploredWorld, index: usize) {
    let record = &world.record.0;
    let State::Claimed { tier, .. } = record.state else { return };
    let (generation, since) = (record.generation, world.clock);
    world.claimers[index] = Claimer { doing: Doing::Assign, generation, tier, since };
}

/// `engine::transition::claim`: a lost answer is settled by the nonce.
fn settle(world: &mut ExploredWorld, config: &Config, index: usize) {
    let record = &world.record.0;
    let seen = Generation(record.generation.0.saturating_sub(1));
    let holds = match &record.state {
        State::Claimed { claim, .. } if config.holds(Rule::SettledByNonce) => {
            *claim == nonce(index, seen)
        }
        State::Claimed { owner: holder, .. } => *holder == owner(config, index),
        _ => false,
    };
    if holds { won(world, index) } else { world.claimers[index] = Claimer::default() }
}

fn assign(world: &ExploredWorld, config: &Config, index: usize, steps: &mut Steps) {
    let claimer = world.claimers[index];
    let who = name(index);
    let generation = claimer.generation;
    let owner = owner(config, index);
    let order = Order::Assigned(Assignment {
        generation,
        credential: Some(Credential::RegistrationToken(Secret::new(&owner.to_string()))),
        owner,
        runner: runner(generation),
        label: String::new(),
        register_by: Some(at(claimer.register_by())),
        hard_cap: never(),
        // All of this world shares one clock.
        issued_at: None,
        own_run: None,
        group: None,
        ephemeral: false,
    });
    let mut next = world.clone();
    let stored = next.post(order.clone())
        || next.inbox().is_some_and(|inbox| inbox.order.rank() == order.rank());
    let outcome = if stored { StepOutcome::Done } else { StepOutcome::Lost };
    follow(&mut next, index, ClaimStep::Assign, outcome);
    let said = if stored { "is stored" } else { "is refused" };
    steps.push(next, || format!("{who}'s assignment {generation} {said}"));
    if world.faults_left > 0 {
        let lost = world.changed(|next| {
            next.faults_left -= 1;
            next.letters.change(|letters| letters.push(order));
        });
        steps.push(lost, || format!("{who}'s assignment {generation} gets no answer"));
    }
    if world.now() >= at(claimer.register_by()) && !world.letters.is_empty() {
        let why = String::from("the mailbox does not answer");
        let closed = world
            .changed(|next| follow(next, index, ClaimStep::Assign, StepOutcome::Systemic(why)));
        steps.push(closed, || format!("{who} stops waiting for the mailbox"));
    }
}

/// Goes where the protocol says.
fn follow(world: &mut ExploredWorld, index: usize, step: ClaimStep, outcome: StepOutcome) {
    let claimer = &mut world.claimers[index];
    let doing = match next(step, claimer.tier, outcome) {
        AfterStep::Go(ClaimStep::Claim) => Doing::Claim,
        AfterStep::Go(ClaimStep::Assign) => Doing::Assign,
        AfterStep::Go(ClaimStep::Start) => Doing::Start,
        AfterStep::Go(ClaimStep::Check) => Doing::Check,
        AfterStep::Ready => Doing::Mark,
        AfterStep::TryAnother => return *claimer = Claimer::default(),
        AfterStep::GiveBack | AfterStep::CloseAttempt(_) => Doing::GiveBack,
        AfterStep::Remove(failure) => Doing::Look(failure.may_register()),
        AfterStep::RemoveAndClose(_) => Doing::Look(CheckFailure::Excused.may_register()),
    };
    claimer.doing = doing;
}

fn start(world: &ExploredWorld, index: usize, steps: &mut Steps) {
    let who = name(index);
    let sent = world.changed(|next| {
        next.start_called = true;
        follow(next, index, ClaimStep::Start, StepOutcome::Done);
    });
    steps.push(sent, || format!("{who} asks the cloud to start the machine"));
    let refused =
        world.changed(|next| follow(next, index, ClaimStep::Start, StepOutcome::StartRefused));
    steps.push(refused, || format!("the cloud has no room to start the machine, {who} hears"));
}

fn look_at_report(world: &ExploredWorld, config: &Config, index: usize, steps: &mut Steps) {
    let claimer = world.claimers[index];
    let watch = ReportWatch {
        generation: claimer.generation,
        since: at(claimer.since),
        kind: claimer.watched(),
        beat_seen: None,
    };
    let outcome = match check(&watch, Some(&world.report), &limits(config), world.now()) {
        Check::Pending => return,
        Check::Passed => StepOutcome::Done,
        Check::Systemic(why) => excuse(why, world.record.0.uses),
        Check::Failed(failure) => StepOutcome::Failed(failure),
    };
    let label = format!("{} looks at the report: {outcome:?}", name(index)).to_lowercase();
    let next = world.changed(|next| follow(next, index, ClaimStep::Check, outcome));
    steps.push(next, || label);
}

/// `engine::provision::worker::latest`: applies an owner's event to the record as it is now, if it is
/// the same tenure.
fn latest(world: &mut ExploredWorld, index: usize, event: &InstanceEvent) -> bool {
    let record = &world.record.0;
    let same = record.generation == world.claimers[index].generation
        && matches!(record.state, State::Created { .. } | State::Claimed { .. });
    let Ok(moved) = record.on(event) else { return false };
    if same {
        world.overwrite(moved);
    }
    same
}

fn mark(world: &mut ExploredWorld, config: &Config, index: usize) {
    let claimer = world.claimers[index];
    let seen = Generation(claimer.generation.0 - 1);
    let event = InstanceEvent::Registered {
        owner: owner(config, index),
        generation: claimer.generation,
        claim: Some(nonce(index, seen)),
        at: world.now(),
        deadline: never(),
        cap: never(),
    };
    latest(world, index, &event);
    world.claimers[index] = Claimer::default();
}

fn still_ours(world: &mut ExploredWorld, config: &Config, index: usize, late: bool) {
    let record = &world.record.0;
    let claimer = &mut world.claimers[index];
    let ours = record.generation == claimer.generation
        && record.state.owner() == Some(&owner(config, index));
    match &record.state {
        State::Running { .. } if ours => claimer.doing = Doing::Mark,
        _ if ours => claimer.doing = Doing::Drain(late),
        _ => *claimer = Claimer::default(),
    }
}

fn drain(world: &mut ExploredWorld, index: usize, late: bool) {
    let generation = world.claimers[index].generation;
    let order = Order::Withdrawn(Withdrawal {
        generation,
        mode: WithdrawalMode::Drain,
        at: at(0),
        idle_deadline: never(),
        removal_token: None,
    });
    let rank = order.rank();
    let stored = world.post(order) || world.inbox().is_some_and(|it| it.order.rank() == rank);
    if stored {
        world.claimers[index].doing = Doing::Delete(late);
    } else {
        world.claimers[index] = Claimer::default();
    }
}

fn delete(world: &ExploredWorld, config: &Config, index: usize, late: bool, steps: &mut Steps) {
    let claimer = world.claimers[index];
    let who = name(index);
    let register_by = late.then(|| at(claimer.register_by()));
    for (deletion, mut next) in deletions(world, claimer.generation) {
        let doing = match after_removal(deletion, register_by, &limits(config), world.now()) {
            AfterRemoval::End => Doing::Condemn,
            AfterRemoval::Running => Doing::Mark,
            AfterRemoval::GiveBack => Doing::GiveBack,
            AfterRemoval::AskAgain { .. } => continue,
        };
        next.claimers[index].doing = doing;
        steps.push(next, || {
            format!("{who} asks GitHub to delete runner {}: {deletion:?}", claimer.generation)
        });
    }
}

fn by_owner(world: &ExploredWorld, config: &Config, index: usize) -> Authority {
    let generation = world.claimers[index].generation;
    Authority::Owner { owner: owner(config, index), generation }
}

fn condemn(world: &mut ExploredWorld, config: &Config, index: usize) {
    let authority = by_owner(world, config, index);
    let event =
        InstanceEvent::Condemned { authority, why: EndReason::FailedChecks, at: world.now() };
    latest(world, index, &event);
    world.claimers[index] = Claimer::default();
}

fn give_back(world: &mut ExploredWorld, config: &Config, index: usize) {
    let authority = by_owner(world, config, index);
    let event = InstanceEvent::Withdrawn { authority, warm: true, at: world.now(), cap: never() };
    latest(world, index, &event);
    world.claimers[index] = Claimer::default();
}

/// The request keeps its claim alive.
fn renew(world: &ExploredWorld, config: &Config, index: usize, steps: &mut Steps) {
    let record = &world.record.0;
    let State::Claimed { claim, lease, .. } = &record.state else { return };
    let later = at(world.clock + 1);
    if !world.claimers[index].holds() || !is_owned(record, config, index) || *lease >= later {
        return;
    }
    let event = InstanceEvent::Renewed {
        claim: claim.clone(),
        generation: record.generation,
        lease: later,
    };
    if let Ok(renewed) = record.on(&event) {
        let next = world.changed(|next| next.overwrite(renewed));
        steps.push(next, || format!("{} renews its claim", name(index)));
    }
}

impl ExploredWorld {
    /// Two workers that both go on with a machine: each would undo what the other does.
    pub(in crate::explore) fn has_two_holders(&self) -> bool {
        let [first, second] = &self.claimers;
        first.holds() && second.holds() && first.generation == second.generation
    }

    /// The owner of the listener that lives, if one does.
    pub(in crate::explore) fn listens_for(&self) -> Option<&Owner> {
        self.listener.as_ref().map(|listener| &listener.to.owner)
    }
}
