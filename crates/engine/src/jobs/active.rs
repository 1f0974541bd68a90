//! Notes of active repositories in the ledger: writing and reading them.
//!
//! Not here: which of them to ask about (`core::job::active`), or asking ([`mod@super::sweep`]).

use bullpen_core::ids::Repository;
use bullpen_core::job::active::{COLLECTION, latest, note};
use bullpen_core::ports::{Fault, Ledger, Ports};

use super::Service;
use crate::document;
use crate::retry::retry_until;

/// Notes in the ledger that a repository is active, unless a recent note says so. Tries once,
/// because GitHub waits for the webhook's answer; the next webhook tries again.
pub(super) async fn note_active<P: Ports, J>(service: &Service<'_, P, J>, repository: &Repository) {
    let stack = service.stack;
    let now = stack.now();
    if !service.active_repositories().is_news(repository, now) {
        return;
    }
    let place = (COLLECTION, repository.as_str());
    let noted =
        document::change(stack, place, now, |stored| Ok(note(stored, repository, now))).await;
    if let Err(fault) = noted {
        tracing::info!(%repository, %fault, "could not note active repository");
        service.active_repositories().forget(repository);
    }
}

/// Returns the repositories that any process noted as active lately.
pub(super) async fn active<P: Ports, J>(
    service: &Service<'_, P, J>,
) -> Result<Vec<Repository>, Fault> {
    let stack = service.stack;
    let ledger = stack.ports.ledger();
    let stored = retry_until(stack, service.patience(), || ledger.documents(COLLECTION)).await?;
    Ok(latest(&stack.readable(stored), stack.now()))
}
