//! Provision: one request, from wish to running or undone.
//!
//! Its entry is stored first ([`entry`]). Then selection ([`pickup`], [`worker`]), creation for what
//! is missing ([`creation`]), and all runners are marked running. A request that was begun before is
//! resumed ([`resume`]); one that finds a ceiling short waits in line ([`room`]); one that cannot be
//! fulfilled, or is cancelled, gives everything back ([`undo`]): whatever it holds is found by its
//! owner directory, the same way a release finds it.
//!
//! Claims are renewed, and reports are looked at ([`lookout`]), while the request lives.
//!
//! Not here: where a cancellation comes from, and how progress is shown (the command).

use std::sync::Mutex;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::creation::{CeilingReached, RungResult, next_rung};
use bullpen_core::ids::{Repository, RunnerName};
use bullpen_core::instance::{Event, Owner, Record, State};
use bullpen_core::limits::IDS_PER_CALL_MAX;
use bullpen_core::mailbox::Credential;
use bullpen_core::ports::{Clock, Fault, Forge, Ledger, Ports, RunnerSpec, Written};
use bullpen_core::request::{OnPartial, Request};
use futures_util::future::join_all;

use crate::Stack;
use crate::patience::patiently;
use crate::postman::Postman;
use crate::tell::{Tell, Told, nobody};
use crate::transition::{self, Moved};

pub mod creation;
pub mod entry;
pub mod lookout;
pub mod pickup;
mod resume;
mod room;
pub mod undo;
pub mod worker;

use creation::CreationError;
use entry::{Begun, CannotBegin};
use lookout::Lookout;
use pickup::PickupManager;
use room::{Holdings, Place};
use undo::Abandoned;
use worker::{Held, Terms};

/// A request, by whom it is made, and who is told how it goes.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// What is wanted. Its incarnation is not looked at.
    pub request: &'a Request,
    /// Whose workflow asks, where it is one.
    pub repository: Option<&'a Repository>,
    /// Who is told.
    pub tell: Tell<'a>,
}

impl<'a> Call<'a> {
    /// A request of nobody's workflow, in silence.
    pub fn silent(request: &'a Request) -> Self {
        Self { request, repository: None, tell: &nobody }
    }
}

/// How long each part took, together and one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Storing the request's entry, and finding what it has.
    pub beginning: Duration,
    /// Getting a credential.
    pub credential: Duration,
    /// Finding, claiming and checking idle machines.
    pub selection: Duration,
    /// Launching machines and waiting until they listen.
    pub creation: Duration,
    /// Standing in line for room under a ceiling.
    pub waiting: Duration,
    /// Everything.
    pub total: Duration,
}

/// A fulfilled request.
#[derive(Debug)]
pub struct Provisioned {
    /// Its runners; all of them listen, all are marked running.
    pub runners: Vec<Held>,
    /// The label that jobs ask for.
    pub label: String,
    /// How long it took.
    pub timings: Timings,
}

