//! Invariant 8: beyond a grace, no runner of this stack at GitHub without a machine that accounts
//! for it, and no running machine without a connected runner.
//!
//! A machine accounts for the runner of its newest assignment while an owner holds it, or while it
//! is releasing or terminating.
//!
//! Not here: which owner a listener listens for ([`super::one_owner`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bullpen_core::ids::{InstanceId, RunnerName};
use bullpen_core::instance::State;
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::time::Timestamp;

use super::view::View;

/// How long a running machine may be without a connected runner: longer than any restart of its
/// listener.
const WITHOUT_RUNNER_MAX: Duration = Duration::from_secs(5 * 60);

/// Unaccounted runners and machines without a runner, each with the time when it was first seen.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    runners: BTreeMap<RunnerName, Timestamp>,
    machines: BTreeMap<InstanceId, Timestamp>,
}

impl Ghosts {
    /// Checks all registered runners (name, machine, connected). A runner without a machine may
    /// stay for `grace`, and as long as a job `waits` for it.
    pub(super) fn look(
        &mut self,
        view: &View,
        waits: impl Fn(&RunnerName) -> bool,
        registered: &[(RunnerName, Option<InstanceId>, bool)],
        grace: Duration,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let stray = registered
            .iter()
            .filter(|(name, machine, _)| !accounts(view, machine.as_ref(), name) && !waits(name));
        let stray: BTreeMap<_, _> = stray.map(|(name, machine, _)| (name, machine)).collect();
        self.runners.retain(|name, _| stray.contains_key(name));
        for (name, machine) in stray {
            let since = *self.runners.entry(name.clone()).or_insert(now);
            if now.since(since) > grace {
                let what = format!("no machine accounts for the runner {name} since {since}");
                return ghost(machine.as_ref(), what);
            }
        }
        self.without_runner(view, registered, now)
    }

    fn without_runner(
        &mut self,
        view: &View,
        registered: &[(RunnerName, Option<InstanceId>, bool)],
        now: Timestamp,
    ) -> Result<(), Violation> {
        let connected = registered.iter().filter(|(.., online)| *online);
        let connected: BTreeSet<_> =
            connected.filter_map(|(_, machine, _)| machine.as_ref()).collect();
        let running = view.live.values().filter(|r| matches!(r.state, State::Running { .. }));
        let bare: BTreeSet<_> = running
            .map(|record| &record.id)
            .filter(|id| !connected.contains(id) && view.machines.contains_key(*id))
            .filter(|id| !view.deserted.contains(*id))
            .collect();
        self.machines.retain(|id, _| bare.contains(id));
        for id in bare {
            let since = *self.machines.entry(id.clone()).or_insert(now);
            if now.since(since) > WITHOUT_RUNNER_MAX {
                return ghost(
                    Some(id),
                    format!("it is running without a connected runner since {since}"),
                );
            }
        }
        Ok(())
    }
}

fn accounts(view: &View, machine: Option<&InstanceId>, name: &RunnerName) -> bool {
    let Some(machine) = machine else { return false };
    let in_use = view
        .live
        .get(machine)
        .is_some_and(|record| !matches!(record.state, State::Idle { .. } | State::Stopping { .. }));
    in_use && view.assigned.get(machine) == Some(name)
}

fn ghost(machine: Option<&InstanceId>, what: String) -> Result<(), Violation> {
    Err(Violation { invariant: Invariant::NoGhosts, instance: machine.cloned(), what })
}
