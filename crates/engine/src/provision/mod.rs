//! Provision: fulfils one request, or undoes it.
//!
//! The process stores the request's entry ([`entry`]), claims idle machines ([`pickup`],
//! [`worker`]), launches the missing ones ([`creation`]) and marks all runners as running. It
//! resumes a request that another process began (`resume`) and waits in line under a short ceiling
//! (`crate::capacity`). If the request fails or is cancelled, it gives back every machine in the owner's
//! directory ([`undo`]). Meanwhile it renews the claims and watches the reports
//! (`report_watcher`).
//!
//! Not here: where a cancellation comes from, and how progress is shown (the command).

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use bullpen_core::creation::CeilingReached;
use bullpen_core::ids::{Repository, RunnerGroup, RunnerName};
use bullpen_core::instance::Owner;
use bullpen_core::mailbox::Credential;
use bullpen_core::ports::{Clock, Fault, Forge, Ports, RunnerSpec};
use bullpen_core::request::{OnPartial, Request};
use bullpen_core::sabotage;
use futures_util::future::join_all;

use crate::Stack;
use crate::capacity::{self, Holdings, PlaceInLine};
use crate::ending;
use crate::progress::{ProgressEvent, ProgressObserver, unobserved};
use crate::release;
use crate::retry::retry_until;

pub mod creation;
pub mod entry;
mod ladder;
pub mod pickup;
pub(crate) mod report_watcher;
mod resume;
pub(crate) mod tenure;
pub mod undo;
pub mod worker;

use creation::CreationError;
use entry::{Begun, CannotBegin};
use ladder::Ladder;
use pickup::PickupManager;
use tenure::{mark_running, renew};
use undo::Abandoned;
use worker::{HeldMachine, Terms, WantedRunner};

/// A request, the workflow that makes it, and the observer of its progress.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The request. Its incarnation is ignored: the stored entry decides it.
    pub request: &'a Request,
    /// The repository of the workflow that asks, if a workflow does.
    pub repository: Option<&'a Repository>,
    /// Whether that workflow runs untrusted code, if the command knows. If it does not, the release
    /// asks GitHub.
    pub is_untrusted: Option<bool>,
    /// The group that its runners join at GitHub; GitHub's default group if absent.
    pub group: Option<&'a RunnerGroup>,
    /// Receives the progress.
    pub tell: ProgressObserver<'a>,
}

impl<'a> Call<'a> {
    /// A request without a workflow and without an observer.
    pub fn silent(request: &'a Request) -> Self {
        Self { request, repository: None, is_untrusted: None, group: None, tell: &unobserved }
    }
}

/// How long each part of one call took, summed over its repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Storing the request's entry, and resuming the machines that it has.
    pub beginning: Duration,
    /// Getting a credential from GitHub.
    pub credential: Duration,
    /// Finding, claiming and checking idle machines.
    pub selection: Duration,
    /// Launching machines and waiting until they listen.
    pub creation: Duration,
    /// Waiting in line for capacity under a ceiling.
    pub waiting: Duration,
    /// The whole call.
    pub total: Duration,
}

/// A fulfilled request.
#[derive(Debug)]
pub struct Provisioned {
    /// Its runners; all of them listen and are marked as running.
    pub runners: Vec<HeldMachine>,
    /// The label that jobs ask for.
    pub label: String,
    /// How long it took.
    pub timings: Timings,
}