/// Why a request was not fulfilled. Unless it says otherwise, everything it held is on its way back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvisionError {
    /// Nothing was begun, and nothing touched.
    #[error(transparent)]
    CannotBegin(#[from] CannotBegin),
    /// GitHub gave no credential; nothing was touched.
    #[error("GitHub gave no credential to register runners with")]
    NoCredential(#[source] Fault),
    /// The cause lies outside the machines, so no other machine was tried.
    #[error("the attempt was closed, because no other machine could have helped")]
    Closed(#[source] Fault),
    /// Machines could not be created.
    #[error("missing {missing} of {requested} runners")]
    Creation {
        /// How many are missing.
        missing: usize,
        /// How many were wanted.
        requested: u32,
        /// Why.
        source: CreationError,
    },
    /// The cloud has no more.
    #[error("missing {missing} of {requested} runners: no capacity")]
    Short {
        /// How many are missing.
        missing: usize,
        /// How many were wanted.
        requested: u32,
    },
    /// What came did not work.
    #[error("missing {missing} of {requested} runners: {why}")]
    Unfit {
        /// How many are missing.
        missing: usize,
        /// How many were wanted.
        requested: u32,
        /// What was wrong with the last one.
        why: String,
    },
    /// Another process carries the request on, or it was released meanwhile. Nothing was undone.
    #[error("another process works on this request now, or has released it")]
    Superseded,
    /// Somebody cancelled it.
    #[error("cancelled")]
    Cancelled(Abandoned),
}

impl ProvisionError {
    /// Whether this process began the request, and it is still this process's to undo.
    const fn has_begun(&self) -> bool {
        match self {
            Self::CannotBegin(_)
            | Self::NoCredential(_)
            | Self::Superseded
            | Self::Cancelled(_) => false,
            Self::Closed(_) | Self::Creation { .. } | Self::Short { .. } | Self::Unfit { .. } => {
                true
            }
        }
    }
}

/// Fulfils a request, or gives back everything it took. When `cancelled` completes, the request is
/// abandoned in the few seconds that a cancelled command has.
pub async fn provision<P: Ports>(
    stack: &Stack<P>,
    call: Call<'_>,
    cancelled: impl Future<Output = ()>,
) -> Result<Provisioned, ProvisionError> {
    let id = &call.request.id;
    let (lookout, postman) = (Lookout::default(), Postman::default());
    let owner = Owner::Request(id.clone());
    let fulfilled = tokio::select! {
        biased;
        () = cancelled => Err(None),
        fulfilled = fulfil(stack, call, &lookout, &postman) => fulfilled.map_err(Some),
        never = renew(stack, &owner) => match never {},
        never = lookout.look(stack) => match never {},
        never = postman.deliver(stack) => match never {},
    };
    match fulfilled {
        Ok(provisioned) => Ok(provisioned),
        Err(None) => Err(ProvisionError::Cancelled(undo::abandon(stack, id).await)),
        Err(Some(error)) => {
            if error.has_begun() {
                undo::give_up(stack, id).await;
            }
            Err(error)
        }
    }
}

/// Measures one part.
async fn timed<P: Ports, T>(
    stack: &Stack<P>,
    sum: &mut Duration,
    work: impl Future<Output = T>,
) -> T {
    let began = stack.ports.clock().monotonic();
    let done = work.await;
    *sum += stack.ports.clock().monotonic().saturating_sub(began);
    done
}

async fn fulfil<P: Ports>(
    stack: &Stack<P>,
    call: Call<'_>,
    lookout: &Lookout,
    postman: &Postman,
) -> Result<Provisioned, ProvisionError> {
    let started = stack.ports.clock().monotonic();
    let mut timings = Timings::default();
    let label = format!("warm-{}", call.request.id);
    let credential = credential(stack, call.request, &label);
    let credential = timed(stack, &mut timings.credential, credential).await?;
    let entered = entry::begin(stack, call.request, call.repository);
    let begun = timed(stack, &mut timings.beginning, entered).await?;
    if begun.after_abandonment {
        undo::clear(stack, &begun.request.id).await;
    }
    let terms = Terms {
        request: &begun.request,
        owner: Owner::Request(begun.request.id.clone()),
        begun: &begun,
        label,
        credential,
        postman,
        lookout,
        tell: call.tell,
        began: started,
        failure: Mutex::default(),
    };
    let mut work = Work { stack, terms: &terms, begun: &begun, running: Vec::new(), timings };
    let done = work.complete().await;
    timings = Timings { total: terms.elapsed(stack), ..work.timings };
    let runners = std::mem::take(&mut work.running);
    done.map(|()| Provisioned { runners, label: terms.label.clone(), timings })
}

/// Minted before anything is stored or claimed, so that an outage of GitHub's touches nothing.
async fn credential<P: Ports>(
    stack: &Stack<P>,
    request: &Request,
    label: &str,
) -> Result<Credential, ProvisionError> {
    let spec = RunnerSpec {
        name: RunnerName::new(format!("{}-{}", stack.name, request.id)),
        labels: vec![label.to_owned()],
        ephemeral: false,
    };
    // An outage that lasts is the caller's to know about, long before the request's deadline.
    let until = request.deadline.min(stack.now().after(stack.limits.forge_patience));
    patiently(stack, until, || stack.ports.forge().credential(&spec))
        .await
        .map_err(ProvisionError::NoCredential)
}

/// One request under way.
struct Work<'s, P> {
    stack: &'s Stack<P>,
    terms: &'s Terms<'s>,
    begun: &'s Begun,
    running: Vec<Held>,
    timings: Timings,
}

impl<P: Ports> Work<'_, P> {
    /// Until every runner runs, or it is certain that not all will.
    async fn complete(&mut self) -> Result<(), ProvisionError> {
        let mut ladder = Ladder::default();
        if self.begun.resumed {
            self.resume(&mut ladder).await?;
        }
        let mut place = None;
        let done = self.climb(&mut ladder, &mut place).await;
        if let Some(place) = place {
            place.leave(self.stack, self.terms.request).await;
        }
        done
    }

    async fn climb(
        &mut self,
        ladder: &mut Ladder,
        place: &mut Option<Place>,
    ) -> Result<(), ProvisionError> {
        self.select().await?;
        let mut short_of_room = None;
        while self.missing() > 0 {
            let (stack, terms, missing) = (self.stack, self.terms, self.missing());
            if entry::is_superseded(stack, self.begun).await {
                return Err(ProvisionError::Superseded);
            }
            let created = ladder.climb(stack, terms, missing);
            match timed(stack, &mut self.timings.creation, created).await {
                Ok(held) => self.run(held).await?,
                Err(error) => match room_wanted(stack, terms.request, &error) {
                    Some(reached) => {
                        self.wait_for_room(place, &reached).await?;
                        short_of_room = Some(error);
                    }
                    // Its time was up while it waited: what it waited for is the reason.
                    None => return Err(short_of_room.unwrap_or(error)),
                },
            }
        }
        Ok(())
    }

    fn missing(&self) -> usize {
        let wanted = usize::try_from(self.terms.request.count).unwrap_or(usize::MAX);
        wanted.saturating_sub(self.running.len())
    }

    async fn resume(&mut self, ladder: &mut Ladder) -> Result<(), ProvisionError> {
        let resumed = resume::resume(self.stack, self.terms);
        let resumed = timed(self.stack, &mut self.timings.beginning, resumed).await;
        let resumed = resumed.map_err(|source| ProvisionError::Creation {
            missing: self.missing(),
            requested: self.terms.request.count,
            source,
        })?;
        ladder.attempts = resumed.launches;
        self.run(resumed.held).await
    }

    /// As many workers as runners are wanted, over one pickup manager.
    async fn select(&mut self) -> Result<(), ProvisionError> {
        let (stack, terms, missing) = (self.stack, self.terms, self.missing());
        if missing == 0 {
            return Ok(());
        }
        (terms.tell)(Told::Selecting { runners: missing });
        let selected = select(stack, terms, missing);
        let held = timed(stack, &mut self.timings.selection, selected).await?;
        self.run(held).await
    }

    /// Marks runners as running. One that somebody else has meanwhile is missing, and made up for,
    /// unless it is the whole request that somebody else has.
    ///
    /// That is looked at after the claims have landed and before they are marked: whoever supersedes
    /// this process later sees them all; whoever did so before may have seen none, and then they are
    /// left to lapse, or the request would have more runners than it wants.
    async fn run(&mut self, held: Vec<Held>) -> Result<(), ProvisionError> {
        if held.is_empty() {
            return Ok(());
        }
        if entry::is_superseded(self.stack, self.begun).await {
            return Err(ProvisionError::Superseded);
        }
        self.running.extend(mark_running(self.stack, held).await);
        Ok(())
    }

    async fn wait_for_room(
        &mut self,
        place: &mut Option<Place>,
        reached: &CeilingReached,
    ) -> Result<(), ProvisionError> {
        let (stack, terms) = (self.stack, self.terms);
        let wait = async {
            let standing = match place {
                Some(standing) => standing,
                None => place.insert(Place::take(stack, terms.request).await?),
            };
            room::wait(stack, terms, standing, reached).await
        };
        let waited = timed(stack, &mut self.timings.waiting, wait).await;
        if waited.map_err(ProvisionError::Closed)? == Holdings::GivenBack {
            self.running.clear();
        }
        self.select().await
    }
}

