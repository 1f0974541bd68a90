//! A claim worker, and its request behind it.
//!
//! What became of a claim without an answer is `core::tenure::settle`; every decision after a won claim is
//! [`Prepare`]. The worker performs the effects on the explored world, as `engine::provision::worker` does
//! on the ports, each as a step of its own. Writing an event on "the record as it is now, if it is still
//! the same tenure" is one step, as any number of lost races in between end the same way.
//!
//! Not here: choosing a candidate (there is one machine).

use bullpen_core::claim::{ReportWatch, Silence, check};
use bullpen_core::ids::{ClaimId, Generation, TrustGroup};
use bullpen_core::instance::{InstanceEvent, Owner, Record, State};
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::{Assignment, Credential, Order, Secret, Withdrawal, WithdrawalMode};
use bullpen_core::ports::{ClaimWrite, StartOutcome};
use bullpen_core::tenure::{
    Prepare, PrepareEffect, PrepareInput, SettledClaim, Won, is_same_tenure, registered, settle,
};
use bullpen_core::time::Timestamp;

use super::Steps;
use super::cloud::deletions;
use crate::explore::Config;
use crate::explore::fingerprint::Part;
use crate::explore::rules::Rule;
use crate::explore::world::{ExploredWorld, LedgerRow, at, limits, never, owner, runner};

/// A claim worker, by what it is about to do.
#[derive(Clone, Debug, Default, Hash)]
pub(in crate::explore) enum Claimer {
    /// To claim an idle machine.
    #[default]
    Claims,
    /// To find out whether its claim landed.
    Settles,
    /// To perform an effect.
    Performs(Part<Attempt>),
}

/// A worker's attempt at the machine that it believes to have won.
#[derive(Clone, Debug, Hash)]
pub(in crate::explore) struct Attempt {
    prepare: Prepare,
    effect: PrepareEffect,
    /// The record as it last read or wrote it.
    known: Part<LedgerRow>,
}

impl Claimer {
    /// The generation at which it believes that it holds the machine.
    pub(in crate::explore) fn holds(&self) -> Option<Generation> {
        match self {
            Self::Claims | Self::Settles => None,
            Self::Performs(attempt) => Some(attempt.known.0.generation),
        }
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Performs(attempt) if matches!(attempt.effect, PrepareEffect::WaitUntil(_)))
    }
}

fn nonce(claimer: usize, seen: Generation) -> ClaimId {
    ClaimId::new(format!("claim-{claimer}-{seen}"))
}

fn name(claimer: usize) -> &'static str {
    ["first worker", "second worker"][claimer]
}

pub(super) fn steps(world: &ExploredWorld, config: &Config, index: usize, steps: &mut Steps) {
    match &world.claimers[index] {
        Claimer::Claims => claim(world, config, index, steps),
        Claimer::Settles => {
            let next = world.changed(|next| settle_claim(next, config, index));
            steps.push(next, || format!("{} reads whether its claim landed", name(index)));
        }
        Claimer::Performs(attempt) => {
            let worker = Worker { world, config, index, attempt };
            worker.steps(steps);
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
    let write = claim_write(world, config, index, record.generation);
    if let Ok(claimed) = record.on(&claimed(&write)) {
        let landed = world.changed(|next| {
            next.overwrite(claimed);
            next.claims_left -= 1;
        });
        let won = landed.changed(|next| {
            let won = Won::claimed(&write, next.record.0.clone());
            begin(next, config, index, won);
        });
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

fn claim_write(
    world: &ExploredWorld,
    config: &Config,
    index: usize,
    seen: Generation,
) -> ClaimWrite {
    ClaimWrite {
        id: world.record.0.id.clone(),
        seen,
        owner: owner(config, index),
        claim: nonce(index, seen),
        trust: TrustGroup::new("acme/app"),
        at: world.now(),
        margin: limits(config).not_claimable_before_deadline,
        lease: at(world.clock + 1),
    }
}

fn claimed(write: &ClaimWrite) -> InstanceEvent {
    let ClaimWrite { seen, owner, claim, trust, at, margin, lease, .. } = write.clone();
    InstanceEvent::Claimed { owner, claim, trust, seen, at, margin, lease }
}

fn unanswered(world: &mut ExploredWorld, index: usize) {
    world.faults_left -= 1;
    world.claimers[index] = Claimer::Settles;
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
            let won = Won::held(next.record.0.clone(), &owner(config, index));
            begin(next, config, index, won);
        });
        steps.push(next, || format!("{} takes the claim over", name(index)));
    }
}

/// Begins with the machine that it believes to have won, if it does.
fn begin(world: &mut ExploredWorld, config: &Config, index: usize, won: Option<Won>) {
    world.claimers[index] = Claimer::Claims;
    let Some(won) = won else { return };
    let known = remembered(&world.record);
    let (limits, now) = (limits(config), world.now());
    let prepare = Prepare::new(won, now, &limits);
    go_on(world, (index, known), prepare, PrepareInput::Begun, &limits);
}

/// Takes the answer to the last effect.
fn go_on(
    world: &mut ExploredWorld,
    (index, known): (usize, Part<LedgerRow>),
    mut prepare: Prepare,
    input: PrepareInput,
    limits: &Limits,
) {
    let effect = match prepare.on(input, world.now(), limits) {
        PrepareEffect::Write(event) => PrepareEffect::Write(timeless(event)),
        effect => effect,
    };
    world.claimers[index] = match effect {
        PrepareEffect::TryAnother | PrepareEffect::Close(_) => Claimer::Claims,
        effect => Claimer::Performs(Part::new(Attempt { prepare, effect, known })),
    };
}

/// The event without the instants that only people read, so that they tell no states apart.
fn timeless(event: InstanceEvent) -> InstanceEvent {
    match event {
        InstanceEvent::Withdrawn { authority, warm, .. } => {
            InstanceEvent::Withdrawn { authority, warm, at: at(0), cap: never() }
        }
        InstanceEvent::Condemned { authority, why, .. } => {
            InstanceEvent::Condemned { authority, why, at: at(0) }
        }
        event => event,
    }
}

/// The record as a worker remembers it: it never looks at the lease again.
fn remembered(row: &LedgerRow) -> Part<LedgerRow> {
    let mut record = row.0.clone();
    if let State::Claimed { lease, .. } = &mut record.state {
        *lease = at(0);
    }
    Part::new(LedgerRow(record))
}

/// `engine::transition::claim`. Without the rule an equal owner is believed.
fn settle_claim(world: &mut ExploredWorld, config: &Config, index: usize) {
    let stored = world.record.0.clone();
    let won = if config.holds(Rule::SettledByNonce) {
        let seen = Generation(stored.generation.0.saturating_sub(1));
        match settle(&claim_write(world, config, index, seen), Some(stored)) {
            SettledClaim::Won(won) => Some(won),
            SettledClaim::Again | SettledClaim::Lost => None,
        }
    } else {
        Won::held(stored, &owner(config, index))
    };
    begin(world, config, index, won);
}

/// A worker with a machine.
struct Worker<'a> {
    world: &'a ExploredWorld,
    config: &'a Config,
    index: usize,
    attempt: &'a Attempt,
}

