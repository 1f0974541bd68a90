//! Leases: which process may converge a pool, with a fencing token that rises with every holder.
//!
//! An observer never reads a lease's end from another process's clock. It calls the lease expired
//! when it has seen the same revision for the whole lease time on *its own* monotonic clock.
//!
//! Not here: storing leases (the `Ledger` port).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{FencingToken, HolderId, LeaseName, Revision};

/// The holder of a lease that was given up.
const NO_HOLDER: &str = "";

/// A lease as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The lease's name.
    pub name: LeaseName,
    /// The process that holds it.
    pub holder: HolderId,
    /// Rises with every new holder.
    pub token: FencingToken,
    /// Rises with every write, renewals included.
    pub revision: Revision,
}

impl Lease {
    /// The first lease of this name.
    pub fn first(name: LeaseName, holder: HolderId) -> Self {
        Self { name, holder, token: FencingToken(1), revision: Revision(1) }
    }

    /// The lease after its holder renewed it.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self { revision: self.revision.next(), ..self.clone() }
    }

    /// The lease after another holder took it.
    #[must_use]
    pub fn taken_by(&self, holder: HolderId) -> Self {
        Self {
            name: self.name.clone(),
            holder,
            token: self.token.next(),
            revision: self.revision.next(),
        }
    }

    /// The lease after its holder gave it up: the next holder need not wait for its end.
    #[must_use]
    pub fn given_up(&self) -> Self {
        Self { holder: HolderId::new(NO_HOLDER), ..self.renewed() }
    }

    /// Whether its holder gave it up.
    pub fn is_free(&self) -> bool {
        self.holder.as_str() == NO_HOLDER
    }
}

/// One observer's memory of one lease, or of any record that a live process writes again and again.
#[derive(Clone, Debug, Default)]
pub struct LeaseWatch {
    seen: Option<(Revision, Duration)>,
}

impl LeaseWatch {
    /// Notes what was read now (`mono` is the observer's own monotonic clock) and says whether the
    /// lease has stood unchanged for `ttl`.
    pub fn expired(&mut self, lease: &Lease, mono: Duration, ttl: Duration) -> bool {
        self.stands(lease.revision, (mono, mono), ttl)
    }

    /// The same for a revision that the observer asked for at `asked` and got at `came`: it may
    /// have been written in between.
    pub fn stands(
        &mut self,
        revision: Revision,
        (asked, came): (Duration, Duration),
        ttl: Duration,
    ) -> bool {
        match self.seen {
            Some((seen, since)) if seen == revision => asked.saturating_sub(since) >= ttl,
            _ => {
                self.seen = Some((revision, came));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_expires_only_on_the_observers_own_clock() {
        let ttl = Duration::from_secs(60);
        let lease = Lease::first(LeaseName::new("pool"), HolderId::new("a"));
        let mut watch = LeaseWatch::default();
        assert!(!watch.expired(&lease, Duration::from_secs(1_000), ttl), "first sight");
        assert!(!watch.expired(&lease, Duration::from_secs(1_059), ttl));
        let renewed = lease.renewed();
        assert!(!watch.expired(&renewed, Duration::from_secs(1_060), ttl), "renewed just in time");
        assert!(watch.expired(&renewed, Duration::from_secs(1_120), ttl));
        assert_eq!(renewed.taken_by(HolderId::new("b")).token, FencingToken(2));
        assert!(renewed.given_up().is_free() && !renewed.is_free());
        assert!(renewed.given_up().revision > renewed.revision, "the former holder is fenced");
    }
}