/// The ceiling to wait for, if waiting can help.
fn room_wanted<P: Ports>(
    stack: &Stack<P>,
    request: &Request,
    error: &ProvisionError,
) -> Option<CeilingReached> {
    let ProvisionError::Creation { source: CreationError::Ceiling(reached), .. } = error else {
        return None;
    };
    let waits = request.on_partial == OnPartial::TopUp
        && request.count <= reached.max
        && stack.now() < request.deadline;
    waits.then(|| reached.clone())
}

async fn select<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    wanted: usize,
) -> Result<Vec<Held>, ProvisionError> {
    let manager = PickupManager::new(stack, terms.request, wanted);
    let workers = (0..wanted).map(|_| worker::work(stack, terms, &manager));
    let found = join_all(workers).await;
    manager.close().await;
    let mut held = Vec::new();
    for outcome in found {
        held.extend(outcome.map_err(ProvisionError::Closed)?);
    }
    Ok(held)
}

/// What creation has tried so far.
#[derive(Debug, Default)]
struct Ladder {
    attempts: u32,
    last: Option<RungResult>,
    /// How many launches in a row brought machines of which none was fit: a script that always fails
    /// would otherwise have machines launched until the deadline.
    in_vain: u32,
    /// The ceiling that is waited for: why time ran out, if it does.
    ceiling: Option<CeilingReached>,
}