impl Worker<'_> {
    fn steps(&self, steps: &mut Steps) {
        let who = name(self.index);
        let generation = self.attempt.known.0.generation;
        match &self.attempt.effect {
            PrepareEffect::Assign { register_by } => self.assign(*register_by, steps),
            PrepareEffect::Start => self.start(steps),
            PrepareEffect::Watch(watch) => self.look_at_report(watch, steps),
            PrepareEffect::CompareSilence => {
                for silence in [Silence::Own, Silence::Shared, Silence::Unproven] {
                    let next = self.after(self.world, None, PrepareInput::Compared(silence));
                    steps.push(next, || match silence {
                        Silence::Own => format!("{who} sees that no other agent is silent"),
                        Silence::Shared => format!("{who} sees that others are silent too"),
                        Silence::Unproven => format!("{who} sees that the agent beat just now"),
                    });
                }
            }
            PrepareEffect::ReadRecord => {
                let record = self.world.record.clone();
                let input = PrepareInput::Found(Some(record.0.clone()));
                let next = self.after(self.world, Some(&record), input);
                steps.push(next, || format!("{who} looks whether the machine is still its own"));
            }
            PrepareEffect::Withdraw(_) => self.drain(steps),
            PrepareEffect::DeleteRunner => {
                for (deletion, next) in deletions(self.world, generation) {
                    let next = self.after(&next, None, PrepareInput::Deleted(deletion));
                    // An answer after which it asks again has changed nothing.
                    if next.claimers[self.index].waits() {
                        continue;
                    }
                    steps.push(next, || {
                        format!("{who} asks GitHub to delete runner {generation}: {deletion:?}")
                    });
                }
            }
            PrepareEffect::Write(event) => {
                let (next, is_written) = self.latest(event);
                let record = is_written.then(|| next.record.clone());
                let input = PrepareInput::Written(is_written);
                let next = self.after(&next, record.as_deref(), input);
                steps.push(next, || format!("{who} writes {}", event.name()));
            }
            PrepareEffect::Return => {
                let next = self.after(self.world, None, PrepareInput::Returned);
                steps.push(next, || format!("{who} leaves the release to the reaper"));
            }
            PrepareEffect::Ready => {
                let next = self.mark().changed(|next| next.claimers[self.index] = Claimer::Claims);
                steps.push(next, || format!("{who} marks the runner as running"));
            }
            // No state has these: the attempt is over, or the worker asks GitHub again.
            PrepareEffect::TryAnother | PrepareEffect::Close(_) | PrepareEffect::WaitUntil(_) => {}
        }
    }

    /// The world after an answer, with the record that it brought.
    fn after(
        &self,
        world: &ExploredWorld,
        record: Option<&LedgerRow>,
        input: PrepareInput,
    ) -> ExploredWorld {
        let known = record.map_or_else(|| self.attempt.known.clone(), remembered);
        let (prepare, limits) = (self.attempt.prepare.clone(), limits(self.config));
        world.changed(|next| go_on(next, (self.index, known), prepare, input, &limits))
    }

    fn assign(&self, register_by: Timestamp, steps: &mut Steps) {
        let (world, who) = (self.world, name(self.index));
        let generation = self.attempt.known.0.generation;
        let order = self.assignment(register_by);
        let mut next = world.clone();
        let stored = next.post(order.clone())
            || next.inbox().is_some_and(|inbox| inbox.order.rank() == order.rank());
        let input = if stored { PrepareInput::Assigned } else { PrepareInput::Fenced };
        let said = if stored { "is stored" } else { "is refused" };
        steps.push(self.after(&next, None, input), || {
            format!("{who}'s assignment {generation} {said}")
        });
        if world.faults_left > 0 {
            let lost = world.changed(|next| {
                next.faults_left -= 1;
                next.letters.change(|letters| letters.push(order));
            });
            steps.push(lost, || format!("{who}'s assignment {generation} gets no answer"));
        }
        if world.now() >= register_by && !world.letters.is_empty() {
            let input = PrepareInput::Unanswered(String::from("the mailbox does not answer"));
            let closed = self.after(world, None, input);
            steps.push(closed, || format!("{who} stops waiting for the mailbox"));
        }
    }

    fn assignment(&self, register_by: Timestamp) -> Order {
        let (generation, owner) = (self.attempt.known.0.generation, owner(self.config, self.index));
        Order::Assigned(Assignment {
            generation,
            credential: Some(Credential::RegistrationToken(Secret::new(&owner.to_string()))),
            owner,
            runner: runner(generation),
            label: String::new(),
            register_by: Some(register_by),
            hard_cap: never(),
            // All of this world shares one clock.
            issued_at: None,
            own_run: None,
            group: None,
            ephemeral: false,
        })
    }

    fn start(&self, steps: &mut Steps) {
        let who = name(self.index);
        let called = self.world.changed(|next| next.start_called = true);
        let sent = self.after(&called, None, PrepareInput::Started(Ok(StartOutcome::Starting)));
        steps.push(sent, || format!("{who} asks the cloud to start the machine"));
        let refused =
            self.after(self.world, None, PrepareInput::Started(Ok(StartOutcome::NoCapacity)));
        steps.push(refused, || format!("the cloud has no room to start the machine, {who} hears"));
    }

    fn look_at_report(&self, watch: &ReportWatch, steps: &mut Steps) {
        let world = self.world;
        let decided = check(watch, Some(&world.report), &limits(self.config), world.now());
        let Some(decided) = decided else { return };
        let label = format!("{} looks at the report: {decided:?}", name(self.index));
        let next = self.after(world, None, PrepareInput::Checked(decided));
        steps.push(next, || label.to_lowercase());
    }

    fn drain(&self, steps: &mut Steps) {
        let generation = self.attempt.known.0.generation;
        let order = Order::Withdrawn(Withdrawal {
            generation,
            mode: WithdrawalMode::Drain,
            at: at(0),
            idle_deadline: never(),
            removal_token: None,
        });
        let rank = order.rank();
        let mut next = self.world.clone();
        let stored = next.post(order) || next.inbox().is_some_and(|it| it.order.rank() == rank);
        let input = if stored { PrepareInput::Withdrawn } else { PrepareInput::Fenced };
        let next = self.after(&next, None, input);
        steps.push(next, || format!("{} posts drain {generation}", name(self.index)));
    }

    /// `engine::transition::latest`: writes an owner's event on the record as it is now, if it is the
    /// same tenure; and whether it is written.
    fn latest(&self, event: &InstanceEvent) -> (ExploredWorld, bool) {
        let mut next = self.world.clone();
        let stored = &self.world.record.0;
        match stored.on(event) {
            Ok(moved) if is_same_tenure(stored, &self.attempt.known.0) => {
                next.overwrite(moved);
                (next, true)
            }
            Ok(_) | Err(_) => (next, false),
        }
    }

    fn mark(&self) -> ExploredWorld {
        let (limits, now) = (limits(self.config), self.world.now());
        let known = &self.attempt.known.0;
        match registered(known, limits.max_runtime_workflow, now, &limits) {
            Some(event) => self.latest(&event).0,
            // Another process has marked it.
            None => self.world.clone(),
        }
    }
}

/// The request keeps its claim alive.
fn renew(world: &ExploredWorld, config: &Config, index: usize, steps: &mut Steps) {
    let record = &world.record.0;
    let State::Claimed { claim, lease, .. } = &record.state else { return };
    let later = at(world.clock + 1);
    let holds = world.claimers[index].holds().is_some();
    if !holds || !is_owned(record, config, index) || *lease >= later {
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
        first.holds().is_some() && first.holds() == second.holds()
    }

    /// The owner of the listener that lives, if one does.
    pub(in crate::explore) fn listens_for(&self) -> Option<&Owner> {
        self.listener.as_ref().map(|listener| &listener.to.owner)
    }
}
