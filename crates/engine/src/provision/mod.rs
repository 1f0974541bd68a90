//! Provision: one request, from wish to running or undone.
//!
//! Selection first ([`pickup`], [`worker`]), creation for what is missing ([`creation`]), then all
//! runners are marked running together. A request that cannot be fulfilled gives everything back:
//! whatever it holds is found by its owner directory, the same way a release finds it.
//!
//! Claims are renewed while the request lives.
//!
//! Not here: cancellation by signals and resuming, which belong to the command.

use bullpen_core::class::Usage;
use bullpen_core::creation::{RungResult, next_rung};
use bullpen_core::instance::{Event, Owner, State};
use bullpen_core::ports::{Clock, Fault, Forge, Ledger, Ports, RunnerSpec};
use bullpen_core::request::{OnPartial, Request};
use futures_util::future::join_all;

use crate::Stack;
use crate::patience::patiently;
use crate::release;
use crate::transition::{self, Moved};

pub mod creation;
pub mod pickup;
pub mod worker;

use creation::CreationError;
use pickup::PickupManager;
use worker::{Held, Terms};

/// A fulfilled request.
#[derive(Debug)]
pub struct Provisioned {
    /// Its runners; all of them listen, all are marked running.
    pub runners: Vec<Held>,
}

/// Why a request was not fulfilled. Everything it held is on its way back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvisionError {
    /// GitHub gave no credential; nothing was touched.
    #[error("GitHub gave no credential to register runners with")]
    NoCredential(#[source] Fault),
    /// The cause lies outside the machines, so no other machine was tried.
    #[error("the attempt was closed, because no machine could have helped")]
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
    /// The cloud has no more, or what came did not work.
    #[error("missing {missing} of {requested} runners: no capacity, or what came did not register")]
    Short {
        /// How many are missing.
        missing: usize,
        /// How many were wanted.
        requested: u32,
    },
}

/// Fulfils a request, or gives back everything it took.
pub async fn provision<P: Ports>(
    stack: &Stack<P>,
    request: &Request,
) -> Result<Provisioned, ProvisionError> {
    let owner = Owner::Request(request.id.clone());
    let fulfilled = tokio::select! {
        biased;
        fulfilled = fulfil(stack, request) => fulfilled,
        never = renew(stack, &owner) => match never {},
    };
    match fulfilled {
        Ok(provisioned) => Ok(provisioned),
        Err(error) => {
            // If this fails too, the lease of every claim and the deadline of every machine remain.
            if let Err(fault) = release::withdraw_all(stack, &owner).await {
                tracing::warn!(%fault, "a failed request left machines for the reaper");
            }
            Err(error)
        }
    }
}

async fn fulfil<P: Ports>(
    stack: &Stack<P>,
    request: &Request,
) -> Result<Provisioned, ProvisionError> {
    let label = format!("warm-{}", request.id);
    let spec = RunnerSpec {
        name: bullpen_core::ids::RunnerName::new(format!("{}-{}", stack.name, request.id)),
        labels: vec![label.clone()],
        ephemeral: false,
    };
    let credential = patiently(stack, request.deadline, || stack.ports.forge().credential(&spec))
        .await
        .map_err(ProvisionError::NoCredential)?;
    let owner = Owner::Request(request.id.clone());
    let terms = Terms { request, owner, label, credential };
    let mut held = select(stack, &terms).await?;
    let mut running = Vec::new();
    let mut ladder = Ladder::default();
    loop {
        running.extend(mark_running(stack, std::mem::take(&mut held)).await);
        let missing = wanted(request).saturating_sub(running.len());
        if missing == 0 {
            return Ok(Provisioned { runners: running });
        }
        held = ladder.climb(stack, &terms, missing).await?;
    }
}

fn wanted(request: &Request) -> usize {
    usize::try_from(request.count).unwrap_or(usize::MAX)
}

/// As many workers as runners are wanted, over one pickup manager.
async fn select<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
) -> Result<Vec<Held>, ProvisionError> {
    let manager = PickupManager::new(stack, terms.request);
    let workers = (0..terms.request.count).map(|_| worker::work(stack, terms, &manager));
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
        let short = ProvisionError::Short { missing, requested: request.count };
        let first = self.attempts == 0;
        if stack.now() >= request.deadline || (!first && request.on_partial == OnPartial::Fail) {
            return Err(short);
        }
        let usage: Usage =
            next_rung(request.usage, request.on_demand_fallback, self.last).ok_or(short)?;
        self.attempts += 1;
        let count = u32::try_from(missing).unwrap_or(u32::MAX);
        let created = creation::create(stack, terms, usage, count, self.attempts).await.map_err(
            |source| ProvisionError::Creation { missing, requested: request.count, source },
        )?;
        self.last = Some(RungResult { usage, any_came: created.any_came });
        Ok(created.ready)
    }
}

/// Marks runners as running; one whose lease was lost meanwhile is left out, and topped up.
async fn mark_running<P: Ports>(stack: &Stack<P>, held: Vec<Held>) -> Vec<Held> {
    let marked = held.into_iter().map(|held| async move {
        let (State::Created { owner, .. } | State::Claimed { owner, .. }) = &held.record.state
        else {
            return None;
        };
        let now = stack.now();
        let event = Event::Registered {
            owner: owner.clone(),
            generation: held.record.generation,
            claim: held.claim.clone(),
            at: now,
            deadline: now.after(stack.limits.max_runtime_workflow),
            cap: now.after(stack.limits.hard_cap),
        };
        let until = now.after(stack.limits.claim_lease);
        match worker::latest(stack, &held.record, &event, until).await {
            Ok(Moved::To(record)) => Some(Held { record, ..held }),
            Ok(Moved::Overtaken | Moved::Refused(_)) | Err(_) => None,
        }
    });
    join_all(marked).await.into_iter().flatten().collect()
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
