//! Writing down which repositories were heard of, and reading it again.
//!
//! Not here: which of them are asked about (`core::job::active`), or asking ([`mod@super::sweep`]).

use bullpen_core::ids::Repository;
use bullpen_core::job::active::{COLLECTION, latest, note};
use bullpen_core::ports::{Fault, Ledger, Ports};

use super::Service;
use crate::document;
use crate::retry::retry_until;

/// Writes down that a repository was heard of, unless that is written already. Somebody waits for an
/// answer about something else, so it is tried once; the next webhook tries again.
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
        tracing::info!(%repository, %fault, "not written down that it was active_repositories of");
        service.active_repositories().forget(repository);
    }
}

/// Those heard of lately, by any process.
pub(super) async fn active<P: Ports, J>(
    service: &Service<'_, P, J>,
) -> Result<Vec<Repository>, Fault> {
    let stack = service.stack;
    let ledger = stack.ports.ledger();
    let stored = retry_until(stack, service.patience(), || ledger.documents(COLLECTION)).await?;
    Ok(latest(&stored, stack.now()))
}
