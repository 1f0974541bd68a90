//! Resuming a request that another process began: its launches, its claims, its runners.
//!
//! The process that began it may be dead, or only slow. Both processes make the same idempotent
//! steps: a launch by the same intent, an assignment of the same generation, a claim by its own
//! nonce. So no step is doubled, and no owner loses a machine.
//!
//! Not here: whether to resume at all (`entry`).

use bullpen_core::instance::{Record, State};
use bullpen_core::ports::{Ledger, Listing, Ports};
use bullpen_core::sabotage;
use bullpen_core::tenure::Won;
use futures_util::future::join_all;

use super::creation::{self, CreationError, Reservation};
use super::worker::{self, AcquiredBy, HeldMachine, Terms};
use crate::Stack;
use crate::progress::ProgressEvent;
use crate::retry::retry_until;

/// The runners and launches of a resumed request.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// Runners that listen; some are marked as running already.
    pub(super) held: Vec<HeldMachine>,
    /// How many launches the request has made.
    pub(super) launches: u32,
}

/// Finds and finishes everything that the request began, except the runners in `known`.
pub(super) async fn resume<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    known: &[HeldMachine],
) -> Result<Resumed, CreationError> {
    let launches = finish_launches(stack, terms).await?;
    let until = terms.request.deadline;
    let owned = retry_until(stack, until, || stack.ports.ledger().owned_by(&terms.owner)).await;
    let owned = owned.and_then(Listing::complete);
    let mut owned =
        owned.map_err(|source| CreationError::Port { what: "find its machines", source })?;
    owned.retain(|record| known.iter().all(|held| held.record.id != record.id));
    (terms.tell)(ProgressEvent::Resumed { machines: owned.len() });
    let held = join_all(owned.into_iter().map(|record| resume_machine(stack, terms, record))).await;
    Ok(Resumed { held: held.into_iter().flatten().collect(), launches })
}

/// Carries out every intent of this incarnation that still has machines outstanding; returns how
/// many intents there are.
async fn finish_launches<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
) -> Result<u32, CreationError> {
    let of = (&terms.request.id, terms.request.incarnation);
    let launches = creation::launches(stack, of, terms.request.deadline, |_| false).await;
    let launches =
        launches.map_err(|source| CreationError::Port { what: "find its launches", source })?;
    let made = creation::number_after(&launches) - 1;
    for open in launches.into_iter().filter(|intent| intent.outstanding > 0) {
        let found = Reservation::found(open);
        creation::launch_and_record(stack, terms.request.into(), &found).await?;
    }
    Ok(made)
}

/// Continues with one machine from its present state. `None`: another owner has it by now, it is on
/// its way back, or it failed its check.
pub(super) async fn resume_machine<P: Ports>(
    stack: &Stack<P>,
    terms: &Terms<'_>,
    record: Record,
) -> Option<HeldMachine> {
    match &record.state {
        State::Running { .. } if sabotage!("resume-forgets-what-runs") => None,
        State::Running { owner, .. } if *owner == terms.owner => {
            let created = creation::is_of(terms.request, &record.facts.intent);
            let how = if created { AcquiredBy::Created } else { AcquiredBy::Reused };
            Some(worker::ready(stack, terms, HeldMachine::new(record, how)))
        }
        _ => {
            let won = Won::held(record, &terms.owner)?;
            worker::prepare(stack, terms, won).await.ready()
        }
    }
}