impl Ladder {
    /// Tries the next rung for what is missing.
    async fn climb<P: Ports>(
        &mut self,
        stack: &Stack<P>,
        terms: &Terms<'_>,
        missing: usize,
    ) -> Result<Vec<Held>, ProvisionError> {
        let request = terms.request;
        let short = self.short(missing, terms);
        let first = self.last.is_none();
        let is_over = stack.now() >= request.deadline
            || self.in_vain >= stack.limits.launch_attempts_max
            || (!first && request.on_partial == OnPartial::Fail);
        if is_over {
            return Err(short);
        }
        let usage: Usage =
            next_rung(request.usage, request.on_demand_fallback, self.last).ok_or(short)?;
        let count = u32::try_from(missing).unwrap_or(u32::MAX);
        let created = creation::create(stack, terms, usage, count, self.attempts + 1).await;
        self.ceiling = match &created {
            Err(CreationError::Ceiling(reached)) => Some(reached.clone()),
            Ok(_) | Err(CreationError::Port { .. }) => None,
        };
        let created = created.map_err(|source| ProvisionError::Creation {
            missing,
            requested: request.count,
            source,
        })?;
        self.attempts += 1;
        self.last = Some(RungResult { usage, any_came: created.any_came });
        let is_in_vain = created.any_came && created.ready.is_empty();
        self.in_vain = if is_in_vain { self.in_vain + 1 } else { 0 };
        Ok(created.ready)
    }

    /// Why there is nothing more to try.
    fn short(&self, missing: usize, terms: &Terms<'_>) -> ProvisionError {
        let requested = terms.request.count;
        if let Some(reached) = &self.ceiling {
            let source = CreationError::Ceiling(reached.clone());
            return ProvisionError::Creation { missing, requested, source };
        }
        let came = self.last.is_some_and(|last| last.any_came);
        match terms.last_failure().filter(|_| came) {
            Some(why) => ProvisionError::Unfit { missing, requested, why },
            None => ProvisionError::Short { missing, requested },
        }
    }
}

