//! How many files the process may have open: every connection, database and process that it starts is
//! one or more. The service raises its own limit as far as it needs and may, and warns if that is too
//! little.
//!
//! Not here: the limits on connections (`http`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{ADMIN_CONNECTIONS_MAX, WEBHOOK_CONNECTIONS_MAX};

/// Files of the process itself: databases with their logs and locks, listeners, connections to GitHub
/// and AWS, the runtime's own.
const OWN: u64 = 128;
/// Files for one machine of the process fleet, while it is launched or looked at.
const PER_MACHINE: u64 = 4;
/// Machines that are launched or looked at together, at most.
const MACHINES_AT_ONCE_MAX: u64 = 64;

/// What the limit is, and what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allowance {
    needed: u64,
    /// The limit to set, if it is to be changed.
    set: Option<u64>,
    /// Whether the process may open as many as it needs then.
    is_enough: bool,
}

/// Raises the limit of open files to what `machines` and all connections need, and no further: what
/// the service starts inherits it.
pub(super) fn prepare(machines: u32) {
    let limit = getrlimit(Resource::Nofile);
    let Allowance { needed, set, is_enough } = allowance(&limit, machines);
    if let Some(soft) = set {
        let raised = Rlimit { current: Some(soft), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, needed, "could not raise the limit of open files");
            return;
        }
    }
    if !is_enough {
        let most = limit.maximum.unwrap_or(u64::MAX);
        let then = "raise the hard limit: LimitNOFILE= of the unit, or `ulimit -Hn`";
        tracing::warn!(most, needed, then, "too few open files are allowed for a busy service");
    }
}

/// An absent limit is none.
fn allowance(limit: &Rlimit, machines: u32) -> Allowance {
    let connections = (WEBHOOK_CONNECTIONS_MAX + ADMIN_CONNECTIONS_MAX) as u64;
    let machines = u64::from(machines).min(MACHINES_AT_ONCE_MAX) * PER_MACHINE;
    let needed = connections + OWN + machines;
    let has = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    let set = (!has(limit.current)).then(|| limit.maximum.map_or(needed, |most| most.min(needed)));
    Allowance { needed, set, is_enough: has(limit.current) || has(limit.maximum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_needed_and_allowed() {
        let needed = allowance(&Rlimit { current: None, maximum: None }, 24).needed;
        assert!((704..1_024).contains(&needed), "{needed}");
        for (soft, hard, set, is_enough) in [
            (Some(needed), Some(needed), None, true),
            (Some(256), Some(4_096), Some(needed), true),
            (Some(256), None, Some(needed), true),
            (Some(256), Some(512), Some(512), false),
            (None, None, None, true),
        ] {
            let limit = Rlimit { current: soft, maximum: hard };
            assert_eq!(allowance(&limit, 24), Allowance { needed, set, is_enough }, "{limit:?}");
        }
    }
}
