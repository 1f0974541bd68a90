//! How the state machine follows its orders: from an assignment to a started listener, from a
//! withdrawal to an acknowledged removal.
//!
//! Not here: reactions to the listener (`listener`).

use bullpen_core::ids::Generation;
use bullpen_core::mailbox::agent::{Reaction, react};
use bullpen_core::mailbox::{
    Assignment, Inbox, Order, Signal, SignalKind, Withdrawal, WithdrawalMode,
};
use bullpen_core::request::stranger::RanJob;
use bullpen_core::time::Timestamp;

use super::{
    Action, AfterCleaning, AfterStop, AgentLife, Effect, SelfEndReason, Stage, Watched, is_late,
    job_started, signal,
};
use crate::runner::{EndOutcome, ListenerRefusal};

impl AgentLife {
    /// Keeps the order that the agent read, unless it knows a newer one.
    pub(super) fn note(&mut self, inbox: Option<Inbox>, now: Timestamp) {
        if let Some(inbox) = &inbox {
            self.offset.note(inbox.order.issued_at(), now);
        }
        let newest = self.rank();
        if let Some(inbox) = inbox
            && newest.is_none_or(|rank| inbox.order.rank() >= rank)
        {
            self.orders = Some(inbox);
        }
    }

    /// Acts on the latest order. `fresh` says that the agent has just read it consistently.
    pub(super) fn follow_orders(&mut self, fresh: bool, now: Timestamp, actions: &mut Vec<Action>) {
        let since = self.no_listener_since.unwrap_or(now);
        self.no_listener_since = self.acted.listener.is_none().then_some(since);
        if let Some(ran) = self.stranger.clone() {
            self.after_a_stranger(ran, fresh, now, actions);
            return;
        }
        let Some(rank) = self.rank() else { return };
        let busy = self.watched.job.is_some();
        match react(&self.acted, self.orders.as_ref(), busy, now) {
            Reaction::Wait => self.idle(fresh, now, actions),
            Reaction::AwaitJob(_) => {}
            // Do not end an earlier owner's job for a newer owner: without an acknowledgement the
            // claim fails, and the withdrawal that follows waits for the job.
            Reaction::Start(_) if busy => {}
            Reaction::Start(to) | Reaction::TooLate(to) if self.is_spent(&to) => {
                self.acted.done(rank);
                let detail = String::from("the listener is gone, and its credential is used");
                actions.push(signal(SignalKind::ListenerEnded, Some(&to), now, detail));
            }
            Reaction::Start(to) if self.acted.listener.is_some() => {
                self.enter(Stage::Stopping(AfterStop::Start(to)), Effect::End, actions);
            }
            Reaction::Start(to) => {
                self.begin(to, now, actions);
                if fresh {
                    self.confirm(now, actions);
                }
            }
            Reaction::Adopt(to) => self.adopt(to, now, actions),
            Reaction::TooLate(_) | Reaction::Drain(_) => self.acted.done(rank),
            Reaction::Remove(order) => {
                self.enter(Stage::Stopping(AfterStop::Remove(order)), Effect::End, actions);
            }
        }
    }

    /// Whether the agent cannot start a listener for this assignment: one ran before and is gone,
    /// or the credential is. The owner has to know.
    fn is_spent(&self, to: &Assignment) -> bool {
        let dead = self.dead_listener.as_ref().map(|listener| listener.generation);
        dead == Some(to.generation) || to.credential.is_none()
    }

    /// The machine has no owner. Past its deadline it ends, if a consistent read has just shown
    /// that it still has none.
    fn idle(&mut self, fresh: bool, now: Timestamp, actions: &mut Vec<Action>) {
        if self.idle_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        if fresh {
            self.leave(SelfEndReason::Idle, actions);
        } else {
            actions.push(Action::Read);
        }
    }