/// Marks runners as running; one whose lease was lost meanwhile is left out, and topped up.
async fn mark_running<P: Ports>(stack: &Stack<P>, held: Vec<Held>) -> Vec<Held> {
    let mut marked = Vec::new();
    let mut left = Vec::new();
    for batch in held.chunks(IDS_PER_CALL_MAX) {
        let writes: Vec<_> = batch.iter().map(|held| running(stack, held)).collect();
        let wanted: Vec<_> = writes.iter().flatten().cloned().collect();
        let mut answers = stack.ports.ledger().replace_all(&wanted).await.into_iter();
        for (held, write) in batch.iter().zip(writes) {
            let answer = write.and_then(|_| answers.next());
            match answer {
                Some(Ok(Written::Won(record))) => marked.push(Held { record, ..held.clone() }),
                // Renewed, or overtaken, or without an answer: looked at one by one.
                _ => left.push(held.clone()),
            }
        }
    }
    let others = join_all(left.into_iter().map(|held| mark_one(stack, held))).await;
    marked.extend(others.into_iter().flatten());
    marked
}

/// The event that marks a runner, if it is not marked yet.
fn registered<P: Ports>(stack: &Stack<P>, held: &Held) -> Option<Event> {
    let (State::Created { owner, .. } | State::Claimed { owner, .. }) = &held.record.state else {
        return None;
    };
    let now = stack.now();
    Some(Event::Registered {
        owner: owner.clone(),
        generation: held.record.generation,
        claim: held.claim.clone(),
        at: now,
        deadline: now.after(stack.limits.max_runtime_workflow),
        cap: now.after(stack.limits.hard_cap),
    })
}

/// What was seen and what is to be stored.
fn running<P: Ports>(stack: &Stack<P>, held: &Held) -> Option<(Record, Record)> {
    let next = held.record.on(&registered(stack, held)?).ok()?;
    Some((held.record.clone(), next))
}

async fn mark_one<P: Ports>(stack: &Stack<P>, held: Held) -> Option<Held> {
    let Some(event) = registered(stack, &held) else {
        return matches!(held.record.state, State::Running { .. }).then_some(held);
    };
    let owner = held.record.state.owner();
    let until = stack.now().after(stack.limits.claim_lease);
    let record = match worker::latest(stack, &held.record, &event, until).await.ok()? {
        Moved::To(record) => record,
        // Another process of the same request may have marked it, which is just as good.
        Moved::Overtaken | Moved::Refused(_) => {
            let fresh = transition::read(stack, &held.record.id, until).await.ok()??;
            let is_marked =
                matches!(fresh.state, State::Running { .. }) && fresh.state.owner() == owner;
            (is_marked && fresh.generation == held.record.generation).then_some(fresh)?
        }
    };
    Some(Held { record, ..held })
}

/// Keeps the request's claims alive. Never returns; it ends with the request.
async fn renew<P: Ports>(stack: &Stack<P>, owner: &Owner) -> std::convert::Infallible {
    loop {
        stack.ports.clock().sleep(stack.limits.claim_renew).await;
        let Ok(records) = stack.ports.ledger().owned_by(owner).await else { continue };
        for record in records {
            let State::Claimed { claim, owner: holder, .. } = &record.state else { continue };
            if holder != owner {
                continue;
            }
            let now = stack.now();
            let event = Event::Renewed {
                claim: claim.clone(),
                generation: record.generation,
                lease: now.after(stack.limits.claim_lease),
            };
            // Overtaken is fine: whoever wrote meanwhile is us, or has fenced us.
            let _ = transition::apply(stack, &record, &event, now.after(stack.limits.claim_renew))
                .await;
        }
    }
}
