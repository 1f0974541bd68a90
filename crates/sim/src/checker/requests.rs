//! Invariant 1 for requests: every provision ends in time, with all of its runners or with an
//! error; the runners it reports exist; a failed request keeps no machine; and the jobs of a
//! fulfilled request run.
//!
//! The simulator reports its requests and their results through [`super::Checker`]'s calls; a
//! request that it did not report is not judged.
//!
//! Not here: which machines fit a request ([`super::fit`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bullpen_core::ids::{Generation, InstanceId};
use bullpen_core::instance::{Owner, Record, State};
use bullpen_core::invariants::{Invariant, Violation};
use bullpen_core::request::Request;
use bullpen_core::time::Timestamp;

use super::fit::misfit;
use super::view::View;

/// How long after its deadline a provision may still be undoing: validating and terminating its
/// last launch, and giving machines back.
const UNDONE_WITHIN: Duration = Duration::from_secs(8 * 60);
/// How long a failed or released request may keep machines: after a crash or an outage of a store,
/// their leases must expire first.
const KEPT_MAX: Duration = Duration::from_secs(15 * 60);

/// A provision's result as its caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProvisionOutcome {
    /// The request has these runners.
    Fulfilled(Vec<InstanceId>),
    /// The request has none, and no other process provisions for it.
    Failed,
    /// The process stood down or died: the caller learned nothing of the request.
    Nothing,
}

/// A request, and what the checker knows of its processes.
#[derive(Debug)]
pub(super) struct Asked {
    /// Its parameters.
    pub(super) request: Request,
    /// The begin of its first attempt.
    pub(super) began: Timestamp,
    /// Processes that act for it.
    processes: BTreeSet<String>,
    /// The process that decides for it: the last that began to provision or cancelled.
    newest: String,
    /// Whether its workflow run is over.
    is_over: bool,
    /// Whether a provision reported all its runners.
    is_fulfilled: bool,
    /// Whether the cloud took one of its machines, or its time on one was up.
    has_losses: bool,
    /// The machines it held when its release began, with their generations.
    to_take: BTreeMap<InstanceId, Generation>,
    /// Since when it must hold nothing.
    done: Option<Timestamp>,
}

/// All requests that the simulator reported.
#[derive(Debug, Default)]
pub(super) struct Requests {
    all: BTreeMap<Owner, Asked>,
    /// Provisions that have not ended, by process, with their deadline.
    open: BTreeMap<String, (Owner, Timestamp)>,
    /// Whether there was a storm: a request that fails without the stores cannot give its machines
    /// back, and they run until their own deadline.
    had_storm: bool,
}

fn wrong(instance: Option<&InstanceId>, what: String) -> Result<(), Violation> {
    Err(Violation { invariant: Invariant::EveryJobEnds, instance: instance.cloned(), what })
}

impl Requests {
    /// A reported request.
    pub(super) fn asked(&self, owner: &Owner) -> Option<&Asked> {
        self.all.get(owner)
    }

    /// A request begins or is repeated; `began` of the first time counts.
    pub(super) fn begins(&mut self, owner: Owner, request: Request, began: Timestamp) {
        let again = request.clone();
        self.all.entry(owner).and_modify(|asked| asked.request = again).or_insert(Asked {
            request,
            began,
            processes: BTreeSet::new(),
            newest: String::new(),
            is_over: false,
            is_fulfilled: false,
            has_losses: false,
            to_take: BTreeMap::new(),
            done: None,
        });
    }

    /// A process acts for an owner.
    pub(super) fn acts_for(&mut self, process: &str, owner: &Owner) {
        if let Some(asked) = self.all.get_mut(owner) {
            asked.processes.insert(process.to_owned());
        }
    }

    /// A provision begins.
    pub(super) fn provision_begins(&mut self, process: &str, owner: &Owner, deadline: Timestamp) {
        self.acts_for(process, owner);
        self.open.insert(process.to_owned(), (owner.clone(), deadline));
        if let Some(asked) = self.all.get_mut(owner) {
            asked.done = None;
            process.clone_into(&mut asked.newest);
        }
    }