    /// When the machine ends if it gets no owner before.
    pub(super) fn idle_deadline(&self) -> Option<Timestamp> {
        let Some(Inbox { order: Order::Withdrawn(order), .. }) = &self.orders else { return None };
        if self.acted.listener.is_some() {
            return None;
        }
        let deadline = self.passed(order.idle_deadline);
        match order.mode {
            WithdrawalMode::Stop => Some(deadline),
            // A job may have run past the deadline; the owner then needs time to release the
            // machine.
            WithdrawalMode::Drain => {
                let since = self.no_listener_since.unwrap_or(deadline);
                Some(deadline.max(since.after(self.limits.release_acknowledgement)))
            }
        }
    }

    /// Acknowledges the assignment, and reads the inbox again before a runner can appear at GitHub.
    pub(super) fn begin(&mut self, to: Assignment, now: Timestamp, actions: &mut Vec<Action>) {
        actions.push(signal(SignalKind::Acknowledged, Some(&to), now, String::new()));
        actions.push(Action::Read);
        self.stage = Stage::Confirming(to);
    }

    /// Handles the consistent read: registers, unless a withdrawal has overtaken the assignment or
    /// its time to register is over.
    pub(super) fn confirm(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let Stage::Confirming(to) = &self.stage else { return };
        let to = to.clone();
        self.stage = Stage::Ready;
        if !self.is_latest(&to) {
            return;
        }
        if let Some(why) = self.cannot_register(&to, now) {
            self.fail(&to, &ListenerRefusal::here(why), now, actions);
            return;
        }
        actions.retain(|action| *action != Action::Read);
        self.enter(Stage::Registering(to.clone()), Effect::Register(to), actions);
    }

    /// Why the agent must not register a runner for this. A machine whose clock is behind does not
    /// know when its time to register is over: the control plane may have given it up already.
    fn cannot_register(&self, to: &Assignment, now: Timestamp) -> Option<String> {
        if let Some(behind) = self.offset.behind(self.limits.clock_skew)
            && to.register_by.is_some()
        {
            let behind = behind.as_secs();
            return Some(format!("the machine's clock is wrong: it is at least {behind} s behind"));
        }
        is_late(to, now).then(|| String::from("it could not be registered in time"))
    }

    pub(super) fn is_latest(&self, to: &Assignment) -> bool {
        self.rank() == Some(Order::Assigned(to.clone()).rank())
    }

    pub(super) fn registered(
        &mut self,
        to: Assignment,
        result: Result<(), ListenerRefusal>,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        let refused = result.err().or_else(|| {
            is_late(&to, now).then(|| ListenerRefusal::here("it was registered too late to listen"))
        });
        if let Some(refused) = refused {
            self.enter(Stage::Stopping(AfterStop::Fail(to, refused)), Effect::End, actions);
        } else if self.is_latest(&to) {
            self.acted.done(Order::Assigned(to.clone()).rank());
            self.acted.listener = Some(to.clone());
            self.watched = Watched::default();
            self.dead_listener = None;
            self.enter(Stage::Launching(to.clone()), Effect::Listen(to), actions);
        } else {
            self.enter(Stage::Stopping(AfterStop::Nothing), Effect::End, actions);
        }
    }

    fn adopt(&mut self, to: Assignment, now: Timestamp, actions: &mut Vec<Action>) {
        actions.push(signal(SignalKind::Acknowledged, Some(&to), now, String::new()));
        if self.watched.listening {
            actions.push(signal(SignalKind::Registered, Some(&to), now, String::new()));
        }
        if let Some(name) = &self.watched.job {
            let ran = self.watched.ran.clone();
            actions.push(job_started(Some(&to), now, name.clone(), ran));
        }
        self.acted.done(Order::Assigned(to.clone()).rank());
        // The inbox's copy may have lost its credential, by which `react` recognises a takeover.
        let kept = self.acted.listener.take().and_then(|listener| listener.credential);
        let listener = Assignment { credential: to.credential.clone().or(kept), ..to };
        self.acted.listener = Some(listener.clone());
        self.enter(Stage::Adopting(listener.clone()), Effect::Adopt(listener), actions);
    }

