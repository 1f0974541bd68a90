//! How the state machine reacts to what its listener does.
//!
//! Not here: reading the runner program's output (`runner::markers`).

use bullpen_core::mailbox::{Assignment, SignalKind};
use bullpen_core::request::stranger::RanJob;
use bullpen_core::sabotage;
use bullpen_core::time::Timestamp;

use super::{Action, AfterStop, AgentLife, Effect, Stage, Watched, is_late, job_started, signal};
use crate::runner::markers::is_update;
use crate::runner::{ListenerRefusal, Observed, UPDATED_WITHIN};

impl AgentLife {
    pub(super) fn seen(&mut self, seen: Observed, now: Timestamp, actions: &mut Vec<Action>) {
        if let Observed::JobOf(ran) = seen {
            self.job_is_of(ran, now, actions);
            return;
        }
        let Some(to) = self.acted.listener.clone() else { return };
        match seen {
            Observed::Listening { id } => {
                self.watched.trouble = None;
                // Do not report a listener that the agent is ending. If a job turns out to run on
                // it, `keep_busy_listener` reports it.
                if self.watched.listening || self.is_ending() {
                    return;
                }
                if is_late(&to, now) {
                    // It may run a job already: `Effect::End` checks that and leaves it alone.
                    let why = ListenerRefusal::here("it registered too late");
                    self.enter(Stage::Stopping(AfterStop::Fail(to, why)), Effect::End, actions);
                    return;
                }
                self.listens(now, id.unwrap_or_default(), actions);
            }
            Observed::JobStarted { name } => {
                self.listens(now, String::new(), actions);
                self.watched.jobs += 1;
                self.watched.trouble = None;
                self.watched.ran = None;
                self.watched.last_job.clone_from(&name);
                actions.push(job_started(Some(&to), now, name.clone(), None));
                self.watched.job = Some(name);
            }
            Observed::JobFinished { name, result } => {
                tracing::info!(job = name, result, "job finished on this machine");
                self.watched.job = None;
            }
            Observed::JobOf(_) => {}
            Observed::Trouble(refused) => self.watched.trouble = Some(refused),
            Observed::Ended { code } => self.listener_ended(code, now, actions),
        }
    }

    /// The hook of the last job has reported its run. A stranger waits in that hook, so the agent
    /// kills it before its first step.
    fn job_is_of(&mut self, ran: RanJob, now: Timestamp, actions: &mut Vec<Action>) {
        let Some(to) = self.acted.listener.clone().or_else(|| self.dead_listener.clone()) else {
            return;
        };
        // The agent may read the report after the job ended, so `watched.job` may be empty.
        let name = self.watched.last_job.clone();
        actions.push(job_started(Some(&to), now, name, Some(ran.clone())));
        self.watched.ran = Some(ran.clone());
        if !to.own_run.as_ref().is_some_and(|own| own.is_stranger(&ran)) {
            return;
        }
        tracing::warn!(job = %ran, "killing a job of another run");
        self.stranger = Some(ran);
        // Do not interrupt the warm-up: the hook waits as long as it takes.
        let is_otherwise_busy = matches!(
            self.stage,
            Stage::Finding
                | Stage::WarmingUp
                | Stage::Announcing
                | Stage::Failing
                | Stage::Leaving(_)
                | Stage::Over
        );
        if self.acted.listener.is_some() && !is_otherwise_busy {
            self.enter(Stage::Stopping(AfterStop::Stranger(to)), Effect::Kill, actions);
        }
    }

    fn listens(&mut self, now: Timestamp, id: String, actions: &mut Vec<Action>) {
        if !self.watched.listening
            && let Some(to) = &self.acted.listener
        {
            actions.push(signal(SignalKind::Registered, Some(to), now, id));
            self.watched.listening = true;
        }
    }

    /// The listener ended. If the agent was ending it, there is nothing to report.
    fn listener_ended(&mut self, code: Option<i32>, now: Timestamp, actions: &mut Vec<Action>) {
        if self.is_ending() {
            self.watched.job = None;
            return;
        }
        let Some(to) = self.acted.listener.take() else { return };
        let watched = std::mem::take::<Watched>(&mut self.watched);
        if watched.listening && code.is_some_and(is_update) && self.may_update(&to) {
            self.start_updated(to, now, actions);
            return;
        }
        if matches!(self.stage, Stage::Launching(_) | Stage::Adopting(_)) {
            self.stage = Stage::Ready;
        }
        self.dead_listener = Some(to.clone());
        let exit = code.map_or_else(|| String::from("no exit code"), |code| format!("exit {code}"));
        if watched.listening {
            let trouble = watched.trouble.map(|trouble| format!(": {}", trouble.detail));
            let jobs = watched.jobs;
            let detail = format!("{exit} after {jobs} jobs{}", trouble.unwrap_or_default());
            actions.push(signal(SignalKind::ListenerEnded, Some(&to), now, detail));
        } else {
            let refused = watched.trouble.unwrap_or_else(|| ListenerRefusal::here(exit));
            self.fail(&to, &refused, now, actions);
        }
    }