    /// From now on this process decides for the request.
    pub(super) fn decides_now(&mut self, process: &str, owner: &Owner) {
        if let Some(asked) = self.all.get_mut(owner) {
            process.clone_into(&mut asked.newest);
        }
    }

    /// Whether this process decides for the request while others still work on it.
    pub(super) fn is_newest(&self, process: &str, owner: &Owner) -> bool {
        self.all.get(owner).is_some_and(|asked| asked.newest == process)
    }

    /// A provision has ended.
    pub(super) fn provision_ends(
        &mut self,
        view: &View,
        connected: &BTreeMap<InstanceId, String>,
        process: &str,
        outcome: &ProvisionOutcome,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let Some((owner, deadline)) = self.open.remove(process) else { return Ok(()) };
        let is_alone = !self.open.values().any(|(other, _)| *other == owner);
        if let Some(asked) = self.all.get_mut(&owner) {
            asked.is_fulfilled |= matches!(outcome, ProvisionOutcome::Fulfilled(_));
        }
        // The runners of another process of the request stay.
        let has_nothing = self.all.get(&owner).is_some_and(|asked| !asked.is_fulfilled);
        if *outcome == ProvisionOutcome::Failed && is_alone && has_nothing {
            self.is_done(&owner, now);
        }
        in_time(&owner, process, deadline, now)?;
        match (outcome, self.all.get(&owner)) {
            (ProvisionOutcome::Fulfilled(runners), Some(asked)) if is_alone => {
                has_runners(view, connected, &owner, asked, runners)
            }
            _ => Ok(()),
        }
    }

    /// A release begins: at its end the owner must not hold its present machines any more.
    pub(super) fn release_begins(&mut self, view: &View, process: &str, owner: &Owner) {
        self.acts_for(process, owner);
        if let Some(asked) = self.all.get_mut(owner) {
            let held = view.held_by(owner);
            asked.to_take = held.map(|record| (record.id.clone(), record.generation)).collect();
        }
    }

    /// A release has ended, without a fault.
    pub(super) fn is_released(
        &mut self,
        view: &View,
        owner: &Owner,
        now: Timestamp,
    ) -> Result<(), Violation> {
        self.is_done(owner, now);
        let Some(asked) = self.all.get(owner) else { return Ok(()) };
        let kept = view
            .held_by(owner)
            .find(|record| asked.to_take.get(&record.id) == Some(&record.generation));
        match kept {
            None => Ok(()),
            Some(record) => {
                let state = record.state.name().as_str();
                wrong(Some(&record.id), format!("still {state} for {owner}, which was released"))
            }
        }
    }

    /// A request was released, or failed and gave everything back.
    fn is_done(&mut self, owner: &Owner, now: Timestamp) {
        if let Some(asked) = self.all.get_mut(owner) {
            asked.done.get_or_insert(now);
        }
    }

    /// A request's workflow run is over: any process may release its machines.
    pub(super) fn run_ends(&mut self, owner: &Owner) {
        if let Some(asked) = self.all.get_mut(owner) {
            asked.is_over = true;
        }
    }

    /// The cloud took one of a request's machines, or one passed its deadline.
    pub(super) fn loses_one(&mut self, owner: &Owner) {
        if let Some(asked) = self.all.get_mut(owner) {
            asked.has_losses = true;
        }
    }

    /// How many machines a request wants now.
    pub(super) fn wants(&self, owner: &Owner) -> u32 {
        let open = self.all.get(owner).filter(|asked| asked.done.is_none() && !asked.is_over);
        open.map_or(0, |asked| asked.request.count)
    }

    /// Whether a process may decide for a request; `None` if the simulator did not report the
    /// request or a process of it.
    pub(super) fn decides_for(&self, process: &str, owner: &Owner) -> Option<bool> {
        let asked = self.all.get(owner).filter(|asked| !asked.processes.is_empty())?;
        Some(asked.is_over || asked.processes.contains(process))
    }