    pub(super) fn ended(
        &mut self,
        then: AfterStop,
        ended: EndOutcome,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        if ended == EndOutcome::Busy {
            self.keep_busy_listener(&then, now, actions);
            return;
        }
        self.acted.listener = None;
        self.watched = Watched::default();
        match then {
            AfterStop::Start(to) => {
                let clean = AfterCleaning::Start(to);
                self.enter(Stage::Cleaning(clean), Effect::Clean, actions);
            }
            AfterStop::Fail(to, refused) => self.fail(&to, &refused, now, actions),
            AfterStop::Remove(order) => {
                if let Some(token) = order.removal_token.clone() {
                    self.enter(Stage::Deregistering(order), Effect::Deregister(token), actions);
                } else {
                    let clean = AfterCleaning::Removed(order, String::new());
                    self.enter(Stage::Cleaning(clean), Effect::Clean, actions);
                }
            }
            AfterStop::Nothing => {}
            AfterStop::Stranger(to) => {
                let detail = String::from("it was given a job of another run");
                actions.push(signal(SignalKind::ListenerEnded, Some(&to), now, detail));
                self.dead_listener = Some(to);
            }
        }
    }

    /// GitHub started a job of another run here. The agent answers every order with that and
    /// acknowledges no removal, so every control plane can only end the machine.
    fn after_a_stranger(
        &mut self,
        ran: RanJob,
        fresh: bool,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        if let Some(to) = self.acted.listener.clone() {
            self.enter(Stage::Stopping(AfterStop::Stranger(to)), Effect::Kill, actions);
            return;
        }
        let Some(inbox) = self.orders.clone() else { return };
        let rank = inbox.order.rank();
        if self.acted.rank.is_some_and(|acted| acted >= rank) {
            self.idle(fresh, now, actions);
            return;
        }
        self.acted.done(rank);
        if let Order::Assigned(to) = &inbox.order {
            let why = ListenerRefusal::here("a job of another run was started on this machine");
            self.fail(to, &why, now, actions);
        }
        // A release asks about the latest assignment's generation.
        if let Action::Signal(kind, signal) = job_started(None, now, String::new(), Some(ran)) {
            actions.push(Action::Signal(kind, Signal { generation: inbox.assigned, ..signal }));
        }
    }

    /// The listener runs a job, so the agent did not end it. The agent follows its orders again
    /// after the job. A listener that seemed late did register, and the agent reports that now.
    fn keep_busy_listener(&mut self, then: &AfterStop, now: Timestamp, actions: &mut Vec<Action>) {
        if self.watched.job.is_none() {
            self.watched.job = Some(String::new());
        }
        if let AfterStop::Fail(to, _) = then
            && !self.watched.listening
        {
            self.watched.listening = true;
            actions.push(signal(SignalKind::Registered, Some(to), now, String::new()));
        }
    }

    pub(super) fn fail(
        &mut self,
        to: &Assignment,
        refused: &ListenerRefusal,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        self.acted.done(Order::Assigned(to.clone()).rank());
        // The owner of a listener that listened before an update waits for the end of a listener.
        let kind = if self.updated == Some(to.generation) {
            SignalKind::ListenerEnded
        } else {
            SignalKind::RegistrationFailed
        };
        actions.push(signal(kind, Some(to), now, refused.report()));
    }

    pub(super) fn removed(
        &mut self,
        order: &Withdrawal,
        detail: String,
        at: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        self.dead_listener = None;
        self.acted.done(Order::Withdrawn(order.clone()).rank());
        let generation: Generation = order.generation;
        let removed = Signal { generation, owner: None, at, detail, ran: None };
        actions.push(Action::Signal(SignalKind::Removed, removed));
    }
}