    /// Whether the agent may start the runner program again after an update: once for each assignment, and
    /// while nothing newer is ordered.
    fn may_update(&self, to: &Assignment) -> bool {
        let is_free = matches!(self.stage, Stage::Ready | Stage::Launching(_) | Stage::Adopting(_));
        let is_first = self.updated.is_none_or(|generation| generation != to.generation);
        is_free && is_first && self.is_latest(to) && !sabotage!("an-update-is-an-end")
    }

    /// Starts the listener of a program that has updated itself. It has told its owner that it listens, so it
    /// gets a new deadline: its own update, and the start of a cold program.
    fn start_updated(&mut self, to: Assignment, now: Timestamp, actions: &mut Vec<Action>) {
        tracing::info!("runner program updated itself; starting it again");
        self.updated = Some(to.generation);
        let by = now.after(UPDATED_WITHIN).after(self.limits.registration_stopped);
        let to = Assignment { register_by: Some(by), ..to };
        self.acted.listener = Some(to.clone());
        self.enter(Stage::Launching(to.clone()), Effect::Listen(to), actions);
    }

    fn is_ending(&self) -> bool {
        matches!(
            self.stage,
            Stage::Stopping(_)
                | Stage::Deregistering(_)
                | Stage::Cleaning(_)
                | Stage::Leaving(_)
                | Stage::Over
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bullpen_core::ids::{Generation, RequestId, RunnerName};
    use bullpen_core::instance::Owner;
    use bullpen_core::limits::Limits;
    use bullpen_core::mailbox::{Assignment, Credential, Inbox, Order, Secret};
    use bullpen_core::ports::Consistency;

    use super::*;
    use crate::agent_life::{EffectOutcome, Event};
    use crate::runner::{EndOutcome, LeftListener};

    fn signals_in(actions: &[Action]) -> Vec<SignalKind> {
        let kind = |action: &Action| match action {
            Action::Signal(kind, _) => Some(*kind),
            Action::Do(_) | Action::Read | Action::End(_) => None,
        };
        actions.iter().filter_map(kind).collect()
    }

    #[test]
    fn a_listener_that_is_being_ended_is_never_said_to_listen() {
        let now = Timestamp::EPOCH.after(Duration::from_secs(1_000));
        let by = now.after(Duration::from_secs(15));
        let to = Assignment {
            generation: Generation(1),
            owner: Owner::Request(RequestId::new("1.1.build")),
            runner: RunnerName::new("runner"),
            label: String::from("label"),
            credential: Some(Credential::RegistrationToken(Secret::new("token"))),
            register_by: Some(by),
            hard_cap: now.after(Duration::from_secs(86_400)),
            issued_at: Some(now),
            own_run: None,
            group: None,
            ephemeral: false,
        };
        let inbox = Inbox::accept(None, Order::Assigned(to)).unwrap();
        let mut life = AgentLife::new(Limits::DEFAULT);
        for event in [
            Event::Begun,
            Event::Did(EffectOutcome::Found(LeftListener::Nothing)),
            Event::Did(EffectOutcome::WarmedUp(Ok(()))),
            Event::Stored,
            Event::Orders { inbox: Some(inbox), read: Consistency::Consistent },
            Event::Did(EffectOutcome::Registered(Ok(()))),
            Event::Did(EffectOutcome::Launched(Ok(()))),
        ] {
            let _ = life.on(event, now);
        }
        assert_eq!(life.on(Event::Tick, by), [Action::Do(Effect::End)]);
        let listens = life.on(Event::Listener(Observed::Listening { id: None }), by);
        assert_eq!(signals_in(&listens), []);
        let ended = life.on(Event::Did(EffectOutcome::Ended(EndOutcome::Gone)), by);
        assert_eq!(signals_in(&ended), [SignalKind::RegistrationFailed]);
    }
}