    /// A machine was claimed for a request.
    pub(super) fn claimed(
        &self,
        view: &View,
        at: Timestamp,
        before: &Record,
        after: &Record,
    ) -> Result<(), Violation> {
        let (State::Idle { deadline, .. }, State::Claimed { owner, .. }) =
            (&before.state, &after.state)
        else {
            return Ok(());
        };
        if *deadline <= at {
            return wrong(
                Some(&before.id),
                format!("{owner} claimed it after its deadline, {deadline}"),
            );
        }
        let asked = self.all.get(owner);
        match asked.and_then(|asked| misfit(before, &asked.request, &view.limits)) {
            None => Ok(()),
            Some(what) => wrong(Some(&before.id), format!("{owner} claimed it, and {what}")),
        }
    }

    /// The simulator gave up waiting for a fulfilled request's jobs: they did not all run.
    pub(super) fn jobs_given_up(&self, owner: &Owner) -> Result<(), Violation> {
        if self.all.get(owner).is_none_or(|asked| asked.has_losses) {
            return Ok(());
        }
        wrong(None, format!("jobs of {owner} did not run, and the cloud took none of its machines"))
    }

    /// Judges all provisions that should have ended and all requests that should hold nothing. Without
    /// the stores, which a storm takes away for up to ten minutes, no provision can end.
    pub(super) fn look(
        &mut self,
        view: &View,
        in_storm: bool,
        now: Timestamp,
    ) -> Result<(), Violation> {
        if in_storm {
            self.had_storm = true;
            for (_, deadline) in self.open.values_mut() {
                *deadline = (*deadline).max(now);
            }
        }
        for (process, (owner, deadline)) in &self.open {
            in_time(owner, process, *deadline, now)?;
        }
        for record in view.live.values() {
            let Some(owner) = record.state.owner() else { continue };
            let done = self.all.get(owner).and_then(|asked| asked.done);
            let until = done.map(|done| done.after(KEPT_MAX));
            let own = if self.had_storm { record.state.deadline() } else { Timestamp::EPOCH };
            if until.is_some_and(|until| now > until.max(own.after(KEPT_MAX))) {
                let state = record.state.name().as_str();
                return wrong(
                    Some(&record.id),
                    format!("still {state} for {owner}, which is done"),
                );
            }
        }
        Ok(())
    }
}

fn in_time(
    owner: &Owner,
    process: &str,
    deadline: Timestamp,
    now: Timestamp,
) -> Result<(), Violation> {
    if now > deadline.after(UNDONE_WITHIN) {
        return wrong(
            None,
            format!("{process} has not ended; the deadline of {owner} was {deadline}"),
        );
    }
    Ok(())
}

/// A fulfilled request has as many running, listening machines as it asked for, and no others.
fn has_runners(
    view: &View,
    connected: &BTreeMap<InstanceId, String>,
    owner: &Owner,
    asked: &Asked,
    runners: &[InstanceId],
) -> Result<(), Violation> {
    let wanted = usize::try_from(asked.request.count).unwrap_or(usize::MAX);
    let distinct: BTreeSet<_> = runners.iter().collect();
    if distinct.len() != wanted {
        return wrong(None, format!("{owner} asked for {wanted} and got {runners:?}"));
    }
    let lost = |id: &InstanceId| view.lost.contains(id) || view.powered_off.contains(id);
    for id in distinct {
        let runs = view.running_for(owner).any(|record| record.id == *id);
        let label = super::one_owner::label_of(owner);
        let listens = |heard: &String| label.as_ref().is_none_or(|label| label == heard);
        if !runs && !lost(id) {
            return wrong(Some(id), format!("{owner} got it, and it does not run for the request"));
        }
        if !connected.get(id).is_some_and(listens) && !lost(id) && !view.deserted.contains(id) {
            return wrong(Some(id), format!("{owner} got it, and it does not listen"));
        }
    }
    match view.running_for(owner).find(|record| !runners.contains(&record.id)) {
        None => Ok(()),
        Some(spare) => {
            wrong(Some(&spare.id), format!("it runs for {owner}, whose result does not list it"))
        }
    }
}
