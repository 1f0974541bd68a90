//! Calls of the listeners' handlers to the service, over a channel.
//!
//! A router's handlers must be `'static`, and the service borrows its stack inside the process's one
//! future. So a handler sends a [`Call`] and awaits its answer, and [`answer_calls`] answers beside the
//! listeners, in the same future.
//!
//! Not here: HTTP (`webhook`, `admin`), or the work itself (`bullpen_engine::jobs`).

use std::time::Duration;

use bullpen_core::clock_witness::ClockError;
use bullpen_core::job::{JobFact, RunFact};
use bullpen_core::ports::{Clock as _, Fault, JobForge, Ports};
use bullpen_engine::jobs::{self, Ingested, Service};
use bullpen_engine::readiness::Readiness;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, oneshot};

use super::metrics::Metrics;

/// A ledger that takes longer than this is of no use to a job that waits.
const LEDGER_WITHIN: Duration = Duration::from_secs(3);

/// Why webhooks should not be sent to this process.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotReady {
    #[error("this process drains")]
    Drains,
    #[error("the ledger: {0}")]
    LedgerFault(Fault),
    #[error("the ledger does not answer")]
    LedgerSilent,
    #[error("{0}, more than clocks may differ: synchronise it by NTP")]
    ClockOff(ClockError),
}

/// One call, with the sender for its answer.
enum Call {
    Deliver { fact: JobFact, installation: Option<u64>, answer: oneshot::Sender<Delivered> },
    NoteRun { fact: RunFact, installation: Option<u64>, answer: oneshot::Sender<()> },
    Ready { answer: oneshot::Sender<Readied> },
    Metrics { answer: oneshot::Sender<String> },
}

type Delivered = Result<Ingested, Fault>;
/// Ready, perhaps with a clock that is off.
type Readied = Result<Option<ClockError>, NotReady>;

/// Makes the two ends: handlers call, and the service's future answers. At most `calls_max` calls
/// wait, and at most as many are answered at once.
pub(super) fn channel(calls_max: usize) -> (ServiceCaller, ServiceCalls) {
    let (calls, incoming) = mpsc::channel(calls_max);
    (ServiceCaller(calls), ServiceCalls { incoming, calls_max })
}

/// The handlers' end.
#[derive(Clone, Debug)]
pub(super) struct ServiceCaller(mpsc::Sender<Call>);

/// The service's end.
pub(super) struct ServiceCalls {
    incoming: mpsc::Receiver<Call>,
    calls_max: usize,
}

impl ServiceCaller {
    /// Stores a job's fact; see [`jobs::deliver`].
    pub(super) async fn deliver(&self, fact: JobFact, installation: Option<u64>) -> Delivered {
        let answered = self.call(|answer| Call::Deliver { fact, installation, answer }).await;
        answered.unwrap_or_else(|| Err(Fault::unavailable("this process ends, or failed at it")))
    }

    /// Notes where a run's code comes from; see [`jobs::note_run`].
    pub(super) async fn note_run(&self, fact: RunFact, installation: Option<u64>) {
        // A run that an ending process does not note is asked about by the next one.
        let _ = self.call(|answer| Call::NoteRun { fact, installation, answer }).await;
    }

    /// Whether webhooks should be sent here.
    pub(super) async fn ready(&self) -> Readied {
        let answered = self.call(|answer| Call::Ready { answer }).await;
        answered.unwrap_or(Err(NotReady::Drains))
    }

    /// All metrics, as text. None if the process ends.
    pub(super) async fn metrics(&self) -> Option<String> {
        self.call(|answer| Call::Metrics { answer }).await
    }

    /// The answer to a call. None if the service is gone.
    async fn call<T>(&self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.0.send(call(answer)).await.ok()?;
        answered.await.ok()
    }
}

/// Answers calls until no handler is left that could make one.
pub(super) async fn answer_calls<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    metrics: &Metrics,
    mut calls: ServiceCalls,
) {
    let (readiness, mut begun) = (Readiness::default(), FuturesUnordered::new());
    let asked = Asked { service, metrics, readiness: &readiness };
    loop {
        tokio::select! {
            biased;
            Some(_) = begun.next(), if !begun.is_empty() => {}
            call = calls.incoming.recv(), if begun.len() < calls.calls_max => match call {
                // After a panic the caller has no answer, as from a process that ends.
                Some(call) => begun.push(service.stack.caught("call", "", answer_call(asked, call))),
                None => break,
            },
        }
    }
}

/// What calls ask about.
struct Asked<'s, 'a, P: Ports, J> {
    service: &'s Service<'a, P, J>,
    metrics: &'s Metrics,
    readiness: &'s Readiness,
}

impl<P: Ports, J> Copy for Asked<'_, '_, P, J> {}

impl<P: Ports, J> Clone for Asked<'_, '_, P, J> {
    fn clone(&self) -> Self {
        *self
    }
}

/// Answers one call. A handler whose connection broke no longer waits for its answer.
async fn answer_call<P: Ports, J: JobForge>(asked: Asked<'_, '_, P, J>, call: Call) {
    let Asked { service, metrics, .. } = asked;
    match call {
        Call::Deliver { fact, installation, answer } => {
            let delivered = Box::pin(jobs::deliver(service, &fact, installation)).await;
            let _ = answer.send(delivered);
        }
        Call::NoteRun { fact, installation, answer } => {
            jobs::note_run(service, &fact, installation);
            let _ = answer.send(());
        }
        Call::Ready { answer } => send_to_waiting(answer, asked.readiness()).await,
        Call::Metrics { answer } => {
            send_to_waiting(answer, metrics.text(service.stack, service.forge.calls())).await;
        }
    }
}

/// Sends the result of work that changes nothing, and drops the work when its handler is gone.
async fn send_to_waiting<T>(mut answer: oneshot::Sender<T>, work: impl Future<Output = T>) {
    let result = tokio::select! {
        biased;
        () = answer.closed() => return,
        result = work => result,
    };
    let _ = answer.send(result);
}

impl<P: Ports, J> Asked<'_, '_, P, J> {
    /// A process that ends, that could store nothing, or whose times mislead other processes is not
    /// ready.
    async fn readiness(self) -> Readied {
        if !self.service.takes() {
            return Err(NotReady::Drains);
        }
        let stack = self.service.stack;
        if let Some(error) = stack.clock.more_than(stack.limits.clock_skew) {
            return Err(NotReady::ClockOff(error));
        }
        tokio::select! {
            biased;
            stored = self.readiness.check(stack) => stored.map_err(NotReady::LedgerFault)?,
            () = stack.ports.clock().sleep(LEDGER_WITHIN) => return Err(NotReady::LedgerSilent),
        }
        Ok(stack.clock_error())
    }
}