/// Why a request was not fulfilled. Unless the variant says otherwise, all machines that the
/// request held are on their way back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvisionError {
    /// The request did not begin; no machine was touched.
    #[error(transparent)]
    CannotBegin(#[from] CannotBegin),
    /// GitHub gave no credential; nothing was touched.
    #[error("GitHub gave no credential to register runners with")]
    NoCredential(#[source] Fault),
    /// The cause lies outside the machines, so the workers tried no other machine.
    #[error("the attempt was closed, because no other machine could have helped")]
    Closed(#[source] Fault),
    /// Creation stopped: a ceiling is reached, or a port failed.
    #[error("missing {missing} of {requested} runners")]
    Creation {
        /// How many are missing.
        missing: usize,
        /// How many were wanted.
        requested: u32,
        /// Why creation stopped.
        source: CreationError,
    },
    /// The cloud has no more capacity.
    #[error("missing {missing} of {requested} runners: no capacity{said}")]
    Short {
        /// How many are missing.
        missing: usize,
        /// How many were wanted.
        requested: u32,
        /// The cloud's reason, if it gave one.
        said: String,
    },
    /// Launched machines failed their checks.
    #[error("missing {missing} of {requested} runners: {why}")]
    Unfit {
        /// How many are missing.
        missing: usize,
        /// How many were wanted.
        requested: u32,
        /// Why the last machine failed.
        why: String,
    },
    /// Another process continues the request, or has released it. Nothing was undone.
    #[error("another process works on this request now, or has released it")]
    Superseded,
    /// GitHub or the operator cancelled the command.
    #[error("cancelled")]
    Cancelled(Abandoned),
}

impl ProvisionError {
    /// Whether this process began the request and must undo it.
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

/// Fulfils a request, or gives back every machine that it took. When `cancelled` completes, it
/// abandons the request within the few seconds that a cancelled command has.
pub async fn provision<P: Ports>(
    stack: &Stack<P>,
    call: Call<'_>,
    cancelled: impl Future<Output = ()>,
) -> Result<Provisioned, ProvisionError> {
    let id = &call.request.id;
    let owner = Owner::Request(id.clone());
    let begun = OnceLock::new();
    let fulfilled = tokio::select! {
        biased;
        () = cancelled => Err(None),
        fulfilled = fulfil(stack, call, &begun) => fulfilled.map_err(Some),
        never = renew(stack, &owner) => match never {},
        never = Box::pin(ending::run(stack)) => match never {},
    };
    let fulfilled = match fulfilled {
        Ok(provisioned) => Ok(provisioned),
        // A cancelled command has no time to wait for the cloud.
        Err(None) => return Err(ProvisionError::Cancelled(undo::abandon(stack, id).await)),
        Err(Some(error)) => match begun.get().filter(|_| error.has_begun()) {
            Some(begun) if !sabotage!("failure-undoes-nothing") => {
                undo::give_up(stack, begun).await?;
                Err(error)
            }
            _ => Err(error),
        },
    };
    Box::pin(ending::end_before_leaving(stack)).await;
    fulfilled
}

/// Does one part of the work and adds its duration to `sum`.
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
    begun: &OnceLock<Begun>,
) -> Result<Provisioned, ProvisionError> {
    let started = stack.ports.clock().monotonic();
    let mut timings = Timings::default();
    let credential = credential(stack, call.request);
    let credential = timed(stack, &mut timings.credential, credential).await?;
    let entered = entry::begin(stack, call.request, (call.repository, call.is_untrusted));
    let entered = timed(stack, &mut timings.beginning, entered).await?;
    let begun = begun.get_or_init(|| entered);
    // The stored entry holds the label, so a process that resumes the request uses the same one.
    (call.tell)(ProgressEvent::Begun { label: begun.label.clone() });
    if begun.after_abandonment {
        undo::clear(stack, &begun.request.id).await;
    }
    let terms = Terms {
        request: &begun.request,
        owner: Owner::Request(begun.request.id.clone()),
        wanted: WantedRunner::OfRequest { begun, group: call.group },
        credential,
        tell: call.tell,
        began: started,
        failure: Mutex::default(),
    };
    let mut work = Work { stack, terms: &terms, begun, running: Vec::new(), timings };
    let done = work.complete().await;
    timings = Timings { total: terms.elapsed(stack), ..work.timings };
    let runners = std::mem::take(&mut work.running);
    done.map(|()| Provisioned { runners, label: begun.label.clone(), timings })
}

/// Gets the credential before anything is stored or claimed, so that an outage of GitHub changes
/// nothing.
async fn credential<P: Ports>(
    stack: &Stack<P>,
    request: &Request,
) -> Result<Credential, ProvisionError> {
    // A registration token works for any runner; its assignment gives it its label and group.
    let spec = RunnerSpec {
        name: RunnerName::new(format!("{}-{}", stack.name, request.id)),
        labels: Vec::new(),
        group: None,
        ephemeral: false,
    };
    // The caller must learn of a lasting outage long before the request's deadline.
    let until = request.deadline.min(stack.now().after(stack.limits.forge_patience));
    retry_until(stack, until, || stack.ports.forge().credential(&spec))
        .await
        .map_err(ProvisionError::NoCredential)
}

/// The state of one call of [`provision`].
struct Work<'s, P> {
    stack: &'s Stack<P>,
    terms: &'s Terms<'s>,
    begun: &'s Begun,
    running: Vec<HeldMachine>,
    timings: Timings,
}

impl<P: Ports> Work<'_, P> {
    /// Works until every runner runs, or until it is certain that not all will.
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
        place: &mut Option<PlaceInLine>,
    ) -> Result<(), ProvisionError> {
        self.select().await?;
        if self.begun.resumed && self.missing() > 0 {
            // The superseded process may have claimed idle machines for this request meanwhile.
            self.resume(ladder).await?;
        }
        while self.missing() > 0 {
            let (stack, terms, missing) = (self.stack, self.terms, self.missing());
            if entry::is_superseded(stack, self.begun).await {
                return Err(ProvisionError::Superseded);
            }
            let created = ladder.climb(stack, terms, missing);
            match timed(stack, &mut self.timings.creation, created).await {
                Ok(held) => self.run(held).await?,
                Err(error) => match ceiling_to_wait_for(stack, terms.request, &error) {
                    Some(reached) => self.wait_for_capacity(place, &reached).await?,
                    None => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn missing(&self) -> usize {
        let wanted = usize::try_from(self.terms.request.count).unwrap_or(usize::MAX);
        if self.running.len() < wanted && sabotage!("top-up-ignores-what-came") {
            return wanted;
        }
        wanted.saturating_sub(self.running.len())
    }

    async fn resume(&mut self, ladder: &mut Ladder) -> Result<(), ProvisionError> {
        let resumed = resume::resume(self.stack, self.terms, &self.running);
        let resumed = timed(self.stack, &mut self.timings.beginning, resumed).await;
        let resumed = resumed.map_err(|source| ProvisionError::Creation {
            missing: self.missing(),
            requested: self.terms.request.count,
            source,
        })?;
        ladder.attempts = resumed.launches;
        let mut held = resumed.held;
        let surplus = held.split_off(self.missing().min(held.len()));
        self.return_surplus(surplus).await;
        self.run(held).await
    }

    /// Takes back what a superseded process claimed while this one claimed as well.
    async fn return_surplus(&self, surplus: Vec<HeldMachine>) {
        let owner = &self.terms.owner;
        let taken_back = surplus.iter().map(async |held| {
            let seen = (&held.record.id, held.record.generation);
            if let Err(fault) = release::take_back_one(self.stack, owner, seen).await {
                tracing::info!(instance_id = %held.record.id, %fault, "left for the reaper");
            }
        });
        join_all(taken_back).await;
    }

    /// Runs one worker for each missing runner, all on one pickup manager.
    async fn select(&mut self) -> Result<(), ProvisionError> {
        let (stack, terms, missing) = (self.stack, self.terms, self.missing());
        if missing == 0 {
            return Ok(());
        }
        (terms.tell)(ProgressEvent::Selecting { runners: missing });
        let selected = select(stack, terms, missing);
        let held = timed(stack, &mut self.timings.selection, selected).await?;
        self.run(held).await
    }

    /// Marks runners as running. If the reaper or another process took a machine meanwhile, the
    /// request claims or launches a replacement.
    ///
    /// After its claims have landed and before it marks them, this process checks that no other has
    /// superseded it. A process that supersedes it later sees all the claims. A process that did so
    /// earlier may have seen none, so this one lets them lapse, or the request would get too many
    /// runners.
    async fn run(&mut self, held: Vec<HeldMachine>) -> Result<(), ProvisionError> {
        if held.is_empty() {
            return Ok(());
        }
        if entry::is_superseded(self.stack, self.begun).await {
            return Err(ProvisionError::Superseded);
        }
        self.running.extend(mark_running(self.stack, held).await);
        Ok(())
    }

    async fn wait_for_capacity(
        &mut self,
        place: &mut Option<PlaceInLine>,
        reached: &CeilingReached,
    ) -> Result<(), ProvisionError> {
        let (stack, terms) = (self.stack, self.terms);
        let wait = async {
            let standing = match place {
                Some(standing) => standing,
                None => place.insert(PlaceInLine::take(stack, terms.request).await?),
            };
            capacity::wait(stack, terms, standing, reached).await
        };
        let waited = timed(stack, &mut self.timings.waiting, wait).await;
        if waited.map_err(ProvisionError::Closed)? == Holdings::GivenBack {
            self.running.clear();
        }
        self.select().await
    }
}

/// The ceiling to wait for, if waiting can help.
fn ceiling_to_wait_for<P: Ports>(
    stack: &Stack<P>,
    request: &Request,
    error: &ProvisionError,
) -> Option<CeilingReached> {
    let ProvisionError::Creation { source: CreationError::Ceiling(reached), .. } = error else {
        return None;
    };
    let waits = request.on_partial == OnPartial::TopUp
        && request.count <= reached.max
        && (stack.now() < request.deadline || sabotage!("waits-past-the-deadline"));
    waits.then(|| reached.clone())
}

async fn select<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    wanted: usize,
) -> Result<Vec<HeldMachine>, ProvisionError> {
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
